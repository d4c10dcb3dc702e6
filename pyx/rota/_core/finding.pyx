"""Finding messages by what they say: through the index of a queue, or by looking at some of them.

What holds:

1. What the index names is compared with the message itself before it is handed out: a list holds hashes.
2. Nothing of the user's runs under the lock.
"""

from cpython.exc cimport PyErr_CheckSignals
from libc.stdint cimport uint8_t, uint32_t, uint64_t
from libc.stdlib cimport free, malloc
from libc.string cimport memset

from engine.atomics cimport *
from engine.control cimport *
from engine.format cimport *
from engine.handle cimport rota_handle
from engine.pool cimport *
from engine.status cimport *

from rota._core.claim cimport Claimed, Run, Wanted, counts_of
from rota._core.conditions cimport are_meant, is_equal, is_meant, joined, term_of, terms_of
from rota._core.index cimport posting_at, values_of
from rota._core.lane cimport Found, chunk_count, found_at, lane_live, lane_ready, queue_at
from rota._core.lock cimport lock_leave, lock_slice, lock_try
from rota._core.message cimport Message, new_message
from rota._core.queue cimport Queue
from rota._core.reading cimport Reading, read_slot
from rota._core.store cimport deadline_of, now
from rota._core.waiting cimport arrivals, wait_ready

import sys

from rota import errors
from rota._core import queue as _queue
from rota.expressions import Comparison, Expression
from rota.expressions import header as header_field
from rota.expressions import key as key_field

# What is looked at: a live message, or what was one a moment ago.
ctypedef struct Candidate:
    uint64_t id
    uint64_t slot
    uint32_t level
    uint32_t handouts
    uint32_t excused

cdef enum:
    FEW = 100           # candidates that need no memory of their own
    LOOKS_MAX = 1000    # messages that a get looks at, when no list has exactly what is meant


cdef void note(rota_handle *h, const Found *found, Candidate *candidate) noexcept nogil:
    """What a message that is looked at needs from shared memory."""
    cdef Run run
    counts_of(h, found.slot, &run)
    candidate.id = found.slot.id
    candidate.slot = rota_ref(found.number, found.index)
    candidate.level = found.level
    candidate.handouts = run.handouts
    candidate.excused = run.excused


cdef uint32_t of_term(rota_handle *h, uint32_t number, uint64_t term, Candidate *candidates,
                      uint32_t limit) noexcept nogil:
    """Messages of the lists of one term, high priorities first, at most `limit`."""
    cdef rota_queue *queue = queue_at(h, number)
    cdef const rota_record *values
    cdef const rota_record *posting
    cdef uint64_t slot
    cdef uint32_t count = 0
    cdef Found found
    cdef int level
    for level in range(9 if queue != NULL else -1, -1, -1):
        if lane_live(&queue.lanes[level]) == 0:
            continue
        values = values_of(h, number, <uint32_t>level, term)
        slot = values.a if values != NULL else 0
        while slot and count < limit:
            found_at(h, queue, <uint32_t>level, slot, &found)
            note(h, &found, &candidates[count])
            count += 1
            posting = posting_at(h, slot, <uint32_t>(term & 15))
            slot = posting.c if posting != NULL else 0
    return count


cdef uint32_t ready_in_lane(rota_handle *h, rota_queue *queue, uint32_t level, Candidate *candidates,
                            uint32_t limit) noexcept nogil:
    """Messages that are ready or were a moment ago: what came back, then what the cursor has not passed."""
    cdef rota_lane *lane = &queue.lanes[level]
    cdef const rota_heap_entry *entry
    cdef uint32_t count = 0, i, number = lane.cursor if lane.cursor else lane.head
    cdef Found found
    for i in range(lane.heap.size if lane.heap.size < limit else limit):
        entry = rota_heap_at(h, &lane.heap, i)
        found_at(h, queue, level, entry.slot, &found)
        if found.slot.id == entry.id:
            note(h, &found, &candidates[count])
            count += 1
    i = lane.cursor_index if lane.cursor else 0
    while number and count < limit:
        found_at(h, queue, level, rota_ref(number, 0), &found)
        if found.page.kind != ROTA_PAGE_CHUNK:
            break
        while i < chunk_count(lane, number, found.page) and count < limit:
            found_at(h, queue, level, rota_ref(number, i), &found)
            if rota_slot_state(found.slot.word) == ROTA_SLOT_FRESH:
                note(h, &found, &candidates[count])
                count += 1
            i += 1
        number = found.page.next
        i = 0
    return count


cdef uint32_t of_ready(rota_handle *h, uint32_t number, Candidate *candidates, uint32_t limit) noexcept nogil:
    cdef rota_queue *queue = queue_at(h, number)
    cdef uint32_t count = 0
    cdef int level
    for level in range(9 if queue != NULL else -1, -1, -1):
        if lane_ready(&queue.lanes[level]) and count < limit:
            count += ready_in_lane(h, queue, <uint32_t>level, candidates + count, limit - count)
    return count


cdef int collect_attempt(Queue queue, uint64_t term, Candidate *candidates, uint32_t limit, uint32_t *count,
                         int locked) noexcept nogil:
    cdef rota_handle *h = queue.store.h
    if locked != ROTA_OK:
        return locked
    if term:
        count[0] = of_term(h, queue.number, term, candidates, limit)
    else:
        count[0] = of_ready(h, queue.number, candidates, limit)
    lock_leave(h)
    return ROTA_OK


cdef uint32_t collect(Queue queue, list terms, Candidate *candidates, uint32_t limit) except? 0xffffffff:
    """What to look at: messages of these terms, or (None) what is ready; at most `limit`."""
    cdef rota_handle *h = queue.store.h
    cdef rota_error error
    cdef int status, slices
    cdef uint32_t count = 0, done = 0
    cdef uint64_t term
    for choice in [0] if terms is None else terms:
        term = choice
        slices = 0
        status = collect_attempt(queue, term, candidates + done, limit - done, &count, lock_try(h, &error))
        while status == ROTA_RETRY and queue.store.again(&status, &slices, &error):
            with nogil:
                rota_fetch_add_u32(&h.calls, 1)
                status = collect_attempt(queue, term, candidates + done, limit - done, &count, lock_slice(h, &error))
            rota_fetch_sub_u32(&h.calls, 1)
        if status != ROTA_OK:
            queue.store.fail(&error)
        done += count
    return done


cdef Message look_at(Queue queue, const Candidate *candidate):
    """The message of a candidate, as Queue.read() has it; None when it ended meanwhile or cannot be read."""
    cdef Message message = Message.__new__(Message)
    cdef Reading reading
    message.store = queue.store
    message.queue = queue
    message.id = candidate.id
    message.slot = candidate.slot
    message.run.level = <uint8_t>candidate.level
    message.run.handouts = candidate.handouts
    message.run.excused = candidate.excused
    reading.commit = NULL
    try:
        message._body = read_slot(queue.store, candidate.slot, candidate.id, &reading)
    except (errors.LeaseLost, errors.Killed, errors.Corrupt):
        return None
    message._attributes = queue.store.attributes
    message._time_ns = reading.header.time_ns
    return message


# --- looking and taking ----------------------------------------------------------------------------------------------


cdef list oldest(Queue queue, uint32_t limit):
    """Ids of the oldest live messages."""
    cdef list found = queue.ids(0, limit), more = found
    while more and len(found) < limit:
        more = queue.ids(more[len(more) - 1], limit - len(found))
        found.extend(more)
    return found


def find_messages(Queue queue, key, header, where, uint32_t limit):
    """Queue.find()."""
    cdef list terms, found = []
    cdef uint64_t term
    cdef Candidate few[FEW]
    cdef Candidate *candidates = few
    cdef uint32_t i
    queue.native()
    if key is not None and not isinstance(key, (bytes, str)):
        raise TypeError(f"key is bytes or str, not {type(key).__name__}")
    if where is None and (header is None or key is None and len(header) == 1):
        name, value = (None, key) if key is not None else next(iter(header.items())) if header else (None, None)
        term = term_of(queue, name, value) if value is not None else 0
        if term:
            return find_equal(queue, term, name, value, limit)
    condition, function = joined(key, header, where)
    terms = terms_of(queue, condition)
    if terms is None:
        return find_in_oldest(queue, condition, function, limit)
    if limit > FEW:
        candidates = <Candidate *>malloc(limit * sizeof(Candidate))
        if candidates == NULL:
            raise MemoryError
    try:
        for i in range(collect(queue, terms, candidates, limit)):
            message = look_at(queue, &candidates[i])
            if message is not None and are_meant(condition, function, message):
                found.append(message)
    finally:
        if candidates != few:
            free(candidates)
    return found if len(terms) == 1 else list({message.id: message for message in found}.values())


cdef list find_equal(Queue queue, uint64_t term, name, value, uint32_t limit):
    """The common case, without a condition that has to be made: one field, one value, an index."""
    cdef list found = []
    cdef Candidate candidates[FEW]
    cdef Message message
    cdef uint32_t i
    if limit > FEW:
        return find_messages(queue, None, None, (key_field if name is None else header_field(name)) == value, limit)
    for i in range(collect(queue, [term], candidates, limit)):
        message = look_at(queue, &candidates[i])
        if message is None:
            continue
        if is_equal(message.key if name is None else message.headers.get(name), value):
            found.append(message)
    return found


cdef list find_in_oldest(Queue queue, condition, function, uint32_t limit):
    cdef list found = []
    for id in oldest(queue, limit) if limit else ():
        try:
            message = queue.read(id)
        except (errors.NotFound, errors.Corrupt):
            continue
        if are_meant(condition, function, message):
            found.append(message)
    return found


cdef Message take_id(Queue queue, uint64_t id):
    """Claim that message, if it is ready; else None."""
    cdef Wanted wanted
    cdef Claimed claimed
    cdef Run run
    memset(&wanted, 0, sizeof(wanted))
    wanted.count = wanted.run_size = wanted.show = 1
    wanted.id = id
    if not queue.claim(&wanted, &run, &claimed, 0.0, False):
        return None
    return new_message(queue.store, queue, &run, run.first_id, run.first)


cdef Message take_term(Queue queue, uint64_t term, double deadline):
    """Claim the first message of a list that is ready, waiting for one.  Raises Empty."""
    cdef Wanted wanted
    cdef Claimed claimed
    cdef Run run
    memset(&wanted, 0, sizeof(wanted))
    wanted.count = wanted.run_size = wanted.show = 1
    wanted.term = term
    queue.claim(&wanted, &run, &claimed, deadline, True)
    return new_message(queue.store, queue, &run, run.first_id, run.first)


cdef Message try_candidates(Queue queue, where, list terms, set passed):
    """Look at what is not in `passed` yet, and claim the first that is meant; None when there is none."""
    cdef Message message
    cdef Candidate *candidates = <Candidate *>malloc(LOOKS_MAX * sizeof(Candidate))
    cdef uint32_t i
    if candidates == NULL:
        raise MemoryError
    try:
        for i in range(collect(queue, terms, candidates, LOOKS_MAX)):
            if candidates[i].id in passed:
                continue
            message = look_at(queue, &candidates[i])
            if message is None:
                continue
            if not is_meant(where, message):
                passed.add(candidates[i].id)
                continue
            message = take_id(queue, candidates[i].id)
            if message is not None:
                return message
    finally:
        free(candidates)
    return None


cdef int wait_for_change(Queue queue, uint32_t sequence, uint64_t seen, double deadline) except -1:
    cdef rota_handle *h = queue.store.h
    cdef rota_queue *native = queue.native()
    cdef rota_error error
    cdef int status
    if 0 <= deadline <= now():
        raise errors.Empty(f"no message of {queue.name!r} that is meant is ready", path=queue.store.path)
    with nogil:
        rota_fetch_add_u32(&h.calls, 1)
        status = wait_ready(h, native, False, sequence, seen, deadline, &error)
    rota_fetch_sub_u32(&h.calls, 1)
    if status != ROTA_OK and status != ROTA_RETRY:
        queue.store.fail(&error)
    PyErr_CheckSignals()
    return 0


def get_where(Queue queue, where, timeout):
    """Queue.get() of a message that is meant."""
    cdef double deadline = -1.0 if timeout is None else deadline_of(timeout)
    cdef rota_queue *native = queue.native()
    cdef list terms
    cdef set passed = set()
    cdef Message message
    cdef uint32_t sequence
    cdef uint64_t seen
    if not isinstance(where, Expression) and not callable(where):
        raise TypeError(f"where is a condition or a callable, not {type(where).__name__}")
    if native.options.order == ROTA_ORDER_STRICT:
        raise errors.StateError("a queue of order 'strict' hands out in its order only", path=queue.store.path)
    terms = terms_of(queue, where)
    if terms is not None and len(terms) == 1 and isinstance(where, Comparison):
        message = take_term(queue, terms[0], deadline)
        if is_meant(where, message):
            return message
        message.release()  # another value with the same hash
    while True:
        native = queue.native()
        sequence = rota_load_acquire_u32(&native.wake_sequence)
        seen = arrivals(native)
        message = try_candidates(queue, where, terms, passed)
        if message is not None:
            return message
        wait_for_change(queue, sequence, seen, deadline)


_queue.finding = sys.modules[__name__]
