"""Redriving messages: back to where they were first put, with new counts."""

from libc.stdint cimport uint64_t

from engine.format cimport *

from rota._core.draft cimport Draft, draft_begin, draft_end
from rota._core.message cimport submit_settle
from rota._core.moving cimport draft_move
from rota._core.queue cimport Queue

from rota import errors


def redrive_messages(Queue queue, ids, target):
    """Move messages in one commit; returns how many.  Raises NotFound, and StateError for a queue of another repository."""
    cdef Draft draft
    cdef uint64_t level = 0
    cdef Queue other
    queue.store.check_writable()
    moves = [(int(id), queue.repository.home_of(queue, int(id)) if target is None else target) for id in ids]
    if not moves:
        return 0
    draft_begin(&draft, queue.store.h)
    try:
        for id, where in moves:
            other = <Queue?>where
            if other.store is not queue.store:
                raise errors.StateError(f"the queue {other.name!r} is one of another repository")
            queue.find_ref(id, &level)
            draft_move(queue.store.h, &draft, queue.number, id, other.number, 0, ROTA_MOVE_REDRIVE)
        submit_settle(queue.store, &draft, None)
    finally:
        draft_end(&draft)
    return len(moves)
