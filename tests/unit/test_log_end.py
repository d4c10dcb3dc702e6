"""Where a log ends: files made byte by byte, damaged, and judged as an open would judge them."""

from __future__ import annotations

import os
import pathlib
import struct

import pytest

from rota import inspection
from rota._core.inspection import Inspector
from rota._core.inspection_builder import Builder

SEGMENT, UNIT = 65536, 512
MARK, CLOSE = 1, 4
PUT = 1


HEADER = struct.Struct("<IHHQIIIIIIQQQQQQII")
FRAME = struct.Struct("<IIIIQHHBBH")
OPERATION = struct.Struct("<BBHIQQQ")
CELL = 32


def commit_of(count: int, size: int) -> bytearray:
    """Lay out a commit of so many messages, or of none, without its sums."""
    encoded = OPERATION.pack(PUT, 0, 1, 0, 0, count, 0) if count else b""
    data = HEADER.size + len(encoded) + FRAME.size * count
    directory, rest = bytearray(), bytearray()
    for _ in range(count):
        directory += FRAME.pack(0, size, data + len(rest), 0, 0, 0, 1, 0, 0, 0)
        rest += os.urandom(size)
    whole = bytearray(HEADER.size) + encoded + directory + rest
    whole += bytes(-len(whole) % CELL)
    HEADER.pack_into(whole, 0, 0, 0, 0, 0, len(whole), len(encoded), count, 1 if count else 0, *([0] * 10))
    return whole


class Log:
    """A log in the making: it writes what a process would, and keeps what it wrote."""

    def __init__(self, path: pathlib.Path) -> None:
        self.path = path
        path.mkdir()
        self.builder = Builder(path, bytes(range(16)), 4711, SEGMENT, 12 * SEGMENT, UNIT, 0, 1)
        self.tail, self.chain, self.next_id, self.durable = 4096, 0, 1, 0
        self.sealed = False
        self.commits: list[tuple[int, int]] = []
        self.files: list[int] = []

    def write(self, lsn: int, data: bytes) -> None:
        turn, offset = divmod(lsn, SEGMENT)
        while turn >= len(self.files):
            number = len(self.files)
            header = self.builder.segment(number, number * SEGMENT + 4096)
            self.files.append(number)
            self.store(number, 0, header)
        self.store(turn, offset, data)

    def store(self, number: int, offset: int, data: bytes) -> None:
        with open(self.path / f"seg.{number:06d}", "r+b") as file:
            file.seek(offset)
            file.write(data)

    def append(self, count: int = 1, size: int = 100, flags: int = 0, sub_epoch: int = 0, publish: bool = True) -> int:
        whole = commit_of(count, size)
        lsn = -(-self.tail // UNIT) * UNIT if self.sealed else self.tail
        if lsn % SEGMENT + len(whole) > SEGMENT or lsn % SEGMENT == 0:
            lsn = -(-lsn // SEGMENT) * SEGMENT + 4096
        old = HEADER.unpack_from(whole)
        HEADER.pack_into(
            whole,
            0,
            0,
            0,
            flags,
            lsn,
            *old[4:8],
            1,
            sub_epoch,
            self.chain,
            self.durable,
            self.next_id,
            1,
            0,
            0,
            0,
            0,
        )
        sealed, chain = self.builder.seal(whole)
        self.write(lsn, sealed)
        if publish:
            self.tail, self.chain, self.next_id, self.sealed = (
                lsn + len(sealed),
                chain,
                self.next_id + count,
                False,
            )
            self.commits.append((lsn, len(sealed)))
        return lsn

    def sync(self) -> None:
        self.durable, self.sealed = self.tail, True

    def flip(self, lsn: int, length: int = 1) -> None:
        path = self.path / f"seg.{lsn // SEGMENT:06d}"
        data = bytearray(path.read_bytes())
        for at in range(lsn % SEGMENT, lsn % SEGMENT + length):
            data[at] ^= 1
        path.write_bytes(data)

    def judged(self) -> tuple[str, int]:
        case, _, end, *_ = Inspector(self.path).judge()
        return inspection.CASES[case][0], end


@pytest.fixture
def log(tmp_path: pathlib.Path) -> Log:
    return Log(tmp_path / "repository")


def test_a_whole_commit_ends_the_log(log: Log) -> None:
    for _ in range(5):
        log.append()
    assert log.judged() == ("ended", log.tail)


def test_a_clean_close_is_told_from_an_idle_log(log: Log) -> None:
    log.append()
    log.sync()
    log.append(0, flags=MARK)
    assert log.judged() == ("ended", log.tail)
    log.sync()
    log.append(0, flags=MARK | CLOSE)
    assert log.judged() == ("closed", log.tail)


def test_a_close_that_proves_too_little_is_none(log: Log) -> None:
    log.append()
    log.append(0, flags=MARK | CLOSE)
    assert log.judged() == ("ended", log.tail)


@pytest.mark.parametrize("offset", [40, 100, 140])
def test_an_unproven_commit_that_does_not_check_is_torn(log: Log, offset: int) -> None:
    log.append()
    log.sync()
    end = log.tail
    log.flip(log.append() + offset)
    assert log.judged() == ("torn", end)


@pytest.mark.parametrize("offset", [40, 100])
def test_the_same_commit_is_damage_when_a_later_one_proves_it(log: Log, offset: int) -> None:
    log.append()
    end = log.tail
    hurt = log.append()
    log.append()
    log.sync()
    log.append()
    log.flip(hurt + offset)
    assert log.judged() == ("damaged", end)
    report = inspection.verify(log.path)
    assert report.verdict == "damaged"
    assert any(problem.file == "seg.000000" and problem.offset == hurt for problem in report.problems)


def test_the_proof_may_lie_in_another_segment(log: Log) -> None:
    hurt = log.append(size=3000)
    while log.tail < SEGMENT:
        log.append(size=3000)
    log.sync()
    log.append()
    log.flip(hurt + 50)
    assert log.judged() == ("damaged", 4096)


def test_a_survivor_behind_the_sync_unit_beats_the_dead_writer(log: Log) -> None:
    log.append()
    dead = log.append(publish=False)
    log.sync()  # its snapshot lies before the dead writer's bytes, and the next commit behind them
    lsn = log.append(sub_epoch=1)
    assert lsn > dead
    log.append(sub_epoch=1)
    assert log.judged() == ("ended", log.tail)
    assert [commit.lsn for commit in inspection.commits(log.path)] == [lsn for lsn, _ in log.commits]


def test_a_survivor_in_the_next_segment_beats_the_dead_writer(log: Log) -> None:
    while log.tail < SEGMENT - 2000:
        log.append()
    log.append(size=10, publish=False)
    lsn = log.append(size=6000, sub_epoch=1)
    assert lsn == SEGMENT + 4096
    assert log.judged() == ("ended", log.tail)


def test_a_dead_writers_second_commit_is_not_accepted_behind_its_survivor(log: Log) -> None:
    log.append()
    keep = log.tail, log.chain, log.next_id, list(log.commits)
    log.append()
    log.append()
    log.tail, log.chain, log.next_id, log.commits = keep
    log.append(sub_epoch=1)  # as long as the first of the two, so the second begins where this one ends
    assert log.judged()[1] == log.tail


def test_a_lost_segment_is_damage(log: Log) -> None:
    while log.tail < 2 * SEGMENT:
        log.append(size=3000)
    log.sync()
    log.append()
    os.unlink(log.path / "seg.000001")
    case, end = log.judged()
    assert case == "damaged" and end <= SEGMENT


def test_a_segment_of_another_size_is_refused(log: Log) -> None:
    log.append()
    os.truncate(log.path / "seg.000000", 4096)
    with pytest.raises(inspection.InspectionError) as caught:
        Inspector(log.path)
    assert caught.value.args[:2] == ("CORRUPT", "seg.000000")


def test_of_two_files_with_one_position_one_counts(log: Log) -> None:
    log.append()
    header = bytearray(log.builder.segment(7, 4096))
    log.store(7, 0, bytes(header))
    assert log.judged() == ("ended", log.tail)  # nothing outranks the other: the lower number is kept
    assert [number for number, *_, kept in Inspector(log.path).files() if kept] == [0]


def test_every_flipped_byte_of_a_proven_commit_is_noticed(log: Log) -> None:
    hurt = log.append(count=2, size=40)
    length = log.commits[-1][1]
    log.sync()
    log.append(0, flags=MARK)
    body_end = 96 + 32 + 64 + 80
    for at in range(length):
        log.flip(hurt + at)
        report = inspection.verify(log.path)
        assert (report.verdict == "damaged") == (at < body_end), at
        log.flip(hurt + at)


@pytest.mark.parametrize("offset", [8, 100, 160])
def test_repair_saves_what_is_valid_and_lists_the_rest(log: Log, tmp_path: pathlib.Path, offset: int) -> None:
    for _ in range(20):
        log.append(count=3, size=200)
        log.sync()
    log.append(0, flags=MARK)
    hurt = log.commits[7][0]
    log.flip(hurt + offset if offset != 160 else hurt + 96 + 32 + 96 + 10)
    report = inspection.repair(log.path, tmp_path / "repaired")
    saved = inspection.verify(tmp_path / "repaired")
    assert (saved.verdict, saved.case, saved.problems) == ("sound", "closed", [])
    ids = {message.id for _, message in inspection.live(tmp_path / "repaired")}
    lost = {1 + 3 * 7, 2 + 3 * 7, 3 + 3 * 7}
    if offset == 8:
        assert ids == set(range(1, 61)) - lost and report.gaps
    elif offset == 100:
        assert ids == set(range(1, 61)) and report.salvaged == 3
    else:
        assert report.lost_ids == [22] and not report.gaps


def test_a_hostile_manifest_is_refused(log: Log) -> None:
    path = log.path / "manifest"
    data = bytearray(path.read_bytes())
    for sector in range(0, 16384, 4096):
        struct.pack_into("<Q", data, sector + 48, 1 << 62)
    path.write_bytes(data)
    with pytest.raises(inspection.InspectionError) as caught:
        Inspector(log.path)
    assert caught.value.args[0] == "CORRUPT"
