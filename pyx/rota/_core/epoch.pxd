# The new epoch of a recovery: its number, the ids that it may give, its entry in the manifest.
from engine.status cimport rota_error

from rota._core.recovery cimport recovery

cdef int epoch_number(recovery *r, rota_error *error) noexcept nogil
cdef void ids_number(recovery *r) noexcept nogil
cdef int epoch_write(recovery *r, rota_error *error) noexcept nogil
cdef int epoch_fail(recovery *r, int status, rota_error *error) noexcept nogil
