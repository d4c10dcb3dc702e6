# What an append needs from outside the lock, and appending where nobody waits for a signal.
from libc.stdint cimport uint32_t

from engine.handle cimport rota_handle
from engine.status cimport rota_error

from rota._core.append cimport Placed
from rota._core.draft cimport Draft

cdef int append_provide(rota_handle *h, const Draft *draft, int space, Placed *placed, bint patient,
                        rota_error *error) noexcept nogil
cdef int append_pages(rota_handle *h, uint32_t need, bint patient, rota_error *error) noexcept nogil
cdef int append_commit(rota_handle *h, Draft *draft, int space, Placed *placed, rota_error *error) noexcept nogil
cdef int append_mark(rota_handle *h, uint32_t flags, Placed *placed, rota_error *error) noexcept nogil
cdef int grow_refused(rota_error *error) noexcept nogil
