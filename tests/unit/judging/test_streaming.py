"""Complete rows are read chunk by chunk: the same verdict as from all at once, in memory that stays the same."""

from __future__ import annotations

import subprocess
import sys

import numpy as np
import pyarrow as pa
import pyarrow.parquet as parquet
import pytest
from tests.reference import doubly_robust

import sidelight as sl
from sidelight.errors import SourceError
from sidelight.judging import complete_rows, fitted
from sidelight.judging.complete_rows import read_complete
from sidelight.judging.doubly_robust import Doubly
from sidelight.judging.log_rows import row_hashes
from sidelight.judging.policies import Requested
from sidelight.judging.population import Population

NAMES = ["u", "v", "h"]
ARMS = ["a", "b", "c"]
SCHEMA = sl.Schema(NAMES, ["u", "v"], arms=ARMS)
KNOWN = sl.Schema(NAMES, ["u", "v"], arms=ARMS, propensity="chance")
PHI = np.array([[0.5, 0.0, 0.6], [0.0, -0.4, -0.6], [-0.3, 0.3, 0.0]])


def drawn(n, seed, offset=0.0):
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, 3)) * [1.0, 5.0, 1.0] + [0.0, 30.0, 0.0]
    logits = (X - [0, 30, 0]) / [1, 5, 1] @ PHI.T
    p = np.exp(logits) / np.exp(logits).sum(axis=1, keepdims=True)
    arm = (rng.random(n)[:, None] > p.cumsum(axis=1)).sum(axis=1).clip(0, 2)
    reward = X[:, 2] * np.array([-0.5, 0.8, 0.1])[arm] + 0.3 * np.abs(X[:, 0]) + 0.3 * rng.normal(size=n) + offset
    columns = {name: X[:, j] for j, name in enumerate(NAMES)}
    return columns | {"arm": np.array(ARMS)[arm], "reward": reward, "chance": p[np.arange(n), arm]}


def rule(columns):
    return np.where(columns["h"] > 0, "b", "a")


@pytest.mark.parametrize("schema", [KNOWN, SCHEMA], ids=["known", "estimated"])
def test_scores_are_the_formula(schema):
    """Against a literal loop over folds with all rows in memory."""
    table = drawn(700, 0, offset=100.0)
    rows = read_complete(table, schema, ARMS, "raise")
    population = Population.of(sl.summarize_log(drawn(500, 1), SCHEMA))
    doubly = Doubly(rows)
    found = doubly.value([Requested("rule", "function", rule)], (SCHEMA, (population,)))
    X = np.column_stack([table[name] for name in NAMES])
    codes = np.array([ARMS.index(arm) for arm in table["arm"]])
    taken = np.where(X[:, 2] > 0, 1, 0)
    chance = table["chance"] if schema is KNOWN else None
    scores = doubly_robust(X, codes, table["reward"], taken, chance, fitted.folds(row_hashes(0, 700)), 3)
    assert found.value("rule") == pytest.approx(scores.mean(), rel=1e-6)
    gain, variance = found.gain("rule")
    assert gain == pytest.approx((scores - table["reward"]).mean(), rel=1e-4)
    # what folds err together: p of n_a + p of what w(r − μ̂) varies by, for each arm
    p = doubly.fitted.freedom()
    assert (p > 3.0).all()
    assert (p <= doubly.fitted.n_columns).all()
    together = found.scores["rule"].corrections @ (p / (np.bincount(codes, minlength=3) + p)) / 700**2
    plain = (scores - table["reward"]).var(ddof=1) / 700
    assert together < 0.1 * plain
    assert variance == pytest.approx(plain + together, rel=1e-4)


@pytest.mark.parametrize("schema", [KNOWN, SCHEMA], ids=["known", "estimated"])
def test_chunks_change_nothing(schema, tmp_path, monkeypatch):
    log, table = drawn(800, 1), drawn(9_000, 2)
    whole = sl.judge(log, schema, complete=table, policies=[rule, "best"])
    monkeypatch.setattr(complete_rows, "KEPT", 0)
    monkeypatch.setattr(complete_rows, "batch_rows", lambda schema: 1_000)
    path = tmp_path / "rows.parquet"
    parquet.write_table(pa.table(table), path)
    parts = sl.judge(log, schema, complete=str(path), policies=[rule, "best"])
    for name in ("rule", "best", "always a", "always c"):
        one, other = whole.line(name, "complete"), parts.line(name, "complete")
        assert (other.value, other.low, other.high) == pytest.approx((one.value, one.low, one.high), rel=1e-7)
    assert parts.simpler.low == pytest.approx(whole.simpler.low, rel=1e-6)
    assert [a.effective for a in parts.overlaps] == pytest.approx([b.effective for b in whole.overlaps])


def test_a_model_of_the_old_policy_from_a_sample_widens_the_interval(monkeypatch):
    log, table = drawn(800, 1), drawn(20_000, 2)
    whole = sl.judge(log, SCHEMA, complete=table, policies=rule).line("rule")
    monkeypatch.setattr(fitted, "SAMPLED", 2_000)
    part = sl.judge(log, SCHEMA, complete=table, policies=rule).line("rule")
    assert part.note == whole.note
    assert 1.5 < part.error / whole.error < 4.0
    assert abs(part.gain - whole.gain) < 4 * part.error
    known = sl.judge(log, KNOWN, complete=table, policies=rule).line("rule")
    assert known.error == pytest.approx(whole.error, rel=0.1)


def test_rows_that_change_while_they_are_read(tmp_path, monkeypatch):
    monkeypatch.setattr(complete_rows, "KEPT", 0)
    path = tmp_path / "rows.parquet"
    parquet.write_table(pa.table(drawn(500, 0)), path)
    rows = read_complete(str(path), SCHEMA, ARMS, "raise")
    parquet.write_table(pa.table(drawn(400, 0)), path)
    with pytest.raises(SourceError, match="400 usable rows when it was read again, 500 before"):
        list(rows.chunks())


_JUDGE = """
import resource, sys, numpy as np, sidelight as sl
from sidelight.judging import complete_rows
complete_rows.KEPT = 1 << 19
schema = sl.Schema(["u", "v", "h"], ["u", "v"], arms=["a", "b", "c"], propensity="chance")
for folder in sys.argv[2:]:
    verdict = sl.judge(sys.argv[1], schema, complete=folder, policies=lambda c: np.where(c["h"] > 0, "b", "a"))
    line = verdict.line("function")
    print(line.rows, line.stage, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss)
"""


def test_memory_does_not_grow_with_complete_rows(tmp_path):
    """Eight times the rows take the same memory; kept in memory, the encoded rows alone would take 70 MB more."""
    parquet.write_table(pa.table(drawn(2_000, 1)), tmp_path / "log.parquet")
    parquet.write_table(pa.table(drawn(150_000, 0)), tmp_path / "rows.parquet")
    for files in (2, 16):
        (tmp_path / str(files)).mkdir()
        for i in range(files):
            (tmp_path / str(files) / f"{i:02}.parquet").hardlink_to(tmp_path / "rows.parquet")
    # one process judges both folders, the small one first: its peak can only rise
    command = [sys.executable, "-c", _JUDGE, *(str(tmp_path / name) for name in ("log.parquet", "2", "16"))]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    (*_, before), (*_, after) = found = [line.split() for line in done.stdout.splitlines()]
    assert [(int(rows), stage) for rows, stage, _ in found] == [(300_000, "complete"), (2_400_000, "complete")]
    assert (int(after) - int(before)) / 1024 < 40
