"""The rule by which shown output is compared with printed output."""

from __future__ import annotations

import pytest
from tests.surface.shown import console, matches, run_python


@pytest.mark.parametrize(
    ("shown", "printed"),
    [
        (["a 1", "b"], "a 1\nb\n"),
        (["a 1  ", "b"], "a 1\nb   \n\n"),
        (["a", "…", "d"], "a\nb\nc\nd\n"),
        (["a", "…", "d"], "a\nd\n"),
        (["took … s"], "took 0.3 s\n"),
        (["x=1.34…, y"], "x=1.3456, y\n"),
        (["and so on …"], "and so on and on\n"),
        (["rows 5  ①", "arms 4                 ②"], "rows 5\narms 4\n"),
        (["a.b"], "a.b"),
    ],
)
def test_a_page_may_leave_out_what_varies(shown, printed):
    assert matches(shown, printed)


@pytest.mark.parametrize(
    ("shown", "printed"),
    [
        (["a 1"], "a 2\n"),
        (["a"], "a\nb\n"),
        (["a", "b"], "a\n"),
        (["took … s"], "took\n0.3 s\n"),
        (["a.b"], "axb\n"),
        (["…", "d"], "a\nd\ne\n"),
        (["x=1.34…, y"], "x=1.35, y\n"),
    ],
)
def test_anything_else_is_a_difference(shown, printed):
    assert not matches(shown, printed)


def test_commands_and_what_is_below_them():
    body = "$ one \\\n  --more\nsays\n\n$ two\n"
    assert console(body) == [("one    --more", ["says"]), ("two", [])]


def test_a_comment_at_a_print_is_its_output():
    run_python("print(1 + 1)  # 2\nx = 3  # three\nfor i in range(2):\n    print(i)\n# 0\n# 1\n", {}, "page", 10)
    run_python("print(1)\n\n# nothing is shown here\nprint(2)\n", {}, "page", 10)
    for false in ("print(1 + 1)  # 3\n", "print(1)\n# 2\n", "for i in range(2):\n    print(i)\n# 0\n"):
        with pytest.raises(AssertionError, match="page:10 shows"):
            run_python(false, {}, "page", 10)
