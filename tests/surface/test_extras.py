"""The base works without any extra, and a missing extra says how to get it.

Here everything an extra brings is hidden from Python; ``make wheels`` does it for real, in clean environments.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from tests.surface.extras import BLOCK, BRINGS

EXTRAS = Path(__file__).with_name("extras.py")


def test_the_base_works_alone():
    done = subprocess.run(
        [sys.executable, str(EXTRAS), "base", "--blocked"], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "base: works" in done.stdout


def test_the_blocks_do_block():
    code = BLOCK.format(names=["altair"]) + "\nimport altair"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert "ModuleNotFoundError: No module named 'altair'" in done.stderr


@pytest.mark.parametrize(
    ("extra", "words"),
    [
        ("figures", ["figures", "log-size", "--quick"]),
        ("cluster", ["summarize", "log.csv", "--recorded", "a", "--scheduler", "tcp://127.0.0.1:1"]),
        ("service", ["serve", "--check"]),
        ("service", ["init", "--features", "a", "--arms", "b,c"]),
    ],
    ids=lambda value: value if isinstance(value, str) else value[0],
)
def test_a_missing_extra_says_how_to_get_it(extra, words, tmp_path):
    (tmp_path / "log.csv").write_text("a,arm,reward\n1,0,1\n2,1,0\n")
    code = BLOCK.format(names=BRINGS[extra]) + f"\nfrom sidelight.cli import main\nmain({words!r})"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False, cwd=tmp_path)
    assert done.returncode == 1, done.stdout + done.stderr
    assert f'pip install ".[{extra}]" in a clone' in " ".join(done.stderr.split())
    assert "Traceback" not in done.stderr


def test_every_extra_of_the_package_is_tested():
    import tomllib

    project = tomllib.loads((Path(__file__).parents[2] / "pyproject.toml").read_text())["project"]
    assert set(project["optional-dependencies"]) == set(BRINGS)
    for extra, modules in BRINGS.items():
        wanted = " ".join(project["optional-dependencies"][extra]).replace("-", "_")
        for module in modules:
            assert module in wanted, f"{extra} does not bring {module}"
