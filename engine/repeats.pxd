# What `rota/repeats.h` declares, for Cython; the header says what it means.
from libc.stdint cimport uint64_t

from engine.automaton cimport rota_key_name

cdef extern from "rota/repeats.h" nogil:
    ctypedef struct rota_repeats:
        uint64_t *secret
        uint64_t requests
        uint64_t near
        uint64_t declined
        uint64_t queue_length
        uint64_t service_length

    void rota_repeats_add(rota_repeats *r, rota_key_name name) noexcept
    double rota_repeats_distinct(const rota_repeats *r) noexcept
