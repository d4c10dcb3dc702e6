"""The index of a queue: lists of messages by the value of a field, in the order of their arrival.

What holds (all of it under the main lock, inside an undo section):

1. The table VALUES has the first and last message of each list, POSTINGS one record for each field of a message with
   its neighbours, so adding and removing cost the same however long the list is.
2. Neighbours are named by their slots, which stay where they are while they live.  A list belongs to one lane;
   messages are added at its end.  The slot of a message that is in a list is KEYED, and it leaves all its lists when it
   ends or moves.
3. Terms are hashes (term.h): a list may hold another value, once in 2^60, so what is found is compared.
4. The index is derived: the log has the attributes, the operation of a move the terms for its target, and a checkpoint
   the terms of what lives, so loading reads no frame.
5. In a queue of order "group" a message with a key is never FRESH, so no range of ids ever spans or settles it: only
   the head of its list is ready, the others are WAITING (slots.pyx).
"""

from libc.string cimport memcmp, memcpy

from engine.control cimport *
from engine.crc32c cimport rota_mix64
from engine.format cimport *
from engine.pool cimport *
from engine.scan cimport rota_op_begin, rota_op_cursor, rota_op_next
from engine.status cimport *
from engine.term cimport *

from rota._core.lane cimport queue_at


# --- definitions and terms -------------------------------------------------------------------------------------------


cdef int queue_index(rota_handle *h, rota_queue *queue, const uint8_t *text, uint32_t length) noexcept nogil:
    """Take the definitions of a queue that is made or changed.  The line of its number is saved."""
    cdef int mask = rota_index_mask(text, length, queue.options.order)
    cdef uint32_t line
    if mask < 0:
        return ROTA_CORRUPT
    rota_save_once(h, &h.control.pool_limit)
    h.control.indexed_queues += <uint32_t>(mask != 0)
    h.control.indexed_queues -= <uint32_t>(queue.index_mask != 0)
    queue.index_mask = <uint32_t>mask
    if queue.index_bytes != length or memcmp(queue.index_text, text, length) != 0:
        for line in range(ROTA_INDEX_BYTES_MAX // 64):
            rota_save_once(h, queue.index_text + 64 * line)
        memcpy(queue.index_text, text, length)
        queue.index_bytes = length
    return ROTA_OK


cdef void queue_terms(rota_handle *h, const rota_queue *queue, const uint8_t *attributes, uint32_t attribute_bytes,
                      rota_terms *terms) noexcept nogil:
    """The terms of a message with these attributes in that queue."""
    rota_terms_find(h.salt, queue.index_text, queue.index_bytes, queue.index_mask, attributes, attribute_bytes, terms)


cdef void read_terms(const uint8_t *extra, uint32_t length, rota_terms *terms) noexcept nogil:
    """What write_terms() wrote; terms of bits that the format does not have are passed over."""
    cdef uint32_t at = 0
    cdef uint64_t term
    terms.count = 0
    terms.has_score = 0
    terms.score = 0
    while at + 8 <= length and terms.count < ROTA_TERM_COUNT_MAX - 1:
        memcpy(&term, extra + at, 8)
        at += 8
        if term & 15 == ROTA_TERM_SCORE:
            if at + 8 <= length:
                memcpy(&terms.score, extra + at, 8)
                terms.has_score = 1
            at += 8
        else:
            terms.terms[terms.count] = term
            terms.count += 1


cdef uint32_t write_terms(const rota_terms *terms, uint8_t *extra) noexcept nogil:
    """Terms as the extra of a MOVE; at most MOVE_TERMS_BYTES."""
    cdef uint64_t mark = ROTA_TERM_SCORE
    cdef uint32_t at = terms.count * 8
    memcpy(extra, terms.terms, at)
    if terms.has_score:
        memcpy(extra + at, &mark, 8)
        memcpy(extra + at + 8, &terms.score, 8)
        at += 16
    return at


cdef double age_rate_of(const rota_queue *queue) noexcept nogil:
    cdef rota_index_cursor cursor
    cdef rota_index_field field
    rota_index_begin(&cursor, queue.index_text, queue.index_bytes)
    while rota_index_next(&cursor, &field):
        if field.ordinal == ROTA_TERM_SCORE:
            return field.age_rate
    return 0


# --- lists -----------------------------------------------------------------------------------------------------------


cdef inline uint64_t list_key(uint32_t queue, uint32_t level, uint64_t term) noexcept nogil:
    cdef uint64_t key = rota_mix64(term ^ rota_mix64(<uint64_t>(queue + 1) << 4 | level))
    return key if key else 1


cdef rota_record *posting_of(rota_handle *h, uint64_t id, uint32_t ordinal) noexcept nogil:
    return rota_table_find(h, &h.control.tables[ROTA_TABLE_POSTINGS], id << 4 | ordinal)


cdef rota_record *posting_at(rota_handle *h, rota_slot_ref slot, uint32_t ordinal) noexcept nogil:
    return posting_of(h, rota_slot_at(h, slot).id, ordinal)


cdef rota_record *values_of(rota_handle *h, uint32_t queue, uint32_t level, uint64_t term) noexcept nogil:
    return rota_table_find(h, &h.control.tables[ROTA_TABLE_VALUES], list_key(queue, level, term))


cdef inline void save_tables(rota_handle *h) noexcept nogil:
    rota_save_once(h, &h.control.tables[ROTA_TABLE_VALUES])
    rota_save_once(h, &h.control.tables[ROTA_TABLE_POSTINGS])


cdef bint is_head(rota_handle *h, uint64_t id) noexcept nogil:
    """Whether no older message of its key lives (in a queue of order "group")."""
    cdef const rota_record *posting = posting_of(h, id, KEY_ORDINAL)
    return posting == NULL or posting.b == 0


cdef int note_blocked(rota_handle *h, const Found *found, uint64_t count) noexcept nogil:
    """A key got its second message: make room for the push that the end of the first one will be."""
    if found.queue.options.order != ROTA_ORDER_GROUP or count != 2:
        return ROTA_OK
    rota_save_once(h, &found.queue.due)
    found.queue.blocked_keys += 1
    rota_save_once(h, &found.lane.cursor)
    return ROTA_OK if rota_heap_reserve(h, &found.lane.heap, found.queue.blocked_keys) == 0 else ROTA_DISK_FULL


cdef int link_term(rota_handle *h, const Found *found, uint64_t term) noexcept nogil:
    """Add a message at the end of one list."""
    cdef uint64_t id = found.slot.id
    cdef rota_slot_ref ref = rota_ref(found.number, found.index)
    cdef uint32_t ordinal = <uint32_t>(term & 15)
    cdef rota_record *values
    cdef rota_record *posting
    cdef rota_record *last
    save_tables(h)
    posting = rota_table_put(h, &h.control.tables[ROTA_TABLE_POSTINGS], id << 4 | ordinal)
    if posting != NULL and posting.a:
        return ROTA_OK  # it is in a list of this field
    values = rota_table_put(h, &h.control.tables[ROTA_TABLE_VALUES],
                            list_key(found.queue.number, found.level, term))
    if values == NULL or posting == NULL:
        return ROTA_DISK_FULL
    posting.a = term
    posting.b = values.b
    if values.b:
        last = posting_at(h, values.b, ordinal)
        if last != NULL:
            rota_save_once(h, last)
            last.c = ref
    else:
        values.a = ref
    values.b = ref
    values.c += 1
    return note_blocked(h, found, values.c) if ordinal == KEY_ORDINAL else ROTA_OK


cdef int link_place(rota_handle *h, uint64_t id, uint64_t place) noexcept nogil:
    """Note the place of a message in a queue that is ordered by value."""
    cdef rota_record *posting
    save_tables(h)
    posting = rota_table_put(h, &h.control.tables[ROTA_TABLE_POSTINGS], id << 4 | ROTA_TERM_SCORE)
    if posting == NULL:
        return ROTA_DISK_FULL
    posting.a = place
    return ROTA_OK


cdef int link_terms(rota_handle *h, const Found *found, const rota_terms *terms, uint64_t arrival_ns) noexcept nogil:
    """Add a message to all its lists; its slot is KEYED by the caller."""
    cdef uint32_t i
    cdef int status
    for i in range(terms.count):
        if found.queue.index_mask >> (terms.terms[i] & 15) & 1:
            status = link_term(h, found, terms.terms[i])
            if status != ROTA_OK:
                return status
    if found.queue.options.order == ROTA_ORDER_HIGHEST:
        return link_place(h, found.slot.id, rota_score_order(terms.score, age_rate_of(found.queue), arrival_ns))
    return ROTA_OK


cdef void unlink_neighbours(rota_handle *h, const rota_record *gone, rota_record *values,
                            uint32_t ordinal) noexcept nogil:
    cdef rota_record *other = posting_at(h, gone.b, ordinal) if gone.b else NULL
    if other != NULL:
        rota_save_once(h, other)
        other.c = gone.c
    elif values != NULL:
        values.a = gone.c
    other = posting_at(h, gone.c, ordinal) if gone.c else NULL
    if other != NULL:
        rota_save_once(h, other)
        other.b = gone.b
    elif values != NULL:
        values.b = gone.b


cdef rota_slot_ref unlink_term(rota_handle *h, const Found *found, uint32_t ordinal) noexcept nogil:
    """Take a message out of one list; the slot of the one that heads it from now on, if this one did."""
    cdef uint64_t id = found.slot.id, key
    cdef rota_record *record = posting_of(h, id, ordinal)
    cdef rota_record *values
    cdef rota_record gone
    if record == NULL:
        return 0
    gone = record[0]
    save_tables(h)
    rota_table_remove(h, &h.control.tables[ROTA_TABLE_POSTINGS], id << 4 | ordinal)
    if ordinal == ROTA_TERM_SCORE:
        return 0
    key = list_key(found.queue.number, found.level, gone.a)
    values = rota_table_find(h, &h.control.tables[ROTA_TABLE_VALUES], key)
    if values != NULL:
        rota_save_once(h, values)
    unlink_neighbours(h, &gone, values, ordinal)
    if values != NULL:
        values.c -= 1
        if ordinal == KEY_ORDINAL and values.c == 1 and found.queue.options.order == ROTA_ORDER_GROUP:
            rota_save_once(h, &found.queue.due)
            found.queue.blocked_keys -= 1
        if values.c == 0:
            rota_table_remove(h, &h.control.tables[ROTA_TABLE_VALUES], key)
    return gone.c if gone.b == 0 else 0


cdef rota_slot_ref unlink_terms(rota_handle *h, const Found *found) noexcept nogil:
    """Take a message out of all lists.  Returns the slot of the next one of its key, if this one was the head."""
    cdef uint32_t mask = found.queue.index_mask >> 1, ordinal = 1
    cdef rota_slot_ref following = 0
    if found.queue.index_mask & 1:
        following = unlink_term(h, found, KEY_ORDINAL)
    while mask:
        if mask & 1:
            unlink_term(h, found, ordinal)
        mask >>= 1
        ordinal += 1
    return following


# --- room ------------------------------------------------------------------------------------------------------------


cdef uint32_t pages_for_table(const rota_table *table, uint64_t records) noexcept nogil:
    """Large pages that so many more records may take.  The hashes are even: no bucket is full while their mean is far
    from it, since buckets are split as pages come (table.h)."""
    cdef uint64_t pages = 4 + records // 700
    if table.buckets and (table.count + records) // table.buckets >= 1550:
        pages += table.buckets if table.buckets < records else records
    return <uint32_t>pages


cdef uint32_t pages_for_terms(rota_handle *h, uint64_t terms) noexcept nogil:
    """Large pages that so many more terms may take: both tables, and entries of heaps."""
    return pages_for_table(&h.control.tables[ROTA_TABLE_VALUES], terms) \
        + pages_for_table(&h.control.tables[ROTA_TABLE_POSTINGS], terms) + <uint32_t>(terms // 1000) + 2


cdef inline uint32_t fields_of(uint32_t mask) noexcept nogil:
    cdef uint32_t count = 0
    while mask:
        mask &= mask - 1
        count += 1
    return count


cdef uint64_t terms_in(rota_handle *h, const uint8_t *commit, const rota_commit_header *header, uint32_t op_bytes,
                       uint32_t op_count) noexcept nogil:
    """Terms that the operations of a commit may add, at most."""
    cdef rota_op_cursor cursor
    cdef rota_op op
    cdef const uint8_t *extra
    cdef const rota_queue *queue
    cdef uint64_t terms = 0
    rota_op_begin(&cursor, commit, header)
    cursor.left = op_bytes
    cursor.count = op_count
    while rota_op_next(&cursor, &op, &extra):
        if op.kind == ROTA_OP_PUT:
            queue = queue_at(h, op.queue)
            if queue != NULL and queue.index_mask:
                terms += op.a * fields_of(queue.index_mask)
        elif op.kind == ROTA_OP_MOVE:
            terms += op.extra_bytes // 8
    return terms


cdef bint wrong_priority(rota_handle *h, const Draft *draft) noexcept nogil:
    """Whether a message would lie outside the one lane of a queue whose order is not by priority."""
    cdef rota_op_cursor cursor
    cdef rota_op op
    cdef const uint8_t *extra
    cdef const rota_queue *queue
    rota_op_begin(&cursor, draft.bytes, <rota_commit_header *>draft.bytes)
    cursor.left = draft.op_bytes
    cursor.count = draft.op_count
    while rota_op_next(&cursor, &op, &extra):
        queue = queue_at(h, op.queue) if op.kind == ROTA_OP_PUT and op.detail else NULL
        if queue != NULL and (queue.options.order == ROTA_ORDER_GROUP or queue.options.order == ROTA_ORDER_HIGHEST):
            return True
    return False


cdef int admit_index(rota_handle *h, Draft *draft, rota_error *error) noexcept nogil:
    """How many pages the index may need for a commit (draft.index_pages), and whether it can take it at all."""
    cdef uint64_t terms = terms_in(h, draft.bytes, <rota_commit_header *>draft.bytes, <uint32_t>draft.op_bytes,
                                   draft.op_count)
    draft.index_pages = 0
    if wrong_priority(h, draft):
        return rota_fail(error, ROTA_OPTION_MISMATCH, NULL, 0, "the order of this queue leaves no room for priorities: "
                         "put with priority 0")
    if terms == 0:
        return ROTA_OK
    if h.control.tables[ROTA_TABLE_POSTINGS].count + terms > ROTA_TABLE_RECORDS_MAX:
        return rota_fail(error, ROTA_FULL, NULL, 0, "the indexes hold %u entries and can take no more: settle messages "
                         "of indexed queues", h.control.tables[ROTA_TABLE_POSTINGS].count)
    draft.index_pages = pages_for_terms(h, terms)
    return ROTA_OK
