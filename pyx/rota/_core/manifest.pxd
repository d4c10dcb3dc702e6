# The manifest: what the repository is, where its epochs start, where its checkpoint lies.
#
#     manifest_create  the first generation, from h.manifest as the caller filled it
#     manifest_read    the newest generation into h.manifest
#     manifest_write   the next generation: everything of `following` but magic, sequence and checksum
#     manifest_refresh the newest generation once more, after a failed sync
from engine.format cimport rota_manifest_sector
from engine.handle cimport rota_handle
from engine.status cimport rota_error

cdef int manifest_create(rota_handle *h, rota_error *error) noexcept nogil
cdef int manifest_read(rota_handle *h, rota_error *error) noexcept nogil
cdef int manifest_write(rota_handle *h, rota_manifest_sector *following, rota_error *error) noexcept nogil
cdef int manifest_refresh(rota_handle *h, rota_error *error) noexcept nogil
cdef int manifest_choose(const rota_manifest_sector *sectors, int *newest, rota_error *error) noexcept nogil
