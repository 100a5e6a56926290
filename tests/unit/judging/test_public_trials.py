"""Public data: what the verdict says of a log made from a trial, against what its randomised rows say."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow.csv as csv
import pytest

import sidelight as sl

DATA = Path(__file__).parents[4] / "shared" / "data"
FEATURES = ["history", "mens", "womens", "zip_code", "channel", "newbie", "recency"]


def columns_of(name, columns):
    path = DATA / name
    if not path.exists():
        pytest.skip(f"{name} is not beside the repository")
    wanted = csv.ConvertOptions(include_columns=list(columns))
    table = csv.read_csv(path, convert_options=wanted)
    return {column: table[column].to_numpy(zero_copy_only=False) for column in table.column_names}


def test_a_randomized_trial_is_judged_as_its_means():
    trial = columns_of("hillstrom.csv", (*FEATURES, "segment", "visit"))
    schema = sl.Schema(FEATURES, FEATURES, arm="segment", reward="visit", categories=["zip_code", "channel"])
    verdict = sl.judge({name: trial[name] for name in (*FEATURES, "segment", "visit")}, schema)
    for arm in set(trial["segment"].tolist()):
        rows = trial["visit"][trial["segment"] == arm]
        line = verdict.line(f"always {arm}")
        # arms were drawn at random, so adjusting for features hardly moves a mean
        assert line.value == pytest.approx(rows.mean(), abs=3 * rows.std() / np.sqrt(len(rows)))
        assert line.low < rows.mean() - trial["visit"].mean() < line.high
    assert verdict.simpler.policy == "always Mens E-Mail"
    assert verdict.simpler.as_good
    assert verdict.line("best").robustness < 0.1


def test_a_confounded_part_of_the_trial():
    """Rows kept by arm, recency and newness; the latter two hidden: later stages hold what the trial says."""
    trial = columns_of("hillstrom.csv", (*FEATURES, "segment", "visit"))
    rng = np.random.default_rng(0)
    n, arm = len(trial["visit"]), trial["segment"]
    z = 1.2 * (trial["newbie"] - 0.5) + 1.0 * (trial["recency"] < 5)
    chance = {
        "Mens E-Mail": 1 / (1 + np.exp(2 * z)),
        "No E-Mail": 1 / (1 + np.exp(-2 * z)),
        "Womens E-Mail": np.full(n, 0.5),
    }
    keep = rng.random(n) < np.select([arm == a for a in chance], list(chance.values()))
    log = keep & (rng.random(n) < 0.9)
    names = (*FEATURES, "segment", "visit")
    schema = sl.Schema(FEATURES, FEATURES[:5], arm="segment", reward="visit", categories=["zip_code", "channel"])
    rest = {name: trial[name][keep & ~log] for name in names}
    verdict = sl.judge({name: trial[name][log] for name in names}, schema, answers=rest, complete=rest)
    # the contexts of the kept rows, by which the trial's own rows are weighted
    kept = sum(chance.values()) / 3
    for a in chance:
        own = arm == a
        value = np.average(trial["visit"][own], weights=kept[own])
        gain = value - trial["visit"][log].mean()
        for stage in ("answers", "complete"):
            line = verdict.line(f"always {a}", stage)
            assert line.low < gain < line.high, (a, stage)
    assert verdict.line("always Mens E-Mail", "complete").note.startswith("conditional")


def numbers(values):
    return np.array([float(v) if str(v).replace(".", "", 1).isdigit() else np.nan for v in values])


def test_a_log_of_dosing_decisions():
    """Right doses are known, so every policy's value is: arms low, medium, high; the genotypes hidden."""
    table = columns_of("warfarin.csv", ("Therapeutic Dose of Warfarin", "Weight (kg)", "Age", "VKORC1 -1639 consensus"))
    dose, weight = numbers(table["Therapeutic Dose of Warfarin"]), numbers(table["Weight (kg)"])
    age = np.array([float(str(v)[0]) if str(v)[:1].isdigit() else np.nan for v in table["Age"]])
    vkorc = np.array([str(v) for v in table["VKORC1 -1639 consensus"]])
    use = np.isfinite(dose) & np.isfinite(weight) & np.isfinite(age) & np.isin(vkorc, ["A/A", "A/G", "G/G"])
    dose, weight, age, vkorc = dose[use], weight[use], age[use], vkorc[use]
    right = np.digitize(dose, [21.0, 49.0])
    rng = np.random.default_rng(1)
    n = len(dose)
    assert n > 2_000
    lean = np.select([vkorc == "A/A", vkorc == "A/G"], [-1.0, 0.0], 1.0) + 0.02 * (weight - 80) - 0.1 * (age - 6)
    logits = np.column_stack([-1.2 * lean - 0.5, np.zeros(n), 1.2 * lean - 0.5])
    p = np.exp(logits) / np.exp(logits).sum(axis=1, keepdims=True)
    arm = (rng.random(n)[:, None] > p.cumsum(axis=1)).sum(axis=1).clip(0, 2)
    labels = np.array(["low", "medium", "high"])
    rows = {"weight": weight, "age": age, "vkorc": vkorc, "arm": labels[arm], "reward": (arm == right).astype(float)}
    rows["chance"] = p[np.arange(n), arm]
    first = np.arange(n) < n // 2
    schema = sl.Schema(
        ["weight", "age", "vkorc"], ["weight", "age"], categories={"vkorc": ["A/A", "A/G", "G/G"]}, propensity="chance"
    )
    log, more = ({name: values[part] for name, values in rows.items()} for part in (first, ~first))
    verdict = sl.judge(log, schema, complete=more, policies=lambda c: np.where(c["vkorc"] == "A/A", "low", "medium"))
    taken = np.where(vkorc == "A/A", 0, 1)
    truth = (taken == right)[~first].mean() - (p[np.arange(n), right])[~first].mean()
    line = verdict.line("function", "complete")
    assert line.known
    assert line.low < truth < line.high
    assert abs(line.gain - truth) < 4 * line.error
    for a, label in enumerate(labels):
        fixed = verdict.line(f"always {label}", "complete")
        if fixed.known:
            gain = (right == a)[~first].mean() - (p[np.arange(n), right])[~first].mean()
            assert abs(fixed.gain - gain) < 4 * fixed.error
