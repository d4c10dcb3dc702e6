"""Waiting for a message: one attempt to claim, and what is done before the next.

What holds:

1. Before it spins or sleeps the waiter counts itself, fences, and looks again, so no wake-up is lost (tests/model,
   wake).  Whoever goes on from spinning to sleeping counts itself as a sleeper first.
2. It sleeps a slice at most, and takes over from dead owners meanwhile.
3. To wake a processor that idles takes longer than a message (some 35 us in a virtual machine), so a waiter whose
   waits ended soon of late spins first, at most SPIN_MOST_NS and without the GIL.  One thread of a handle spins at a
   time; a spin that finds nothing lets the next 1, 3, 7 ... 63 waits sleep at once; one long wait ends the spinning.
   It yields its processor now and then, since the one who is to put may wait for just that.
"""

from libc.stdint cimport int64_t, uint32_t, uint64_t

from engine.atomics cimport *
from engine.control cimport *
from engine.failpoint cimport *
from engine.pool cimport *
from engine.status cimport *

from rota._core.choosing cimport claim_chosen
from rota._core.claim cimport claim_locked
from rota._core.lane cimport queue_ready
from rota._core.lock cimport lock_leave
from rota._core.expiring cimport sweep_expired
from rota._core.reap cimport reap_dead
from rota._core.store cimport now

cdef enum:
    SLICE_NS = 50000000
    SPIN_WORTH_NS = 100000    # waits that take longer on the average are slept through
    SPIN_LEAST_NS = 10000
    SPIN_MOST_NS = 100000
    WAIT_LONG_NS = 1000000    # what a wait counts at most in the average
    SPIN_MISSES_MOST = 6      # after so many misses one of 64 waits still tries
    PAUSES_PER_LOOK = 32      # at the clock
    LOOKS_PER_YIELD = 2


cdef int claim_attempt(rota_handle *h, rota_queue *queue, const Wanted *wanted, Run *runs, Claimed *claimed, int locked,
                       rota_error *error) noexcept nogil:
    cdef int status
    if locked != ROTA_OK:
        return locked
    if wanted.term or wanted.id:
        status = claim_chosen(h, queue, wanted, runs, claimed, error)
    else:
        status = claim_locked(h, queue, wanted, runs, claimed, error)
    if status == ROTA_EMPTY:
        claimed.seen = arrivals(queue)
    lock_leave(h)
    return status


cdef uint64_t arrivals(const rota_queue *queue) noexcept nogil:
    """Changes whenever a message arrives or comes back, ready or not for this process."""
    cdef uint64_t sum = 0
    cdef uint32_t level
    for level in range(10):
        sum += queue.lanes[level].appended + queue.lanes[level].returned
    return sum


cdef inline bint same(const rota_queue *queue, uint32_t sequence, uint64_t seen) noexcept nogil:
    """Whether nothing came since the caller looked."""
    return rota_load_acquire_u32(&queue.wake_sequence) == sequence and arrivals(queue) == seen


cdef int64_t spin_budget(rota_handle *h) noexcept nogil:
    """How long the next wait may spin; 0: not at all."""
    cdef uint64_t budget = 2 * <uint64_t>rota_load_relaxed_u32(&h.wait_ns)
    cdef uint32_t rest = rota_load_relaxed_u32(&h.spin_rest)
    if budget > 2 * SPIN_WORTH_NS:
        return 0
    if rest:
        rota_store_relaxed_u32(&h.spin_rest, rest - 1)
        return 0
    return SPIN_LEAST_NS if budget < SPIN_LEAST_NS else SPIN_MOST_NS if budget > SPIN_MOST_NS else <int64_t>budget


cdef void note_wait(rota_handle *h, uint64_t elapsed_ns) noexcept nogil:
    """Take a wait into the average of the last eight or so."""
    cdef uint64_t average = rota_load_relaxed_u32(&h.wait_ns)
    if elapsed_ns > WAIT_LONG_NS:
        elapsed_ns = WAIT_LONG_NS
    rota_store_relaxed_u32(&h.wait_ns, <uint32_t>((7 * average + elapsed_ns) // 8))


cdef void note_spin(rota_handle *h, bint found) noexcept nogil:
    cdef uint32_t misses = 0
    if not found:
        misses = rota_load_relaxed_u32(&h.spin_misses)
        misses = misses + 1 if misses < SPIN_MISSES_MOST else SPIN_MISSES_MOST
        rota_store_relaxed_u32(&h.spin_rest, (<uint32_t>1 << misses) - 1)
    rota_store_relaxed_u32(&h.spin_misses, misses)


cdef bint spin(rota_handle *h, rota_queue *queue, uint32_t sequence, uint64_t begun, int64_t budget_ns) noexcept nogil:
    """Watch the sequence for so long: whether it changed.  The caller counts itself."""
    cdef uint32_t looks = 0
    cdef int i
    while <int64_t>(h.os.clock_boot_ns(h.os) - begun) < budget_ns:
        for i in range(PAUSES_PER_LOOK):
            if rota_load_acquire_u32(&queue.wake_sequence) != sequence:
                return True
            rota_pause()
        looks += 1
        if looks % LOOKS_PER_YIELD == 0:
            h.os.yield_processor(h.os)
    return False


cdef bint spin_then_count(rota_handle *h, rota_queue *queue, uint32_t sequence, uint64_t seen, uint64_t begun,
                          int64_t budget_ns) noexcept nogil:
    """Spin, where that promises something.  True: something came.  False: the caller is counted as a sleeper."""
    cdef bint found = False
    if budget_ns > 0 and rota_fetch_add_u32(&h.spinning, 1) == 0:
        rota_fetch_add_u32(&queue.spinners, 1)
        rota_fence()
        rota_failpoint(h.failpoints, ROTA_AT_WAIT_SPINNING)
        found = not same(queue, sequence, seen) or spin(h, queue, sequence, begun, budget_ns)
        if not found:
            rota_fetch_add_u32(&queue.waiters, 1)
        rota_fetch_sub_u32(&queue.spinners, 1)
        note_spin(h, found)
    else:
        rota_fetch_add_u32(&queue.waiters, 1)
    if budget_ns > 0:
        rota_fetch_sub_u32(&h.spinning, 1)
    return found


cdef bint wait_change(rota_handle *h, rota_queue *queue, uint32_t sequence, uint64_t seen,
                      int64_t slice_ns) noexcept nogil:
    """Spin, then sleep, until something came or the slice is over: whether something came while it spun."""
    cdef uint64_t begun = h.os.clock_boot_ns(h.os)
    cdef int64_t budget = spin_budget(h)
    cdef bint found
    rota_failpoint(h.failpoints, ROTA_AT_WAIT_BEGIN)
    found = spin_then_count(h, queue, sequence, seen, begun, budget if budget < slice_ns else slice_ns)
    if not found:
        rota_fence()
        rota_failpoint(h.failpoints, ROTA_AT_WAIT_SLEEPING)
        if same(queue, sequence, seen):
            h.os.futex_wait(h.os, &queue.wake_sequence, sequence, slice_ns)
        rota_fetch_sub_u32(&queue.waiters, 1)
    note_wait(h, h.os.clock_boot_ns(h.os) - begun)
    return found


cdef bint others_hold(const rota_handle *h) noexcept nogil:
    """Whether claims of other processes exist, which may have died."""
    return h.control.claim_count > h.control.processes[h.process].claims


cdef int wait_ready(rota_handle *h, rota_queue *queue, bint expired, uint32_t sequence, uint64_t seen,
                    double deadline, rota_error *error) noexcept nogil:
    """Do what may bring a message, then wait until one is put, at most a slice.

    ROTA_TIMEOUT: another thread is taking over from the dead at this moment.
    """
    cdef uint32_t done = 0
    cdef int status
    cdef double left = deadline - now() if deadline >= 0 else 0.05
    cdef int64_t slice_ns = SLICE_NS
    if expired:
        return sweep_expired(h, queue, &done, error)
    if left < 0.05:
        slice_ns = <int64_t>(left * 1e9) if left > 0 else 0
    if queue.due.size:
        slice_ns = slice_ns if slice_ns < 5000000 else 5000000
    if slice_ns and wait_change(h, queue, sequence, seen, slice_ns):
        return ROTA_RETRY
    if queue_ready(queue) == 0 and h.control.claim_count:
        status = reap_dead(h, &done, error)
        if status == ROTA_RETRY:
            h.os.futex_wait(h.os, &queue.wake_sequence, sequence, 1000000)
            return ROTA_TIMEOUT
        if status != ROTA_OK and status != ROTA_FULL:  # without room for it the next one tries again
            return status
    return ROTA_RETRY
