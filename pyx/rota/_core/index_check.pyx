"""The lists of an index, for tests and checks: every list whole, every message in the lists of its fields.

What holds: a message at a time is looked at under the lock; what happens between two of them makes a difference.
"""

from libc.stdint cimport uint32_t, uint64_t

from engine.control cimport *
from engine.handle cimport rota_handle
from engine.pool cimport *
from engine.status cimport *

from rota._core.index cimport posting_at, posting_of, values_of
from rota._core.lane cimport Found, find, queue_at
from rota._core.lock cimport lock_enter, lock_leave
from rota._core.queue cimport Queue

cdef enum:
    LIST_MAX = 4096


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
