"""What the claim model is made of: claim records, processes, the log's effect, bounds, guards.

The log is reduced to its effect (settled, attempts, suspect) and is durable at once; another boot loses
what was never logged: claims, done bits, shown marks.  Ghost fields note acks that returned, the one
message that alone could be blamed for a death, and deaths that a killer caused and nobody charged.
"""

from __future__ import annotations

from typing import NamedTuple

RECORDS = 3
ATTEMPTS_MAX = 2
Verdicts = tuple[tuple[int, str], ...]

GUARDS = {
    "prepared": "a claim's record is PREPARED before the cursor moves",
    "prepared_rule": "after a death a PREPARED range is ACTIVE if the cursor passed it, else FREE",
    "prepared_single": "a PREPARED single is ACTIVE, and the heap is rebuilt without its id",
    "show_first": "a message is marked as shown before its body reaches user code",
    "suspects": "of several shown none is charged, all become suspects",
    "suspect_alone": "a suspect is handed out in a claim of its own",
    "holds_nothing": "and to a process that holds nothing else and gets nothing else meanwhile",
    "own_claims": "what a transaction holds itself is not in the way of a suspect that it wants, nor the reverse",
    "first_charged": "of several that a transaction took beside a suspect, the suspect it took first is charged",
    "done_bits": "a coalescing ack sets its done bit before it returns",
    "done_checked": "the done bit is set after a look at the generation that no reap can come between",
    "marks_checked": "so is the shown mark: a batch whose lease ended gets LeaseLost",
    "reap_done": "the reaper commits the done bits",
    "reap_owner": "all records of one owner are reaped together, by a verdict written before the commit",
    "reap_redo": "the next owner of the lock ends a broken reap before anything else",
    "commit_first": "a reap commits, then frees the records",
    "generation": "an ack carries the generation of its claim",
    "slot_generation": "a claim names its owner's slot and the slot's generation",
    "absolute": "RETURN carries an absolute count",
    "wipe": "another boot wipes the claim records",
    "rebuild_claims": "the next open leaves out of the lane what records still hold",
}


class Budget(NamedTuple):
    kills: int
    boots: int
    leases: int
    starts: int


class Bounds(NamedTuple):
    budget: Budget
    kinds: str  # a letter for each message: k kills whoever sees it, i is innocent
    batch: int
    together: bool = False  # all that a process claims, one transaction claims


PROFILES = {
    "lease": Bounds(Budget(1, 0, 1, 1), "ii", 1),
    "killer": Bounds(Budget(1, 1, 0, 3), "ki", 2),
    "reap": Bounds(Budget(2, 0, 0, 2), "ii", 2),
    "killers": Bounds(Budget(0, 0, 0, 5), "kki", 2),
    "batch": Bounds(Budget(2, 0, 0, 1), "iii", 2),
    "together": Bounds(Budget(0, 0, 0, 6), "ki", 1, True),
    "mixed": Bounds(Budget(1, 0, 0, 3), "kii", 2),
}


class Record(NamedTuple):
    state: str = "free"  # free, prepared, active
    owner: int = -1
    incarnation: int = 0  # generation of the owner's slot
    single: bool = False
    ids: tuple[int, ...] = ()
    shown: int = 0
    done: frozenset[int] = frozenset()  # positions in ids
    generation: int = 0
    verdict: Verdicts | None = None
    first: bool = False  # the suspect that its transaction took before any other one


class Hand(NamedTuple):
    """What user code believes it holds."""

    record: int
    generation: int
    ids: tuple[int, ...]


class Late(NamedTuple):
    """A done bit that is about to be stored."""

    record: int
    generation: int
    position: int
    message: int


class Process(NamedTuple):
    alive: bool = True
    incarnation: int = 1
    hands: tuple[Hand, ...] = ()
    late: tuple[Late, ...] = ()


class Logged(NamedTuple):
    settled: str = ""  # acked, error
    attempts: int = 0
    suspect: bool = False


class Seen(NamedTuple):
    process: int
    incarnation: int
    message: int
    record: int
    generation: int


class Ghost(NamedTuple):
    acked: frozenset[int]
    blame: tuple[tuple[int, int, int], ...]  # process, incarnation, message
    owed: tuple[int, ...]
    seen: frozenset[Seen]
    kills: tuple[int, ...]
    lost: int  # boots


class State(NamedTuple):
    log: tuple[Logged, ...]
    cursor: int
    heap: frozenset[int]
    records: tuple[Record, ...]
    processes: tuple[Process, ...]
    broken: bool  # the owner of the lock died
    intent: tuple[int, ...] | None  # records of a reap under way
    ghost: Ghost
    left: Budget


FREE = Record()


def initial(bounds: Bounds) -> State:
    n = len(bounds.kinds)
    ghost = Ghost(frozenset(), (), (0,) * n, frozenset(), (0,) * n, 0)
    both = (Process(), Process())
    return State((Logged(),) * n, 0, frozenset(), (FREE,) * RECORDS, both, False, None, ghost, bounds.budget)
