"""Commits into lanes: what each operation changes in the control file.

What holds:

1. A live append, a redo after the death of a lock owner, and recovery apply a commit by the same function, so the
   lanes are a function of the log.  It runs under the main lock (or alone), inside an undo section.
2. It cannot fail for want of room: pages_for() was asked before.  A message, queue or claim that is not there is
   passed over: the operation names what was true when it was written, and a checkpoint may be newer.
3. All operations are absolute: applying one twice leaves what applying it once leaves.
"""

from libc.string cimport memcmp, memcpy, memset

from engine.control cimport *
from engine.format cimport *
from engine.frame cimport *
from engine.pool cimport *
from engine.scan cimport *
from engine.status cimport *
from engine.term cimport rota_terms

from rota._core.control cimport pool_grow
from rota._core.dedup cimport apply_key, keys_drop
from rota._core.fence cimport is_older
from rota._core.holding cimport free_claim
from rota._core.index cimport *
from rota._core.lane cimport *
from rota._core.placing cimport index_slot, place_frame
from rota._core.slots cimport *
from rota._core.registration cimport apply_deregister, apply_register, apply_tag, registrations_drop
from rota._core.tombs cimport apply_kill


cdef int queue_make(rota_handle *h, uint32_t number, const uint8_t *extra, uint32_t extra_bytes,
                    uint64_t lsn) noexcept nogil:
    """Create or change a queue; extra is rota_queue_options, the name and what is indexed."""
    cdef rota_queue_options options
    cdef rota_queue *queue = queue_at(h, number)
    cdef uint32_t page
    if extra_bytes < sizeof(options) or number >= ROTA_QUEUE_COUNT_MAX:
        return ROTA_CORRUPT
    memcpy(&options, extra, sizeof(options))
    if options.name_length > ROTA_NAME_LENGTH_MAX \
            or options.name_length + sizeof(options) + options.index_bytes > extra_bytes:
        return ROTA_CORRUPT
    if queue == NULL:
        page = rota_page_take_small(h, ROTA_PAGE_QUEUE)
        if page == 0:
            return ROTA_DISK_FULL
        queue = <rota_queue *>rota_page_at(h, page)
        memset(<uint8_t *>queue + sizeof(rota_page), 0, ROTA_SMALL_PAGE - sizeof(rota_page))
        queue.number = <uint16_t>number
        queue.state = ROTA_QUEUE_OPEN
        queue.created_lsn = lsn
        memcpy(queue.name, extra + sizeof(options), options.name_length)
        rota_save(h, &h.control.queues[number])
        h.control.queues[number] = page
        rota_save(h, &h.control.pool_limit)
        rota_save(h, &h.control.queue_count)
        if h.control.queue_count <= number:
            h.control.queue_count = number + 1
    else:
        rota_save(h, &queue.number)
    queue.options = options
    return queue_index(h, queue, extra + sizeof(options) + options.name_length, options.index_bytes)


cdef void queue_drop(rota_handle *h, rota_queue *queue) noexcept nogil:
    """Give back a queue whose messages are settled (the append admits no other).

    Claims of what was killed go too, or their end would be counted in the queue that gets the number next; so do its
    registrations.
    """
    cdef uint32_t number = queue.number, level, page, index
    for index in range(h.control.claim_used):
        if h.claims[index].state == ROTA_CLAIM_ACTIVE and h.claims[index].queue == number:
            free_claim(h, index)
    for level in range(10):
        while queue.lanes[level].head:
            page = queue.lanes[level].head
            queue.lanes[level].head = rota_page_at(h, page).next
            rota_page_give(h, page)
    if queue.index_mask:
        rota_save(h, &h.control.pool_limit)
        h.control.indexed_queues -= 1
    registrations_drop(h, queue)
    keys_drop(h, queue)
    rota_save(h, &h.control.queues[number])
    page = h.control.queues[number]
    h.control.queues[number] = 0
    rota_page_give(h, page)


cdef void apply_queue(rota_handle *h, const rota_op *op, const uint8_t *extra, uint64_t lsn) noexcept nogil:
    cdef rota_queue *queue = queue_at(h, op.queue)
    if op.detail == ROTA_QUEUE_CREATE or op.detail == ROTA_QUEUE_CONFIGURE:
        queue_make(h, op.queue, extra, op.extra_bytes, lsn)
    elif queue != NULL and queue.created_lsn <= lsn:  # a checkpoint may know a later queue of this number
        rota_save(h, &queue.number)
        if op.detail == ROTA_QUEUE_STOP:
            queue.state = ROTA_QUEUE_STOPPED
        elif op.detail == ROTA_QUEUE_START:
            queue.state = ROTA_QUEUE_OPEN
        elif op.detail == ROTA_QUEUE_DESTROY:
            queue_drop(h, queue)


cdef int apply_put(rota_handle *h, const rota_op *op, const uint8_t *commit, const rota_commit_header *header,
                   uint32_t file, uint64_t offset) noexcept nogil:
    cdef rota_queue *queue = queue_at(h, op.queue)
    cdef uint64_t cell = (offset + rota_commit_directory_offset(header)) // ROTA_CELL
    cdef rota_frame frame
    cdef uint64_t i
    cdef int status
    if queue == NULL or op.detail > 9 or op.id > header.message_count or op.a > header.message_count - op.id:
        return ROTA_OK
    save_put_line(h, &queue.lanes[op.detail])
    if op.a == header.message_count:
        queue.lanes[op.detail].appended_bytes += header.length - rota_commit_data_offset(header)
    else:
        for i in range(op.id, op.id + op.a):
            rota_frame_load(commit, header, <uint32_t>i, &frame)
            queue.lanes[op.detail].appended_bytes += frame.body_length
    if not op.b & ROTA_PUT_DATED and queue.index_mask == 0:  # nothing delayed, nothing that expires
        return ROTA_OK if append_plain(h, queue, op.detail, header.base_id + op.id, <uint32_t>op.a, file,
                                       cell + op.id) == 0 else ROTA_DISK_FULL
    for i in range(op.id, op.id + op.a):
        rota_frame_load(commit, header, <uint32_t>i, &frame)
        status = place_frame(h, &frame, commit + frame.offset, header.base_id + i, file, cell + i, header.time_ns)
        if status != ROTA_OK:
            return status
    return ROTA_OK


cdef void apply_settle(rota_handle *h, const rota_op *op, const uint8_t *extra, unsigned state) noexcept nogil:
    """ACK_LIST, EXPIRE: every id in the extra."""
    cdef rota_queue *queue = queue_at(h, op.queue)
    cdef uint64_t i, id
    cdef Found found
    if queue == NULL or op.a > op.extra_bytes // 8:
        return
    for i in range(op.a):
        memcpy(&id, extra + 8 * i, 8)
        if find(h, queue, id, &found):
            settle_slot(h, &found, state)


cdef void apply_one(rota_handle *h, const rota_op *op, unsigned state) noexcept nogil:
    cdef rota_queue *queue = queue_at(h, op.queue)
    cdef Found found
    if queue != NULL and find(h, queue, op.id, &found):
        settle_slot(h, &found, state)


cdef void apply_ack(rota_handle *h, const rota_op *op) noexcept nogil:
    cdef rota_queue *queue = queue_at(h, op.queue)
    cdef Found found
    if op.id == op.a:
        if queue != NULL and op.detail < 10 and find_in_lane(h, queue, op.detail, op.id, &found) \
                and rota_slot_live(found.slot.word):
            settle_slot(h, &found, ROTA_SLOT_ACKED)
        else:
            apply_one(h, op, ROTA_SLOT_ACKED)
    elif queue != NULL and op.detail < 10:
        settle_range(h, queue, op.detail, op.id, op.a, ROTA_SLOT_ACKED)


cdef int set_history(rota_handle *h, uint64_t id, uint64_t counts, uint64_t due_ns) noexcept nogil:
    cdef rota_record *record
    rota_save(h, &h.control.tables[ROTA_TABLE_HISTORY])
    record = rota_table_put(h, &h.control.tables[ROTA_TABLE_HISTORY], id)
    if record == NULL:
        return ROTA_DISK_FULL
    record.a = counts
    record.b = due_ns
    return ROTA_OK


cdef void set_suspect(rota_handle *h, Found *found, bint suspect) noexcept nogil:
    cdef unsigned flags = rota_slot_flags(found.slot.word)
    if suspect == (flags & ROTA_SLOT_SUSPECT != 0):
        return
    rota_save(h, &found.queue.due)
    if suspect:
        found.queue.suspects += 1
        flags |= ROTA_SLOT_SUSPECT
    else:
        found.queue.suspects -= 1
        flags &= ~<unsigned>ROTA_SLOT_SUSPECT
    set_word(h, found.slot, rota_slot_with_flags(found.slot.word, flags))


cdef int apply_return(rota_handle *h, const rota_op *op, uint64_t now_ns) noexcept nogil:
    """Back at the old place, with absolute counts."""
    cdef rota_queue *queue = queue_at(h, op.queue)
    cdef Found found
    cdef int result
    if queue == NULL or not find(h, queue, op.id, &found) or not rota_slot_live(found.slot.word):
        return ROTA_OK
    if set_history(h, op.id, op.a, op.b) != ROTA_OK:
        return ROTA_DISK_FULL
    save_claim_line(h, found.lane)
    leave_ready(h, &found)
    set_word(h, found.slot, rota_slot_with_flags(
        found.slot.word, rota_slot_flags(found.slot.word) | ROTA_SLOT_HISTORY))
    set_suspect(h, &found, op.detail & 1)
    if op.detail & 2:  # parked: used up, and no error queue can take it
        set_word(h, found.slot, rota_slot_with_flags(
            rota_slot_with_state(found.slot.word, ROTA_SLOT_PARKED),
            rota_slot_flags(found.slot.word) & ~<unsigned>ROTA_SLOT_CLAIMED))
        found.lane.parked += 1
        return ROTA_OK
    if op.b > now_ns:
        result = make_delayed(h, &found, op.b)
    else:
        result = make_ready(h, &found, order_of(h, found.slot))
    return ROTA_OK if result == 0 else ROTA_DISK_FULL


cdef int apply_move(rota_handle *h, const rota_op *op, const uint8_t *extra, uint64_t time_ns) noexcept nogil:
    """By reference: the frame stays where it is, the slot goes to the stragglers of the other queue, whose index gets
    the terms that the operation carries."""
    cdef rota_queue *source = queue_at(h, op.queue)
    cdef rota_queue *target = queue_at(h, <uint32_t>op.a)
    cdef Found found
    cdef uint64_t word
    cdef unsigned flags
    cdef rota_record *record
    cdef rota_terms terms
    cdef uint32_t level
    if source == NULL or target == NULL or not find(h, source, op.id, &found) \
            or not rota_slot_live(found.slot.word):
        return ROTA_OK
    word = found.slot.word
    flags = rota_slot_flags(word) & ROTA_SLOT_HISTORY
    level = found.level
    if target.options.order == ROTA_ORDER_GROUP or target.options.order == ROTA_ORDER_HIGHEST:
        level = 0
    read_terms(extra, op.extra_bytes if target.index_mask else 0, &terms)
    if terms.count or target.options.order == ROTA_ORDER_HIGHEST:
        flags |= ROTA_SLOT_KEYED
    settle_slot(h, &found, ROTA_SLOT_MOVED)
    if op.detail == ROTA_MOVE_EXPIRED:
        source.expired += 1
    if set_history(h, op.id, op.b, 0) != ROTA_OK:
        return ROTA_DISK_FULL
    save_put_line(h, &target.lanes[level])
    save_claim_line(h, &target.lanes[level])
    word = rota_slot_word(rota_slot_file(word), rota_slot_cell(word), ROTA_SLOT_RETURNED,
                          flags | ROTA_SLOT_HISTORY | ROTA_SLOT_ELSEWHERE)
    if append_straggler(h, target, level, op.id, word) == 0:
        return ROTA_DISK_FULL
    record = rota_table_find(h, &h.control.tables[ROTA_TABLE_STRAGGLERS], op.id)
    record.c = h.control.log.next_id
    return index_slot(h, target, level, record.a, &terms, time_ns)


cdef void apply_copy(rota_handle *h, const rota_op *op, const uint8_t *commit, const rota_commit_header *header,
                     uint32_t file, uint64_t offset) noexcept nogil:
    """Each message lives at its new place from now on; one that ended meanwhile leaves a dead frame."""
    cdef uint64_t cell = (offset + rota_commit_directory_offset(header)) // ROTA_CELL
    cdef rota_frame frame
    cdef rota_queue *queue
    cdef Found found
    cdef uint64_t i, word
    if op.id > header.message_count or op.a > header.message_count - op.id:
        return
    for i in range(op.id, op.id + op.a):
        rota_frame_load(commit, header, <uint32_t>i, &frame)
        queue = queue_at(h, op.queue if op.queue != ROTA_QUEUE_NONE else frame.queue)
        word = rota_slot_word(file, cell + i, 0, 0)
        if queue != NULL and find(h, queue, frame.id, &found) and rota_slot_live(found.slot.word):
            frame_dead(h, found.slot.word)
            word = rota_slot_word(file, cell + i, rota_slot_state(found.slot.word),
                                  rota_slot_flags(found.slot.word))
            set_word(h, found.slot, word)
        else:
            frame_dead(h, word)


cdef void apply_fence(rota_handle *h, const rota_op *op, uint64_t lsn) noexcept nogil:
    cdef rota_queue *queue = queue_at(h, op.queue)
    if queue == NULL or queue.created_lsn > lsn:  # a checkpoint may know a later queue of this number
        return
    if is_older(queue, op.a, op.b):  # or a later fence: it never goes back
        return
    if queue.fence_generation != op.a or queue.fence_number != op.b:
        queue.fences += 1  # not undone: a repeat only makes older claims older
    rota_save(h, &queue.number)
    rota_save(h, &queue.due)
    rota_save(h, &h.control.pool_limit)
    queue.fence_generation = op.a
    queue.fence_number = op.b
    h.control.fenced = 1


cdef int apply_op(rota_handle *h, const rota_op *op, const uint8_t *extra, const uint8_t *commit,
                  const rota_commit_header *header, uint32_t file, uint64_t offset) noexcept nogil:
    if op.kind == ROTA_OP_PUT:
        return apply_put(h, op, commit, header, file, offset)
    elif op.kind == ROTA_OP_ACK:
        apply_ack(h, op)
    elif op.kind == ROTA_OP_ACK_LIST:
        apply_settle(h, op, extra, ROTA_SLOT_ACKED)
    elif op.kind == ROTA_OP_EXPIRE:
        apply_settle(h, op, extra, ROTA_SLOT_EXPIRED)
    elif op.kind == ROTA_OP_KILL:
        apply_kill(h, op)
    elif op.kind == ROTA_OP_RETURN:
        return apply_return(h, op, header.time_ns)
    elif op.kind == ROTA_OP_MOVE:
        return apply_move(h, op, extra, header.time_ns)
    elif op.kind == ROTA_OP_COPY:
        apply_copy(h, op, commit, header, file, offset)
    elif op.kind == ROTA_OP_QUEUE:
        apply_queue(h, op, extra, header.lsn)
    elif op.kind == ROTA_OP_TAG:
        return apply_tag(h, op, extra, header)
    elif op.kind == ROTA_OP_REGISTER:
        return apply_register(h, op, extra, header.lsn + header.length)
    elif op.kind == ROTA_OP_DEREGISTER:
        apply_deregister(h, op, extra, header.lsn + header.length)
    elif op.kind == ROTA_OP_FENCE:
        apply_fence(h, op, header.lsn)
    elif op.kind == ROTA_OP_DEDUP:
        return apply_key(h, op, extra, header)
    return ROTA_OK


cdef int apply_commit(rota_handle *h, const uint8_t *commit, const rota_commit_header *header, uint32_t file,
                      uint64_t offset) noexcept nogil:
    """Apply one checked commit that lies at `offset` of `file`; the caller settles the undo section."""
    cdef rota_op_cursor cursor
    cdef rota_op op
    cdef const uint8_t *extra
    cdef rota_log_state *log = &h.control.log
    cdef int status = ROTA_OK, result
    rota_save(h, log)
    if h.control.indexed_queues or h.control.tables[ROTA_TABLE_KEYS].root:
        h.table_floor = pages_for(header.message_count, header.op_count)
    rota_op_begin(&cursor, commit, header)
    while rota_op_next(&cursor, &op, &extra):
        result = apply_op(h, &op, extra, commit, header, file, offset)
        if result != ROTA_OK:
            status = result
    h.table_floor = 0
    log.applied_lsn = header.lsn + header.length
    log.last_chain = rota_commit_chain(h.salt, header)
    if header.message_count and not header.flags & ROTA_COMMIT_COPIES \
            and log.next_id < header.base_id + header.message_count:
        log.next_id = header.base_id + header.message_count
    if header.time_ns > log.time_ns:
        log.time_ns = header.time_ns
    log.tail_frames += header.message_count
    log.commits += 1
    log.messages += header.message_count
    return status


cdef uint32_t registering(const uint8_t *commit, const rota_commit_header *header) noexcept nogil:
    """Operations that may take a small page each; few operations have room anyway."""
    cdef rota_op_cursor cursor
    cdef rota_op op
    cdef const uint8_t *extra
    cdef uint32_t count = 0
    if header.op_count > 16:
        rota_op_begin(&cursor, commit, header)
        while rota_op_next(&cursor, &op, &extra):
            count += op.kind == ROTA_OP_TAG or op.kind == ROTA_OP_REGISTER
    return count


cdef int apply_replay(rota_handle *h, const uint8_t *commit, uint32_t file, uint64_t offset,
                      rota_error *error) noexcept nogil:
    """Apply one accepted commit during recovery; grows the pool, since nobody else is attached."""
    cdef rota_commit_header header
    cdef uint32_t need
    cdef int status
    memcpy(&header, commit, sizeof(header))
    need = pages_for(header.message_count, header.op_count) + registering(commit, &header) // 16
    if h.control.indexed_queues:
        need += pages_for_terms(h, terms_in(h, commit, &header, header.op_bytes, header.op_count))
    if rota_pool_room(h) < need:
        status = pool_grow(h, need, error)
        if status != ROTA_OK:
            return status
    status = apply_commit(h, commit, &header, file, offset)
    rota_settle_undo(h)
    if status != ROTA_OK:
        return rota_fail(error, status, "control", header.lsn, "a commit could not be applied")
    return ROTA_OK
