"""Model of fencing: leaders in turn, whom nothing tells that they are none any more, over one queue.

Modelled: who is elected writes its token as the fence, hands back what was claimed before the last raise, then claims
and acks the oldest message that nobody holds; it may fence again at any time.  It may stop between any two steps for
ever, or until another, with a higher token, has begun.  It may die; one that had claimed nothing may try again with the
same token, since a token is for one leadership.

Violation: the fence goes back; an ack of a token below the fence; messages are acked out of order; a leader under the
last token loses what it holds.

Excluded: leases and the end of the dead, which would hide what is not handed over; the election itself; replay.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from tests.model.explore import Model, Step, Violation, put


class Leader(NamedTuple):
    token: int = 0
    step: str = "out"  # out, elected, fenced, leads, holds, checked, cut, dead
    message: int = -1


class State(NamedTuple):
    fence: int
    fences: int  # how often it was raised
    token: int  # the last one given out
    acked: tuple[bool, ...]
    claims: tuple[tuple[int, int], ...]  # of each message: leader + 1, or 0 for none; the count of fences then
    leaders: tuple[Leader, ...]
    deaths: int


class FenceModel(Model[State]):
    guards = {
        "ack_checks": "an ack is refused when its token is below the fence",
        "claim_checks": "a claim is refused when its token is below the fence",
        "fence_checks": "a fence below the last one is refused: it never goes back",
        "under_lock": "the token is compared in the section that publishes",
        "hand_back": "a new leader hands back what was claimed before its fence, then claims",
        "equal_hands_back": "an equal fence hands back too: who wrote it first may have died before it did",
        "older_only": "it hands back what was claimed before the last raise, not what its own token holds",
    }
    profiles = {"two": (2, 2, 1), "three": (3, 3, 1)}  # leaders, messages, deaths
    quick = ("two",)

    def initial(self) -> State:
        leaders, messages, deaths = self.profiles[self.profile]
        return State(0, 0, 0, (False,) * messages, ((0, 0),) * messages, (Leader(),) * leaders, deaths)

    def steps(self, s: State) -> Iterator[Step[State]]:
        for i, me in enumerate(s.leaders):
            for label, t, after in self.lead(s, i, me):
                yield f"leader {i} {label}", t._replace(leaders=put(t.leaders, i, after))
            if s.deaths and me.step not in ("out", "cut", "dead"):
                t = s._replace(deaths=s.deaths - 1)
                last = "cut" if me.step in ("elected", "fenced") and me.message < 0 else "dead"
                yield f"leader {i} dies", t._replace(leaders=put(t.leaders, i, me._replace(step=last)))

    def lead(self, s: State, i: int, me: Leader) -> Iterator[tuple[str, State, Leader]]:
        if me.step == "out":
            yield f"is elected with {s.token + 1}", s._replace(token=s.token + 1), Leader(s.token + 1, "elected")
        elif me.step == "cut" and me.token == s.token:
            yield "starts again", s, Leader(me.token, "elected")
        elif me.step == "fenced":
            yield (
                "hands back",
                s._replace(claims=self.returned(s)),
                me._replace(step="leads" if me.message < 0 else "holds"),
            )
        if me.step in ("elected", "leads", "holds"):
            yield from self.fence(s, me)
        if me.step == "leads":
            yield from self.claim(s, i, me)
        elif me.step == "holds" and not self.on["under_lock"] and self.admits(s, i, me):
            yield "is checked", s, me._replace(step="checked")
        elif me.step == "checked" or (me.step == "holds" and self.on["under_lock"] and self.admits(s, i, me)):
            yield f"acks {me.message}", self.ack(s, me), me._replace(step="leads", message=-1)

    def fence(self, s: State, me: Leader) -> Iterator[tuple[str, State, Leader]]:
        if me.token < s.fence:
            if not self.on["fence_checks"]:
                raise Violation(f"the fence goes back from {s.fence} to {me.token}")
            return
        raised = me.token > s.fence
        t = s._replace(fence=me.token, fences=s.fences + raised)
        hands_back = self.on["hand_back"] and (raised or self.on["equal_hands_back"])
        yield "fences", t, me._replace(step="fenced" if hands_back else "leads" if me.message < 0 else "holds")

    def returned(self, s: State) -> tuple[tuple[int, int], ...]:
        return tuple((0, 0) if at < s.fences or not self.on["older_only"] else (who, at) for who, at in s.claims)

    def claim(self, s: State, i: int, me: Leader) -> Iterator[tuple[str, State, Leader]]:
        free = [n for n, (who, _) in enumerate(s.claims) if not who and not s.acked[n]]
        if free and (me.token >= s.fence or not self.on["claim_checks"]):
            t = s._replace(claims=put(s.claims, free[0], (i + 1, s.fences)))
            yield f"claims {free[0]}", t, me._replace(step="holds", message=free[0])

    def admits(self, s: State, i: int, me: Leader) -> bool:
        if me.token < s.fence and self.on["ack_checks"]:
            return False
        stands = s.claims[me.message][0] == i + 1
        if not stands and me.token == s.fence:
            raise Violation(f"a leader under the last token, {me.token}, loses message {me.message}")
        return stands

    def ack(self, s: State, me: Leader) -> State:
        if me.token < s.fence:
            raise Violation(f"an ack under {me.token} counts, and the fence is {s.fence}")
        if not all(s.acked[: me.message]):
            raise Violation(f"message {me.message} is acked before one in front of it")
        return s._replace(acked=put(s.acked, me.message, True), claims=put(s.claims, me.message, (0, 0)))
