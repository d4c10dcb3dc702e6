"""The public names: what is exported, what a checker sees of it, what docs/api.md says, what an import loads."""

from __future__ import annotations

import ast
import dataclasses
import importlib
import inspect
import pathlib
import pkgutil
import re
import subprocess
import sys
import types
from collections.abc import Iterator
from typing import Any

import pytest

import rota

ROOT = pathlib.Path(__file__).resolve().parents[2]
API = ROOT / "docs" / "api.md"

# How docs/api.md calls an object of each class.
CALLED = {
    "repo": rota.Repository,
    "queue": rota.Queue,
    "message": rota.Message,
    "batch": rota.Batch,
    "receipt": rota.Receipt,
    "pending": rota.PendingReceipt,
    "transaction": rota.Transaction,
    "savepoint": rota.Savepoint,
    "registration": rota.Registration,
    "last": rota.LastOperation,
    "coordinator": rota.Coordinator,
    "guard": rota.Guard,
    "limiter": rota.Limiter,
    "profile": rota.RepeatProfile,
    "clerk": rota.Clerk,
    "session": rota.Session,
    "reply": rota.Reply,
    "career": rota.LeaderCareer,
    "leadership": rota.Leadership,
    "elector": rota.Elector,
    "local": rota.LocalElector,
    "server": rota.Server,
    "backoff": rota.Backoff,
    "producer": rota.Producer,
    "memory": rota.SqlMemory,
    "saga": rota.Saga,
    "plan": rota.SagaPlan,
    "step": rota.SagaStep,
    "cached": rota.CachedReceipt,
}
# What an object has besides, set when it is made.
ATTRIBUTES = {
    rota.Repository: ("path", "recovery"),
    rota.Registration: ("name", "queue_name", "queue_number", "repository", "stable"),
    rota.Server: ("repository",),
    rota.Clerk: ("client", "repository", "window"),
    rota.Producer: ("queue",),
    rota.SqlMemory: ("connection",),
    rota.SagaPlan: ("name", "max_attempts", "keep"),
    rota.Leadership: ("token", "identity", "stop", "lost"),
    rota.Elector: ("identity",),
    rota.LocalElector: ("repository", "name", "identity"),
}
FIGURES = (
    rota.CoordinatorStatistics,
    rota.RepeatShares,
    rota.QueueStatistics,
    rota.RepositoryStatistics,
    rota.Recovery,
    rota.ProducerStatistics,
)
# What an installation brings (kazoo and matplotlib: with an extra); what only a contributor's machine has is not here.
INSTALLED = sys.stdlib_module_names | {"rota", "numpy", "lz4", "click", "rich", "kazoo", "matplotlib"}
# Loaded when they are needed, and not before.
LATER = {"click", "rich", "kazoo", "lz4", "numpy", "matplotlib", "asyncio", "multiprocessing"}


def public(cls: type) -> list[str]:
    """Return the names that a class adds itself."""
    return [name for name in vars(cls) if not name.startswith("_")]


def signature(function: Any) -> str:
    """Return the parameters without self and without annotations, as docs/api.md writes them."""
    parameters = [
        parameter.replace(annotation=inspect.Parameter.empty)
        for name, parameter in inspect.signature(function).parameters.items()
        if name != "self"
    ]
    return str(inspect.Signature(parameters))


def test_the_list_of_names_is_the_names() -> None:
    found = {
        name
        for name, value in vars(rota).items()
        if not name.startswith("_") and not isinstance(value, types.ModuleType) and name != "annotations"
    }
    assert found == set(rota.__all__)
    assert len(rota.__all__) == len(set(rota.__all__))


def test_a_star_import_takes_the_names() -> None:
    namespace: dict[str, Any] = {}
    exec("from rota import *", namespace)
    assert namespace.keys() - {"__builtins__"} == set(rota.__all__)


# Importing rota.__main__ would run the command line.
MODULES = sorted({info.name for info in pkgutil.walk_packages(rota.__path__, "rota.")} - {"rota.__main__"})


@pytest.mark.parametrize("name", MODULES)
def test_every_module_can_be_imported_and_holds_what_it_lists(name: str) -> None:
    module = importlib.import_module(name)
    assert [entry for entry in getattr(module, "__all__", ()) if not hasattr(module, entry)] == []


@pytest.mark.parametrize("cls", CALLED.values(), ids=lambda cls: cls.__name__)
def test_public_methods_have_docstrings(cls: type) -> None:
    assert inspect.getdoc(cls)
    assert [name for name in public(cls) if callable(vars(cls)[name]) and not inspect.getdoc(vars(cls)[name])] == []


@pytest.mark.tree
def test_a_checker_sees_the_names_of_run_time(tmp_path: pathlib.Path) -> None:
    lines = ["import rota", "", "print(rota.__version__)", *(f"print(rota.{name})" for name in rota.__all__)]
    for cls in (*CALLED.values(), *FIGURES):
        names = [*public(cls), *ATTRIBUTES.get(cls, ())]
        lines += ["", f"def use_{cls.__name__}(one: rota.{cls.__name__}) -> None:"]
        lines += [f"    print(one.{name})" for name in names]
    page = tmp_path / "uses.py"
    page.write_text("\n".join(lines) + "\n")
    command = [sys.executable, "-m", "mypy", "--config-file", "pyproject.toml", "--no-incremental", str(page)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, stdin=subprocess.DEVNULL)
    assert done.returncode == 0, done.stdout + done.stderr


def loaded(program: str) -> set[str]:
    """Return the modules outside the package's own that a program in a fresh interpreter has loaded at its end."""
    program += "\nimport sys; print(*(name.partition('.')[0] for name in list(sys.modules)))"
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True, stdin=subprocess.DEVNULL
    )
    return set(done.stdout.split())


def test_an_import_loads_nothing_that_can_wait() -> None:
    before = loaded("")
    assert loaded("import rota") & (LATER - before) == set()


def test_putting_and_getting_loads_nothing_more(directory: pathlib.Path) -> None:
    program = f"""
import rota
with rota.open({str(directory / "r")!r}, capacity="1 MiB") as repo:
    orders = repo.queue("orders")
    orders.put_many([b"a", b"b"])
    orders.put(b"c", key="k", headers={{"amount": 3}}, priority=1)
    with repo.transaction() as transaction:
        transaction.put(orders, transaction.get(orders).body)
    orders.get_many(10).ack()
    repo.stats()
"""
    assert loaded(program) & (LATER - loaded("")) == set()


def test_an_import_prints_nothing_and_needs_no_environment() -> None:
    command = [sys.executable, "-W", "error", "-c", "import rota"]
    done = subprocess.run(command, capture_output=True, text=True, stdin=subprocess.DEVNULL)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


def documented() -> set[str]:
    """Return what stands between backticks in docs/api.md."""
    return set(re.findall(r"`([^`]+)`", API.read_text()))


@pytest.mark.tree
def test_the_documentation_has_every_exported_name() -> None:
    said = documented()
    assert [name for name in rota.__all__ if f"rota.{name}" not in said and name != "open"] == []
    assert f"rota.open{signature(rota.open)}" in said


@pytest.mark.tree
@pytest.mark.parametrize("called", CALLED)
def test_the_documentation_has_every_method_as_it_is(called: str) -> None:
    cls, said, missing = CALLED[called], documented(), []
    for name in public(cls):
        value = vars(cls)[name]
        exact = f"{called}.{name}{signature(value)}" if callable(value) else f"{called}.{name}"
        if exact not in said and f"{cls.__name__}.{name}" not in said:
            missing.append(exact)
    missing += [name for name in ATTRIBUTES.get(cls, ()) if not {f"{called}.{name}", f"{cls.__name__}.{name}"} & said]
    assert missing == []


@pytest.mark.tree
@pytest.mark.parametrize("called", CALLED)
def test_the_documentation_has_no_method_that_is_not(called: str) -> None:
    cls = CALLED[called]
    pattern = rf"(?:{called}|{cls.__name__})\.([a-z]\w*)"
    names = {match[1] for text in documented() if (match := re.match(pattern, text))}
    assert names
    assert names - set(public(cls)) - set(ATTRIBUTES.get(cls, ())) == set()


@pytest.mark.tree
def test_the_documentation_has_every_name_of_inspection() -> None:
    inspection = importlib.import_module("rota.inspection")
    said = " ".join(documented())
    assert [name for name in inspection.__all__ if not re.search(rf"\b{name}\b", said)] == []


@pytest.mark.tree
def test_the_documentation_has_every_figure() -> None:
    said = documented()
    fields = {field.name for cls in FIGURES for field in dataclasses.fields(cls)}
    assert fields - said == set()


@pytest.mark.tree
def test_the_documentation_has_every_code() -> None:
    rows = dict(re.findall(r"^\| `rota\.(\w+)` \| `(\w+)` \|", API.read_text(), re.MULTILINE))
    classes = [getattr(rota, name) for name in rota.__all__ if isinstance(getattr(rota, name), type)]
    assert rows == {cls.__name__: cls.code for cls in classes if issubclass(cls, rota.RotaError)}


@pytest.mark.parametrize("cls", sorted(set(CALLED.values()), key=str))
def test_every_public_name_is_explained(cls: type) -> None:
    """By its own docstring; what a compiled class holds as a plain field, by that of the class."""
    doc = inspect.getdoc(cls) or ""
    silent = [name for name in public(cls) if not inspect.getdoc(vars(cls)[name]) and f"`{name}`" not in doc]
    assert silent == []


def test_signatures_show_the_defaults() -> None:
    """What help() shows is what a call does: no name of the core stands in it."""
    for cls in CALLED.values():
        for name in public(cls):
            text = vars(cls)[name].__doc__ or ""
            assert not re.match(
                rf"{name}\(.*=[A-Z]\w*[,)]", text.replace("None", "").replace("False", "").replace("True", "")
            ), text


def imports(node: ast.AST) -> Iterator[str]:
    """Yield the top-level names that run time imports below a node; what only a checker sees is left out."""
    if isinstance(node, ast.If) and "TYPE_CHECKING" in ast.unparse(node.test):
        return
    if isinstance(node, ast.Import):
        yield from (alias.name.partition(".")[0] for alias in node.names)
    elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
        yield node.module.partition(".")[0]
    for child in ast.iter_child_nodes(node):
        yield from imports(child)


def test_run_time_imports_only_what_an_installation_brings() -> None:
    package = pathlib.Path(rota.__path__[0])
    found = {
        (str(path.relative_to(package)), name)
        for path in package.rglob("*.py")
        for name in imports(ast.parse(path.read_text()))
    }
    assert {(path, name) for path, name in found if name not in INSTALLED} == set()
    assert ("registration.py", "rota") in found
