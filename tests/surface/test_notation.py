"""Every name in docs/notation.md exists."""

from __future__ import annotations

import importlib
import inspect
import re
from pathlib import Path
from typing import Any

import pytest

TABLES = Path(__file__).parents[2] / "docs" / "notation.md"


def rows() -> list[list[str]]:
    found = []
    for line in TABLES.read_text(encoding="utf-8").splitlines():
        if line.startswith("|") and not line.startswith(("|---", "| symbol")):
            found.append([cell.strip() for cell in re.split(r"(?<!\\)\|", line)[1:-1]])
    return found


def names() -> list[str]:
    return sorted({name for row in rows() for name in re.findall(r"`([a-z_]+(?:\.\w+)+)`", row[1])})


def exists(path: str) -> bool:
    """A module's name, a class's attribute, property or method, or what its methods assign to ``self``."""
    parts = path.split(".")
    for split in range(len(parts), 0, -1):
        try:
            owner: Any = importlib.import_module(".".join(["sidelight", *parts[:split]]))
        except ModuleNotFoundError:
            continue
        for name in parts[split:]:
            if hasattr(owner, name):
                owner = getattr(owner, name)
                continue
            annotated = inspect.isclass(owner) and any(
                name in vars(c).get("__annotations__", {}) for c in owner.__mro__
            )
            assigned = inspect.isclass(owner) and any(
                re.search(rf"self\.{name}\b\s*(:[^=\n]*)?(,[^=\n]*)?=", inspect.getsource(c))
                for c in owner.__mro__
                if c.__module__.startswith("sidelight")
            )
            return annotated or assigned
        return True
    return False


def test_tables_have_four_columns_and_a_name_in_each_row():
    assert len(rows()) > 40
    for row in rows():
        assert len(row) == 4, row
        assert re.search(r"`[a-z_]+\.\w+", row[1]), row
        assert row[2], row


@pytest.mark.parametrize("name", names())
def test_the_name_exists(name):
    assert exists(name)


def test_a_name_that_does_not_exist_is_noticed():
    assert not exists("theory.radius_of_everything")
    assert not exists("logs.summary.LogSummary.gram_matrices")
    assert not exists("nowhere.at_all")
