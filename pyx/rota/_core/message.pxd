# A message in user hands: read from the log, claimed or only looked at.
from libc.stdint cimport uint8_t, uint32_t, uint64_t

from engine.control cimport rota_slot, rota_slot_ref
from engine.format cimport rota_commit_header, rota_frame

from rota._core.claim cimport Run
from rota._core.draft cimport Draft, Settle
from rota._core.reading cimport Reading
from rota._core.store cimport Store

cdef class Message:
    cdef Store store
    cdef readonly object queue
    cdef readonly uint64_t id
    cdef bytes _body
    cdef bytes _attributes
    cdef uint64_t _time_ns          # 0: to be found
    cdef rota_commit_header _header # as it was read, not checked
    cdef Run run
    cdef uint8_t state       # 0 looked at, 1 claimed, 2 settled, 3 claimed by a transaction
    cdef object transaction
    cdef object batch        # of which it is a part, for the marks
    cdef uint64_t slot
    cdef int load(self, bint mark) except -1
    cdef int find_time(self) except -1
    cdef int claimed(self) except -1
    cdef int note(self, str reason) except -1
    cdef int back(self, object delay, uint64_t excused) except -1

cdef int fill_settle(Settle *settle, const Run *run, uint64_t first_id, uint64_t last_id, uint32_t count,
                     bint whole) noexcept nogil
cdef int submit_settle(Store store, Draft *draft, object durability) except -1
cdef int park_corrupt(Store store, const Run *run, uint64_t id) except -1
cdef Message new_message(Store store, object queue, const Run *run, uint64_t id, rota_slot_ref ref)
