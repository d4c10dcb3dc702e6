"""Model of the deduplication automata: who is head, who waits, who sleeps, who is woken.

Modelled: each hold of a stripe's lock as one step (enqueue, the end of a wait, dequeue), and, since they are outside of
it, each load and store by which a waiter goes to sleep and is woken: its turn, whether it sleeps, the system's compare.
A thread enqueues a key, works or waits, may run out of time at any moment of its wait or give up, dequeues, and may
begin anew.  A thread that was promoted may forget to wait and work at once; one that was evicted works on.
Violation: two heads of one key that nobody evicted; two that wait for one; somebody asleep for ever although its turn
came or although nobody is left who could wake it; a wait that ends without a turn of its own; a key that stays in use
when everybody is done.

Excluded: the probing in the table; processes and their deaths; the time of the clock, a timeout may come at any step.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from tests.model.explore import Model, Step, Violation, put


class Thread(NamedTuple):
    step: str = "begin"
    key: int = 0
    rounds: int = 0
    turn: str = ""  # of its waiter's record; "" while it waits or has none
    record: bool = False  # its waiter's record is on the list
    sleeping: bool = False  # what the promoter reads
    asleep: bool = False
    evicted: bool = False  # it lost the key it works on
    wakes: int = -1  # whom it still has to wake, after it left the lock
    late: bool = False  # its time was over when no turn had come
    seen: bool = False  # without turn_first: the sleeper that it saw before it dequeued


class Automaton(NamedTuple):
    head: int = -1
    waiter: int = -1


class State(NamedTuple):
    keys: tuple[Automaton, ...]
    threads: tuple[Thread, ...]


class DedupModel(Model[State]):
    guards = {
        "decline": "a third one is declined while one waits",
        "head_only": "only the head's dequeue ends the turn: that of an evicted one is without effect",
        "look_again": "who wants to evict or to give up looks under the lock whether its turn came",
        "turn_first": "the turn is set before the promoter looks whether anybody sleeps",
        "sleeping_first": "a waiter says that it sleeps before the system compares its turn",
        "compare": "the system puts to sleep only while no turn came",
        "forget": "a turn that nobody collected goes when its owner dequeues or asks again",
        "promote": "a dequeue makes the one that waits the head, and does not free the key",
    }
    profiles = {"two": (2, 1, 2), "keys": (2, 2, 2), "three": (3, 1, 1), "both": (3, 2, 2)}  # threads, keys, rounds
    quick = ("two", "three")

    def initial(self) -> State:
        threads, keys, _ = self.profiles[self.profile]
        return State((Automaton(),) * keys, (Thread(),) * threads)

    def check(self, s: State) -> None:
        for key, automaton in enumerate(s.keys):
            working = [t for t in s.threads if t.step == "work" and t.key == key and not t.evicted]
            if len(working) > 1:
                raise Violation("two work on one key and nobody was evicted")
            waiting = [t for t in s.threads if t.record and t.key == key and not t.turn]
            if len(waiting) > 1:
                raise Violation("two wait for one key")
            done = all(t.step == "done" for t in s.threads)
            if done and automaton != Automaton():
                raise Violation("a key stays in use when everybody is done")
        for thread in s.threads:
            if thread.asleep and thread.turn and not any(o.wakes >= 0 for o in s.threads):
                raise Violation("a turn came and its owner sleeps")

    def steps(self, s: State) -> Iterator[Step[State]]:
        for i, me in enumerate(s.threads):
            for label, t in self.act(s, i, me):
                yield f"{i} {label}", t

    def act(self, s: State, i: int, me: Thread) -> Iterator[tuple[str, State]]:
        def mine(after: Thread, t: State = s) -> State:
            return t._replace(threads=put(t.threads, i, after))

        if me.wakes >= 0:
            sleeper = s.threads[me.wakes]
            t = s._replace(threads=put(s.threads, me.wakes, sleeper._replace(asleep=False)))
            yield f"wakes {me.wakes}", mine(t.threads[i]._replace(wakes=-1), t)
        elif me.step == "begin":
            for key in range(len(s.keys)):
                yield f"enqueues {key}", self.enqueue(s, i, me._replace(key=key))
        elif me.step == "blocked":
            yield "says that it sleeps", mine(me._replace(sleeping=self.on["sleeping_first"], step="look"))
            yield "gives up", self.end_wait(s, i, evict=False)
            if me.turn:
                yield "works without a wait", mine(me._replace(step="work"))
        elif me.step == "look":
            yield "looks at its turn", mine(me._replace(step="end" if me.turn else "sleep"))
            yield "sees its time over", mine(me._replace(step="end", late=not me.turn))
        elif me.step == "sleep" and not me.asleep:
            if me.turn and self.on["compare"]:
                yield "is not put to sleep", mine(me._replace(step="end"))
            else:
                yield "is put to sleep", mine(me._replace(asleep=True, step="wake"))
        elif me.step == "wake" and not me.asleep:
            yield "wakes up", mine(me._replace(step="end" if me.turn else "sleep"))
        elif me.step == "wake":
            if not me.sleeping:
                yield "says that it sleeps", mine(me._replace(sleeping=True))
            if not me.turn:
                yield "sees its time over", mine(me._replace(asleep=False, step="end", late=True))
        elif me.step == "end":
            yield "ends its wait", self.end_wait(s, i, evict=True)
        elif me.step == "work" and not self.on["turn_first"]:
            waiter = s.keys[me.key].waiter
            yield (
                "looks for a sleeper",
                mine(me._replace(step="looked", seen=waiter >= 0 and s.threads[waiter].sleeping)),
            )
        elif me.step in ("work", "looked"):
            yield "dequeues", self.dequeue(s, i)

    def begin_again(self, me: Thread) -> Thread:
        rounds = me.rounds + 1
        kept = Thread("begin" if rounds < self.profiles[self.profile][2] else "done", rounds=rounds)
        if me.record and not self.on["forget"]:
            kept = kept._replace(record=True, turn=me.turn, key=me.key)
        return kept

    def enqueue(self, s: State, i: int, me: Thread) -> State:
        automaton = s.keys[me.key]
        if automaton.head < 0:
            keys = put(s.keys, me.key, Automaton(i))
            return State(keys, put(s.threads, i, me._replace(step="work", evicted=False)))
        if automaton.waiter >= 0 and self.on["decline"]:
            return s._replace(threads=put(s.threads, i, self.begin_again(me)))
        keys = put(s.keys, me.key, automaton._replace(waiter=i))
        turn = me.turn if me.record and not self.on["forget"] else ""
        after = me._replace(step="blocked", record=True, turn=turn, sleeping=False, late=False)
        return State(keys, put(s.threads, i, after))

    def end_wait(self, s: State, i: int, evict: bool) -> State:
        me = s.threads[i]
        automaton = s.keys[me.key]
        came = bool(me.turn) and (self.on["look_again"] or not me.late)
        free = me._replace(record=False, turn="", sleeping=False, late=False)
        if came:
            if automaton.waiter == i:
                raise Violation("a wait ended by a turn that was another one's")
            if evict:
                return s._replace(threads=put(s.threads, i, free._replace(step="work")))
            return self.dequeue(s._replace(threads=put(s.threads, i, free)), i)
        if not evict:
            keys = put(s.keys, me.key, automaton._replace(waiter=-1))
            return State(keys, put(s.threads, i, self.begin_again(free)))
        if automaton.waiter != i:
            raise Violation("one who does not wait any more evicts")
        head = s.threads[automaton.head]
        threads = put(s.threads, automaton.head, head._replace(evicted=True))
        keys = put(s.keys, me.key, Automaton(i))
        return State(keys, put(threads, i, free._replace(step="work", evicted=False)))

    def dequeue(self, s: State, i: int) -> State:
        me = s.threads[i]
        automaton = s.keys[me.key]
        if automaton.head != i and (self.on["head_only"] or automaton.head < 0):
            return s._replace(threads=put(s.threads, i, self.begin_again(me)))
        if automaton.waiter < 0 or not self.on["promote"]:
            keys = put(s.keys, me.key, Automaton())
            return State(keys, put(s.threads, i, self.begin_again(me)))
        waiter = s.threads[automaton.waiter]
        keys = put(s.keys, me.key, Automaton(automaton.waiter))
        threads = put(s.threads, automaton.waiter, waiter._replace(turn="ended"))
        sleeping = waiter.sleeping if self.on["turn_first"] else me.seen
        wakes = automaton.waiter if sleeping else -1
        return State(keys, put(threads, i, self.begin_again(me)._replace(wakes=wakes)))
