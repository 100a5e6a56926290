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

# In processes of their own, forks of one that has the imports: what another learner has compiled would hide what is
# missing.
SCRIPT = """
import asyncio, os, pkgutil, sys
from importlib import import_module
from pathlib import Path
import numpy as np
import sidelight.kernels
from sidelight.service.config import load_config
from sidelight.service.core.engine import Ask, Engine
from sidelight.service.core.starting import open_store
from sidelight.service.log.decision_id import DecisionId
from sidelight.service.log.events import Answer

modules = [import_module(m.name) for m in pkgutil.walk_packages(sidelight.kernels.__path__, "sidelight.kernels.")]
answers = {"action": Answer, "probabilities": lambda arm: Answer(probabilities=(0.5, 0.25, 0.25))}

def compiled():
    return {
        (name, str(signature))
        for module in modules
        for name, kernel in vars(module).items()
        for signature in getattr(kernel, "signatures", ())
    }

async def live(engine):
    await engine.start()
    rng = np.random.default_rng(3)
    learner = engine.state.learner
    for i in range(200):
        X = rng.normal(size=(1 if i % 50 else 64, learner.n_features))
        number, _, _ = await engine.decide(X, None)
        id, arm = DecisionId(number, 0), learner.arms[i % len(learner.arms)]
        if learner.needs is not None:
            await engine.behavior(id, answers[learner.needs](arm))
        await engine.reward(id, float(rng.normal()), arm, None)
    await engine.stop()
    assert engine.state.counts["rewards"] == 200
    assert not engine.state.counts["failures"]

def serve(path):
    config = load_config(path)
    engine = Engine(open_store(config), config)
    before = compiled()
    x = np.ones((1, engine.state.learner.n_features))
    for asks in (None, [Ask(allowed=["mid"])], [Ask(allowed=["low", "high"])]):
        engine.choose(x, asks)
    asyncio.run(live(engine))
    assert before, "there are kernels at work"
    print(path.parent.name, sorted(compiled() - before), flush=True)

for path in map(Path, sys.argv[1:]):
    if (fork := os.fork()) == 0:
        serve(path)
        os._exit(0)
    os.waitpid(fork, 0)
"""


@pytest.mark.timeout(900)  # may have to compile, which on a busy machine takes minutes
def test_neither_decisions_nor_rewards_compile_anything(tmp_path: Path):
    kinds = [("OFUL", "queries"), ("RunningOFUL", "queries"), ("FusedOFUL", "queries"), ("FusedOFUL", "probabilities")]
    for kind, answers in kinds:
        folder = tmp_path / f"{kind}-{answers}"
        folder.mkdir()
        config = make_config(folder, kind=kind, mode="act")
        save_config(replace(config, learner=replace(config.learner, answers=answers)), folder / "sidelight.toml")
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT, *(str(tmp_path / f"{'-'.join(kind)}/sidelight.toml") for kind in kinds)],
        capture_output=True,
        text=True,
        timeout=800,
        check=False,
        env={**os.environ, "PYTHONPATH": str(SOURCE)},
    )
    assert done.stdout.splitlines() == [f"{'-'.join(kind)} []" for kind in kinds], done.stderr[-2000:]
