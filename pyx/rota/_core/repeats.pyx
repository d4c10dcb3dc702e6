"""How soon keys come again: what deduplication would be good for.

What holds: one mebibyte, whatever comes; see engine/include/rota/repeats.h for what is exact and what is estimated.
"""

cimport cython
from cpython.mem cimport PyMem_RawCalloc, PyMem_RawFree
from libc.stdint cimport uint32_t, uint64_t

from engine.repeats cimport *

from rota._core.crowd cimport Crowd
from rota._core.keys cimport name_of
from rota._core.platform cimport table as platform_table

from rota.statistics import RepeatShares

cdef enum:
    QUEUE_LENGTH_MAX = 32768
    SERVICE_LENGTH_MAX = 16384


@cython.final
cdef class RepeatProfile:
    """Measures the repeat length of the requests in a stream of keys: how many requests lie between two of one key.

    A repeat within `queue_length` requests is high, a later one sparse; the last request of a key is none (classes of
    the queue-programming article, Meituan).  Only high repeats gain from deduplication.  `service_length` is the time
    that one request takes, in requests that arrive meanwhile; what a Coordinator would save is found by replay.  Keys
    are those of a Coordinator.  Takes 1 MiB, for streams of any length.
    """

    cdef rota_repeats *repeats

    def __cinit__(self):
        self.repeats = <rota_repeats *>PyMem_RawCalloc(1, sizeof(rota_repeats))
        if self.repeats is NULL:
            raise MemoryError

    def __init__(self, queue_length: int = 1000, service_length: int = 100):
        if not 1 <= queue_length <= QUEUE_LENGTH_MAX:
            raise ValueError(f"queue_length is {queue_length}; it is from 1 to {QUEUE_LENGTH_MAX} requests")
        if not 1 <= service_length <= SERVICE_LENGTH_MAX:
            raise ValueError(f"service_length is {service_length}; it is from 1 to {SERVICE_LENGTH_MAX} requests")
        self.repeats.queue_length = queue_length
        self.repeats.service_length = service_length
        if platform_table().random(platform_table(), self.repeats.secret, 16) != 0:
            raise OSError("the system gives no random bytes for the names of keys")

    def __dealloc__(self):
        PyMem_RawFree(self.repeats)

    def add(self, key, /):
        """One request, for this key: bytes, str or an integer."""
        rota_repeats_add(self.repeats, name_of(self.repeats.secret, key))

    def add_many(self, keys, /):
        """Requests in the order of a NumPy array of integers or of bytes of a fixed size."""
        cdef Crowd crowd = Crowd(keys)
        cdef uint64_t begin = 0
        cdef uint32_t i
        while begin < crowd.count:
            crowd.load(self.repeats.secret, begin)
            for i in range(crowd.chunk.count):
                rota_repeats_add(self.repeats, crowd.chunk.names[i])
            begin += crowd.chunk.count

    def shares(self):
        """What was found so far: `RepeatShares`."""
        cdef uint64_t requests = self.repeats.requests
        if requests == 0:
            return RepeatShares(0, 0, 0.0, 0.0, 0.0, 0.0)
        high = self.repeats.near / <double>requests
        distinct = min(round(rota_repeats_distinct(self.repeats)), requests - self.repeats.near)
        none = distinct / <double>requests
        return RepeatShares(requests, distinct, none, max(0.0, 1.0 - high - none), high,
                            self.repeats.declined / <double>requests)
