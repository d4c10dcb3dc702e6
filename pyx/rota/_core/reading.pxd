from libc.stdint cimport uint8_t, uint16_t, uint32_t, uint64_t

from engine.control cimport rota_slot_ref
from engine.format cimport rota_commit_header, rota_frame

from rota._core.store cimport Store

# What a reader remembers of the last commit, so that a batch checks it once.
ctypedef struct Reading:
    const uint8_t *commit
    rota_commit_header header
    rota_frame frame

cdef bytes read_slot(Store store, rota_slot_ref ref, uint64_t id, Reading *reading)
