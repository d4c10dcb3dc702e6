# Putting: one message, many, rows of an array; receipts.
from libc.stdint cimport uint8_t, uint16_t, uint32_t, uint64_t

from rota._core.draft cimport Draft
from rota._core.store cimport Store

cdef class Receipt:
    cdef Store store
    cdef readonly uint64_t id
    cdef readonly uint64_t count
    cdef readonly uint64_t lsn
    cdef readonly bint duplicate

cdef Receipt new_receipt(Store store, uint64_t base_id, uint64_t count, uint64_t lsn)
cdef Receipt finish(Store store, Draft *draft, uint32_t queue_number, uint64_t created, double deadline,
                    object durability)
cdef Receipt put_one(Store store, uint32_t queue, uint64_t created, bytes body, double deadline, object durability)
cdef Receipt put_full(Store store, uint32_t queue, uint64_t created, object body, bytes attributes, uint32_t priority, uint8_t flags,
                      double deadline, object durability)
cdef Receipt put_list(Store store, uint32_t queue, uint64_t created, object bodies, uint32_t priority, double deadline,
                      object durability, object compression)
cdef Receipt put_rows(Store store, uint32_t queue, uint64_t created, object array, double deadline, object durability)
cdef uint64_t commit_limit(Store store) noexcept
cdef int too_large(Store store, uint64_t size, bint single) except -1
cdef int add_message(Store store, Draft *draft, uint32_t queue, object body, bytes attributes, uint32_t priority,
                     uint8_t flags) except -1
