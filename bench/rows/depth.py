"""The rows about many waiting messages: instructions and time of a put and a get, memory, the count of a hand-out."""

from __future__ import annotations

import pathlib
import re
import statistics
from collections.abc import Iterator
from contextlib import contextmanager

import rota
from bench import instructions
from bench.measure import BODY_BYTES, Outcome, Row, Setting, bodies_of, interleave, ratio, scratch
from bench.rows.single import get_each, put_each

FEW = 1000


@contextmanager
def filled(setting: Setting, few: int, many: int) -> Iterator[rota.Repository]:
    """A repository with the queues "few" and "many", so many messages waiting in each, built and synced."""
    need = (few + many) * (BODY_BYTES + 36) * 3 // 2 + (64 << 20)
    with scratch(setting) as path, rota.open(path / "log", capacity=need, durability="none") as repo:
        for name, count in (("few", few), ("many", many)):
            queue = repo.queue(name)
            while count:
                size = min(count, 1000)
                queue.put_many(bodies_of(size))
                count -= size
        repo.sync()
        yield repo


def depth_instructions(setting: Setting) -> Outcome:
    """Instructions of a put and of a get with ack at both depths: the larger of the two ratios."""
    if not instructions.available():
        return Outcome(None, {"reason": "needs valgrind, its header and a C compiler"})
    times = setting.pick(1000, 50)
    with filled(setting, FEW, setting.pick(setting.waiting, 5000)) as repo:
        counts = {
            f"{path}_{name}": instructions.each(path, times, repo.path, name)
            for name in ("few", "many")
            for path in ("put", "get")
        }
    ratios = [counts["put_many"] / counts["put_few"], counts["get_many"] / counts["get_few"]]
    return Outcome(max(ratios), {**counts, "waiting": setting.waiting})


def depth_time(setting: Setting) -> Outcome:
    """Time of a put and of a get with ack at both depths: the larger of the two ratios."""
    count = setting.pick(1000, 50)
    bodies = bodies_of(count)
    with filled(setting, FEW, setting.pick(setting.waiting, 5000)) as repo:
        few, many = repo.queue("few"), repo.queue("many")
        seconds = interleave(
            setting.rounds,
            {
                "put_few": lambda: put_each(few, bodies),
                "put_many": lambda: put_each(many, bodies),
                "get_few": lambda: get_each(few, count),
                "get_many": lambda: get_each(many, count),
            },
        )
    puts, gets = ratio(seconds["put_many"], seconds["put_few"]), ratio(seconds["get_many"], seconds["get_few"])
    each = {f"{name}_ns": statistics.median(values) / count * 1e9 for name, values in seconds.items()}
    return Outcome(max(puts, gets), {**each, "waiting": setting.waiting})


def resident_bytes() -> int:
    """Resident bytes of this process without the pages of the log."""
    total, counts = 0, True
    for line in pathlib.Path("/proc/self/smaps").read_text().splitlines():
        if re.match(r"[0-9a-f]+-[0-9a-f]+ ", line):
            counts = "/seg." not in line and "/segment" not in line
        elif line.startswith("Rss:") and counts:
            total += int(line.split()[1]) * 1024
    return total


def memory(setting: Setting) -> Outcome:
    """Resident bytes that each waiting message adds."""
    count = setting.pick(1_000_000, 20_000)
    need = count * 2 * (BODY_BYTES + 36) + (64 << 20)
    with scratch(setting) as place, rota.open(place / "log", capacity=need, durability="none") as repo:
        queue = repo.queue("bench")
        bodies = bodies_of(1000)
        for _ in range(10):
            queue.put_many(bodies)
        before = resident_bytes()
        for _ in range(count // 1000):
            queue.put_many(bodies)
        return Outcome((resident_bytes() - before) / count, {"messages": count})


def handout(setting: Setting) -> Outcome:
    """What one message more adds to the claim of a batch."""
    if not instructions.available():
        return Outcome(None, {"reason": "needs valgrind, its header and a C compiler"})
    half, whole, times = 500, 1000, 5
    with filled(setting, half * (times + 2), whole * (times + 2)) as repo:
        of_half = instructions.each(f"claim_{half}", times, repo.path, "few")
        of_whole = instructions.each(f"claim_{whole}", times, repo.path, "many")
    return Outcome((of_whole - of_half) / (whole - half), {f"claim_{half}": of_half, f"claim_{whole}": of_whole})


ROWS = (
    Row(
        "depth_instructions",
        "many waiting against 1,000: instructions of a put and of a get",
        1.05,
        "x",
        False,
        depth_instructions,
    ),
    Row("depth_time", "many waiting against 1,000: time of a put and of a get", 1.5, "x", False, depth_time),
    Row("memory", "resident memory of a waiting message beyond the log", 24, "bytes", False, memory),
    Row("handout", "counting the hand-out on a claim, instructions a message", 10, "", False, handout),
)
