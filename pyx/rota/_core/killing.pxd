# Killing a message by its id.
from libc.stdint cimport uint8_t, uint16_t, uint32_t, uint64_t

from engine.control cimport *
from engine.format cimport rota_op
from engine.handle cimport rota_handle
from engine.status cimport rota_error

from rota._core.draft cimport Draft
from rota._core.store cimport Store

# What is known of an id.
cdef enum:
    MESSAGE_UNKNOWN = 0  # never given out, or so long ago that nothing tells
    MESSAGE_LIVE = 1
    MESSAGE_KILLED = 2
    MESSAGE_ENDED = 3    # acked, or expired and dropped

cdef int locate(Store store, uint32_t queue, uint64_t id, uint32_t *where) except -1
cdef object kill_message(Store store, uint32_t queue, str name, uint64_t id)
