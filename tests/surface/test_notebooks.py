"""The notebooks of ``examples`` run from top to bottom, are stored without output, and show something."""

from __future__ import annotations

import ast
import json
from pathlib import Path

import pytest

NOTEBOOKS = sorted((Path(__file__).parents[2] / "examples").glob("*.ipynb"))


def test_there_are_two():
    assert len(NOTEBOOKS) == 2


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_it_runs_from_top_to_bottom(path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    notebook = json.loads(path.read_text(encoding="utf-8"))
    namespace: dict[str, object] = {"__name__": "__main__"}
    shown = 0
    try:
        for cell in notebook["cells"]:
            if cell["cell_type"] != "code":
                continue
            assert cell["outputs"] == []
            assert cell["execution_count"] is None
            tree = ast.parse("".join(cell["source"]), filename=path.name)
            last = tree.body[-1]
            # a notebook shows the value of a cell's last expression
            ending = ast.Expression(tree.body.pop().value) if isinstance(last, ast.Expr) else None  # type: ignore[attr-defined]
            exec(compile(tree, path.name, "exec"), namespace)
            if ending is not None:
                value = eval(compile(ending, path.name, "eval"), namespace)
                html = getattr(value, "_repr_html_", None)
                shown += bool(html() if html is not None else repr(value))
    finally:
        server = namespace.get("server")
        if server is not None and server.poll() is None:  # type: ignore[attr-defined]
            server.kill()  # type: ignore[attr-defined]
    assert shown >= 3
