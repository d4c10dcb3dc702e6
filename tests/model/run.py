"""Search the models: `python -m tests.model.run --help`.

--all         every profile of every model (or of those named) with all guards on
--mutations   each guard off, alone or with its group: is there a counterexample?
--table       print results as Markdown tables, of one kind at a time
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Collection
from typing import Any

from tests.model.apply_model import ApplyModel
from tests.model.claim_model import ClaimModel
from tests.model.dedup_model import DedupModel
from tests.model.explore import Model, Result, search
from tests.model.failed_model import FailedModel
from tests.model.fence_model import FenceModel
from tests.model.leader_model import LeaderModel
from tests.model.limit_model import LimitModel
from tests.model.log_model import LogModel
from tests.model.range_model import RangeModel
from tests.model.replay_model import ReplayModel
from tests.model.space_model import SpaceModel
from tests.model.unit_model import UnitModel
from tests.model.wake_model import WakeModel

MODELS: dict[str, type[Model[Any]]] = {
    "log": LogModel,
    "apply": ApplyModel,
    "claim": ClaimModel,
    "range": RangeModel,
    "space": SpaceModel,
    "replay": ReplayModel,
    "unit": UnitModel,
    "failed": FailedModel,
    "leader": LeaderModel,
    "fence": FenceModel,
    "wake": WakeModel,
    "dedup": DedupModel,
    "limit": LimitModel,
}

HEADS = (
    "| guards | profile | states | seconds | |\n|---|---|---|---|---|",
    "| off | what it is | profile | states | seconds | without it |\n|---|---|---|---|---|---|",
)


def mutations(model: type[Model[Any]]) -> list[tuple[str, ...]]:
    """Each guard alone, or with its group; second lines, which another guard covers, are left out."""
    covered = {guard for group in model.groups for guard in group} | set(model.second_lines)
    return [(guard,) for guard in model.guards if guard not in covered] + list(model.groups)


def find(model: type[Model[Any]], off: tuple[str, ...], limits: argparse.Namespace) -> tuple[str, Result]:
    """The first profile that yields a counterexample, or the last one."""
    for profile in limits.profile or model.profiles:
        result = search(model(profile, off), limits.states, limits.seconds)
        if result.why:
            break
    return profile, result


def report(name: str, off: Collection[str], profile: str, result: Result, args: argparse.Namespace) -> None:
    """One line for a search, or one row of the table in docs/models.md."""
    verdict = result.why or ("nothing found" if result.exhausted else "nothing found, NOT exhausted")
    states, seconds = f"{result.states:,}", f"{result.seconds:.1f}"
    what = " + ".join(off) or "all guards"
    if args.table:
        cells = [f"`{what}`", *(["; ".join(MODELS[name].guards[guard] for guard in off)] if off else [])]
        print(
            "| " + " | ".join([*cells, profile, states, seconds, verdict.split(": State(")[0]]) + " |",
            flush=True,
        )
    else:
        what = f"without {what}" if off else what
        print(f"{name:8} {what:32} {profile:9} {states:>9} states {seconds:>6} s  {verdict}", flush=True)
    for number, label in enumerate(result.trace if args.trace else (), 1):
        print(f"    {number:2}. {label}")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model", nargs="*", choices=[[], *MODELS], help="default: every model")
    parser.add_argument("--all", action="store_true")
    parser.add_argument("--mutations", action="store_true")
    parser.add_argument("--without", action="append", default=[], metavar="GUARD")
    parser.add_argument("--profile", action="append")
    parser.add_argument("--states", type=int, default=3_000_000, help="bound of one search")
    parser.add_argument("--seconds", type=float, default=600.0, help="bound of one search")
    parser.add_argument("--table", action="store_true")
    parser.add_argument("--trace", action="store_true", help="print the steps of each counterexample")
    args = parser.parse_args()
    wrong: list[str] = []
    for name in args.model or MODELS:
        model = MODELS[name]
        if args.table:
            print(f"\n### `{name}`\n\n{HEADS[args.mutations]}", flush=True)
        if args.all or not args.mutations:
            for profile in args.profile or model.profiles:
                result = search(model(profile, args.without), args.states, args.seconds)
                report(name, args.without, profile, result, args)
                if result.why or not result.exhausted:
                    wrong.append(f"{name} {profile}")
        if args.mutations:
            for off in mutations(model):
                profile, result = find(model, off, args)
                report(name, off, profile, result, args)
                if not result.why:
                    wrong.append(f"{name} without {' + '.join(off)}")
    print("unexpected:", "; ".join(wrong) or "none")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
