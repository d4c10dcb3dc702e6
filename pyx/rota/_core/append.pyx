"""Appending one sealed draft to the log: admit, stamp, copy, publish (one store), apply.

What holds, under the main lock:

1. Admit decides everything before a byte is written: room for slots, room in the log, the claims that it settles.
2. Bytes beyond tail_lsn count for nothing; the store of tail_lsn is what publishes.  Apply cannot fail.
3. What needs a system call (a new segment, a mapping, more pool, a sync) is asked for by `need` and provided outside
   the lock by append_provide() (provide.pyx); then the append is tried again.
4. After the snapshot of a sync the next commit starts at the next sync unit, so no sector with durable bytes is
   stored to again.
"""

from libc.string cimport memcmp, memcpy, memset

from engine.atomics cimport *
from engine.control cimport *
from engine.encode cimport rota_encode_header
from engine.failpoint cimport *
from engine.format cimport *
from engine.lock cimport *
from engine.platform cimport rota_record_store
from engine.pool cimport *
from engine.scan cimport rota_op_begin, rota_op_cursor, rota_op_next
from engine.status cimport *

from rota._core.apply cimport apply_commit, pages_for
from rota._core.dedup cimport admit_keys
from rota._core.fence cimport admit_fences
from rota._core.holding cimport admit_settle, settle_claim
from rota._core.index cimport admit_index
from rota._core.lane cimport queue_at, queue_live
from rota._core.registration cimport admit_registrations
from rota._core.tombs cimport admit_ends
from rota._core.segment cimport SEGMENT_NAME_BYTES, segment_base, segment_header_write, segment_name


cdef extern from *:
    """
    #define rota_prefetch_line(address) \
        do { for (int i_ = 0; i_ < 5; i_++) __builtin_prefetch((const char *)(address) + 64 * i_, 1); } while (0)
    """
    void rota_prefetch_line(const void *address) noexcept nogil


cdef enum:
    SETTLE_PAGES = 16    # of the pool that puts leave alone


cdef uint32_t segments_made(rota_handle *h) noexcept nogil:
    """Files that exist, whatever their numbers are."""
    return h.control.live_segments + h.control.free_segment_count


cdef uint32_t free_segments(rota_handle *h) noexcept nogil:
    """Segments that the log may still take: free files and files that may be made."""
    cdef uint32_t made = segments_made(h)
    cdef uint32_t limit = h.control.segment_count_max
    return h.control.free_segment_count + (limit - made if limit > made else 0)


cdef uint32_t job_reserve(rota_handle *h) noexcept nogil:
    """Segments that only a checkpoint and cleaning may take: twice what the next image may be, at least two."""
    cdef uint64_t image = h.control.checkpoint_bytes + 24 * (
        <uint64_t>h.control.tables[ROTA_TABLE_HISTORY].count + h.control.tables[ROTA_TABLE_STRAGGLERS].count
        + h.control.tables[ROTA_TABLE_EXPIRY].count + h.control.tables[ROTA_TABLE_POSTINGS].count
        + 2 * <uint64_t>h.control.tables[ROTA_TABLE_KEYS].count)
    cdef uint64_t more = 2 * image // h.segment_size
    cdef uint32_t half = h.control.segment_count_max // 2
    return 2 + <uint32_t>more if 2 + more < half else half


cdef uint32_t reserve_of(rota_handle *h, int space) noexcept nogil:
    """Free segments that must remain after a commit of this kind took a new one."""
    cdef uint32_t total = h.control.segment_count_max
    cdef uint32_t job = job_reserve(h) if space != SPACE_JOB else 0
    if space == SPACE_PUT:
        return job + (total // 8 - 2 if total // 8 > 4 else 2)
    if space == SPACE_ANSWER:
        return job + (total // 16 - 2 if total // 16 > 3 else 1)
    return job


cdef bint short_of_segments(rota_handle *h, int space) noexcept nogil:
    """Whether a commit of this kind would take a segment that is kept for others."""
    return free_segments(h) <= reserve_of(h, space)


cdef int roll(rota_handle *h, rota_error *error) noexcept nogil:
    """Seal the segment of the tail and go on in a free one: a section of its own."""
    cdef rota_control *control = h.control
    cdef uint32_t file = control.free_segments - 1
    cdef rota_segment *segment = &control.segments[file % ROTA_SEGMENT_COUNT_MAX]
    cdef rota_segment *old = &control.segments[control.log.tail_file % ROTA_SEGMENT_COUNT_MAX]
    cdef uint64_t first = (old.first_lsn | h.segment_mask) + 1 + ROTA_SEGMENT_HEADER_SIZE
    cdef int status = segment_header_write(h, file, first, control.epoch, control.sub_epoch,
                                           segment.generation + 1, error)
    if status != ROTA_OK:
        return status
    rota_failpoint(h.failpoints, ROTA_AT_SEGMENT_HEADER)
    rota_save(h, segment)
    rota_save(h, old)
    rota_save(h, &control.log)
    rota_save(h, &control.pool_limit)
    old.state = ROTA_SEGMENT_SEALED
    old.end_lsn = control.tail_lsn
    old.frames = control.log.tail_frames
    control.free_segments = segment.next_free
    control.free_segment_count -= 1
    control.live_segments += 1
    segment.state = ROTA_SEGMENT_ACTIVE
    segment.next_free = 0
    segment.first_lsn = first
    segment.end_lsn = 0
    segment.generation += 1
    segment.frames = 0
    segment.dead = 0
    segment.pinned = 0
    control.log.tail_file = file
    control.log.tail_frames = 0
    rota_settle_undo(h)
    return ROTA_OK


cdef inline uint32_t kept_files(int space) noexcept nogil:
    """Files, made already, that a commit of this kind leaves: on a full disk no more can be made, and what settles, or
    makes room, must go on."""
    if space == SPACE_PUT or space == SPACE_ANSWER:
        return KEPT_FILES
    return 1 if space == SPACE_SETTLE else 0


cdef inline uint64_t start_of(rota_handle *h) noexcept nogil:
    """Where the next commit begins in the segment of the tail."""
    cdef rota_control *control = h.control
    cdef uint64_t tail = control.tail_lsn
    cdef uint64_t first = control.segments[control.log.tail_file % ROTA_SEGMENT_COUNT_MAX].first_lsn
    if tail < first:
        return first
    if tail == control.sealed_lsn:
        return rota_round_up(tail, control.sync_unit)
    return tail


cdef int find_room(rota_handle *h, uint64_t length, int space, uint64_t *start, Placed *placed,
                   rota_error *error) noexcept nogil:
    """The place of a commit of this length, or what must be provided first.

    A segment that was begun below the mark of a kind takes none of that kind: what lives in it could not be freed.
    """
    cdef rota_control *control = h.control
    cdef rota_segment *segment = &control.segments[control.log.tail_file % ROTA_SEGMENT_COUNT_MAX]
    cdef uint64_t end = (segment.first_lsn | h.segment_mask) + 1
    cdef int status
    if free_segments(h) * 8 < control.segment_count_max * 5 and free_segments(h) < reserve_of(h, space):
        placed.need = NEED_SPACE
        return ROTA_RETRY
    start[0] = start_of(h)
    if start[0] + length > end:
        if short_of_segments(h, space):
            placed.need = NEED_SPACE
            return ROTA_RETRY
        if control.free_segment_count <= kept_files(space) and segments_made(h) < control.segment_count_max \
                or control.free_segments == 0:
            placed.need = NEED_SEGMENT
            return ROTA_RETRY
        if segment_base(h, control.free_segments - 1) == NULL:
            placed.need = NEED_MAP
            placed.need_file = control.free_segments - 1
            return ROTA_RETRY
        status = roll(h, error)
        if status != ROTA_OK:
            return status
        start[0] = start_of(h)
    if segment_base(h, control.log.tail_file) == NULL:
        placed.need = NEED_MAP
        placed.need_file = control.log.tail_file
        return ROTA_RETRY
    return ROTA_OK


cdef uint32_t pages_needed(const Draft *draft, int space) noexcept nogil:
    """Room in the pool that must be there: none for what only ends messages, and more for a put than for what settles,
    so that on a full disk puts are refused first."""
    if draft.growing == 0 and (draft.message_count == 0 or draft.flags & ROTA_COMMIT_COPIES):
        return 0
    return pages_for(draft.message_count, draft.op_count) + draft.index_pages + draft.registering // 16 \
        + (<uint32_t>SETTLE_PAGES if space == SPACE_PUT else 0)


cdef int admit_puts(rota_handle *h, const Draft *draft, Placed *placed, rota_error *error) noexcept nogil:
    """Whether the queues that get messages exist, are open, and have room."""
    cdef rota_op_cursor cursor
    cdef rota_op op
    cdef const uint8_t *extra
    cdef rota_queue *queue
    cdef uint64_t created = draft.queue_created
    cdef uint32_t puts = 0
    rota_op_begin(&cursor, draft.bytes, <rota_commit_header *>draft.bytes)
    cursor.left = draft.op_bytes
    cursor.count = draft.op_count
    while rota_op_next(&cursor, &op, &extra):
        if op.kind != ROTA_OP_PUT:
            continue
        queue = queue_at(h, op.queue)
        if puts < draft.put_count:
            created = draft.put_created[puts]
            puts += 1
        if queue == NULL or (created and queue.created_lsn != created):
            return rota_fail(error, ROTA_NOT_FOUND, NULL, 0, "the queue was destroyed")
        if op.b & ROTA_PUT_ANSWER:  # the request was accepted: refusing its answer would leave its client waiting
            continue
        if queue.state == ROTA_QUEUE_STOPPED:
            return rota_fail(error, ROTA_STOPPED, NULL, 0, "the queue is stopped: start() it to go on")
        if queue.options.max_messages and queue_live(queue) + op.a > queue.options.max_messages:
            placed.need = NEED_SPACE
            return ROTA_RETRY
    return ROTA_OK


cdef bint has_name(const rota_queue *queue, const uint8_t *extra, uint32_t extra_bytes) noexcept nogil:
    cdef uint32_t length = queue.options.name_length
    return length <= ROTA_NAME_LENGTH_MAX and extra_bytes == sizeof(rota_queue_options) + length + queue.index_bytes \
        and memcmp(queue.name, extra + sizeof(rota_queue_options), length) == 0


cdef bint name_taken(rota_handle *h, const uint8_t *extra, uint32_t extra_bytes) noexcept nogil:
    cdef uint32_t number
    for number in range(h.control.queue_count):
        if queue_at(h, number) != NULL and has_name(queue_at(h, number), extra, extra_bytes):
            return True
    return False


cdef bint changes_order(const rota_queue *queue, const uint8_t *extra) noexcept nogil:
    """Whether messages that live would be held in another way (extra was checked by has_name)."""
    cdef rota_queue_options options
    memcpy(&options, extra, sizeof(options))
    return options.order != queue.options.order \
        and (options.order == ROTA_ORDER_GROUP or queue.options.order == ROTA_ORDER_GROUP)


cdef int admit_queues(rota_handle *h, const Draft *draft, rota_error *error) noexcept nogil:
    """Whether a queue that is to be made has a number and a name of its own, and one that is to go is empty."""
    cdef rota_op_cursor cursor
    cdef rota_op op
    cdef const uint8_t *extra
    cdef rota_queue *queue
    rota_op_begin(&cursor, draft.bytes, <rota_commit_header *>draft.bytes)
    cursor.left = draft.op_bytes
    cursor.count = draft.op_count
    while rota_op_next(&cursor, &op, &extra):
        queue = queue_at(h, op.queue)
        if (op.kind == ROTA_OP_REGISTER and queue == NULL) \
                or (op.kind == ROTA_OP_FENCE and (queue == NULL or queue.created_lsn != draft.queue_created)):
            return rota_fail(error, ROTA_NOT_FOUND, NULL, 0, "the queue was destroyed")
        if op.kind != ROTA_OP_QUEUE:
            continue
        if op.detail == ROTA_QUEUE_CREATE:
            if queue != NULL or name_taken(h, extra, op.extra_bytes):
                return ROTA_STATE
        elif queue == NULL or (op.detail == ROTA_QUEUE_CONFIGURE and not has_name(queue, extra, op.extra_bytes)):
            return rota_fail(error, ROTA_NOT_FOUND, NULL, 0, "the queue was destroyed")
        elif op.detail == ROTA_QUEUE_CONFIGURE and changes_order(queue, extra) and queue_live(queue):
            return rota_fail(error, ROTA_IN_USE, NULL, 0, "the order of a queue changes to or from 'group' only while "
                             "it is empty")
        elif op.detail == ROTA_QUEUE_DESTROY and queue_live(queue):
            return rota_fail(error, ROTA_IN_USE, NULL, 0, "the queue holds messages: purge it or use force=True")
    return ROTA_OK


cdef int admit(rota_handle *h, Draft *draft, int space, Placed *placed, rota_error *error) noexcept nogil:
    cdef rota_control *control = h.control
    cdef uint32_t i
    cdef int status
    if control.failed:
        return rota_fail(error, ROTA_LOG_FAILED, "failed", 0, "a sync failed; close all users and reopen")
    if control.fenced:
        status = admit_fences(h, draft, error)
        if status != ROTA_OK:
            return status
    if control.indexed_queues and (draft.message_count or draft.growing):
        status = admit_index(h, draft, error)
        if status != ROTA_OK:
            return status
    if rota_pool_room(h) < pages_needed(draft, space):
        placed.need = NEED_PAGES
        return ROTA_RETRY
    if space == SPACE_PUT and not h.is_memory \
            and control.tail_lsn > control.durable_lsn + h.unsynced_limit:
        placed.need = NEED_SYNC
        return ROTA_RETRY
    if draft.message_count and not draft.flags & ROTA_COMMIT_COPIES:
        status = admit_puts(h, draft, placed, error)
        if status != ROTA_OK:
            return status
    elif draft.settle_count == 0:
        status = admit_queues(h, draft, error)
        if status != ROTA_OK:
            return status
    status = admit_ends(h, draft, error) if draft.end_count else ROTA_OK
    if status == ROTA_OK and draft.registering:
        status = admit_registrations(h, draft, error)
    if status == ROTA_OK and draft.deduping:
        status = admit_keys(h, draft, error)
    if status != ROTA_OK:
        return status
    for i in range(draft.settle_count):
        status = admit_settle(h, &draft.settles[i], error)
        if status != ROTA_OK:
            return status
    rota_failpoint(h.failpoints, ROTA_AT_APPEND_ADMITTED)
    return ROTA_OK


cdef void stamp(rota_handle *h, Draft *draft, uint64_t lsn, rota_commit_header *header) noexcept nogil:
    """Fill the header in the private copy."""
    cdef rota_control *control = h.control
    cdef uint64_t now = h.os.clock_wall_coarse_ns(h.os)
    cdef rota_commit_header made
    made.magic = <uint32_t>ROTA_COMMIT_MAGIC
    made.version = <uint16_t>ROTA_FORMAT_VERSION
    made.flags = <uint16_t>draft.flags
    made.lsn = lsn
    made.length = <uint32_t>draft.length
    made.op_bytes = <uint32_t>draft.op_bytes
    made.message_count = draft.message_count
    made.op_count = draft.op_count
    made.epoch = control.epoch
    made.sub_epoch = control.sub_epoch
    made.previous_chain = control.log.last_chain
    made.durable_lsn = rota_load_acquire_u64(&control.durable_lsn)
    made.base_id = control.log.next_id
    made.time_ns = now if now > control.log.time_ns else control.log.time_ns
    made.token_generation = draft.token_generation
    made.token_number = draft.token_number
    made.meta_crc = header.meta_crc
    rota_encode_header(header, h.salt_crc, &made)


cdef int copy(rota_handle *h, const Draft *draft, uint64_t start, rota_error *error) noexcept nogil:
    """Small commits through the mapping; larger ones by one write, which is cheaper than the faults of stores to clean
    pages.  Populating pages ahead was measured: it costs what it saves."""
    cdef uint32_t file = h.control.log.tail_file
    cdef uint64_t offset = start & h.segment_mask
    cdef char name[SEGMENT_NAME_BYTES]
    cdef int status
    if draft.length <= ROTA_PAGE_SIZE:
        status = h.os.copy_guarded(h.os, h.segments[file].base + offset, draft.bytes, draft.length)
        if status == ROTA_OK and h.os.record_store != NULL:
            rota_record_store(h.os, h.segments[file].fd, offset, draft.bytes, draft.length)
    else:
        status = h.os.pwrite(h.os, h.segments[file].fd, draft.bytes, draft.length, offset)
    if status != ROTA_OK:
        h.control.sub_epoch += 1  # what stands behind the tail now is never taken for a successor
        segment_name(file, name)
        return rota_fail(error, status, name, offset, "the commit could not be written; nothing was published")
    return ROTA_OK


cdef int append_locked(rota_handle *h, Draft *draft, int space, Placed *placed, rota_error *error) noexcept nogil:
    """Append under the lock.  ROTA_OK; ROTA_RETRY with placed.need set; or a failure with nothing published."""
    cdef rota_control *control = h.control
    cdef rota_commit_header *header = <rota_commit_header *>draft.bytes
    cdef uint64_t start = 0
    cdef uint32_t i
    cdef int status
    placed.need = NEED_NOTHING
    status = admit(h, draft, space, placed, error)
    if status == ROTA_OK:
        status = find_room(h, draft.length, space, &start, placed, error)
    if status != ROTA_OK:
        return status
    stamp(h, draft, start, header)
    if control.log.next_id + draft.message_count > control.stamped_id:
        control.stamped_id = control.log.next_id + draft.message_count
    rota_failpoint(h.failpoints, ROTA_AT_APPEND_STAMPED)
    status = copy(h, draft, start, error)
    if status != ROTA_OK:
        return status
    rota_failpoint(h.failpoints, ROTA_AT_APPEND_COPIED)
    control.pending_lsn = start
    rota_store_release_u64(&control.tail_lsn, start + draft.length)
    rota_failpoint(h.failpoints, ROTA_AT_APPEND_PUBLISHED)
    status = apply_commit(h, draft.bytes, header, control.log.tail_file, start & h.segment_mask)
    for i in range(draft.settle_count):
        settle_claim(h, &draft.settles[i])
    rota_failpoint(h.failpoints, ROTA_AT_APPEND_APPLYING)
    rota_settle_undo(h)
    rota_failpoint(h.failpoints, ROTA_AT_APPEND_APPLIED)
    control.stored_bytes += draft.length
    rota_prefetch_line(h.segments[control.log.tail_file].base + (start & h.segment_mask) + draft.length)
    placed.base_id = header.base_id
    placed.lsn = start
    placed.end_lsn = start + draft.length
    if status != ROTA_OK:  # never: room was asked before; the log has the commit, the lanes do not
        control.rebuild = 1
        return rota_fail(error, ROTA_DAMAGED_CONTROL, "control", start, "the lanes could not take the commit; "
                         "close all users and reopen")
    return ROTA_OK
