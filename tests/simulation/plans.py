"""What happens in a run: a list of steps drawn from one integer, so that a failing run can be made smaller."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from tests.simulation.settings import KINDS

#: kind of step → how often it is drawn, in a run where things go wrong; every run has favourites of its own among them
CHAOS = {
    "decide": 14, "reward": 14, "wild": 2, "review": 2, "retract": 2, "late": 1, "answer": 3, "answer_at": 2,
    "action": 2, "again": 3, "misuse": 2, "kill": 2, "share": 2, "mode": 1, "rung": 2, "file": 1, "crash": 2,
    "start": 3, "freeze": 1, "forget": 1, "backup": 1, "restore": 1, "lose": 1, "upgrade": 1, "stop": 1,
}  # fmt: skip
#: where the log is lost again and again, and what was told before comes late
LOSSES = {
    "decide": 14, "reward": 6, "late": 6, "again": 2, "retract": 1, "wild": 1, "crash": 1, "start": 2, "backup": 3,
    "restore": 3, "lose": 3, "forget": 1, "stop": 1,
}  # fmt: skip
#: where nothing goes wrong, and no good caller may ever see an error
CALM = {
    "decide": 14, "reward": 14, "wild": 2, "review": 2, "retract": 2, "answer": 4, "answer_at": 3, "action": 2,
    "again": 4, "misuse": 6, "kill": 1, "share": 1, "mode": 1, "rung": 2,
}  # fmt: skip


@dataclass(frozen=True)
class Step:
    """Something that happens at a moment; ``draw`` in [0, 1) chooses with whom and what."""

    at: float
    kind: str
    draw: float


@dataclass(frozen=True)
class Plan:
    """A run: the seed that orders everything, how rough it is, what happens, and which service it happens to."""

    seed: int
    calm: bool
    servers: int
    lost_messages: float
    failing_writes: float
    steps: tuple[Step, ...]
    config: str = "plain"


def draw_plan(seed: int) -> Plan:
    """The plan of a seed."""
    rng = np.random.default_rng([seed, 1])
    calm, losing = bool(rng.random() < 0.25), bool(rng.random() < 0.3)
    weights = CALM if calm else LOSSES if losing else CHAOS
    kinds, chances = list(weights), np.array(list(weights.values()), dtype=float)
    if weights is CHAOS:
        # Some kinds never, some often: what takes three rare steps in a row comes up where those are the frequent ones.
        chances *= rng.choice([0.0, 1.0, 8.0], len(kinds), p=[0.2, 0.6, 0.2])
        chances[: kinds.index("reward") + 1] = np.maximum(chances[: kinds.index("reward") + 1], 0.2 * chances.max())
    n = int(rng.integers(15, 60))
    span = float(rng.choice([0.3, 1.0, 2.0]))
    at = np.sort(rng.uniform(0, span, n))
    drawn = rng.choice(len(kinds), n, p=chances / chances.sum())
    steps = tuple(Step(float(t), kinds[k], float(rng.random())) for t, k in zip(at, drawn, strict=True))
    rough = 0.0 if calm else float(rng.choice([0.0, 0.05, 0.3]))
    failing = 0.0 if calm else float(rng.choice([0.0, 0.1, 0.4]))
    config = str(rng.choice(list(KINDS), p=[share for share, _ in KINDS.values()]))
    return Plan(seed, calm, int(rng.integers(1, 4)), rough, failing, steps, config)
