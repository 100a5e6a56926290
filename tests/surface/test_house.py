"""The shape of ``src``: import cycles, late imports, long signatures, repeated module names, undeclared packages.

Everything is read from the syntax trees, so the checks take about a second and import nothing. The limits are
ratchets: they may be lowered when the code allows it, never raised.
"""

from __future__ import annotations

import ast
import sys
import tomllib
from collections import defaultdict
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
SOURCES = ROOT / "src"

#: Groups of modules that import each other, function-level and type-checking imports included.
MOST_KNOTS = 0
#: Statements inside functions that import a module of our own.
MOST_LATE_IMPORTS = 6
#: Positional parameters of a function outside the command line.
MOST_PARAMETERS = 8
#: Names that more than one module has, beside those in ``SAME_IDEA``.
MOST_REPEATED_NAMES = 0
#: Private names that one module imports from another.
MOST_PRIVATE_IMPORTS = 0

#: Names that stand for one idea at several layers: the arithmetic and the object that calls it.
SAME_IDEA = {
    "__init__",  # packages
    "base",  # what the other modules of its package build on
    "protocol",  # the protocol of its package
    "registry",  # the named things of its package
    "saving",  # how the objects of its package are written to files
    "cards",  # how the objects of its package show themselves in a notebook
}
SAME_IDEA_PAIRS = {
    "misfit": {"kernels", "side"},
    "floor": {"kernels", "learners"},
    "trust": {"learners", "side"},
    "running": {"kernels", "learners"},
    "ridge": {"kernels", "learners"},
    "sums": {"kernels", "hidden"},
    "moments": {"kernels", "logs"},
    "answers": {"kernels", "hidden", "judging"},
    "prior": {"kernels", "side"},
    "successor": {"cli", "service"},
}


@dataclass
class Module:
    """What the syntax tree of one module says."""

    name: str
    path: Path
    tree: ast.Module
    is_package: bool
    imports: set[str] = field(default_factory=set)
    late: list[tuple[int, str]] = field(default_factory=list)
    private: list[tuple[int, str]] = field(default_factory=list)
    foreign: set[str] = field(default_factory=set)


def parsed() -> dict[str, Module]:
    found: dict[str, Module] = {}
    for path in sorted(SOURCES.rglob("*.py")):
        parts = list(path.relative_to(SOURCES).with_suffix("").parts)
        is_package = parts[-1] == "__init__"
        name = ".".join(parts[:-1] if is_package else parts)
        found[name] = Module(name, path, ast.parse(path.read_text(encoding="utf-8")), is_package)
    return found


@cache
def modules() -> dict[str, Module]:
    """Every module of the package with what it imports."""
    found = parsed()
    for module in found.values():
        for node, inside in walk(module.tree):
            targets: list[str] = []
            if isinstance(node, ast.Import):
                targets = [alias.name for alias in node.names]
            elif isinstance(node, ast.ImportFrom):
                base = absolute(module, node)
                targets = [f"{base}.{alias.name}" if f"{base}.{alias.name}" in found else base for alias in node.names]
                if base.startswith("sidelight"):
                    module.private += [
                        (node.lineno, f"{base}.{alias.name}")
                        for alias in node.names
                        if alias.name.startswith("_") and not alias.name.startswith("__")
                    ]
            ours = {target for target in targets if target.split(".")[0] == "sidelight"}
            module.imports |= ours - {module.name}
            module.foreign |= {target.split(".")[0] for target in targets} - {"sidelight"}
            if inside and ours:
                module.late.append((node.lineno, ", ".join(sorted(ours))))
    return found


def absolute(module: Module, node: ast.ImportFrom) -> str:
    if not node.level:
        return node.module or ""
    parts = module.name.split(".")
    kept = parts[: len(parts) - node.level + module.is_package]
    return ".".join([*kept, *([node.module] if node.module else [])])


def walk(node: ast.AST, inside: bool = False):
    """Every statement with whether it is inside a function; expressions hold neither imports nor definitions."""
    for block in ("body", "handlers", "orelse", "finalbody", "cases"):
        for child in getattr(node, block, ()):
            yield child, inside
            yield from walk(child, inside or isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef))


def knots(graph: dict[str, set[str]]) -> list[list[str]]:
    """The strongly connected components of more than one module (Tarjan, with a stack of its own)."""
    index: dict[str, int] = {}
    low: dict[str, int] = {}
    on_path: list[str] = []
    found: list[list[str]] = []

    def visit(start: str) -> None:
        work = [(start, iter(sorted(graph[start])))]
        index[start] = low[start] = len(index)
        on_path.append(start)
        while work:
            node, targets = work[-1]
            for target in targets:
                if target not in index:
                    index[target] = low[target] = len(index)
                    on_path.append(target)
                    work.append((target, iter(sorted(graph[target]))))
                    break
                if target in on_path:
                    low[node] = min(low[node], index[target])
            else:
                work.pop()
                if work:
                    low[work[-1][0]] = min(low[work[-1][0]], low[node])
                if low[node] == index[node]:
                    group = []
                    while True:
                        group.append(on_path.pop())
                        if group[-1] == node:
                            break
                    if len(group) > 1:
                        found.append(sorted(group))

    for name in graph:
        if name not in index:
            visit(name)
    return found


def test_modules_that_import_each_other():
    found = modules()
    graph = {name: {target for target in module.imports if target in found} for name, module in found.items()}
    groups = knots(graph)
    assert len(groups) <= MOST_KNOTS, "\n".join(map(str, groups))


def test_late_imports_of_our_own_modules():
    late = [f"{m.path.relative_to(ROOT)}:{line} {what}" for m in modules().values() for line, what in m.late]
    assert len(late) <= MOST_LATE_IMPORTS, f"{len(late)}:\n" + "\n".join(late)


def test_private_names_stay_in_their_module():
    private = [f"{m.path.relative_to(ROOT)}:{line} {what}" for m in modules().values() for line, what in m.private]
    assert len(private) <= MOST_PRIVATE_IMPORTS, f"{len(private)}:\n" + "\n".join(private)


def test_no_function_has_more_positional_parameters():
    long = [
        (count, f"{module.path.relative_to(ROOT)}:{node.lineno} {node.name} takes {count}")
        for module in modules().values()
        if not module.name.startswith("sidelight.cli")
        for node, _ in walk(module.tree)
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and (count := positional(node)) > MOST_PARAMETERS
    ]
    assert not long, "\n".join(text for _, text in sorted(long))


def positional(node: ast.FunctionDef | ast.AsyncFunctionDef) -> int:
    names = [argument.arg for argument in [*node.args.posonlyargs, *node.args.args]]
    return len(names) - (names[:1] in (["self"], ["cls"]))


def test_a_module_name_stands_for_one_thing():
    homes: dict[str, list[str]] = defaultdict(list)
    for module in modules().values():
        if not module.is_package:
            homes[module.name.split(".")[-1]].append(module.name)
    repeated = [
        f"{name}: {', '.join(where)}"
        for name, where in sorted(homes.items())
        if len(where) > 1
        and name not in SAME_IDEA
        and not {home.split(".")[1] for home in where} <= SAME_IDEA_PAIRS.get(name, set())
    ]
    assert len(repeated) <= MOST_REPEATED_NAMES, f"{len(repeated)}:\n" + "\n".join(repeated)


#: distribution → what it is imported as, where the two differ
IMPORTED_AS = {
    "prometheus-client": {"prometheus_client"},
    "vl-convert-python": {"vl_convert"},
    "tomli-w": {"tomli_w"},
    "opentelemetry-sdk": {"opentelemetry"},
    "scikit-learn": {"sklearn"},
}
#: Never required: they are only touched where the user hands over an object of theirs.
USERS_OWN = {"pandas", "polars", "sklearn"}
#: What another package brings along and its documentation tells users to import; to be declared or let go.
NOT_YET_DECLARED = {"llvmlite"}


def declared() -> set[str]:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    lines = [*project["dependencies"], *(line for extra in project["optional-dependencies"].values() for line in extra)]
    names = {line.split(";")[0].split("[")[0].split(">")[0].split("=")[0].strip() for line in lines}
    return {module for name in names for module in IMPORTED_AS.get(name, {name.replace("-", "_")})}


def test_every_package_that_is_imported_is_declared():
    known = declared() | USERS_OWN | NOT_YET_DECLARED | set(sys.stdlib_module_names)
    undeclared = sorted(
        f"{module.path.relative_to(ROOT)} imports {name}"
        for module in modules().values()
        for name in module.foreign - known
    )
    assert not undeclared, "\n".join(undeclared)


@pytest.mark.parametrize("graph", [{"a": {"b"}, "b": {"c"}, "c": {"a"}, "d": {"a"}}])
def test_a_cycle_is_found(graph):
    assert knots(graph) == [["a", "b", "c"]]
