"""The functions of ``sidelight.linalg``, and every learner after the same history, byte for byte on every processor."""

from __future__ import annotations

import io
import json
import os
import subprocess
import sys
from contextlib import redirect_stdout
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

import sidelight as sl

#: each pretends to be another processor: for NumPy's and SciPy's BLAS, the C library, NumPy's loops and numba
PROCESSORS = {
    "this one": {},
    "Haswell": {"OPENBLAS_CORETYPE": "Haswell"},
    "without FMA": {
        "OPENBLAS_CORETYPE": "Prescott",
        "GLIBC_TUNABLES": "glibc.cpu.hwcaps=-AVX2,-FMA,-AVX512F",
        "NUMBA_CPU_NAME": "generic",
        "NUMBA_CPU_FEATURES": "",
        "NPY_DISABLE_CPU_FEATURES": "X86_V4 AVX512_ICL AVX512_SPR",
    },
}


def on(processor: dict[str, str], code: str, folder: Path) -> str:
    """What ``code`` prints in a process that takes the machine for another one; compiled code is not shared.

    Without a processor, what it prints in this process.
    """
    if not processor:
        with redirect_stdout(io.StringIO()) as printed:
            exec(code, {"__name__": "history"})
        return printed.getvalue().strip()
    environment = {**os.environ, **processor, "PYTHONPATH": str(Path(sl.__file__).parents[1])}
    if "NUMBA_CPU_NAME" in processor:
        environment["NUMBA_CACHE_DIR"] = str(folder)
    done = subprocess.run(
        [sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=False, timeout=800
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


FUNCTIONS = """
import hashlib, json, numpy as np
from sidelight import linalg as l
rng = np.random.default_rng(0)
A = rng.normal(size=(3, 33, 40))
S = l.product(A, np.swapaxes(A, 1, 2))
x = np.ldexp(rng.uniform(1, 2, 5000), rng.integers(-30, 30, 5000))  # exact, unlike numpy.exp
values, vectors = l.symmetric_eigen(S)
found = [S, l.inverse(S), l.solve(S, A), l.log_det(S), values, vectors, l.orthogonal(A), l.triangle(A)]
found += [l.pseudo_inverse(S), l.log(x), l.log1p(x), l.exp(rng.uniform(-700, 700, 5000)), l.power(x, 0.37)]
found += [*l.singular_values(A[0]), l.log_gamma(x), l.chi_square_tail(x, 3.5)]
print(json.dumps([hashlib.sha256(np.ascontiguousarray(part).tobytes()).hexdigest()[:16] for part in found]))
"""

#: Two arms in three are named by the old policy, rewards and contexts are drawn here, once, for all processors.
HISTORY = """
import hashlib, json, sys
import numpy as np
import sidelight as sl

folder = {folder!r}
data = np.load(folder + "/history.npz")
X, arms, rewards, answers, R12 = (data[name] for name in ("X", "arms", "rewards", "answers", "R12"))
log = sl.LogSummary.load(folder + "/log.summary")
M, b = data["M"], data["b"]
queries = lambda **options: sl.BehaviorQueries(log, **options)
make = {{
    "OFUL": lambda: sl.OFUL(3, 6, noise=0.3),
    "OFUL, printed": lambda: sl.OFUL(3, 6, noise=0.3, radius="printed"),
    "OFUL, automatic": lambda: sl.OFUL(3, 6, regularization="auto", radius="posterior"),
    "ZeroFilledOFUL": lambda: sl.ZeroFilledOFUL(log, regularization="auto", radius="posterior"),
    "ProjectedOFUL": lambda: sl.ProjectedOFUL(sl.SideInformation.from_log(log, R12), noise=0.3),
    "ProjectedOFUL, automatic": lambda: sl.ProjectedOFUL(
        sl.SideInformation.from_log(log, R12), regularization="auto", radius="posterior"),
    "ProjectedOFUL, any M": lambda: sl.ProjectedOFUL(sl.SideInformation(M, b), regularization="auto"),
    "EpochOFUL": lambda: sl.EpochOFUL(queries(estimator="ipw"), horizon=300, keep_data=True),
    "EpochOFUL, regression": lambda: sl.EpochOFUL(queries(), horizon=300),
    "RunningOFUL": lambda: sl.RunningOFUL(queries(estimator="ipw"), regularization="auto", radius="posterior"),
    "FusedOFUL": lambda: sl.FusedOFUL(queries()),
    "FusedOFUL, proven": lambda: sl.FusedOFUL(queries(), radius="theory", regularization=1.0, noise=0.3),
    "FusedOFUL, known": lambda: sl.FusedOFUL(sl.KnownCrossMoments(log, R12), sandwich=True, query_budget=100),
    "FusedOFUL, forgetting": lambda: sl.FusedOFUL(queries(), forgetting=0.99, query_budget=0.5),
    "FusedThompson": lambda: sl.FusedThompson(sl.BehaviorProbabilities(log)),
}}
found = {{}}
for name, learner in ((name, build()) for name, build in make.items()):
    digest = hashlib.sha256()
    for t in range(len(X)):
        if learner.needs == "action":
            learner.observe_behavior(X[t], int(answers[t]), probability=1.0)
        elif learner.needs == "probabilities":
            learner.observe_behavior(X[t], probabilities=data["probabilities"][t])
        if t % 20 == 0:
            digest.update(repr(learner.decide(X[t])[:3]).encode())
        learner.observe(X[t], int(arms[t]), float(rewards[t]))
    parts = dict(learner.state())
    for key, estimator in learner.estimators().items():
        parts.update({{f"estimator {{key}} {{field}}": value for field, value in estimator.state()[1].items()}})
    # what each part is, so that a failure names it
    digest_of = lambda value: hashlib.sha256(np.ascontiguousarray(value).tobytes()).hexdigest()[:12]
    sums = {{field: digest_of(value) for field, value in parts.items()}}
    found[name] = dict(sums, decisions=digest.hexdigest()[:12])
print(json.dumps(found))
"""


def write_history(folder):
    """A log of 3 arms in which 4 of 6 features were recorded, and 300 rounds with answers."""
    rng = np.random.default_rng(5)
    schema = sl.Schema.for_arrays(6, recorded=[0, 2, 3, 5], n_arms=3)
    full = rng.normal(size=(900, 6)) @ rng.normal(size=(6, 6))
    weights = rng.normal(size=(3, 6))
    logits = full @ rng.normal(size=(6, 3)) / 2
    probabilities = np.exp(logits - logits.max(axis=1, keepdims=True))
    probabilities /= probabilities.sum(axis=1, keepdims=True)
    chosen = (probabilities.cumsum(axis=1) < rng.random((900, 1))).sum(axis=1)
    paid = np.einsum("nd,nd->n", full, weights[chosen]) + 0.3 * rng.normal(size=900)
    table = pa.table({name: full[:600, j] for j, name in enumerate(schema.encoded_names)})
    table = table.append_column(schema.arm, pa.array(chosen[:600])).append_column(schema.reward, pa.array(paid[:600]))
    sl.summarize_log(table, schema, sandwich=True).save(folder / "log.summary")
    new = full[600:]
    arms = rng.integers(3, size=300)
    np.savez(
        folder / "history.npz",
        X=new,
        arms=arms,
        rewards=np.einsum("nd,nd->n", new, weights[arms]) + 0.3 * rng.normal(size=300),
        answers=chosen[600:],
        probabilities=probabilities[600:],
        R12=0.3 * rng.normal(size=(3, 4, 2)),
        M=rng.normal(size=(3, 2, 6)),
        b=rng.normal(size=(3, 2)),
    )


@pytest.mark.timeout(900)  # compiles, which on a busy machine takes minutes
def test_the_same_functions_and_the_same_history_give_the_same_bits_on_every_processor(tmp_path, other_machine):
    """One test, since a process on each processor takes most of its time."""
    write_history(tmp_path)
    code = FUNCTIONS + HISTORY.format(folder=str(tmp_path))
    printed = {name: on(processor, code, other_machine).splitlines() for name, processor in PROCESSORS.items()}
    functions, states = ({name: json.loads(lines[i]) for name, lines in printed.items()} for i in (0, 1))
    assert len(functions["this one"]) == 18
    assert len(states["this one"]) == 15
    for name in PROCESSORS:
        assert functions[name] == functions["this one"], name
        different = [
            f"{learner}: {part}"
            for learner, parts in states["this one"].items()
            for part in parts
            if states[name][learner][part] != parts[part]
        ]
        assert not different, f"{name}: {different}"
