"""Writes ``scores.json``: contexts, plays and rewards of the authors' kind of world, and the scores of Algorithm 1 by
the paper's formulas (``tests/reference.py``: pseudo-inverses in extended precision), with the radius as printed.

    python -m tests.recorded.make_scores
"""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np

from tests.reference import projected_scores

PATH = Path(__file__).with_name("scores.json")
SETTINGS = {"lam": 0.1, "sigma": 1.3, "delta": 0.01, "alpha": 0.05, "S_x": 1.0, "S_w": 1.0}


def recording(seed: int = 11, d: int = 9, K: int = 6, L: int = 6, rounds: int = 120, probes: int = 8) -> dict:
    """Everything that the test needs, as plain numbers."""
    rng = np.random.default_rng(seed)
    weights = rng.uniform(size=(K, d)) / np.sqrt(d)
    X = rng.normal(size=(rounds + probes, d))
    X /= np.linalg.norm(X, axis=1, keepdims=True)
    B = 0.3 * rng.normal(size=(K, L, d - L))
    M = [np.hstack([np.eye(L), B[a]]) for a in range(K)]
    b = [M[a] @ weights[a] for a in range(K)]
    arms = rng.integers(K, size=rounds)
    rewards = (X[:rounds] * weights[arms]).sum(axis=1) + SETTINGS["sigma"] * rng.normal(size=rounds)
    history = [(X[t], int(arms[t]), float(rewards[t])) for t in range(rounds)]
    scores = [
        projected_scores(x, history, M, b, [L] * K, kind="printed", **SETTINGS)  # type: ignore[arg-type]
        for x in X[rounds:]
    ]
    return {
        "settings": SETTINGS,
        "contexts": X.tolist(),
        "arms": arms.tolist(),
        "rewards": rewards.tolist(),
        "M": [m.tolist() for m in M],
        "b": [v.tolist() for v in b],
        "estimates": [[float(v) for v in estimates] for estimates, _ in scores],
        "widths": [[float(v) for v in widths] for _, widths in scores],
    }


if __name__ == "__main__":
    PATH.write_text(json.dumps(recording()) + "\n", encoding="utf-8")
