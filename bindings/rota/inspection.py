"""Look at the files of a repository without opening it: read the log, check every byte, save what is left.

    commits   the log as a recovery would accept it, one commit after the other
    live      the messages that are not settled at the log's end, those below the checkpoint included
    body      the body of such a message, checked again
    verify    every checksum of manifest, segments, commits and messages, and what a damage costs
    repair    a new repository from what is valid (rota._repair)

No lock is taken and nothing is written, so a repository that is open elsewhere may be looked at; then the end
of its log is a moving target, and what is found there may be a commit that is just being written.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any, Literal

from rota import _image, _records
from rota._core import inspection as _inspection
from rota._core.inspection import InspectionError as InspectionError
from rota._core.inspection import Inspector
from rota._live import Replay, later, replayed
from rota._live import body as body
from rota._live import live as live
from rota._records import Commit as Commit
from rota._records import Message as Message
from rota._records import Operation as Operation
from rota._repair import RepairReport as RepairReport
from rota._repair import repair as repair

__all__ = [
    "Commit",
    "InspectionError",
    "Message",
    "Operation",
    "Problem",
    "RepairReport",
    "VerifyReport",
    "body",
    "commits",
    "live",
    "repair",
    "verify",
]

Path = str | os.PathLike[str]
Progress = Callable[[int, int], object]

SECTOR_DISTANCE = 4096
SECTOR_BYTES = 512
HEADER_BYTES = 4096
GOOD, EMPTY = 0, 2
CASES = {row[0]: row[1:3] for row in _inspection.recovery_table()}


def commits(path: Path) -> Iterator[Commit]:
    """Yield the commits of the log, from the checkpoint's begin (or the first) to its end."""
    inspector = Inspector(path)
    while (found := inspector.step()) is not None:
        yield _records.commit(*found)


@dataclass(frozen=True, slots=True)
class Problem:
    """One thing that is not as it should be, where, and what it costs."""

    file: str
    offset: int
    what: str
    consequence: str
    harmless: bool = False


@dataclass(slots=True)
class VerifyReport:
    """What verify found. `verdict`: sound; torn (the next open cuts what was never acknowledged); damaged.

    `messages` are those in the commits that were read, settled ones included, `live` those below the checkpoint's begin
    that are not settled.
    """

    verdict: Literal["sound", "torn", "damaged"] = "sound"
    case: str = ""
    problems: list[Problem] = field(default_factory=list)
    files: int = 0
    commits: int = 0
    messages: int = 0
    live: int = 0
    bytes: int = 0
    end_lsn: int = 0
    proven_lsn: int = 0

    @property
    def ok(self) -> bool:
        """Whether nothing was lost and nothing will be."""
        return self.verdict != "damaged"


def name_of(file: int) -> str:
    """Return the name of a segment file."""
    return f"seg.{file:06d}"


def verify(path: Path, progress: Progress | None = None) -> VerifyReport:
    """Check everything that has a checksum; `progress` is called with bytes done and bytes in all."""
    report = VerifyReport()
    try:
        inspector = Inspector(path)
    except InspectionError as error:
        report.verdict = "damaged"
        what = f"{error.code}: {error.detail}"
        report.problems.append(Problem(error.file or "", error.offset or 0, what, "the repository cannot be opened"))
        return report
    manifest = inspector.manifest()
    _verify_manifest(path, report)
    files = inspector.files()
    report.files = len(files)
    total = len(files) * manifest["segment_size"]
    _verify_headers(files, report)
    _verify_end(inspector, report)
    replay = _verify_checkpoint(inspector, report)
    inspector.restart()
    covered = _verify_walk(inspector, report, progress, total, replay)
    _verify_epochs(inspector, report)
    begin = manifest["checkpoint"][0] or HEADER_BYTES
    for number, first_lsn, *_, header, chosen in files:
        if header == GOOD and chosen and number not in covered and 0 < first_lsn < begin:
            _verify_old(inspector, number, first_lsn, manifest, report, replay)
    if any(not problem.harmless for problem in report.problems):
        report.verdict = "damaged"
    return report


def _verify_manifest(path: Path, report: VerifyReport) -> None:
    """Name the copies that differ from their twin: the manifest stands as long as one copy is readable."""
    with open(os.path.join(path, "manifest"), "rb") as file:
        whole = file.read()
    sectors = [whole[i * SECTOR_DISTANCE : i * SECTOR_DISTANCE + SECTOR_BYTES] for i in range(4)]
    for first in (0, 2):
        if sectors[first] != sectors[first + 1]:
            report.problems.append(
                Problem(
                    "manifest",
                    first * SECTOR_DISTANCE,
                    "the two copies of one generation differ",
                    "none: the other copy or the other generation is used",
                    harmless=True,
                )
            )


def _verify_headers(files: list[tuple[int, int, int, int, int, int, bool]], report: VerifyReport) -> None:
    for number, *_, header, _chosen in files:
        if header not in (GOOD, EMPTY):
            text = _inspection.scan_text(header)
            report.problems.append(
                Problem(name_of(number), 0, f"segment header: {text}", "what lies in this file is not found")
            )


def _verify_end(inspector: Inspector, report: VerifyReport) -> None:
    """Say what the next open would decide about the end of the log."""
    case, refused, end, proven, kind, file, lsn, error = inspector.judge()
    report.case = CASES[case][0]
    report.end_lsn, report.proven_lsn = end, proven
    if refused and error is not None:
        _, name, offset, _, _, detail, _ = error.args
        report.problems.append(
            Problem(name or "log", offset, detail, f"open refuses; positions {end} to {proven} were durable")
        )
    elif report.case == "torn":
        report.verdict = "torn"
        report.problems.append(
            Problem(
                name_of(file) if kind else "log",
                lsn % int(inspector.manifest()["segment_size"]),
                f"behind position {end}: {CASES[case][1]}",
                "none that was acknowledged as durable",
                harmless=True,
            )
        )


def _verify_checkpoint(inspector: Inspector, report: VerifyReport) -> Replay | None:
    """Check the checkpoint and each message below its begin; what lives at the end, None when it does not tell."""
    image = _image.read_image(inspector)
    if image is not None and image.problem:
        size = inspector.manifest()["segment_size"]
        block = inspector.manifest()["checkpoint"][1]
        file = inspector.file_of(block)
        report.problems.append(
            Problem(
                "checkpoint" if file is None else name_of(file),
                block % size,
                f"checkpoint: {image.problem}",
                "open refuses; a repair brings settled messages back",
            )
        )
        return None
    for segment in image.segments.values() if image is not None else ():
        if segment.live and segment.now is None:
            what = f"the segment at position {segment.first_lsn} is missing"
            report.problems.append(
                Problem("log", segment.first_lsn, what, f"{segment.live} messages are lost and open refuses")
            )
    replay = replayed(inspector, image, report.proven_lsn)
    begin = inspector.manifest()["checkpoint"][0]
    for id in sorted(id for id, state in replay.states.items() if state.lsn < begin):
        message = replay.read(inspector, id)[0]
        report.live += 1
        if message.damage and replay.states[id].file is not None:
            cost = f"message {id} cannot be read"
            report.problems.append(Problem(name_of(message.file), message.place, message.damage, cost))
    return replay


def _verify_epochs(inspector: Inspector, report: VerifyReport) -> None:
    """At the end of the walk: whether the log goes on in an epoch that the manifest does not know."""
    known = max((epoch for epoch, _ in inspector.manifest()["epochs"]), default=0)
    place, _ = inspector.where()
    found = later(inspector, known + 1)
    if found is not None:
        what = f"the manifest does not know epoch {found[3][6]}, in which the log goes on at {place}"
        report.problems.append(Problem("manifest", 0, what, "an open takes an older log; repair saves the newer one"))


def _verify_messages(commit: Commit, report: VerifyReport, replay: Replay | None, below: bool = False) -> None:
    report.commits += 1
    report.messages += len(commit.messages)
    report.bytes += commit.length
    for message in commit.messages:
        if not message.damage:
            continue
        torn = commit.lsn >= report.proven_lsn
        if torn:
            cost = "the next open cuts the log here"
            report.verdict = "torn" if report.verdict == "sound" else report.verdict
        elif replay is None or _lies_there(replay, commit, message):
            cost = f"message {message.id} cannot be read"
        else:
            cost = "none: the message is settled"
        harmless = torn or cost.startswith("none")
        if harmless or not below or replay is None:  # below the begin those that live were checked
            report.problems.append(Problem(name_of(commit.file), message.offset, message.damage, cost, harmless))


def _lies_there(replay: Replay, commit: Commit, message: Message) -> bool:
    """Whether this very frame is that of a live message."""
    state = replay.states.get(message.id)
    return state is not None and state.lsn == commit.lsn - commit.offset + message.place


def _verify_walk(
    inspector: Inspector, report: VerifyReport, progress: Progress | None, total: int, replay: Replay | None
) -> set[int]:
    """Check the messages of the accepted commits; return the files that they lie in."""
    covered = set()
    while (found := inspector.step()) is not None:
        covered.add(found[0])
        _verify_messages(_records.commit(*found), report, replay)
        if progress is not None:
            progress(min(report.bytes, total), total)
    return covered


def _verify_old(
    inspector: Inspector,
    file: int,
    first_lsn: int,
    manifest: dict[str, Any],
    report: VerifyReport,
    replay: Replay | None,
) -> None:
    """Check a segment below the checkpoint, which the walk does not reach: commit behind commit."""
    size, unit = manifest["segment_size"], manifest["sync_unit"]
    turn = first_lsn - HEADER_BYTES
    offset = HEADER_BYTES
    while offset < size:
        result, header, operations, messages, _ = inspector.probe(file, offset)
        if result == GOOD and header is not None and header[0] == turn + offset:
            assert operations is not None and messages is not None
            commit = _records.commit(file, offset, 0, header, operations, messages)
            _verify_messages(commit, report, replay, below=True)
            offset += header[1]
        elif offset % unit:
            offset = -(-offset // unit) * unit
        else:
            offset += unit
