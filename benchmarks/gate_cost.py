"""What evidence costs a service: python -m benchmarks.gate_cost

Decisions and their rewards through the engine, its store (SQLite) and its fold, without HTTP, once as they are and once
with evidence left out, in turns in one run; the ratio of processor times, with the range over the turns. ``act`` has
half of the traffic drawn for the learner on a rung of a ladder, ``shadow`` scores the old policy's rows, ``act, all``
has nothing to test.
"""

from __future__ import annotations

import argparse
import asyncio
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from unittest.mock import patch

import numpy as np

import sidelight as sl
from sidelight.service.config import GateConfig, initial_config, load_config, save_config
from sidelight.service.core.deciding import Ask
from sidelight.service.core.engine import Engine
from sidelight.service.core.fold import State
from sidelight.service.core.gatekeeper import Gatekeeper
from sidelight.service.core.starting import open_store
from sidelight.service.log.decision_id import DecisionId
from sidelight.service.log.events import Answer

FEATURES = [f"feature_{i}" for i in range(10)]
ARMS = ["a", "b", "c", "d", "e"]
MODES = {"act": ("act", 0.5), "shadow": ("shadow", 0.0), "act, all": ("act", 1.0)}


@contextmanager
def without_evidence() -> Iterator[None]:
    """The service with nothing of the gate in its fold."""
    with (
        patch.object(State, "_enter_evidence", lambda *_: None),
        patch.object(State, "_settle_evidence", lambda *_: None),
        patch.object(Gatekeeper, "consider", lambda *_: None),
    ):
        yield


async def block(engine: Engine, n: int, rng: np.random.Generator) -> float:
    """Processor seconds of ``n`` requests, one by one in groups of 20, and their rewards."""
    X = rng.normal(size=(n, engine.state.learner.n_features)) / 3
    old = rng.integers(len(ARMS), size=n)
    rewards = rng.normal(size=n)
    started = time.process_time()

    async def one(i: int) -> None:
        number, event, _ = await engine.decide(X[i : i + 1], [Ask(answer=Answer(ARMS[old[i]]))])
        await engine.reward(DecisionId(number, 0), float(rewards[i]), event.arms[0] or ARMS[old[i]], None)

    for start in range(0, n, 20):
        await asyncio.gather(*(one(i) for i in range(start, min(start + 20, n))))
    return time.process_time() - started


async def compare(folder: Path, mode: str, share: float, turns: int, n: int) -> list[float]:
    """Ratios of processor time, with evidence against without, one for each turn."""
    schema = sl.Schema(FEATURES, recorded=FEATURES[:6], arms=ARMS)
    gate = GateConfig(promote="automatic", ladder=[0.5, 1.0], reward_after="1h")
    config = initial_config(schema, summary_path="", kind="OFUL", mode=mode, share=share, port=0)
    engines = []
    for name in ("with", "without"):
        (folder / name).mkdir(parents=True)
        path = folder / name / "sidelight.toml"
        save_config(config if share == 1.0 else replace(config, gate=gate), path)
        loaded = load_config(path)
        engine = Engine(open_store(loaded), loaded)
        await engine.start()
        engines.append(engine)
    rng, ratios = np.random.default_rng(0), []
    for turn in range(turns + 1):
        with_it = await block(engines[0], n, rng)
        with without_evidence():
            without = await block(engines[1], n, rng)
        if turn:  # the first one warms up
            ratios.append(with_it / without)
    for engine in engines:
        await engine.stop()
    return ratios


def main(arguments: list[str] | None = None) -> int:
    """The command line."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.gate_cost", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--turns", type=int, default=8)
    parser.add_argument("--requests", type=int, default=500, help="in each turn")
    given = parser.parse_args(arguments)
    print("| mode | processor time with evidence, of that without | least | most |")
    print("|---|---|---|---|")
    for name, (mode, share) in MODES.items():
        with tempfile.TemporaryDirectory() as folder:
            ratios = asyncio.run(compare(Path(folder), mode, share, given.turns, given.requests))
        print(f"| {name} | {np.median(ratios):.3f} | {min(ratios):.3f} | {max(ratios):.3f} |", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
