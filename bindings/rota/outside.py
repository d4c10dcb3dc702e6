"""Exactly once with a database outside of the repository: what was processed is noted where the effect is.

What holds:

1. The id of the message is written in the SQL transaction that has the effect, and looked for first.  So however often
   a message comes back, because its process died before it was settled, the effect is there once.
2. Two that process one message at a time, after a lost lease, both find nothing; the primary key refuses one of them.

Bernstein and Newcomer, "Principles of Transaction Processing", on queued transactions and other resource managers.
"""

from __future__ import annotations

import contextlib
import re
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from rota.errors import StateError

if TYPE_CHECKING:
    from rota._core.message import Message

__all__ = ["SqlMemory"]

_TABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_.]{0,127}")


class SqlMemory:
    """Which messages a database knows as processed: a table of it, by (queue, id), made when there is none.

    `connection` is one of the Python database API (PEP 249) in its transactional mode, for one thread as that says;
    `placeholder` is how its statements write a parameter.  The table is only added to: delete what is settled long ago,
    ids rise.  Raises ValueError for a connection that commits each statement, or a strange table name.
    """

    def __init__(self, connection: Any, table: str = "rota_processed", placeholder: str = "?") -> None:
        if not _TABLE.fullmatch(table):
            raise ValueError(f"the name of a table has letters, digits, '_' and '.', not {table!r}")
        if getattr(connection, "isolation_level", "") is None or getattr(connection, "autocommit", False) is True:
            raise ValueError("this connection commits each statement by itself: open it with transactions")
        self.connection = connection
        self._find = f"SELECT 1 FROM {table} WHERE queue = {placeholder} AND id = {placeholder}"
        self._note = f"INSERT INTO {table} (queue, id) VALUES ({placeholder}, {placeholder})"
        self._run(
            f"CREATE TABLE IF NOT EXISTS {table} "
            "(queue VARCHAR(255) NOT NULL, id BIGINT NOT NULL, PRIMARY KEY (queue, id))"
        )
        connection.commit()

    @contextlib.contextmanager
    def once(self, message: Message) -> Iterator[bool]:
        """Whether the message is processed for the first time: `with memory.once(message) as first: if first: ...`.

        The end of the block commits what it did on the connection together with the message's id; an exception rolls it
        back and goes on.  Settle the message afterwards.  Raises StateError when the connection is in a
        transaction already, and what the database raises: then the message is to come back.
        """
        if getattr(self.connection, "in_transaction", False):
            raise StateError("the connection is in a transaction already: its commit would not be that of the message")
        name = message.queue.name
        try:
            first = not self._run(self._find, name, message.id)
            if first:
                self._run(self._note, name, message.id)
            yield first
            self.connection.commit()
        except BaseException:
            self.connection.rollback()
            raise

    def _run(self, statement: str, *parameters: Any) -> bool:
        """Whether it gave a row."""
        cursor = self.connection.cursor()
        try:
            cursor.execute(statement, parameters)
            return cursor.description is not None and cursor.fetchone() is not None
        finally:
            cursor.close()
