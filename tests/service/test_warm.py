"""Nothing is compiled while a request waits: the engine has done it before it answers the first."""

from __future__ import annotations

import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from sidelight.service.config import save_config
from tests.service.helpers import SOURCE, make_config

# In a process of its own: what other tests have compiled would hide what is missing.
SCRIPT = """
import asyncio, pkgutil, sys
from importlib import import_module
from pathlib import Path
import numpy as np
import sidelight.kernels
from sidelight.service.config import load_config
from sidelight.service.core.engine import Ask, Engine
from sidelight.service.core.starting import open_store
from sidelight.service.log.decision_id import DecisionId
from sidelight.service.log.events import Answer

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

answers = {"action": Answer, "probabilities": lambda arm: Answer(probabilities=(0.5, 0.25, 0.25))}

async def live():
    await engine.start()
    rng = np.random.default_rng(3)
    arms = engine.state.learner.arms
    for i in range(200):
        X = rng.normal(size=(1 if i % 50 else 64, x.shape[1]))
        number, _, _ = await engine.decide(X, None)
        id, arm = DecisionId(number, 0), arms[i % len(arms)]
        if engine.state.learner.needs is not None:
            await engine.behavior(id, answers[engine.state.learner.needs](arm))
        await engine.reward(id, float(rng.normal()), arm, None)
    await engine.stop()
    assert engine.state.counts["rewards"] == 200
    assert not engine.state.counts["failures"]

asyncio.run(live())
print(sorted(compiled() - before))
assert before, "there are kernels at work"
"""


@pytest.mark.timeout(900)  # may have to compile, which on a busy machine takes minutes
@pytest.mark.parametrize(
    ("kind", "answers"),
    [("OFUL", "queries"), ("RunningOFUL", "queries"), ("FusedOFUL", "queries"), ("FusedOFUL", "probabilities")],
)
def test_neither_decisions_nor_rewards_compile_anything(tmp_path: Path, kind: str, answers: str):
    config = make_config(tmp_path, kind=kind, mode="act")
    save_config(replace(config, learner=replace(config.learner, answers=answers)), tmp_path / "sidelight.toml")
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT, str(tmp_path / "sidelight.toml")],
        capture_output=True,
        text=True,
        timeout=800,
        check=False,
        env={**os.environ, "PYTHONPATH": str(SOURCE)},
    )
    assert done.returncode == 0, done.stderr[-2000:]
    assert done.stdout.strip() == "[]"
