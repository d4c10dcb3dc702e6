"""The native thread of an open repository: what should happen although nobody asks for it.

What holds:

1. No Python and no GIL in it, and no signal.  It ends before the handle is let go; nothing depends on it for being
   right: whoever is blocked does the work himself.
2. Each process sees to its own syncs.  All else is done by one process, which holds the tick lock until it stops or
   dies; a robust lock passes on to another one's next try.
3. Idle it wakes twenty times a second and looks at a few words.  Who makes it owe a sync sooner wakes it, by a word
   that says how it sleeps: once for each sleep, however many commits there are.
4. After a failed sync, and while the control file waits for a rebuild, it only sleeps.
5. A MARK is written only where it leaves the last segments alone: they belong to the checkpoint.
"""

from libc.stdint cimport int64_t, uint32_t, uint64_t
from libc.string cimport memset

from engine.atomics cimport *
from engine.control cimport *
from engine.format cimport *
from engine.handle cimport *
from engine.lock cimport *
from engine.pool cimport rota_heap_top
from engine.status cimport *
from engine.thread cimport rota_thread_join, rota_thread_start

from rota._core.append cimport KEPT_FILES, NEED_SEGMENT, Placed, free_segments, segments_made
from rota._core.checkpoint cimport checkpoint, checkpoint_fits, checkpoint_gains, note_reached
from rota._core.claim cimport release_due
from rota._core.clean cimport reclaim
from rota._core.lane cimport queue_at
from rota._core.lock cimport lock_enter, lock_leave
from rota._core.provide cimport append_mark, append_provide
from rota._core.expiring cimport sweep_expired
from rota._core.reap cimport reap_dead, reap_leases, wake_queue
from rota._core.sync cimport sync_prepare, sync_to

cdef enum:
    TICK_NS = 50000000
    TICK_LEAST_NS = 1000000
    REAP_TICKS = 4          # 200 ms
    EXPIRY_TICKS = 20       # a second
    SPACE_TICKS = 2
    CLAIMS_FEW = 4096       # so many are looked at in every tick
    LOG_BYTES_MAX = 256 << 20
    AWAKE = 0
    RESTS_IDLE = 1          # nothing is owed: the first commit at "interval" may start a clock
    RESTS_TIMED = 2         # until a sync is due by time

# What the thread remembers between two ticks.
ctypedef struct Service:
    rota_handle *h
    bint is_ticker
    uint64_t ticks
    uint64_t seen_lsn       # tail at the last tick
    uint64_t seen_ns        # when it last moved
    uint64_t ticked_ns      # when all else than syncs was last seen to
    bint refused            # the last sync could not even begin
    uint64_t cleaned_lsn    # tail when room was last looked for
    rota_error error


cdef inline bint is_over(const rota_handle *h) noexcept nogil:
    return rota_load_acquire_u32(&h.service_stop) != 0


cdef inline bint is_usable(const rota_handle *h) noexcept nogil:
    return not rota_load_relaxed_u32(&h.control.failed) and not h.control.rebuild


# --- durability ------------------------------------------------------------------------------------------------------


cdef inline bint is_owed(const rota_handle *h, uint64_t tail) noexcept nogil:
    """Whether something waits for a sync by this process that nobody asks for."""
    cdef uint64_t durable = rota_load_acquire_u64(&h.control.durable_lsn)
    return tail > durable and not h.is_memory \
        and (h.durability != ROTA_LEVEL_NONE or rota_load_acquire_u64(&h.interval_lsn) > durable)


cdef inline bint volume_reached(const rota_handle *h, uint64_t tail) noexcept nogil:
    return tail >= rota_load_acquire_u64(&h.control.durable_lsn) + h.sync_bytes \
        or h.control.log.commits >= h.control.synced_commits + h.sync_count


cdef bint sync_due(const rota_handle *h, uint64_t tail, uint64_t now_ns) noexcept nogil:
    """Whether this process owes a sync now: by the end of a segment, by time, or by volume."""
    cdef uint64_t durable = rota_load_acquire_u64(&h.control.durable_lsn)
    if tail > durable and not h.is_memory and tail // h.segment_size != durable // h.segment_size:
        return True
    return is_owed(h, tail) and (now_ns + TICK_LEAST_NS >= h.control.sync_last_ns + h.sync_interval_ns
                                 or volume_reached(h, tail))


cdef void sync_duty(Service *s, uint64_t tail, uint64_t now_ns) noexcept nogil:
    s.refused = False
    if sync_due(s.h, tail, now_ns):
        s.refused = sync_to(s.h, tail, &s.error) != ROTA_OK


cdef void service_owe(rota_handle *h, uint64_t lsn) noexcept nogil:
    """A commit at level "interval" ends at `lsn`: see to it that its sync comes in time."""
    cdef uint32_t rest
    if h.is_memory or lsn <= rota_load_acquire_u64(&h.control.durable_lsn):
        return
    if h.durability == ROTA_LEVEL_NONE:
        rota_raise_u64(&h.interval_lsn, lsn)
    rota_fence_after_unlock()
    rest = rota_load_relaxed_u32(&h.service_rest)
    if rest == AWAKE or not (volume_reached(h, lsn) or (rest == RESTS_IDLE and h.sync_interval_ns < TICK_NS)):
        return
    if rota_compare_exchange_u32(&h.service_rest, &rest, AWAKE):
        rouse(h)


cdef void rouse(rota_handle *h) noexcept nogil:
    rota_fetch_add_u32(&h.service_sequence, 1)
    h.os.futex_wake(h.os, &h.service_sequence, 1)


cdef bint mark_fits(rota_handle *h) noexcept nogil:
    cdef uint64_t rest = h.segment_size - h.control.tail_lsn % h.segment_size
    return rest >= 4 * <uint64_t>h.control.sync_unit or checkpoint_fits(h, h.segment_size)


cdef void prove(Service *s, uint64_t tail) noexcept nogil:
    """Nothing was appended for a tick: sync what there is, and leave a MARK that says so."""
    cdef rota_handle *h = s.h
    cdef Placed placed
    if tail <= h.control.mark_lsn or sync_to(h, tail, &s.error) != ROTA_OK:
        return
    if rota_load_acquire_u64(&h.control.tail_lsn) != tail or not mark_fits(h):
        return
    if append_mark(h, 0, &placed, &s.error) == ROTA_OK and sync_to(h, placed.end_lsn, &s.error) == ROTA_OK:
        h.control.mark_lsn = placed.end_lsn


# --- messages --------------------------------------------------------------------------------------------------------


cdef void release(Service *s, rota_queue *queue, uint64_t now_ns) noexcept nogil:
    """Delayed messages of one queue whose time has come."""
    cdef rota_handle *h = s.h
    cdef const rota_heap_entry *top
    cdef bint more = True
    while more and not is_over(h):
        if lock_enter(h, &s.error) != ROTA_OK:
            return
        release_due(h, queue, now_ns)
        top = rota_heap_top(h, &queue.due)
        more = top != NULL and top.key <= now_ns
        lock_leave(h)
        wake_queue(h, queue)


cdef uint64_t due_of(rota_handle *h, rota_queue *queue) noexcept nogil:
    """The earliest due time: a hint, read without the lock."""
    cdef const rota_heap_entry *top = rota_heap_top(h, &queue.due) if queue.due.size else NULL
    return top.key if top != NULL else <uint64_t>-1


cdef void serve_queues(Service *s) noexcept nogil:
    cdef rota_handle *h = s.h
    cdef rota_queue *queue
    cdef uint64_t now_ns = h.os.clock_wall_ns(h.os)
    cdef uint32_t number, expired, count = h.control.queue_count
    if now_ns < h.control.log.time_ns:
        now_ns = h.control.log.time_ns
    for number in range(count):
        queue = queue_at(h, number)
        if queue == NULL:
            continue
        if due_of(h, queue) <= now_ns:
            release(s, queue, now_ns)
        expired = 1
        while queue.expiring and s.ticks % EXPIRY_TICKS == 0 and expired and not is_over(h):
            expired = 0
            if sweep_expired(h, queue, &expired, &s.error) != ROTA_OK:
                break


cdef void serve_claims(Service *s) noexcept nogil:
    cdef rota_handle *h = s.h
    cdef uint32_t reaped = 0
    if h.control.claim_count and (h.control.claim_used <= CLAIMS_FEW or s.ticks % REAP_TICKS == 0):
        reap_leases(h, &reaped, &s.error)
    if s.ticks % REAP_TICKS == 0:
        reap_dead(h, &reaped, &s.error)


# --- space -----------------------------------------------------------------------------------------------------------


cdef void provide_ahead(Service *s, uint64_t tail) noexcept nogil:
    """Make the next segment file before somebody waits for it."""
    cdef rota_handle *h = s.h
    cdef Placed placed
    if h.control.free_segment_count <= KEPT_FILES and segments_made(h) < h.control.segment_count_max \
            and tail % h.segment_size > h.segment_size // 4:
        memset(&placed, 0, sizeof(placed))
        placed.need = NEED_SEGMENT
        append_provide(h, NULL, 0, &placed, True, &s.error)


cdef bint job_is_free(rota_handle *h) noexcept nogil:
    """Another one's job is not waited for: a close would wait too."""
    cdef int result = rota_lock_try(&h.control.job_lock)
    if result == ROTA_LOCK_DEAD:
        rota_lock_repaired(&h.control.job_lock)
    if result == ROTA_LOCK_TAKEN or result == ROTA_LOCK_DEAD:
        rota_lock_leave(&h.control.job_lock)
        return True
    return False


cdef void serve_space(Service *s, uint64_t tail) noexcept nogil:
    """A checkpoint when much was logged since the last, and room when little is left."""
    cdef rota_handle *h = s.h
    cdef rota_control *control = h.control
    cdef uint64_t much = 16 * control.checkpoint_bytes
    cdef bint is_short = free_segments(h) < control.segment_count_max // 4
    if much < LOG_BYTES_MAX:
        much = LOG_BYTES_MAX
    if is_short and (checkpoint_gains(h) or tail - s.cleaned_lsn >= h.segment_size // 2):
        if job_is_free(h):
            reclaim(h, True, &s.error)
            s.cleaned_lsn = rota_load_acquire_u64(&control.tail_lsn)
    elif tail - control.checkpoint_begin > much and job_is_free(h):
        checkpoint(h, &s.error)


# --- the thread ------------------------------------------------------------------------------------------------------


cdef void elect(Service *s) noexcept nogil:
    cdef int result
    if s.is_ticker:
        return
    result = rota_lock_try(&s.h.control.tick_lock)
    if result == ROTA_LOCK_DEAD:
        rota_lock_repaired(&s.h.control.tick_lock)
    s.is_ticker = result == ROTA_LOCK_TAKEN or result == ROTA_LOCK_DEAD


cdef void resign(Service *s) noexcept nogil:
    if s.is_ticker:
        rota_lock_leave(&s.h.control.tick_lock)
    s.is_ticker = False


cdef void tick(Service *s, uint64_t tail, uint64_t now_ns) noexcept nogil:
    """What is seen to twenty times a second."""
    cdef rota_handle *h = s.h
    cdef bint moved = tail != s.seen_lsn
    s.ticked_ns = now_ns
    if moved:
        s.seen_lsn = tail
        s.seen_ns = now_ns
        sync_prepare(h)
    elect(s)
    if s.is_ticker:
        serve_claims(s)
        serve_queues(s)
        provide_ahead(s, tail)
        note_reached(h, False, &s.error)
        if s.ticks % SPACE_TICKS == 0:
            serve_space(s, tail)
        if not moved and now_ns - s.seen_ns >= TICK_NS and not h.is_memory:
            prove(s, tail)
    s.ticks += 1


cdef void round(Service *s) noexcept nogil:
    """Syncs whenever it wakes, all else when its time has come."""
    cdef rota_handle *h = s.h
    cdef uint64_t tail = rota_load_acquire_u64(&h.control.tail_lsn)
    cdef uint64_t now_ns = h.os.clock_boot_ns(h.os)
    if not h.is_memory:
        sync_duty(s, tail, now_ns)
    if now_ns < s.ticked_ns or now_ns + TICK_LEAST_NS >= s.ticked_ns + TICK_NS:
        tick(s, tail, now_ns)


cdef void rest(Service *s, uint32_t sequence) noexcept nogil:
    """Sleep until the next tick, or until a sync is due, or until somebody has work; what came before `sequence` was
    read was seen to."""
    cdef rota_handle *h = s.h
    cdef uint64_t now_ns = h.os.clock_boot_ns(h.os)
    cdef uint64_t due_ns = s.ticked_ns + TICK_NS
    cdef bint may_sync = is_usable(h) and not s.refused
    if may_sync:
        rota_store_release_u32(&h.service_rest, RESTS_TIMED if is_owed(
            h, rota_load_acquire_u64(&h.control.tail_lsn)) else RESTS_IDLE)
        rota_fence()
        if sync_due(h, rota_load_acquire_u64(&h.control.tail_lsn), now_ns):  # since the round
            due_ns = now_ns
        elif is_owed(h, rota_load_acquire_u64(&h.control.tail_lsn)) \
                and h.control.sync_last_ns + h.sync_interval_ns < due_ns:
            due_ns = h.control.sync_last_ns + h.sync_interval_ns
    if not may_sync or due_ns > now_ns + TICK_NS:
        due_ns = now_ns + TICK_NS
    if due_ns > now_ns:
        h.os.futex_wait(h.os, &h.service_sequence, sequence, <int64_t>(due_ns - now_ns))
    rota_store_release_u32(&h.service_rest, AWAKE)


cdef void *run(void *argument) noexcept nogil:
    cdef rota_handle *h = <rota_handle *>argument
    cdef Service s
    cdef uint32_t sequence
    memset(&s, 0, sizeof(Service))
    s.h = h
    s.seen_lsn = rota_load_acquire_u64(&h.control.tail_lsn)
    s.seen_ns = h.os.clock_boot_ns(h.os)
    while not is_over(h):
        sequence = rota_load_acquire_u32(&h.service_sequence)
        if is_over(h):
            break
        if h.read_only:
            resign(&s)
        elif is_usable(h):
            round(&s)
        rest(&s, sequence)
    resign(&s)
    return NULL


cdef int service_start(rota_handle *h, rota_error *error) noexcept nogil:
    """Start the thread of this handle.  While that is open for reading only, the thread does nothing."""
    cdef int status
    rota_store_release_u32(&h.service_stop, 0)
    h.service_running = 0
    status = rota_thread_start(&h.service_thread, run, h)
    if status != 0:
        return rota_fail(error, status, NULL, 0, "the service thread cannot be started")
    h.service_running = 1
    return ROTA_OK


cdef void service_stop(rota_handle *h) noexcept nogil:
    """End the thread and wait for it; what it does at the moment it finishes."""
    if not h.service_running:
        return
    rota_store_release_u32(&h.service_stop, 1)
    rouse(h)
    rota_thread_join(h.service_thread)
    h.service_running = 0
