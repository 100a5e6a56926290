"""What a page shows beside its code is what the code prints.

The rule, for every page:

* In a ``console`` block, the lines below a command, up to the next one, are its output.
* In a ``python`` block, a comment behind a one-line ``print(…)``, or comment lines directly below a statement that
  prints, are what it prints.
* A command or statement with nothing shown may print anything.
* ``…`` in a line stands for any text, alone on a line for any number of lines: for what depends on the day, the machine
  or a random key, and for what the page leaves out.
* Spaces at the end of a line do not count, nor do circled numbers there, with which a page marks lines.
"""

from __future__ import annotations

import ast
import contextlib
import io
import re
from typing import Any

CIRCLED = re.compile(r"\s*[①②③④⑤⑥⑦⑧⑨⑩]?\s*$")


def matches(shown: list[str], printed: str) -> bool:
    """Whether lines of a page stand for what was printed."""
    pattern = ""
    for line in shown:
        line = CIRCLED.sub("", line)
        if line == "…":
            pattern += r"(?:[^\n]*\n)*?"
        else:
            pattern += "[^\n]*?".join(re.escape(part.strip() if i else part) for i, part in enumerate(line.split("…")))
            pattern += r"[^\n]*\n" if line.endswith("…") else r"\n"
    lines = [line.rstrip() for line in printed.splitlines()]
    while lines and not lines[-1]:
        lines.pop()
    return re.fullmatch(pattern, "".join(f"{line}\n" for line in lines)) is not None


def explain(where: str, shown: list[str], printed: str) -> str:
    """The message for a page that shows something else."""
    return f"{where} shows\n" + "\n".join(shown) + f"\nbut this is printed:\n{printed}"


def console(body: str) -> list[tuple[str, list[str]]]:
    """The commands of a ``console`` block, and what the page shows below each."""
    found: list[tuple[str, list[str]]] = []
    for line in body.replace("\\\n", " ").splitlines():
        if line.startswith("$ "):
            found.append((line.removeprefix("$ "), []))
        else:
            assert found, f"output before any command: {line!r}"
            found[-1][1].append(line)
    for _, shown in found:
        while shown and not shown[-1].strip():
            shown.pop()
    return found


def run_python(body: str, namespace: dict[str, Any], name: str, line: int) -> None:
    """Run a ``python`` block, statement by statement, and compare what is shown with what is printed.

    Args:
        body: the block.
        namespace: of the page.
        name: of the page, for tracebacks.
        line: of the page at which the block's body begins.
    """
    tree = ast.parse(body, filename=name)
    lines = body.splitlines()
    for statement in tree.body:
        shown = comments(statement, lines)
        ast.increment_lineno(statement, line - 1)
        printed = io.StringIO()
        with contextlib.redirect_stdout(printed):
            exec(compile(ast.Module([statement], []), name, "exec"), namespace)
        if shown:
            where = f"{name}:{statement.lineno}"
            assert matches(shown, printed.getvalue()), explain(where, shown, printed.getvalue())


def comments(statement: ast.stmt, lines: list[str]) -> list[str]:
    """The comments that stand for a statement's output; none if it has no ``print``."""
    if not any(isinstance(node, ast.Name) and node.id == "print" for node in ast.walk(statement)):
        return []
    assert statement.end_lineno is not None
    assert statement.end_col_offset is not None
    last = lines[statement.end_lineno - 1]
    behind = last.encode()[statement.end_col_offset :].decode().strip()
    if behind.startswith("#") and statement.lineno == statement.end_lineno:
        return [behind.removeprefix("#").strip()]
    shown = []
    for line in lines[statement.end_lineno :]:
        if not line.startswith("#"):
            break
        shown.append(line.removeprefix("#").removeprefix(" "))
    return shown
