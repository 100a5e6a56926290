"""The public surface, pinned: a name that comes or goes does so on purpose, and every one is documented."""

from __future__ import annotations

import ast
import doctest
import importlib
import inspect
import pkgutil
from pathlib import Path

import pytest

import sidelight as sl

#: the names of the design, which may be added to and never renamed
PUBLIC = {
    "__version__",
    # logs
    "Schema",
    "Category",
    "Number",
    "Date",
    "Spline",
    "Power",
    "Product",
    "Logarithm",
    "Bins",
    "DatePart",
    "DaysSince",
    "Missing",
    "LogSummary",
    "Diagnosis",
    "summarize_log",
    "summarize_eras",
    "propose_terms",
    # side information
    "SideInformation",
    "KnownCrossMoments",
    "BehaviorQueries",
    "BehaviorProbabilities",
    "CompanionLog",
    "HiddenEstimator",
    # learners
    "Decision",
    "Learner",
    "OFUL",
    "ZeroFilledOFUL",
    "ProjectedOFUL",
    "EpochOFUL",
    "Floor",
    "RunningOFUL",
    "FusedOFUL",
    "FusedThompson",
    "BanditClassifier",
    "load_learner",
    # judging
    "judge",
    "Verdict",
    # simulation
    "simulate",
    "Run",
    "Regret",
    # errors
    "SidelightError",
    "SidelightWarning",
    # modules
    "errors",
    "theory",
    "worlds",
}
WORLDS = {
    "World",
    "PaperWorld",
    "ConfoundedWorld",
    "DriftedWorld",
    "DosingWorld",
    "TrafficWorld",
    "ReplayWorld",
    "TwinWorld",
}


def test_the_public_names_are_these():
    assert set(sl.__all__) == PUBLIC
    assert len(sl.__all__) == len(set(sl.__all__))
    assert set(dir(sl)) == set(sl.__all__)


def test_every_public_name_can_be_had():
    for name in sl.__all__:
        assert getattr(sl, name) is not None
    namespace: dict[str, object] = {}
    exec("from sidelight import *", namespace)
    assert set(sl.__all__) <= set(namespace)


def test_a_name_that_is_not_there_is_an_attribute_error():
    with pytest.raises(AttributeError, match="no attribute 'Foul'"):
        sl.Foul
    with pytest.raises(AttributeError, match="'NoWorld'"):
        sl.worlds.NoWorld


def test_the_worlds_are_public_too():
    assert set(sl.worlds.__all__) == WORLDS
    assert set(dir(sl.worlds)) >= WORLDS  # a notebook completes them
    for name in sl.worlds.__all__:
        assert getattr(sl.worlds, name).__name__ == name


def test_types_are_imported_for_checkers_as_they_are_at_run_time():
    """What ``TYPE_CHECKING`` imports and what the lazy table says must not drift apart."""
    for module in (sl, sl.worlds):
        tree = ast.parse(Path(module.__file__).read_text(encoding="utf-8"))
        block = next(node for node in tree.body if isinstance(node, ast.If))
        stated = {
            alias.asname or alias.name: node.module
            for node in block.body
            if isinstance(node, ast.ImportFrom)
            for alias in node.names
        }
        for name, home in module._HOMES.items():
            assert stated[name] == home
        assert set(stated) == set(module.__all__) - {"__version__"}


def documented(name: str) -> bool:
    """Whether a docstring of its own, not its parent's, stands at the definition."""
    value = getattr(sl, name)
    return bool((value.__dict__.get("__doc__") if inspect.isclass(value) else value.__doc__) or "")


@pytest.mark.parametrize("name", [name for name in sl.__all__ if name != "__version__"])
def test_every_public_name_has_a_docstring(name):
    value = getattr(sl, name)
    assert documented(name)
    if inspect.isclass(value) and value.__module__.startswith("sidelight"):
        for member, function in vars(value).items():
            if not member.startswith("_") and inspect.isfunction(function):
                inherited = any(getattr(getattr(base, member, None), "__doc__", None) for base in value.__mro__)
                assert function.__doc__ or inherited, f"{name}.{member}"


#: what a user makes or calls: its docstring shows how
SHOWN = sorted(
    name
    for name in PUBLIC
    if name not in {"__version__", "errors", "theory", "worlds", "SidelightError", "SidelightWarning"}
    and name not in {"Learner", "HiddenEstimator", "Decision", "Run"}
)


@pytest.mark.parametrize("name", SHOWN)
def test_every_public_name_shows_an_example(name):
    value = getattr(sl, name)
    shows = ">>> " in (inspect.getdoc(value) or "")
    assert shows, f"{name} has no example"


def modules() -> list[str]:
    """Every module of the package; what an extra that is not installed needs is left out."""
    found = ["sidelight"]
    for info in pkgutil.walk_packages(sl.__path__, "sidelight."):
        found.append(info.name)
    return found


def with_examples() -> list[str]:
    root = Path(sl.__file__).parent
    return [
        name
        for name in modules()
        if any(
            ">>> " in path.read_text(encoding="utf-8")
            for path in [
                root.joinpath(*name.split(".")[1:]).with_suffix(".py") if name != "sidelight" else root / "__init__.py"
            ]
            if path.exists()
        )
    ]


@pytest.mark.parametrize("name", with_examples())
def test_every_example_runs(name, tmp_path, monkeypatch):
    import numpy as np

    monkeypatch.chdir(tmp_path)
    module = importlib.import_module(name)
    result = doctest.testmod(
        module, extraglobs={"sl": sl, "np": np}, optionflags=doctest.NORMALIZE_WHITESPACE | doctest.ELLIPSIS
    )
    assert result.attempted > 0
    assert result.failed == 0
