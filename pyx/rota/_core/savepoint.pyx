"""Places in a transaction to roll back to.

What holds: savepoints of a transaction are a stack; rolling back or releasing one ends those above it.
"""

cimport cython
from libc.stdint cimport uint32_t, uint64_t

from rota._core.transaction cimport Transaction

from rota import errors

cdef enum:
    OPEN = 1


def mark(Transaction owner not None):
    """A savepoint at the present end of the transaction."""
    cdef Savepoint savepoint = Savepoint.__new__(Savepoint)
    savepoint.owner = owner
    savepoint.entries = len(owner.journal)
    savepoint.data_bytes = owner.draft.data_bytes
    savepoint.message_count = owner.draft.message_count
    savepoint.operations = owner.operations
    return savepoint


@cython.final
cdef class Savepoint:
    """A place in a transaction to roll back to; from transaction.savepoint().

    A context manager: released at the end of the block, rolled back on an exception, which goes on.
    """

    cdef Transaction owner
    cdef Py_ssize_t entries       # of the journal
    cdef uint64_t data_bytes
    cdef uint32_t message_count
    cdef uint32_t operations

    def __init__(self):
        raise TypeError("a savepoint comes from transaction.savepoint()")

    cdef int check(self) except -1:
        if self.owner is None or self.owner.state != OPEN:
            raise errors.StateError("the transaction of this savepoint has ended")
        self.owner.open()
        if self not in self.owner.savepoints:
            raise errors.StateError("the savepoint was released, or rolled back with an earlier one")
        return 0

    def rollback(self):
        """Undo everything since the savepoint, which stays and may be used again; later ones end.

        Claimed messages go back at their old places, and their attempts do not count; those claimed outside and acked
        here are claimed outside again.
        """
        self.check()
        self.owner.savepoints = self.owner.savepoints[:self.owner.savepoints.index(self) + 1]
        self.owner.undo_to(self.entries, self.message_count, self.data_bytes, self.operations)

    def release(self):
        """Forget the savepoint and later ones; what was done since stays part of the transaction."""
        self.check()
        self.owner.savepoints = self.owner.savepoints[:self.owner.savepoints.index(self)]

    def __enter__(self):
        self.check()
        return self

    def __exit__(self, kind, value, traceback):
        if self.owner.state != OPEN or self not in self.owner.savepoints:
            return
        if kind is not None:
            self.rollback()
        self.release()

    def __reduce__(self):
        raise TypeError("a savepoint belongs to its transaction and is not pickled")

    def __repr__(self):
        alive = self.owner.state == OPEN and self in self.owner.savepoints
        return f"<rota.Savepoint {'open' if alive else 'ended'}>"
