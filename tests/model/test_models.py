"""A slice of the models: small bounds exhausted, and each guard's absence caught where that is quick.

`python -m tests.model.run --all --mutations` searches every profile and every guard.
"""

from __future__ import annotations

from typing import Any

import pytest

from tests.model.explore import Model, search
from tests.model.run import MODELS, mutations

SECONDS = 20.0
STATES = 30_000  # a mutation not caught within this many states is left to the full run

QUICK = [(name, profile) for name, model in MODELS.items() for profile in model.quick]
MUTATIONS = [(name, off) for name, model in MODELS.items() for off in mutations(model) if off not in model.slow]


@pytest.mark.parametrize(("name", "profile"), QUICK)
def test_nothing_is_found_with_all_guards_on(name: str, profile: str) -> None:
    result = search(MODELS[name](profile), seconds=SECONDS)
    assert result.why is None, "\n".join([result.why, *result.trace])
    assert result.exhausted


def caught(model: type[Model[Any]], off: tuple[str, ...]) -> bool:
    return any(search(model(profile, off), STATES, SECONDS).why for profile in model.quick)


@pytest.mark.parametrize(("name", "off"), MUTATIONS, ids=lambda x: x if isinstance(x, str) else "+".join(x))
def test_each_guard_matters(name: str, off: tuple[str, ...]) -> None:
    assert caught(MODELS[name], off)


@pytest.mark.parametrize("name", MODELS)
def test_names_are_consistent(name: str) -> None:
    model = MODELS[name]
    assert set(model.quick) <= set(model.profiles)
    assert {guard for group in (*model.groups, *model.slow, model.second_lines) for guard in group} <= set(model.guards)
    with pytest.raises(ValueError):
        model(model.quick[0], ("no such guard",))
