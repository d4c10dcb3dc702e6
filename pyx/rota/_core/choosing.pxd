# Hand-outs of a message that was chosen.
from engine.control cimport rota_queue
from engine.handle cimport rota_handle
from engine.status cimport rota_error

from rota._core.claim cimport Claimed, Run, Wanted

cdef int claim_chosen(rota_handle *h, rota_queue *queue, const Wanted *wanted, Run *run, Claimed *claimed,
                      rota_error *error) noexcept nogil
