"""Errors: one tree with fields, which survives pickle; one class for each status that a program can meet.

1. A code is the name of a status of the engine. The classes that only group others have codes of their own.
2. A message says where, and what to do about it.
"""

from __future__ import annotations

import builtins
import copy
import errno
import os
import pathlib
import pickle
import queue
import re
from collections.abc import Callable, Iterator

import pytest

import rota
from rota import errors
from rota._core import platform

STATUS_HEADER = pathlib.Path(__file__).resolve().parents[2] / "engine" / "include" / "rota" / "status.h"

GROUPS = {"ERROR", "FENCED", "MISUSE", "OPEN"}
# Statuses without a class of their own, and the class as which they reach a program.
SEEN_AS = {
    "NO_MEMORY": MemoryError,
    "DAMAGED_CONTROL": rota.LogFailed,
    "BUS": rota.SystemCallError,
    "TIMEOUT": rota.SystemCallError,
}
# These end inside the core.
INTERNAL = {"INTERRUPTED", "RETRY"}

FIELDS = {"path": "var/requests", "file": "seg.000003", "offset": 4096, "expected": 7, "found": 9, "errno": errno.EIO}


def tree(cls: type[rota.RotaError] = rota.RotaError) -> Iterator[type[rota.RotaError]]:
    """Yield the classes of the tree, each once."""
    yield cls
    for child in cls.__subclasses__():
        yield from tree(child)


CLASSES = [cls for cls in tree() if cls.__module__ == "rota"]
each_class = pytest.mark.parametrize("cls", CLASSES, ids=lambda cls: cls.__name__)


def full(cls: type[rota.RotaError]) -> rota.RotaError:
    """Make an error of that class with all its fields."""
    return cls(
        "it is so",
        path="var/requests",
        file="seg.000003",
        offset=4096,
        expected=7,
        found=9,
        errno=errno.EIO,
    )


@each_class
def test_an_error_pickles_with_its_fields(cls: type[rota.RotaError]) -> None:
    error = full(cls)
    error.add_note("seen by a worker")
    for protocol in range(pickle.HIGHEST_PROTOCOL + 1):
        arrived = pickle.loads(pickle.dumps(error, protocol))
        assert type(arrived) is cls
        assert {name: getattr(arrived, name) for name in FIELDS} == FIELDS
        assert str(arrived) == str(error)
        assert arrived.args == error.args
        assert arrived.__notes__ == ["seen by a worker"]


@each_class
def test_an_error_is_copied_with_its_fields(cls: type[rota.RotaError]) -> None:
    copied = copy.copy(full(cls))
    assert {name: getattr(copied, name) for name in FIELDS} == FIELDS


@each_class
def test_an_error_needs_no_arguments(cls: type[rota.RotaError]) -> None:
    error = cls()
    assert {getattr(error, name) for name in FIELDS} == {None}
    assert str(error) == (cls.__doc__ or "").split("\n", 1)[0]
    assert str(pickle.loads(pickle.dumps(error))) == str(error)


@each_class
def test_an_error_is_found_where_its_module_says(cls: type[rota.RotaError]) -> None:
    assert cls.__module__ == "rota"
    assert getattr(rota, cls.__qualname__) is cls
    assert cls.__name__ in rota.__all__


@each_class
def test_an_error_says_where(cls: type[rota.RotaError]) -> None:
    text = str(full(cls))
    assert "it is so" in text
    assert "var/requests/seg.000003 at byte 4096" in text
    assert os.strerror(errno.EIO) in text


def test_all_errors_of_the_package_are_in_the_tree() -> None:
    assert {cls.__name__ for cls in CLASSES} == set(errors.__all__)


def test_codes_are_unique() -> None:
    codes = [cls.code for cls in CLASSES]
    assert len(codes) == len(set(codes))
    assert all("code" in vars(cls) for cls in CLASSES)


@each_class
def test_the_engine_knows_the_code(cls: type[rota.RotaError]) -> None:
    # A failpoint takes the name of a status as its argument, and refuses any other word.
    point = platform.failpoint_names()[0]
    if cls.code in GROUPS:
        with pytest.raises(ValueError, match=cls.code):
            platform.arm(point, "error", nth=1 << 60, argument=cls.code)
        return
    platform.arm(point, "error", nth=1 << 60, argument=cls.code)
    platform.disarm(point)


@pytest.mark.tree
def test_every_status_reaches_a_program_as_one_class() -> None:
    statuses = set(re.findall(r"^    X\((\w+), \d+, ", STATUS_HEADER.read_text(), re.MULTILINE))
    codes = {cls.code for cls in CLASSES}
    assert statuses - INTERNAL == (codes - GROUPS) | set(SEEN_AS)
    assert codes.isdisjoint(SEEN_AS)
    assert codes.isdisjoint(INTERNAL)


@each_class
def test_a_code_makes_its_class(cls: type[rota.RotaError]) -> None:
    error = errors.error_for(cls.code, "it is so", path="var/requests", errno=errno.EIO)
    assert type(error) is cls
    assert error.path == "var/requests"


@pytest.mark.parametrize("code", sorted(SEEN_AS))
def test_a_status_without_a_class_is_seen_as_another(code: str) -> None:
    error = errors.error_for(code, "it is so")
    assert type(error) is SEEN_AS[code]
    assert "it is so" in str(error)


def test_a_fault_of_a_mapped_file_is_an_error_of_the_disk() -> None:
    error = errors.error_for("BUS", "it is so")
    assert isinstance(error, OSError)
    assert error.errno == errno.EIO


@pytest.mark.parametrize(
    ("cls", "base"),
    [
        (rota.Empty, queue.Empty),
        (rota.Full, queue.Full),
        (rota.DiskFull, queue.Full),
        (rota.NotFound, LookupError),
        (rota.NotARepository, FileNotFoundError),
        (rota.LockHeld, TimeoutError),
        (rota.SystemCallError, OSError),
        (rota.MessageTooLarge, ValueError),
        (rota.TransactionTooLarge, ValueError),
        (rota.OptionMismatch, ValueError),
        (rota.ClosedError, ValueError),
        (rota.StaleLeader, rota.Fenced),
        (rota.StaleClerk, rota.Fenced),
        (rota.ForkedHandleError, rota.Misuse),
    ],
    ids=lambda cls: cls.__name__,
)
def test_who_knows_the_standard_errors_catches_these(cls: type[Exception], base: type[Exception]) -> None:
    assert issubclass(cls, base)
    assert issubclass(cls, rota.RotaError)


def test_nothing_shadows_a_name_of_python_but_open() -> None:
    assert [name for name in rota.__all__ if hasattr(builtins, name)] == ["open"]


def reopened_with_another_bound(repo: rota.Repository) -> None:
    repo.queue("orders", max_messages=3)


def opened_where_nothing_is(repo: rota.Repository) -> None:
    rota.open(pathlib.Path(repo.path).with_name("elsewhere"), create=False)


def put_on_a_stopped_queue(repo: rota.Repository) -> None:
    repo.queue("orders").stop()
    repo.queue("orders").put(b"x")


def batch_too_large(repo: rota.Repository) -> None:
    repo.queue("orders").put_many([b"x" * 9000] * 9)


def compressed_batch_too_large(repo: rota.Repository) -> None:
    repo.queue("orders").put_many([os.urandom(9000)] * 9, compression="lz4")


def message_too_large(repo: rota.Repository) -> None:
    repo.queue("orders").put(b"x" * 90_000)


def transaction_too_large(repo: rota.Repository) -> None:
    with repo.transaction() as transaction:
        for _ in range(9):
            transaction.put(repo.queue("orders"), b"x" * 9000)


def opened_on_a_file(repo: rota.Repository) -> None:
    path = pathlib.Path(repo.path).with_name("file")
    path.write_bytes(b"")
    rota.open(path)


def opened_below_a_file(repo: rota.Repository) -> None:
    path = pathlib.Path(repo.path).with_name("file")
    path.write_bytes(b"")
    rota.open(path / "r")


def looked_for_on_a_file(repo: rota.Repository) -> None:
    path = pathlib.Path(repo.path).with_name("file")
    path.write_bytes(b"")
    rota.open(path, create=False)


def destroyed_while_it_holds_messages(repo: rota.Repository) -> None:
    repo.queue("orders").put(b"x")
    repo.destroy("orders")


def acked_without_a_claim(repo: rota.Repository) -> None:
    repo.queue("orders").put(b"x")
    repo.queue("orders").peek().ack()


@pytest.mark.parametrize(
    ("mistake", "cls", "advice"),
    [
        (reopened_with_another_bound, rota.OptionMismatch, r"use configure\(\)"),
        (opened_where_nothing_is, rota.NotARepository, "create=True"),
        (put_on_a_stopped_queue, rota.QueueStopped, r"start\(\)"),
        (batch_too_large, rota.TransactionTooLarge, "put it in parts"),
        (compressed_batch_too_large, rota.TransactionTooLarge, "16384 bytes: put it in parts"),
        (message_too_large, rota.MessageTooLarge, "split it"),
        (transaction_too_large, rota.TransactionTooLarge, "use several"),
        (opened_on_a_file, rota.NotARepository, "choose another"),
        (opened_below_a_file, rota.NotARepository, "choose another"),
        (looked_for_on_a_file, rota.NotARepository, "not a directory"),
        (destroyed_while_it_holds_messages, rota.InUse, "purge it or use force=True"),
        (acked_without_a_claim, rota.StateError, r"get\(\) claims one"),
    ],
    ids=lambda value: getattr(value, "__name__", None),
)
def test_a_message_says_what_to_do(
    directory: pathlib.Path, mistake: Callable[[rota.Repository], None], cls: type[rota.RotaError], advice: str
) -> None:
    with rota.open(directory / "r", capacity="1 MiB") as repo:
        repo.queue("orders", max_messages=2)
        with pytest.raises(cls, match=advice):
            mistake(repo)


def test_damage_names_file_and_byte(directory: pathlib.Path) -> None:
    body = b"a body that is nowhere else in the files"
    with rota.open(directory / "r", capacity="1 MiB") as repo:
        receipt = repo.queue("orders").put(body)
        segment = next(path for path in sorted((directory / "r").glob("seg.*")) if body in path.read_bytes())
        place = segment.read_bytes().index(body)
        with segment.open("r+b") as file:
            file.seek(place)
            file.write(b"A")
        with pytest.raises(rota.Corrupt, match="rota verify") as caught:
            _ = repo.queue("orders").read(receipt.id).body
    error = caught.value
    assert error.path == str(directory / "r")
    assert error.file == segment.name
    assert error.offset is not None
    assert 0 < error.offset <= place
    assert f"{segment.name} at byte {error.offset}" in str(error)


def test_a_page_that_cannot_be_written_is_an_error_of_the_system(directory: pathlib.Path) -> None:
    with rota.open(directory / "r", capacity="1 MiB") as repo:
        orders = repo.queue("orders")
        platform.inject("copy_guarded", errno=errno.EIO)
        try:
            with pytest.raises(rota.SystemCallError, match="nothing was published") as caught:
                orders.put(b"x")
            assert caught.value.file == "seg.000000"
        finally:
            platform.injections_clear()
        assert len(orders) == 0
        orders.put(b"x")


def test_a_file_system_that_refuses_writes_is_a_fact_of_the_world(directory: pathlib.Path) -> None:
    with rota.open(directory / "r", capacity="1 MiB") as repo:
        orders = repo.queue("orders")
        platform.inject("pwrite", nth=0, errno=errno.EROFS)
        try:
            with pytest.raises(rota.SystemCallError) as caught:
                orders.put(b"x" * 9000)
        finally:
            platform.injections_clear()
        assert not isinstance(caught.value, rota.Misuse)
        assert caught.value.errno == errno.EROFS


def test_a_directory_of_others_is_left_as_it_is(directory: pathlib.Path) -> None:
    with pytest.raises(rota.NotARepository, match="create=True"):
        rota.open(directory, create=False)
    assert list(directory.iterdir()) == []


def test_a_directory_that_cannot_be_made_is_an_error_of_the_system() -> None:
    with pytest.raises(rota.SystemCallError) as caught:
        rota.open("/proc/none/r")
    assert caught.value.errno == errno.ENOENT


def test_a_receipt_of_nothing_says_so(directory: pathlib.Path) -> None:
    with rota.open(directory / "r", capacity="1 MiB") as repo:
        receipt = repo.queue("orders").put_many([])
        assert repr(receipt) == "<rota.Receipt of none durable>"
        assert list(receipt.ids) == []
