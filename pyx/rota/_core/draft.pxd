# A commit while it is built: private memory, encoded outside the lock.
from libc.stdint cimport uint8_t, uint16_t, uint32_t, uint64_t

from engine.handle cimport rota_handle

# What a message needs beside its body.
ctypedef struct Envelope:
    const uint8_t *attributes
    uint32_t attribute_bytes
    uint16_t queue
    uint8_t priority
    uint8_t flags

# Settling a claim, or a part of it: checked under the lock, applied to the claim after the commit.
ctypedef struct Settle:
    uint32_t claim
    uint32_t generation
    uint64_t first_id
    uint64_t last_id
    uint32_t count
    uint16_t queue
    uint8_t level
    uint8_t whole       # a range that nobody returned a part of: one operation names it
    uint64_t ref        # where its slot was, 0: not known
    uint8_t reaper      # by whoever takes over, not by the holder
    uint64_t token_generation   # under which it was claimed, 0 and 0: none
    uint64_t token_number
    uint8_t strict      # of a transaction: a message of the range that was killed refuses all

ctypedef struct Draft:
    uint8_t *bytes      # the commit; the header's 96 bytes are stamped under the lock
    uint64_t size       # of the memory
    uint64_t length     # of the commit, final after draft_seal
    uint8_t *ops        # while building
    uint64_t ops_size
    uint64_t op_bytes
    uint8_t *frames
    uint64_t frames_size
    uint8_t *data
    uint64_t data_size
    uint64_t data_bytes
    Settle *settles
    uint32_t settle_size
    uint32_t settle_count
    uint32_t op_count
    uint32_t growing    # operations that may take pages of the pool, puts aside
    uint32_t registering    # operations on registrations: each may take a small page
    uint32_t message_count
    uint32_t index_pages    # large pages that the indexes of its queues may need; set by admit
    uint32_t flags
    uint32_t salt_crc
    uint32_t failed     # a status: memory ran out, or too large
    uint32_t owned      # bytes is ours to free
    uint64_t token_generation
    uint64_t token_number
    uint64_t put_bytes
    uint64_t queue_created  # of the queue that is meant, 0: not asked; a number may have been given to another
    uint64_t *put_created   # the same for each PUT, of a transaction; NULL: not asked
    uint64_t put_created_size
    uint32_t put_count
    uint32_t deduping       # operations on keys that suppress duplicates
    uint32_t answer_count   # the last messages: replies that the engine gives
    uint64_t answer_data    # bytes of data before them
    uint32_t end_count      # operations that kill or expire: admitted only if each of them ends a message

cdef void draft_begin(Draft *draft, rota_handle *h) noexcept nogil
cdef int draft_op(Draft *draft, uint8_t kind, uint8_t detail, uint16_t queue, uint64_t id, uint64_t a, uint64_t b,
                  const void *extra, uint32_t extra_bytes) noexcept nogil
cdef int draft_message(Draft *draft, const Envelope *envelope, const void *body, uint64_t length,
                       uint64_t explicit_id) noexcept nogil
cdef int draft_data(Draft *draft, const void *bytes, uint64_t length) noexcept nogil
cdef int draft_settle(Draft *draft, const Settle *settle) noexcept nogil
cdef int draft_created(Draft *draft, uint64_t created) noexcept nogil
cdef void draft_restart(Draft *draft) noexcept nogil
cdef void draft_reset(Draft *draft, rota_handle *h) noexcept nogil
cdef void take_draft(Draft *draft, rota_handle *h) noexcept
cdef void give_draft(Draft *draft) noexcept
cdef int draft_seal(Draft *draft) noexcept nogil
cdef void draft_end(Draft *draft) noexcept nogil
cdef uint64_t message_room(uint64_t attribute_bytes, uint64_t length) noexcept nogil
