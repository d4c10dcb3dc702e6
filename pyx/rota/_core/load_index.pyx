"""The indexes of queues out of a checkpoint.

What holds:

1. Lists are linked in the order of their lanes, so a message is added at the end.  Messages that were moved come first
   in the stream and belong later: where there are any, all lists are linked when the lanes are there, sorted.
2. Whose turn it is in a queue of order "group" is decided as its list is linked, not by what the stream says: it was
   taken while messages ended.
"""

from libc.stdlib cimport qsort, realloc

from engine.control cimport *
from engine.format cimport *
from engine.image cimport *
from engine.pool cimport *
from engine.status cimport *
from engine.term cimport ROTA_TERM_COUNT_MAX, ROTA_TERM_SCORE

from rota._core.apply cimport pages_for
from rota._core.control cimport pool_grow
from rota._core.index cimport KEY_ORDINAL, link_place, link_term, pages_for_terms
from rota._core.lane cimport found_at, queue_at
from rota._core.load_tables cimport Later, load_refuse
from rota._core.slots cimport make_ready, order_of

cdef enum:
    UNDO_LINES = 4096   # forgotten before so many are saved


cdef int provide(rota_handle *h, uint64_t messages, rota_error *error) noexcept nogil:
    """Pages for so many messages; what was saved for undoing is forgotten."""
    cdef uint32_t need = pages_for(messages, 8)
    if h.control.indexed_queues:
        need += pages_for_terms(h, ROTA_TERM_COUNT_MAX)
    if h.control.undo_count > UNDO_LINES:
        rota_settle_undo(h)
    return pool_grow(h, need, error) if rota_pool_room(h) < need else ROTA_OK


cdef void read_index(rota_image_cursor *cursor, Details *details) noexcept nogil:
    """What the index knows of a message."""
    cdef unsigned count = rota_image_byte(cursor)
    cdef uint64_t term
    details.flags |= ROTA_SLOT_KEYED
    while count and not cursor.failed:
        count -= 1
        term = rota_image_u64(cursor)
        if term == ROTA_TERM_SCORE:
            details.place = rota_image_u64(cursor)
            details.has_place = 1
        elif details.term_count < ROTA_TERM_COUNT_MAX:
            details.terms[details.term_count] = term
            details.term_count += 1


cdef Later *later_entry(Load *load) noexcept nogil:
    """One more entry of the list, or NULL."""
    cdef uint64_t size = 2 * load.later_size + 1024
    cdef Later *moved
    if load.later_count == load.later_size:
        moved = <Later *>realloc(load.later, size * sizeof(Later))
        if moved == NULL:
            return NULL
        load.later = moved
        load.later_size = size
    load.later_count += 1
    return &load.later[load.later_count - 1]


cdef int enter_index(Load *load, const Found *found, const Details *details) noexcept nogil:
    """Link a message into its lists, or note that for later.  1 when its turn is decided later, -1: no room."""
    cdef rota_handle *h = load.h
    cdef bint is_ready = details.state == ROTA_SLOT_RETURNED or details.state == ROTA_SLOT_WAITING
    cdef Later *later
    cdef uint32_t i
    cdef int result = 0
    if details.has_place and found.queue.options.order == ROTA_ORDER_HIGHEST \
            and link_place(h, found.slot.id, details.place) != ROTA_OK:
        return -1
    for i in range(details.term_count):
        if not found.queue.index_mask >> (details.terms[i] & 15) & 1:
            continue
        if load.moved_terms == 0:
            if link_term(h, found, details.terms[i]) != ROTA_OK:
                return -1
            continue
        later = later_entry(load)
        if later == NULL:
            return -1
        later.term = details.terms[i]
        later.order = details.order if details.order else found.slot.id
        later.id = found.slot.id
        later.slot = rota_ref(found.number, found.index)
        later.queue = found.queue.number
        later.level = found.level
        later.is_ready = details.terms[i] & 15 == KEY_ORDINAL and is_ready \
            and found.queue.options.order == ROTA_ORDER_GROUP
        result = 1 if later.is_ready else result
    return result


cdef int by_list(const void *one, const void *other) noexcept nogil:
    """Lists apart, each in the order of its lane."""
    cdef const Later *x = <const Later *>one
    cdef const Later *y = <const Later *>other
    if x.term != y.term:
        return 1 if x.term > y.term else -1
    if x.queue != y.queue:
        return 1 if x.queue > y.queue else -1
    if x.level != y.level:
        return 1 if x.level > y.level else -1
    if x.order != y.order:
        return 1 if x.order > y.order else -1
    return 1 if x.id > y.id else (-1 if x.id < y.id else 0)


cdef int link_later(Load *load, rota_error *error) noexcept nogil:
    """Messages that were moved came later than their ids say: link all lists now, sorted."""
    cdef rota_handle *h = load.h
    cdef uint64_t i
    cdef Found found
    cdef Later *later
    cdef int status
    if load.later_count:
        qsort(load.later, load.later_count, sizeof(Later), by_list)
    for i in range(load.later_count):
        later = &load.later[i]
        status = provide(h, 1, error)
        if status != ROTA_OK:
            return status
        found_at(h, queue_at(h, later.queue), later.level, later.slot, &found)
        if link_term(h, &found, later.term) != ROTA_OK \
                or (later.is_ready and make_ready(h, &found, order_of(h, found.slot)) != 0):
            return load_refuse("a message finds no place in an index", error)
    return ROTA_OK
