"""Conditions on messages: `rota.key` and `rota.header("amount")`, compared, joined by &, | and ~.

What holds:

1. An expression is plain data: it names fields, values and comparisons, and runs nothing of the user's.
2. A field that a message does not have matches no comparison, not even !=; neither do values that have no order among
   each other.  Numbers compare as in Python, text and bytes never with each other.
3. lookups() says which values of which field a match must have, so that an index can be asked.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Literal, NoReturn, TypeAlias

__all__ = ["Comparison", "Expression", "Field", "Value", "header", "key"]

Value: TypeAlias = bytes | str | int | float | bool
Operator: TypeAlias = Literal["==", "!=", "<", "<=", ">", ">=", "in"]

_OPERATORS: dict[str, Callable[[Any, Any], bool]] = {
    "==": operator.eq,
    "!=": operator.ne,
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
}


def _kind(value: object) -> type:
    return str if isinstance(value, str) else bytes if isinstance(value, bytes) else float


class Expression:
    """A condition; joined by & (and), | (or), ~ (not)."""

    __slots__ = ()

    def matches(self, key: bytes | str | None, headers: Mapping[str, Value]) -> bool:
        """Whether a message with this key and these headers is meant."""
        raise NotImplementedError

    def lookups(self) -> list[list[tuple[str | None, Value]]]:
        """Alternatives to look up: lists of (header, None: the key, and value), one of which every match has."""
        return []

    def __and__(self, other: Expression) -> Expression:
        return _All(self, _expression(other))

    def __or__(self, other: Expression) -> Expression:
        return _Any(self, _expression(other))

    def __invert__(self) -> Expression:
        return _Not(self)

    def __bool__(self) -> NoReturn:
        raise TypeError("a condition is no truth value: join conditions by &, | and ~, each in parentheses")


def _expression(value: object) -> Expression:
    if not isinstance(value, Expression):
        raise TypeError(f"a condition is joined with a condition, not with {type(value).__name__}")
    return value


class Comparison(Expression):
    """One field against one value, or several for "in"."""

    __slots__ = ("field", "operator", "values")

    def __init__(self, field: Field, operator: Operator, values: tuple[Value, ...]) -> None:
        for value in values:
            if not isinstance(value, (bytes, str) if field.name is None else (bytes, str, int, float)):
                allowed = "bytes or str" if field.name is None else "bytes, str, int, float or bool"
                raise TypeError(f"{field!r} is compared with {allowed}, not {type(value).__name__}")
        self.field, self.operator, self.values = field, operator, values

    def matches(self, key: bytes | str | None, headers: Mapping[str, Value]) -> bool:
        return self.holds(key if self.field.name is None else headers.get(self.field.name))

    def holds(self, found: Value | None) -> bool:
        """Whether it holds for a message whose field has this value (None: none)."""
        if found is None:
            return False
        kind = _kind(found)
        if self.operator == "in":
            return any(_kind(value) is kind and value == found for value in self.values)
        value = self.values[0]
        if _kind(value) is not kind:
            return self.operator == "!="
        return _OPERATORS[self.operator](found, value)

    def lookups(self) -> list[list[tuple[str | None, Value]]]:
        if self.operator not in ("==", "in"):
            return []
        return [[(self.field.name, value) for value in self.values]]

    def __repr__(self) -> str:
        if self.operator == "in":
            return f"{self.field!r}.in_({list(self.values)!r})"
        return f"({self.field!r} {self.operator} {self.values[0]!r})"


class _All(Expression):
    __slots__ = ("left", "right")

    def __init__(self, left: Expression, right: Expression) -> None:
        self.left, self.right = left, right

    def matches(self, key: bytes | str | None, headers: Mapping[str, Value]) -> bool:
        return self.left.matches(key, headers) and self.right.matches(key, headers)

    def lookups(self) -> list[list[tuple[str | None, Value]]]:
        return self.left.lookups() + self.right.lookups()

    def __repr__(self) -> str:
        return f"({self.left!r} & {self.right!r})"


class _Any(Expression):
    __slots__ = ("left", "right")

    def __init__(self, left: Expression, right: Expression) -> None:
        self.left, self.right = left, right

    def matches(self, key: bytes | str | None, headers: Mapping[str, Value]) -> bool:
        return self.left.matches(key, headers) or self.right.matches(key, headers)

    def lookups(self) -> list[list[tuple[str | None, Value]]]:
        return [one + other for one in self.left.lookups() for other in self.right.lookups()]

    def __repr__(self) -> str:
        return f"({self.left!r} | {self.right!r})"


class _Not(Expression):
    __slots__ = ("inner",)

    def __init__(self, inner: Expression) -> None:
        self.inner = inner

    def matches(self, key: bytes | str | None, headers: Mapping[str, Value]) -> bool:
        return not self.inner.matches(key, headers)

    def __repr__(self) -> str:
        return f"~{self.inner!r}"


class Field:
    """The key of a message, or one of its headers; compare it to make a condition."""

    __slots__ = ("name",)
    __hash__ = None  # type: ignore[assignment]

    def __init__(self, name: str | None) -> None:
        self.name = name

    def __eq__(self, value: object) -> Comparison:  # type: ignore[override]
        return Comparison(self, "==", (value,))  # type: ignore[arg-type]

    def __ne__(self, value: object) -> Comparison:  # type: ignore[override]
        return Comparison(self, "!=", (value,))  # type: ignore[arg-type]

    def __lt__(self, value: Value) -> Comparison:
        return Comparison(self, "<", (value,))

    def __le__(self, value: Value) -> Comparison:
        return Comparison(self, "<=", (value,))

    def __gt__(self, value: Value) -> Comparison:
        return Comparison(self, ">", (value,))

    def __ge__(self, value: Value) -> Comparison:
        return Comparison(self, ">=", (value,))

    def in_(self, values: Iterable[Value]) -> Comparison:
        """Whether it is one of these values."""
        return Comparison(self, "in", tuple(values))

    def __repr__(self) -> str:
        return "rota.key" if self.name is None else f"rota.header({self.name!r})"


key = Field(None)
"""The key of a message."""


def header(name: str) -> Field:
    """A header of a message.  Raises TypeError."""
    if not isinstance(name, str):
        raise TypeError(f"the name of a header is str, not {type(name).__name__}")
    return Field(name)
