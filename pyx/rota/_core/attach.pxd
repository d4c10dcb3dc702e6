# Attaching a process to a repository, and detaching it.
from libc.stdint cimport uint64_t

from engine.handle cimport rota_handle
from engine.status cimport rota_error

# How long one waits for those who open or close.
cdef enum:
    GATE_A_SLICE = 0    # of 50 ms, then ROTA_TIMEOUT
    GATE_PATIENT = 1    # a minute
    GATE_GIVE_UP = 2    # a slice, then without: whoever is there next takes over what was held
    GATE_CALLS = 1200   # slices of a minute

cdef int attach(rota_handle *h, bint create, rota_error *error) noexcept nogil
cdef int detach(rota_handle *h, bint orderly, int waits, rota_error *error) noexcept nogil
cdef uint64_t messages_live(rota_handle *h) noexcept nogil
cdef int gate_refused(rota_error *error) noexcept nogil
