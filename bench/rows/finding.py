"""The rows about finding: by an indexed header, in the order of each key, by id."""

from __future__ import annotations

import random
import statistics
from collections.abc import Callable

import rota
from bench import instructions
from bench.measure import Outcome, Row, Setting, bodies_of, interleave, ratio, scratch
from bench.rows.depth import filled

STEP = 5000
GROUPS = 10_000


def find_indexed(setting: Setting) -> Outcome:
    """Find one message by an indexed header among a million: microseconds."""
    waiting, count = setting.pick(1_000_000, 2000), setting.pick(2000, 50)
    chance = random.Random(1)
    with scratch(setting) as path, rota.open(path / "log", capacity="1 GiB", durability="none") as repo:
        queue = repo.queue("indexed", indexes=("number",))
        for start in range(0, waiting, STEP):
            with repo.transaction() as t:
                for number in range(start, min(start + STEP, waiting)):
                    t.put(queue, b"x" * 100, headers={"number": number})
        repo.sync()
        numbers = [chance.randrange(waiting) for _ in range(count)]
        found = 0

        def run() -> None:
            nonlocal found
            found = sum(len(queue.find(header={"number": number})) for number in numbers)

        seconds = interleave(setting.rounds, {"find": run})["find"]
        assert found == count
    each = statistics.median(seconds) / count * 1e6
    return Outcome(each, {"least_us": min(seconds) / count * 1e6, "waiting": waiting})


def grouped(repo: rota.Repository, name: str, waiting: int, keys: int) -> rota.Queue:
    """A queue of order "group" with so many messages over so many keys."""
    queue = repo.queue(name, order="group")
    for start in range(0, waiting, STEP):
        numbers = range(start, min(start + STEP, waiting))
        with repo.transaction() as t:
            t.put_many(queue, bodies_of(len(numbers)), keys=[f"key-{number % keys}" for number in numbers])
    return queue


def group_order(setting: Setting) -> Outcome:
    """Get and ack in a queue of order "group": a million waiting over 10,000 keys against a thousand."""
    count, waiting = setting.pick(100, 20), setting.pick(1_000_000, 5000)
    few_waiting = 1000
    with scratch(setting) as path, rota.open(path / "log", capacity="1 GiB", durability="none") as repo:
        few = grouped(repo, "few", few_waiting, few_waiting // 100)
        many = grouped(repo, "many", waiting, min(GROUPS, waiting // 10))
        repo.sync()

        def get_each(queue: rota.Queue) -> None:
            for _ in range(count):
                queue.get().ack()

        def refill() -> None:
            for number in range(few_waiting - len(few)):
                few.put(b"x" * 100, key=f"key-{number % (few_waiting // 100)}")

        runs: dict[str, Callable[[], object]] = {"few": lambda: get_each(few), "many": lambda: get_each(many)}
        seconds = interleave(setting.rounds, runs, refill)
    each = {f"{name}_ns": statistics.median(values) / count * 1e9 for name, values in seconds.items()}
    return Outcome(ratio(seconds["many"], seconds["few"]), {**each, "waiting": waiting})


def kill_depth(setting: Setting) -> Outcome:
    """Instructions of a kill by id at both depths: their ratio."""
    if not instructions.available():
        return Outcome(None, {"reason": "needs valgrind, its header and a C compiler"})
    times = setting.pick(200, 20)
    with filled(setting, 1000, setting.pick(setting.waiting, 5000)) as repo:
        counts = {name: instructions.each("kill", times, repo.path, name) for name in ("few", "many")}
    return Outcome(counts["many"] / counts["few"], {**counts, "waiting": setting.waiting})


ROWS = (
    Row("find_indexed", "find by an indexed header among 1 million", 5.0, "µs", False, find_indexed),
    Row("group_order", "get and ack by key, 1 million waiting against 1,000", 2.0, "", False, group_order),
    Row("kill_depth", "instructions of a kill by id at both depths", 1.25, "", False, kill_depth),
)
