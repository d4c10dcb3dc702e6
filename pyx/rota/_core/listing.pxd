from libc.stdint cimport uint8_t, uint16_t, uint32_t, uint64_t

from engine.control cimport rota_queue

from rota._core.store cimport Store

cdef list list_ids(Store store, rota_queue *queue, uint64_t after, uint32_t limit)
