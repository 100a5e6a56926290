"""``sidelight warm`` calls and keeps every kernel; nothing is left to compile, whatever a learner is made of."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

from sidelight.cli.warm import compiled_kernels

#: In a process of its own, since what other tests compiled would hide what is missing.  Everything is of other sizes
#: than in ``warm``, and arrays are as users have them: transposed, read-only, of whole numbers.
PROGRAM = """
import importlib, json, warnings
import numpy as np
from numba.core import event
import sidelight as sl
from sidelight.cli.warm import compiled_kernels, warm
from sidelight.kernels.compiled import is_kernel

warm()
found = {}
for name in compiled_kernels():
    module, _, function = name.rpartition(".")
    kernel = getattr(importlib.import_module(module), function)
    found[name] = [len(kernel.signatures), sum((kernel.stats.cache_hits + kernel.stats.cache_misses).values())]
compiled = []

class Watch(event.Listener):
    def on_start(self, event):
        if is_kernel(event.data["dispatcher"]):
            compiled.append((event.data["dispatcher"].py_func.__qualname__, [str(kind) for kind in event.data["args"]]))

    def on_end(self, event):
        pass

event.register("numba:compile", Watch())
warnings.simplefilter("ignore")
rng = np.random.default_rng(0)
names = [f"x{j}" for j in range(7)]


def log(recorded, binary=False, **options):
    schema = sl.Schema(names, recorded, arms=["a", "b", "c"], intercept=True, **options)
    X, arms = rng.normal(size=(400, len(recorded))), rng.integers(3, size=400)
    rewards = (X[:, 0] > 0).astype(float) if binary else X[:, 0] + rng.normal(size=400)
    rows = {name: X[:, j] for j, name in enumerate(recorded)}
    return sl.summarize_log({**rows, "arm": np.array(["a", "b", "c"])[arms], "reward": rewards}, schema, sandwich=True)


five, four = log(names[:5]), log(names[1:5])
gaps, clicks = log(names[:5], missing="impute"), log(names[:5], binary=True)
R12 = 0.1 * rng.normal(size=(3, 6, 2))
queries = sl.BehaviorQueries


def frozen(A):
    A = np.asfortranarray(A)
    A.setflags(write=False)
    return A


class Own(queries):
    def regression(self):
        return frozen(super().regression())

    def precision(self):
        return frozen(super().precision())

    def residual_moments(self):
        return frozen(super().residual_moments())


learners = [
    sl.OFUL(3, 8, arms=["a", "b", "c"], regularization="auto", noise="auto", radius="posterior"),
    sl.ZeroFilledOFUL(five, radius="printed"),
    sl.ProjectedOFUL(sl.SideInformation.from_log(five, R12)),
    sl.EpochOFUL(queries(five), horizon=150),
    sl.RunningOFUL(queries(five)),
    sl.FusedOFUL(queries(five), sandwich=True, bias_bound={"x0": 0.2}, query_budget=0.5),
    sl.FusedOFUL({"new": queries(five), "old": queries(four)}),
    sl.FusedOFUL(sl.KnownCrossMoments(five, R12), safety=0.0),
    sl.FusedOFUL(sl.BehaviorProbabilities(five), forgetting=0.99),
    sl.FusedOFUL(queries(five), radius="theory", regularization=2.0, noise=0.7),
    sl.FusedOFUL(queries(five), floor=sl.Floor(0.1, noise=2.0, weight_bound=3.0)),
    sl.FusedOFUL(queries(gaps)),
    sl.FusedOFUL(queries(clicks)),
    sl.FusedOFUL(Own(five)),
    sl.FusedThompson(queries(five)),
]
contexts = frozen(np.column_stack([np.ones(150), rng.normal(size=(150, 7))]))
for learner in learners:
    promised = getattr(learner, "ledger", None) is not None
    for t, x in enumerate(contexts):
        if learner.needs == "action":
            learner.observe_behavior(x, "abc"[t % 3], probability=1.0)
        elif learner.needs == "probabilities":
            learner.observe_behavior(x, probabilities=np.array([0.2, 0.3, 0.5]), probability=1.0)
        learner.decide(x, **({"default": "b"} if promised else {}))
        learner.observe(x, "abc"[t % 3], t % 2 if learner.binary else x[2])
    learner.scores(contexts[0])
    learner.observe_many(contexts, ["a"] * 150, np.zeros(150, dtype=np.int64))
    if not promised:
        learner.decide_many(contexts)
    learner.log_trust()
print(json.dumps([found, compiled]))
"""


@pytest.mark.timeout(900)  # may have to compile, which on a busy machine takes minutes
def test_every_kernel_is_called_and_kept_and_nothing_is_compiled_afterwards() -> None:
    """Each form of every kernel came from or went to the disk."""
    done = subprocess.run([sys.executable, "-c", PROGRAM], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert "ready" in " ".join(done.stderr.split())
    found, compiled = json.loads(done.stdout.splitlines()[-1])
    assert set(found) == set(compiled_kernels())
    unused = sorted(name for name, (signatures, _) in found.items() if not signatures)
    assert not unused, f"warm runs nothing that uses {unused}"
    assert all(signatures == kept for signatures, kept in found.values()), found
    assert not compiled
