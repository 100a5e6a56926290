"""What evidence costs a service: python -m benchmarks.gate_cost

Decisions and their rewards through the engine, its store (SQLite) and its fold, without HTTP. The processor time that
the gate's part of the fold takes is measured where it is called, so that the ratio to everything else is of one and the
same run: runs with and without evidence differ by more than what it costs as soon as other work uses the machine.
``act`` has half of the traffic drawn for the learner on a rung of a ladder, ``shadow`` scores the old policy's rows,
``act, all`` has nothing to test.
"""

from __future__ import annotations

import argparse
import asyncio
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any
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


class Clock:
    """Processor seconds of the calls that it wraps, its own included."""

    def __init__(self) -> None:
        self.seconds = 0.0

    def around(self, function: Callable[..., Any]) -> Callable[..., Any]:
        """The function, timed."""

        def timed(*arguments: Any) -> Any:
            started = time.thread_time()
            try:
                return function(*arguments)
            finally:
                self.seconds += time.thread_time() - started

        return timed


@contextmanager
def timed_evidence(clock: Clock) -> Iterator[None]:
    """The service, with the gate's parts of its fold timed."""
    parts = ((State, "_enter_evidence"), (State, "_settle_evidence"), (Gatekeeper, "consider"))
    with ExitStack() as stack:
        for owner, name in parts:
            stack.enter_context(patch.object(owner, name, clock.around(getattr(owner, name))))
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


async def measure(folder: Path, mode: str, share: float, turns: int, n: int) -> list[float]:
    """Processor time with evidence, of that without, one figure for each turn."""
    schema = sl.Schema(FEATURES, recorded=FEATURES[:6], arms=ARMS)
    gate = GateConfig(promote="automatic", ladder=[0.5, 1.0], reward_after="1h")
    config = initial_config(schema, summary_path="", kind="OFUL", mode=mode, share=share, port=0)
    path = folder / "sidelight.toml"
    save_config(config if share == 1.0 else replace(config, gate=gate), path)
    loaded = load_config(path)
    engine = Engine(open_store(loaded), loaded)
    await engine.start()
    rng, ratios = np.random.default_rng(0), []
    for turn in range(turns + 1):
        clock = Clock()
        with timed_evidence(clock):
            seconds = await block(engine, n, rng)
        if turn:  # the first one warms up
            ratios.append(seconds / (seconds - clock.seconds))
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
            ratios = asyncio.run(measure(Path(folder), mode, share, given.turns, given.requests))
        print(f"| {name} | {np.median(ratios):.3f} | {min(ratios):.3f} | {max(ratios):.3f} |", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
