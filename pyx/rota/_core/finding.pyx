"""Finding messages by what they say: through the index of a queue, or by looking at some of them.

What holds:

1. What the index names is compared with the message itself before it is handed out: a list holds hashes.
2. Nothing of the user's runs under the lock.
"""

from cpython.exc cimport PyErr_CheckSignals
from libc.stdint cimport uint8_t, uint32_t, uint64_t
from libc.stdlib cimport free, malloc
from libc.string cimport memcmp, memset

from engine.atomics cimport *
from engine.control cimport *
from engine.format cimport *
from engine.handle cimport rota_handle
from engine.pool cimport *
from engine.status cimport *
from engine.term cimport *

from rota._core.claim cimport Claimed, Run, Wanted
from rota._core.index cimport posting_at, posting_of, values_of
from rota._core.lane cimport Found, chunk_at, chunk_count, find, lane_live, lane_ready, queue_at
from rota._core.lock cimport lock_enter, lock_leave, lock_slice
from rota._core.message cimport Message, new_message
from rota._core.queue cimport Queue
from rota._core.store cimport deadline_of, now
from rota._core.waiting cimport arrivals, wait_ready

import sys

from rota import errors
from rota._core import queue as _queue
from rota._core.codec import encode_value
from rota.expressions import Comparison, Expression
from rota.expressions import header as header_field
from rota.expressions import key as key_field

cdef enum:
    LIST_MAX = 4096
    LOOKS_MAX = 1000    # messages that a get looks at, when no list has exactly what is meant


cdef int heads_of(rota_handle *h, uint32_t number, uint64_t id, uint64_t *terms, uint32_t *level) noexcept nogil:
    """By ordinal the term of each list that this message heads; how many fields of it are indexed."""
    cdef rota_queue *queue = queue_at(h, number)
    cdef const rota_record *posting
    cdef uint32_t ordinal, count = 0
    cdef Found found
    if queue == NULL or not find(h, queue, id, &found):
        return 0
    level[0] = found.level
    for ordinal in range(15):
        posting = posting_of(h, id, ordinal)
        terms[ordinal] = posting.a if posting != NULL and posting.b == 0 else 0
        count += posting != NULL
    return count


cdef uint32_t list_ids(rota_handle *h, uint32_t number, uint32_t level, uint64_t term, uint64_t *ids) noexcept nogil:
    """The messages of one list, at most LIST_MAX of them."""
    cdef const rota_record *values = values_of(h, number, level, term)
    cdef const rota_record *posting
    cdef uint64_t slot = values.a if values != NULL else 0
    cdef uint32_t count = 0
    while slot and count < LIST_MAX:
        ids[count] = rota_slot_at(h, slot).id
        count += 1
        posting = posting_at(h, slot, term & 15)
        slot = posting.c if posting != NULL else 0
    if values != NULL and count < LIST_MAX and (values.c != count
                                                or rota_slot_at(h, values.b).id != ids[count - 1]):
        return 0  # a list that contradicts its head
    return count


def index_lists(Queue queue):
    """Every list of the index, as (priority, ordinal of the field, ids); for tests.  Raises ValueError when one
    contradicts its head, or when a message stands in none or twice."""
    cdef rota_handle *h = queue.store.h
    cdef rota_error error
    cdef uint64_t ids[4096]
    cdef uint64_t terms[16]
    cdef uint32_t level = 0, ordinal, count
    cdef int fields, expected = 0
    lists = []
    after = 0
    while True:
        page = queue.ids(after, 1000)
        if not page:
            break
        for id in page:
            if lock_enter(h, &error) != ROTA_OK:
                queue.store.fail(&error)
            fields = heads_of(h, queue.number, id, terms, &level)
            lock_leave(h)
            expected += fields
            for ordinal in range(15 if fields else 0):
                if terms[ordinal]:
                    count = list_ids(h, queue.number, level, terms[ordinal], ids)
                    if count == 0:
                        raise ValueError(f"a list of message {id} contradicts its head")
                    lists.append((level, ordinal, [ids[i] for i in range(count)]))
        after = page[len(page) - 1]
    listed = sum(len(found) for _, _, found in lists)
    if listed != expected:
        raise ValueError(f"the lists name {listed} fields, the messages have {expected}")
    return lists


# --- terms of values -------------------------------------------------------------------------------------------------


cdef uint64_t term_of(Queue queue, name, value) except? 0:
    """The term of a value of that header (None: the key) in the index of the queue; 0 when it is not indexed."""
    cdef rota_queue *native = queue.native()
    cdef rota_index_cursor cursor
    cdef rota_index_field field
    cdef bytes label, data
    cdef int kind
    if name is None:
        if not native.index_mask & 1:
            return 0
        kind, data = encode_value("key", value)
        return rota_term(queue.store.h.salt, 0, NULL, 0, kind, <const uint8_t *><const char *>data, <uint32_t>len(data))
    label = (<str?>name).encode("utf-8", "surrogatepass")
    rota_index_begin(&cursor, native.index_text, native.index_bytes)
    while rota_index_next(&cursor, &field):
        if field.kind == ROTA_INDEX_HEADER and field.name_length == <uint32_t>len(label) \
                and memcmp(field.name, <const char *>label, field.name_length) == 0:
            kind, data = encode_value(name, value)
            return rota_term(queue.store.h.salt, field.ordinal, field.name, field.name_length, kind,
                             <const uint8_t *><const char *>data, <uint32_t>len(data))
    return 0


cdef list terms_of(Queue queue, where):
    """The fewest terms of which every match of an expression has one, or None when no index can tell."""
    cdef list best = None, terms
    cdef uint64_t term
    if not isinstance(where, Expression):
        return None
    for alternative in where.lookups():
        terms = []
        for name, value in alternative:
            term = term_of(queue, name, value)
            if term == 0:
                break
            terms.append(term)
        else:
            if best is None or len(terms) < len(best):
                best = terms
    return best


# --- candidates ------------------------------------------------------------------------------------------------------


cdef uint32_t ids_of_term(rota_handle *h, uint32_t number, uint64_t term, uint64_t *ids, uint32_t limit) noexcept nogil:
    """Messages of the lists of one term, high priorities first, at most `limit`."""
    cdef const rota_queue *queue = queue_at(h, number)
    cdef const rota_record *values
    cdef const rota_record *posting
    cdef uint64_t slot
    cdef uint32_t count = 0
    cdef int level
    for level in range(9 if queue != NULL else -1, -1, -1):
        if lane_live(&queue.lanes[level]) == 0:
            continue
        values = values_of(h, number, <uint32_t>level, term)
        slot = values.a if values != NULL else 0
        while slot and count < limit:
            ids[count] = rota_slot_at(h, slot).id
            count += 1
            posting = posting_at(h, slot, <uint32_t>(term & 15))
            slot = posting.c if posting != NULL else 0
    return count


cdef uint32_t ready_in_lane(rota_handle *h, rota_lane *lane, uint64_t *ids, uint32_t limit) noexcept nogil:
    """Messages that are ready or were a moment ago: what came back, then what the cursor has not passed."""
    cdef const rota_heap_entry *entry
    cdef rota_page *page
    cdef rota_slot *slot
    cdef uint32_t count = 0, i, number = lane.cursor if lane.cursor else lane.head
    for i in range(lane.heap.size if lane.heap.size < limit else limit):
        entry = rota_heap_at(h, &lane.heap, i)
        ids[count] = entry.id
        count += 1
    i = lane.cursor_index if lane.cursor else 0
    while number and count < limit:
        page = chunk_at(h, number)
        if page == NULL:
            break
        while i < chunk_count(lane, number, page) and count < limit:
            slot = rota_page_slot(page, i)
            if rota_slot_state(slot.word) == ROTA_SLOT_FRESH:
                ids[count] = slot.id
                count += 1
            i += 1
        number = page.next
        i = 0
    return count


cdef uint32_t ready_ids(rota_handle *h, uint32_t number, uint64_t *ids, uint32_t limit) noexcept nogil:
    cdef rota_queue *queue = queue_at(h, number)
    cdef uint32_t count = 0
    cdef int level
    for level in range(9 if queue != NULL else -1, -1, -1):
        if lane_ready(&queue.lanes[level]) and count < limit:
            count += ready_in_lane(h, &queue.lanes[level], ids + count, limit - count)
    return count


cdef list collect(Queue queue, list terms, uint32_t limit):
    """Ids to look at: of these terms, or (None) of what is ready; at most `limit`."""
    cdef rota_handle *h = queue.store.h
    cdef rota_error error
    cdef int status, slices
    cdef uint32_t count, i, number = queue.number
    cdef uint64_t term = 0
    cdef uint64_t *ids = <uint64_t *>malloc(limit * sizeof(uint64_t))
    cdef list found = []
    if ids == NULL:
        raise MemoryError
    try:
        for choice in [0] if terms is None else terms:
            term = choice
            count = 0
            status, slices = ROTA_RETRY, 0
            while queue.store.again(&status, &slices, &error):
                with nogil:
                    rota_fetch_add_u32(&h.calls, 1)
                    status = lock_slice(h, &error)
                    if status == ROTA_OK:
                        count = ids_of_term(h, number, term, ids, limit) if term else ready_ids(h, number, ids, limit)
                        lock_leave(h)
                rota_fetch_sub_u32(&h.calls, 1)
            if status != ROTA_OK:
                queue.store.fail(&error)
            for i in range(count):
                found.append(ids[i])
    finally:
        free(ids)
    return found[:limit] if terms is None or len(terms) == 1 else list(dict.fromkeys(found))[:limit]


cdef bint is_meant(where, Message message) except -1:
    if isinstance(where, Expression):
        return where.matches(message.key, message.headers)
    return bool(where(message))


# --- looking and taking ----------------------------------------------------------------------------------------------


cdef tuple joined(key, header, where):
    """The condition and the callable (None: there is none) that must hold."""
    if where is not None and not isinstance(where, Expression) and not callable(where):
        raise TypeError(f"where is a condition or a callable, not {type(where).__name__}")
    conditions = [] if key is None else [key_field == key]
    conditions += [header_field(name) == value for name, value in (header or {}).items()]
    if isinstance(where, Expression):
        conditions.append(where)
    condition = conditions[0] if conditions else None
    for other in conditions[1:]:
        condition = condition & other
    return condition, None if isinstance(where, Expression) else where


cdef list oldest(Queue queue, uint32_t limit):
    """Ids of the oldest live messages."""
    cdef list found = queue.ids(0, limit), more = found
    while more and len(found) < limit:
        more = queue.ids(more[len(more) - 1], limit - len(found))
        found.extend(more)
    return found


def find_messages(Queue queue, key, header, where, uint32_t limit):
    """Queue.find()."""
    cdef list terms, ids, found = []
    cdef Message message
    condition, function = joined(key, header, where)
    if limit == 0:
        return found
    terms = terms_of(queue, condition)
    ids = oldest(queue, limit) if terms is None else collect(queue, terms, limit)
    for id in ids:
        try:
            message = queue.read(id)
        except (errors.NotFound, errors.Corrupt):
            continue
        if (condition is None or is_meant(condition, message)) and (function is None or is_meant(function, message)):
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
    for id in collect(queue, terms, LOOKS_MAX):
        if id in passed:
            continue
        try:
            message = queue.read(id)
            if not is_meant(where, message):
                passed.add(id)
                continue
        except (errors.NotFound, errors.Corrupt):
            continue
        message = take_id(queue, id)
        if message is not None:
            return message
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
