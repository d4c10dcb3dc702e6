# The end of messages that expired.
from libc.stdint cimport uint32_t

from engine.control cimport rota_queue
from engine.handle cimport rota_handle
from engine.status cimport rota_error

cdef int sweep_expired(rota_handle *h, rota_queue *queue, uint32_t *expired, rota_error *error) noexcept nogil
