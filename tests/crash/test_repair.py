"""D1, D5: damaged files are refused or told, never handed out altered; repair saves what is proven and tells the rest.

The program at the end of this file fills a repository, writes down what lives in it, and closes it or is killed.  Each
body can be made again from its own beginning, so a test sees whether one was altered, also of a settled message.
"""

from __future__ import annotations

import json
import os
import pathlib
import random
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator

import pytest

import rota
from rota import inspection
from rota._core.inspection import Inspector
from rota._image import read_image
from rota._live import replayed
from tests.conftest import directory_base

CAPACITY = "768 KiB"
SEGMENT = 64 << 10
ENDINGS = ("closed", "killed", "young")
DAMAGES: dict[str, Callable[[pathlib.Path, random.Random], None]] = {}


def body_of(number: int) -> bytes:
    """The body that begins with this number."""
    rng = random.Random(number)
    start = b"%d:" % number
    return start + (rng.randbytes(rng.choice((0, 20, 900, 2000))) if number % 3 else start * rng.randrange(200))


def is_true(body: bytes) -> bool:
    """Whether it is one of those that were put."""
    return body == body_of(int(body.split(b":")[0]))


def snapshot(repo: rota.Repository) -> dict[str, dict[str, list[object]]]:
    """Return queue -> id -> body, priority, attempts, key."""
    return {
        name: {
            str(message.id): [message.body.hex(), message.priority, message.attempts, message.key]
            for message in repo.queue(name).browse()
        }
        for name in repo.queues()
    }


class Sample:
    """A repository and what lives in it."""

    def __init__(self, path: pathlib.Path, live: dict[str, dict[str, list[object]]]) -> None:
        self.path, self.live = path, live
        self.by_id = {int(id): found for queue in live.values() for id, found in queue.items()}
        look = Inspector(path)
        proven = look.judge()[3]
        states = replayed(look, read_image(look), proven).states
        # What no later commit proves may end with a torn tail.
        self.proven = {id for id in self.by_id if states[id].lsn < proven}

    def copy(self, to: pathlib.Path) -> pathlib.Path:
        return pathlib.Path(shutil.copytree(self.path, to))


@pytest.fixture(scope="module", params=ENDINGS)
def sample(request: pytest.FixtureRequest) -> Iterator[Sample]:
    with tempfile.TemporaryDirectory(prefix="rota-repair-", dir=directory_base()) as base:
        path, left = pathlib.Path(base, "r"), pathlib.Path(base, "live.json")
        command = [sys.executable, __file__, str(path), str(left), os.environ["ROTA_SEED"], request.param]
        here = str(pathlib.Path(__file__).resolve().parents[2])
        environment = {
            **os.environ,
            "PYTHONPATH": os.pathsep.join([here, os.environ.get("PYTHONPATH", "")]).rstrip(":"),
        }
        done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False, env=environment)
        assert done.returncode == (0 if request.param == "closed" else -signal.SIGKILL), done.stderr
        for name in ("control", "claims"):  # what a new boot does not find
            (path / name).unlink(missing_ok=True)
        yield Sample(path, json.loads(left.read_text()))


def damage(function: Callable[[pathlib.Path, random.Random], None]) -> Callable[[pathlib.Path, random.Random], None]:
    DAMAGES[function.__name__] = function
    return function


def used(path: pathlib.Path) -> list[pathlib.Path]:
    """The segments that were ever written."""
    return [file for file in sorted(path.glob("seg.*")) if file.read_bytes()[:4] != bytes(4)]


def old(path: pathlib.Path) -> list[pathlib.Path]:
    """The segments that later ones follow: what the last one proved is lost with it."""
    look = Inspector(path)
    end = look.judge()[2]
    last = end - end % SEGMENT
    return [path / f"seg.{number:06d}" for number, first, *_ in look.files() if 0 < first < last]


def place(file: pathlib.Path, rng: random.Random) -> int:
    """Some byte that is not zero."""
    data = file.read_bytes()
    while True:
        found = rng.randrange(len(data))
        if data[found]:
            return found


def store(file: pathlib.Path, offset: int, data: bytes) -> None:
    with open(file, "r+b") as target:
        target.seek(offset)
        target.write(data)


def flip(file: pathlib.Path, offset: int, bit: int) -> None:
    store(file, offset, bytes([file.read_bytes()[offset] ^ 1 << bit]))


@damage
def one_bit(path: pathlib.Path, rng: random.Random) -> None:
    file = rng.choice(used(path))
    flip(file, place(file, rng), rng.randrange(8))


@damage
def bit_of_a_header(path: pathlib.Path, rng: random.Random) -> None:
    file = rng.choice(used(path))
    data = file.read_bytes()
    starts = [at for at in range(4096, len(data), 32) if data[at : at + 4] == b"ROTC"]
    if starts:
        flip(file, rng.choice(starts) + rng.randrange(160), rng.randrange(8))


@damage
def zeroed_sector(path: pathlib.Path, rng: random.Random) -> None:
    file = rng.choice(used(path))
    store(file, place(file, rng) // 512 * 512, bytes(512))


@damage
def swapped_sectors(path: pathlib.Path, rng: random.Random) -> None:
    file, other = rng.choice(used(path)), rng.choice(used(path))
    first, second = place(file, rng) // 512 * 512, place(other, rng) // 512 * 512
    one, two = file.read_bytes()[first : first + 512], other.read_bytes()[second : second + 512]
    store(file, first, two)
    store(other, second, one)


@damage
def truncated_segment(path: pathlib.Path, rng: random.Random) -> None:
    os.truncate(rng.choice(used(path)), rng.randrange(SEGMENT))


@damage
def zeroed_segment(path: pathlib.Path, rng: random.Random) -> None:
    for file in rng.sample(old(path), min(1, len(old(path)))):
        store(file, 0, bytes(SEGMENT))


@damage
def missing_segment(path: pathlib.Path, rng: random.Random) -> None:
    for file in rng.sample(old(path), min(1, len(old(path)))):
        file.unlink()


@damage
def copied_segment(path: pathlib.Path, rng: random.Random) -> None:
    for other in rng.sample(old(path), min(1, len(old(path)))):
        shutil.copyfile(rng.choice([file for file in used(path) if file != other]), other)


@damage
def manifest_copies(path: pathlib.Path, rng: random.Random) -> None:
    for copy in (rng.randrange(2), 2 + rng.randrange(2)):
        flip(path / "manifest", copy * 4096 + rng.randrange(512), rng.randrange(8))


@damage
def damaged_checkpoint(path: pathlib.Path, rng: random.Random) -> None:
    manifest = Inspector(path).manifest()
    begin, block, _ = manifest["checkpoint"]
    file = Inspector(path).file_of(block)
    if begin and file is not None:
        flip(path / f"seg.{file:06d}", block % SEGMENT + rng.randrange(400), rng.randrange(8))


def opened(path: pathlib.Path, sample: Sample) -> set[int] | None:
    """Ids that were told to be damaged; None when the open refuses.  Whatever is handed out is what was put."""
    try:
        repo = rota.open(path, create=False)
    except rota.RotaError:
        return None
    told, found = set(), set()
    with repo:
        for name in repo.queues():
            queue = repo.queue(name)
            for id in queue.ids(0, 10**6):
                try:
                    body = queue.read(id).body
                except rota.Corrupt:
                    told.add(id)
                    continue
                assert is_true(body)
                assert id not in sample.by_id or body.hex() == sample.by_id[id][0]
                found.add(id)
    dropped = sample.proven - found - told
    assert not dropped, f"dropped without a word: {sorted(dropped)[:5]}"
    return told


def repaired(path: pathlib.Path, to: pathlib.Path, sample: Sample) -> inspection.RepairReport:
    """Nothing is invented or altered, and what is missing is told."""
    report = inspection.repair(path, to)
    with rota.open(to, create=False) as repo:
        saved = snapshot(repo)
    by_id = {int(id): found for queue in saved.values() for id, found in queue.items()}
    assert report.messages == len(by_id)
    assert all(is_true(bytes.fromhex(str(found[0]))) for found in by_id.values())
    assert all(found[0] == sample.by_id[id][0] for id, found in by_id.items() if id in sample.by_id)
    missing = sample.proven - by_id.keys()
    if not report.gaps:
        assert missing <= set(report.lost_ids), f"lost without a word: {sorted(missing)[:5]}"
    if not report.settled_may_return:
        assert by_id.keys() <= sample.by_id.keys()
    if report.complete:
        expected = {id: found for id, found in sample.by_id.items() if id in sample.proven or id in by_id}
        assert by_id == expected
        assert all(sample.live[name].get(id) == found for name, queue in saved.items() for id, found in queue.items())
    assert inspection.verify(to).verdict == "sound"
    return report


def test_a_sound_repository_is_copied(sample: Sample, directory: pathlib.Path) -> None:
    assert inspection.verify(sample.path).verdict == "sound"
    path = sample.copy(directory / "r")
    report = repaired(path, directory / "o", sample)
    assert report.complete
    assert opened(path, sample) == set()


@pytest.mark.parametrize("kind", sorted(DAMAGES))
def test_damage_is_told(sample: Sample, directory: pathlib.Path, kind: str, seed: int) -> None:
    for turn in range(int(os.environ.get("ROTA_DAMAGES", "3"))):
        rng = random.Random(f"{seed} {kind} {turn}")
        path = sample.copy(directory / f"r{turn}")
        DAMAGES[kind](path, rng)
        verdict = inspection.verify(path)
        report = repaired(path, directory / f"o{turn}", sample)
        told = opened(path, sample)
        if told is None or told & sample.by_id.keys():
            assert verdict.verdict == "damaged", (turn, verdict)
        if told is not None and not told & sample.by_id.keys():
            assert not report.lost_ids or kind == "manifest_copies", (turn, report)


def test_without_a_checkpoint_the_whole_log_is_read(sample: Sample, directory: pathlib.Path) -> None:
    path = sample.copy(directory / "r")
    before = Inspector(path).manifest()["checkpoint"]
    if not before[0]:
        pytest.skip("this one has no checkpoint")
    damaged_checkpoint(path, random.Random(1))
    assert opened(path, sample) is None
    with pytest.raises(inspection.InspectionError, match="block 0"):
        list(inspection.live(path))
    assert any("checkpoint" in problem.what for problem in inspection.verify(path).problems)
    report = repaired(path, directory / "o", sample)
    assert report.settled_may_return
    assert not report.lost_ids
    assert any("settled messages may come back" in note for note in report.notes)


def test_an_older_manifest_is_found_out(sample: Sample, directory: pathlib.Path) -> None:
    """Both copies of the newest generation are lost: the one before does not know the last epoch, or checkpoint."""
    path = sample.copy(directory / "r")
    sectors = (path / "manifest").read_bytes()
    newest = max((0, 2), key=lambda copy: int.from_bytes(sectors[copy * 4096 + 16 : copy * 4096 + 24], "little"))
    for copy in (newest, newest + 1):
        store(path / "manifest", copy * 4096, bytes(512))
    report = repaired(path, directory / "o", sample)
    if any("older than the log" in note for note in report.notes):
        assert inspection.verify(path).verdict == "damaged"


def fill(repo: rota.Repository, rng: random.Random, rounds: int) -> None:
    """Put, ack, delay, return, give up."""
    queues = [repo.queue("a", max_attempts=2), repo.queue("b", max_attempts=None), repo.queue("c")]
    number = 0
    for _ in range(rounds):
        queue = rng.choice(queues)
        count = rng.choice((1, 1, 1, 7))
        bodies = [body_of(number + i) for i in range(count)]
        number += count
        if len(queue) > 25:
            for _ in range(count + 2):
                settle(rng, queue)
        if count > 1:
            queue.put_many(bodies, compression=rng.choice((None, "lz4")))
        elif rng.random() < 0.2:
            queue.put(bodies[0], delay=3600.0)
        else:
            queue.put(bodies[0], priority=rng.choice((0, 0, 4)), key=f"k{number}", headers={"n": number})
        if rng.random() < 0.5:
            settle(rng, queue)
    errors = repo.queue("a.errors")
    if errors.ids(0, 2):
        errors.redrive(errors.ids(0, 2), queues[0])


def settle(rng: random.Random, queue: rota.Queue) -> None:
    try:
        message = queue.get(timeout=0)
    except rota.Empty:
        return
    fate = rng.random()
    if fate < 0.75:
        message.ack()
    elif fate < 0.9:
        message.nack(delay=rng.choice((0.0, 3600.0)))
    else:
        message.release()


def main(path: str, left: str, seed: str, ending: str) -> None:
    """Fill a repository and leave it."""
    repo = rota.open(path, capacity=CAPACITY, durability="none")
    fill(repo, random.Random(int(seed)), 60 if ending == "young" else 700)
    repo.sync()
    repo.queue("b").put(body_of(10**6), durability="sync")
    repo.queue("b").put(body_of(10**6 + 1), durability="sync")  # proves the one before
    pathlib.Path(left).write_text(json.dumps(snapshot(repo)))
    if ending != "closed":
        os.kill(os.getpid(), signal.SIGKILL)
    repo.close()


if __name__ == "__main__":
    main(*sys.argv[1:])
