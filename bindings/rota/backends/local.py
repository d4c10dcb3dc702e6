"""Election among the processes of one machine: a lock on a byte of the repository, a counter in its log.

What holds:

1. The lock belongs to an open file that no child keeps (closed there after a fork), so it ends with its process,
   however that ends.  A process that is stopped keeps it: nobody else is elected, as nobody may break a lock here.
2. The token is one more than the last, which is the fence of the queue NAME.leader: it is durable before anybody leads.
3. Who waits sleeps on the process of the leader, so a kill is seen at once; a resignation within 50 ms.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import select
import struct
import weakref
from collections.abc import Callable

from rota import leaders
from rota._office import holder_of, office_queue, take_office
from rota.errors import ForkedHandleError
from rota.leaders import Elector, Leadership
from rota.repository import Repository

__all__ = ["LocalElector"]

_FIRST_BYTE = 1 << 40  # of the lock file: far behind those of the engine
_SLICE_MS = 50
_electors: weakref.WeakSet[LocalElector] = weakref.WeakSet()


class LocalElector(Elector):
    """An elector for processes that share a repository: no server, the default.

    `name` is what is led, usually the name of a queue; `identity` how this instance is called in `rota leader`.
    """

    def __init__(self, repository: Repository, name: str, identity: str | None = None) -> None:
        super().__init__(leaders.default_identity() if identity is None else identity)
        self.repository = repository
        self.name = name
        self._queue = office_queue(repository, name)
        self._file = -1
        self._pid = os.getpid()
        _electors.add(self)

    def stand(self, prepare: Callable[[], None], learn: Callable[[Leadership], None]) -> Leadership | None:
        """Wait for the lock.  Raises ForkedHandleError in a forked child."""
        self._check()
        if self._file < 0:
            self._file = os.open(os.path.join(self.repository.path, "lock"), os.O_RDWR | os.O_CLOEXEC)
        try:
            leadership = self._wait(prepare, learn)
        except BaseException:
            self._close()
            raise
        if leadership is None:
            self._close()
        return leadership

    def _wait(self, prepare: Callable[[], None], learn: Callable[[Leadership], None]) -> Leadership | None:
        known = 0
        prepared = False
        while not self.cancelled:
            elected = self._try_lock(fcntl.F_WRLCK)
            if not prepared:
                prepare()
                prepared = True
            if elected:
                token = (self._queue.fencing_token or 0) + 1
                take_office(self.repository, self.name, token, self.identity)
                return Leadership(token, self.identity, lambda: self._file >= 0 and self._pid == os.getpid())
            holder = holder_of(self.repository, self.name)
            if holder is not None and holder.token > known:
                known = holder.token
                learn(leaders.read_only_view(holder.token, holder.identity))
            self._wait_for(None if holder is None else holder.pid)
        return None

    def resign(self, leadership: Leadership) -> None:
        """Let the lock go."""
        self._check()
        self._close()

    def _check(self) -> None:
        if self._pid != os.getpid():
            raise ForkedHandleError(
                "the elector belongs to the parent process: make one here", path=self.repository.path
            )

    def _try_lock(self, kind: int) -> bool:
        # struct flock of 64-bit Linux: type, whence, start, length, pid (0 for a lock of the open file).
        asked = struct.pack("hhqqixxxx", kind, os.SEEK_SET, _FIRST_BYTE + self._queue.number_, 1, 0)
        try:
            fcntl.fcntl(self._file, fcntl.F_OFD_SETLK, asked)
        except OSError as error:
            if error.errno in (errno.EAGAIN, errno.EACCES):
                return False
            raise
        return True

    def _wait_for(self, pid: int | None) -> None:
        """Sleep until that process ends, a slice at most."""
        with contextlib.ExitStack() as stack:
            poll = select.poll()
            try:
                handle = os.pidfd_open(pid) if pid is not None and pid != os.getpid() else -1
            except OSError:  # it is gone already, and its successor did not write yet
                handle = -1
                stack.callback(self._cancelled.wait, 0.001)
            if handle >= 0:
                stack.callback(os.close, handle)
                poll.register(handle, select.POLLIN)
                if poll.poll(_SLICE_MS):
                    self._cancelled.wait(0.001)  # others wake too: one of them may be about to write
            elif pid is None or pid == os.getpid():
                self._cancelled.wait(_SLICE_MS / 1000)

    def _close(self) -> None:
        if self._file >= 0:
            file, self._file = self._file, -1
            os.close(file)


def _after_fork() -> None:
    """A copy of the descriptor in a child would keep the lock when its parent dies."""
    for elector in list(_electors):
        elector._close()


os.register_at_fork(after_in_child=_after_fork)
