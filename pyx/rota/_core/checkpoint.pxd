# A checkpoint: an image of the control file in the log, so that the log before it may go.
#
#     checkpoint            take one now; ROTA_FULL when its blocks find no room
#     checkpoint_at_close   take one if enough was logged since the last
#     checkpoint_holding    the same for one who holds the job lock
#     checkpoint_gains      whether one would free a segment (a hint, without a lock)
#     checkpoint_fits       whether one would still find room after so many more bytes
#     note_reached          let the manifest know how far the durable log reached
#     job_enter, job_slice, job_leave  the lock that checkpoint, copying and freeing share
from libc.stdint cimport uint64_t

from engine.handle cimport rota_handle
from engine.status cimport rota_error

cdef int checkpoint(rota_handle *h, rota_error *error) noexcept nogil
cdef int checkpoint_at_close(rota_handle *h, rota_error *error) noexcept nogil
cdef int checkpoint_holding(rota_handle *h, rota_error *error) noexcept nogil
cdef int note_reached(rota_handle *h, bint patient, rota_error *error) noexcept nogil
cdef bint checkpoint_gains(rota_handle *h) noexcept nogil
cdef bint checkpoint_fits(rota_handle *h, uint64_t more) noexcept nogil

cdef enum:
    JOB_SLICES = 1200   # of 50 ms, a minute: a large checkpoint takes its time

cdef int job_slice(rota_handle *h, rota_error *error) noexcept nogil
cdef int job_refused(rota_handle *h, rota_error *error) noexcept nogil
cdef int job_enter(rota_handle *h, rota_error *error) noexcept nogil
cdef void job_leave(rota_handle *h) noexcept nogil
