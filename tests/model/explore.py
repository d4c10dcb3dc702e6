"""Breadth-first search over the states of a model, and what a model must offer for it.

1. A state is hashable and complete: the steps that leave it depend on nothing else.
2. Breadth first, so the first counterexample found is a shortest one.
3. A search that meets its limit of states or seconds is reported as not exhausted, never as clean.
4. A guard is one protection of the protocol.  Every guard is on unless it is named in `off`; a model
   is trusted only because each guard, switched off, yields a counterexample.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Collection, Hashable, Iterator, Mapping
from typing import Any, ClassVar, Generic, NamedTuple, TypeVar

State = TypeVar("State", bound=Hashable)

# A step's name; a pair (format, state) is rendered by Model.show only when a trace is printed.
Label = str | tuple[str, Any]
Step = tuple[Label, State]


class Violation(Exception):
    """A broken invariant; `tail` names steps between the last stored state and the violation."""

    def __init__(self, why: str) -> None:
        super().__init__(why)
        self.tail: tuple[Label, ...] = ()


class Model(Generic[State]):
    """Base of all models: named guards, named bounds, an initial state, steps, invariants."""

    guards: ClassVar[Mapping[str, str]]
    profiles: ClassVar[Mapping[str, Any]]
    # Guards that cover for each other: only the whole group, switched off, lets the fault through.
    groups: ClassVar[tuple[tuple[str, ...], ...]] = ()
    # Profiles that a search must exhaust in seconds; the first test slice uses them.
    quick: ClassVar[tuple[str, ...]] = ()
    # Guards that another one covers within the bounds: none is caught alone.
    second_lines: ClassVar[tuple[str, ...]] = ()
    # What only the full run catches, guards or groups of them.
    slow: ClassVar[tuple[tuple[str, ...], ...]] = ()

    def __init__(self, profile: str, off: Collection[str] = ()) -> None:
        unknown = set(off) - set(self.guards)
        if unknown:
            raise ValueError(f"unknown guards: {', '.join(sorted(unknown))}")
        self.profile = profile
        self.on = {name: name not in off for name in self.guards}

    def initial(self) -> State:
        raise NotImplementedError

    def steps(self, state: State) -> Iterator[Step[State]]:
        raise NotImplementedError

    def check(self, state: State) -> None:
        """Raise Violation if the state breaks an invariant."""

    def show(self, state: State) -> str:
        return str(state)


class Result(NamedTuple):
    states: int
    why: str | None  # the broken invariant
    trace: tuple[str, ...]
    exhausted: bool
    seconds: float


def search(model: Model[State], state_max: int = 3_000_000, seconds: float = 600.0) -> Result:
    """Look at every state within the bounds, or stop at the first broken invariant."""
    start = time.monotonic()
    first = model.initial()
    parent: dict[State, tuple[State, Label] | None] = {first: None}
    todo = deque([first])

    def result(why: str | None, trace: list[Label], exhausted: bool) -> Result:
        text = tuple(t if isinstance(t, str) else t[0] % model.show(t[1]) for t in trace)
        return Result(len(parent), why, text, exhausted, time.monotonic() - start)

    while todo:
        state = todo.popleft()
        try:
            model.check(state)
            for label, after in model.steps(state):
                if after not in parent:
                    parent[after] = (state, label)
                    todo.append(after)
        except Violation as violation:
            return result(str(violation), [*_path(parent, state), *violation.tail], False)
        if len(parent) > state_max or time.monotonic() - start > seconds:
            return result(None, [], False)
    return result(None, [], True)


def _path(parent: Mapping[State, tuple[State, Label] | None], state: State) -> list[Label]:
    labels: list[Label] = []
    step = parent[state]
    while step is not None:
        labels.append(step[1])
        step = parent[step[0]]
    return labels[::-1]


def put(items: tuple[Any, ...], index: int, item: object) -> tuple[Any, ...]:
    """The tuple with one item replaced."""
    return (*items[:index], item, *items[index + 1 :])
