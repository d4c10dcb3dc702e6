# The manifest: what the repository is, where its epochs start, where its checkpoint lies.
#
#     manifest_create  the first generation, from h.manifest as the caller filled it
#     manifest_read    the newest generation into h.manifest
#     manifest_write   the next generation: everything of `following` but magic, sequence and checksum
#     manifest_turns   how many turns of the log hold commits below a position
#     manifest_reached a position that was proven by the turns that the manifest says were reached
#     manifest_reach   raise the turns that were reached
#     manifest_refresh the newest generation once more, after a failed sync
from libc.stdint cimport uint32_t, uint64_t

from engine.format cimport rota_manifest_sector
from engine.handle cimport rota_handle
from engine.status cimport rota_error

cdef int manifest_create(rota_handle *h, rota_error *error) noexcept nogil
cdef int manifest_read(rota_handle *h, rota_error *error) noexcept nogil
cdef int manifest_write(rota_handle *h, rota_manifest_sector *following, rota_error *error) noexcept nogil
cdef uint32_t manifest_turns(const rota_manifest_sector *manifest, uint64_t lsn) noexcept nogil
cdef uint64_t manifest_reached(const rota_manifest_sector *manifest) noexcept nogil
cdef int manifest_reach(rota_handle *h, uint64_t durable_lsn, rota_error *error) noexcept nogil
cdef int manifest_refresh(rota_handle *h, rota_error *error) noexcept nogil
cdef int manifest_choose(const rota_manifest_sector *sectors, int *newest, rota_error *error) noexcept nogil
