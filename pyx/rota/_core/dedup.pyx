"""The keys of puts that a queue remembers, so that the same key is not put again: the DEDUP operation.

What holds:

1. A key is known by a digest of 128 bits.  A record says which message it came with; another, by a number that rises
   with each key of the queue, says when: the oldest is the first to be forgotten.
2. A window by count forgets the oldest when one comes in; a window by time forgets up to EVICTED_MAX of what is over
   with each one that comes in, and what is over counts for nothing before that.  All of it follows from the log.
3. Ids of one queue's puts rise, so an id that is not above the last one was entered before: a repeat changes nothing,
   nor does it bring back what was forgotten since.
4. All queues together remember at most a hundredth of the capacity.

Everything here runs under the main lock, or alone.
"""

from libc.string cimport memcpy

from engine.control cimport *
from engine.crc32c cimport rota_mix64
from engine.format cimport *
from engine.pool cimport *
from engine.scan cimport rota_op_begin, rota_op_cursor, rota_op_next
from engine.status cimport *
from engine.term cimport rota_index_window

from rota._core.lane cimport queue_at

cdef enum:
    EVICTED_MAX = 2
    RECORD_BYTES = 64   # of both tables
    SEQUENCE_BITS = 48


cdef inline uint64_t table_key(uint32_t number, uint64_t a) noexcept nogil:
    cdef uint64_t key = rota_mix64(a ^ rota_mix64(<uint64_t>number + 1))
    return key if key else 1


cdef inline uint64_t order_key(uint32_t number, uint64_t sequence) noexcept nogil:
    return <uint64_t>(number + 1) << SEQUENCE_BITS | sequence


cdef rota_record *key_at(rota_handle *h, uint32_t number, uint64_t sequence) noexcept nogil:
    """The digest and the time of that sequence, or NULL: it was forgotten."""
    return rota_table_find(h, &h.control.tables[ROTA_TABLE_KEY_ORDER], order_key(number, sequence))


cdef rota_record *key_find(rota_handle *h, uint32_t number, uint64_t a, uint64_t b) noexcept nogil:
    """What is known of a key, in the window or not yet forgotten, or NULL."""
    cdef rota_record *record = rota_table_find(h, &h.control.tables[ROTA_TABLE_KEYS], table_key(number, a))
    return record if record != NULL and record.c == b else NULL


cdef bint is_over(rota_handle *h, const rota_queue *queue, uint64_t put_ns) noexcept nogil:
    """Whether what was put then is out of the window by time.  Time never runs backwards: as in the log."""
    cdef uint64_t window_ns = 0, now = h.os.clock_wall_coarse_ns(h.os)
    cdef uint32_t count = 0
    if not rota_index_window(queue.index_text, queue.index_bytes, &window_ns, &count) or window_ns == 0:
        return False
    if now < h.control.log.time_ns:
        now = h.control.log.time_ns
    return now >= put_ns and now - put_ns >= window_ns


cdef rota_record *key_fresh(rota_handle *h, const rota_queue *queue, uint64_t a, uint64_t b) noexcept nogil:
    """What is known of a key whose window is not over, or NULL: a put with it adds a message."""
    cdef rota_record *record = key_find(h, queue.number, a, b)
    cdef rota_record *order = key_at(h, queue.number, record.b) if record != NULL else NULL
    return record if order != NULL and not is_over(h, queue, order.c) else NULL


cdef inline void save_keys(rota_handle *h, rota_queue *queue) noexcept nogil:
    rota_save_once(h, &h.control.tables[ROTA_TABLE_KEYS])
    rota_save_once(h, &h.control.tables[ROTA_TABLE_KEY_ORDER])
    rota_save_once(h, &queue.key_first)


cdef void drop_key(rota_handle *h, rota_queue *queue, uint64_t sequence) noexcept nogil:
    """Forget one; the lines of tables and queue are saved."""
    cdef rota_record *order = key_at(h, queue.number, sequence)
    cdef rota_record *record
    if order == NULL:
        return
    record = key_find(h, queue.number, order.a, order.b)
    if record != NULL and record.b == sequence:
        rota_table_remove(h, &h.control.tables[ROTA_TABLE_KEYS], table_key(queue.number, order.a))
    rota_table_remove(h, &h.control.tables[ROTA_TABLE_KEY_ORDER], order_key(queue.number, sequence))
    queue.key_count -= 1


cdef rota_record *oldest_key(rota_handle *h, const rota_queue *queue, uint64_t *sequence) noexcept nogil:
    """The oldest that is remembered, or NULL."""
    cdef rota_record *order = NULL
    sequence[0] = queue.key_first
    while sequence[0] < queue.key_next:
        order = key_at(h, queue.number, sequence[0])
        if order != NULL:
            break
        sequence[0] += 1
    return order


cdef void make_way(rota_handle *h, rota_queue *queue, uint32_t count, uint64_t window_ns, uint64_t now) noexcept nogil:
    """Forget the oldest: those beyond the count, and some of those whose time is over."""
    cdef rota_record *order
    cdef uint64_t sequence
    cdef uint32_t over = 0
    while True:
        order = oldest_key(h, queue, &sequence)
        queue.key_first = sequence
        if order == NULL:
            return
        if count == 0 or queue.key_count < count:
            if window_ns == 0 or over == EVICTED_MAX or order.c + window_ns > now:
                return
            over += 1
        drop_key(h, queue, sequence)


cdef int enter_key(rota_handle *h, rota_queue *queue, uint64_t a, uint64_t b, uint64_t id,
                   uint64_t time_ns) noexcept nogil:
    """Remember a key that came with that message.  ROTA_DISK_FULL: there was no room, which was asked before."""
    cdef rota_record *record
    cdef uint64_t window_ns = 0
    cdef uint32_t count = 0
    if id <= queue.key_last_id \
            or not rota_index_window(queue.index_text, queue.index_bytes, &window_ns, &count):
        return ROTA_OK
    save_keys(h, queue)
    record = key_find(h, queue.number, a, b)
    if record != NULL:
        drop_key(h, queue, record.b)
    make_way(h, queue, count, window_ns, time_ns)
    record = rota_table_put(h, &h.control.tables[ROTA_TABLE_KEYS], table_key(queue.number, a))
    if record == NULL:
        return ROTA_DISK_FULL
    record.a = id
    record.b = queue.key_next
    record.c = b
    record = rota_table_put(h, &h.control.tables[ROTA_TABLE_KEY_ORDER], order_key(queue.number, queue.key_next))
    if record == NULL:
        return ROTA_DISK_FULL
    record.a = a
    record.b = b
    record.c = time_ns
    queue.key_next += 1
    queue.key_count += 1
    queue.key_last_id = id
    return ROTA_OK


cdef int apply_key(rota_handle *h, const rota_op *op, const uint8_t *extra,
                   const rota_commit_header *header) noexcept nogil:
    cdef rota_queue *queue = queue_at(h, op.queue)
    cdef rota_record *record
    cdef uint64_t time_ns = header.time_ns
    if queue == NULL or queue.created_lsn > header.lsn:  # a checkpoint may know a later queue of this number
        return ROTA_OK
    if op.detail == ROTA_DEDUP_FORGET:
        record = key_find(h, op.queue, op.a, op.b)
        if record != NULL and record.a == op.id:
            save_keys(h, queue)
            drop_key(h, queue, record.b)
        return ROTA_OK
    if op.extra_bytes == 8:
        memcpy(&time_ns, extra, 8)
    return enter_key(h, queue, op.a, op.b, header.base_id + op.id if op.detail == ROTA_DEDUP_OWN_PUT else op.id, time_ns)


cdef void keys_drop(rota_handle *h, rota_queue *queue) noexcept nogil:
    """What a queue that goes remembers goes with it."""
    cdef uint64_t sequence
    if queue.key_count == 0:
        return
    save_keys(h, queue)
    for sequence in range(queue.key_first, queue.key_next):
        drop_key(h, queue, sequence)


# --- admitting -------------------------------------------------------------------------------------------------------


cdef bint has_room(rota_handle *h, const rota_queue *queue, uint32_t count, uint32_t more) noexcept nogil:
    """Whether one more may be remembered: another one goes, or all of them stay within their share."""
    cdef uint64_t limit = h.control.capacity // 100 // RECORD_BYTES, sequence
    cdef const rota_record *order
    if limit > ROTA_TABLE_RECORDS_MAX:
        limit = ROTA_TABLE_RECORDS_MAX
    if h.control.tables[ROTA_TABLE_KEYS].count + more <= limit or (count and queue.key_count >= count):
        return True
    order = oldest_key(h, queue, &sequence)
    return order != NULL and is_over(h, queue, order.c)


cdef int admit_keys(rota_handle *h, const Draft *draft, rota_error *error) noexcept nogil:
    """Whether no key that is to be entered is known, and there is room to remember it."""
    cdef rota_op_cursor cursor
    cdef rota_op op
    cdef const uint8_t *extra
    cdef const rota_queue *queue
    cdef const rota_record *known
    cdef uint64_t window_ns = 0
    cdef uint32_t count = 0
    rota_op_begin(&cursor, draft.bytes, <rota_commit_header *>draft.bytes)
    cursor.left = draft.op_bytes
    cursor.count = draft.op_count
    while rota_op_next(&cursor, &op, &extra):
        queue = queue_at(h, op.queue) if op.kind == ROTA_OP_DEDUP and op.detail == ROTA_DEDUP_OWN_PUT else NULL
        if queue == NULL:
            continue
        if not rota_index_window(queue.index_text, queue.index_bytes, &window_ns, &count):
            return rota_fail(error, ROTA_STATE, NULL, 0, "this queue remembers no keys of puts: make it with "
                             "dedup_window= or dedup_count=")
        known = key_fresh(h, queue, op.a, op.b)
        if known != NULL:
            return rota_fail_compared(error, ROTA_CONFLICT, NULL, 0, known.a, 0, "a message with the same dedup key "
                                      "was put meanwhile, nothing was written: try again, and the put is a duplicate")
        if not has_room(h, queue, count, draft.deduping):
            return rota_fail(error, ROTA_FULL, NULL, 0, "the dedup keys of all queues take a hundredth of the "
                             "capacity (%u keys): use shorter windows, forget() some, or a larger repository",
                             h.control.tables[ROTA_TABLE_KEYS].count)
    return ROTA_OK
