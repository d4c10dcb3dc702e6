"""Waits for input and output that a signal ends, also a signal that came just before the wait.

Python notices a signal between two of its own steps. One that arrives behind the last step before a system call
would be seen only when the call returns, which for a read of a silent pipe is never. So the signal also writes a byte
into a pipe, and every wait looks at that pipe too.
"""

from __future__ import annotations

import errno
import io
import os
import select
import signal
import stat
from typing import Any

# A pipe that can be written to takes at least so many bytes without a wait.
PIPE_BYTES = select.PIPE_BUF
STANDARD_INPUT = "-"
STANDARD_OUTPUT = 1
SIGNALS: list[int] = []


def listen_for_signals() -> None:
    """Let signals be seen by the waits of this module; once in the life of the program."""
    reader, writer = os.pipe2(os.O_CLOEXEC | os.O_NONBLOCK)
    signal.set_wakeup_fd(writer, warn_on_full_buffer=False)
    SIGNALS.append(reader)


def wait_for(descriptor: int, event: int) -> None:
    """Wait until a descriptor can be read or written; a signal's handler runs before this goes on waiting."""
    poll = select.poll()
    poll.register(descriptor, event)
    for reader in SIGNALS:
        poll.register(reader, select.POLLIN)
    while True:
        ready = [number for number, _ in poll.poll()]
        for reader in SIGNALS:
            if reader in ready:
                os.read(reader, PIPE_BYTES)
        if descriptor in ready:
            return


class PatientFile(io.FileIO):
    """A pipe, a socket or a terminal whose silence a signal ends."""

    def readinto(self, buffer: Any, /) -> int:
        """Wait for bytes, then read those that are there."""
        wait_for(self.fileno(), select.POLLIN)
        return super().readinto(buffer)


def open_patiently(path: str) -> io.BufferedReader:
    """Open a file for reading; "-" is standard input, which stays open when this is closed."""
    standard = path == STANDARD_INPUT
    descriptor = 0 if standard else os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    mode = os.fstat(descriptor).st_mode
    if stat.S_ISDIR(mode):
        os.close(descriptor)
        raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), path)
    kind = io.FileIO if stat.S_ISREG(mode) else PatientFile
    return io.BufferedReader(kind(descriptor, closefd=not standard))


def write_out(data: bytes) -> None:
    """Write to standard output past every buffer, so that nothing is left in one when a signal comes."""
    rest = memoryview(data)
    size = len(rest) if stat.S_ISREG(os.fstat(STANDARD_OUTPUT).st_mode) else PIPE_BYTES
    while rest:
        wait_for(STANDARD_OUTPUT, select.POLLOUT)
        rest = rest[os.write(STANDARD_OUTPUT, rest[:size]) :]
