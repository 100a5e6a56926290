"""Nothing is compiled while a decision waits: the engine has done it before it answers the first."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.service.helpers import SOURCE, make_config

# In a process of its own: what other tests have compiled would hide what is missing.
SCRIPT = """
import pkgutil, sys
from importlib import import_module
from pathlib import Path
import numpy as np
import sidelight.kernels
from sidelight.service.config import load_config
from sidelight.service.core.engine import Ask, Engine
from sidelight.service.core.starting import open_store

def compiled():
    modules = [import_module(m.name) for m in pkgutil.walk_packages(sidelight.kernels.__path__, "sidelight.kernels.")]
    return {
        (name, str(signature))
        for module in modules
        for name, kernel in vars(module).items()
        for signature in getattr(kernel, "signatures", ())
    }

config = load_config(Path(sys.argv[1]))
engine = Engine(open_store(config), config)
before = compiled()
x = np.ones((1, engine.state.learner.n_features))
for asks in (None, [Ask(allowed=["mid"])], [Ask(allowed=["low", "high"])]):
    engine.choose(x, asks)
print(sorted(compiled() - before))
assert before, "there are kernels at work"
"""


@pytest.mark.parametrize("kind", ["OFUL", "FusedOFUL"])
def test_the_first_decision_compiles_nothing(tmp_path: Path, kind: str):
    make_config(tmp_path, kind=kind, mode="act")
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT, str(tmp_path / "sidelight.toml")],
        capture_output=True,
        text=True,
        timeout=200,
        check=False,
        env={**os.environ, "PYTHONPATH": str(SOURCE)},
    )
    assert done.returncode == 0, done.stderr[-2000:]
    assert done.stdout.strip() == "[]"
