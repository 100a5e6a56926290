"""Intervals against SciPy's, labels that do not collide, and pictures that really render."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from scipy import stats

from sidelight.drawing.image_files import render
from sidelight.drawing.regret import Standing, regret_bands, regret_spec, standings
from sidelight.errors import InputError

ROUNDS = np.array([10, 20, 30])


def table_of(regrets: dict[str, np.ndarray]) -> pa.Table:
    """Learner → regrets (seeds, rounds), as ``simulate`` would return them, rows in a scrambled order."""
    rows = [
        {"learner": name, "seed": s, "round": int(t), "arm": 0, "reward": 0.0, "regret": float(curve[s, i])}
        for name, curve in regrets.items()
        for s in range(len(curve))
        for i, t in enumerate(ROUNDS)
    ]
    first = [row["learner"] for row in rows]
    order = np.random.default_rng(0).permutation(len(rows))
    # the learners' order of appearance is the order of the result, so one row of each stays in front
    heads = [first.index(name) for name in regrets]
    return pa.Table.from_pylist([rows[i] for i in heads] + [rows[i] for i in order if i not in heads])


@pytest.fixture
def regrets() -> dict[str, np.ndarray]:
    rng = np.random.default_rng(3)
    cold = np.cumsum(rng.gamma(2.0, 5.0, size=(7, 3)), axis=1)
    return {"cold": cold, "warm": 0.4 * cold + rng.normal(0, 1, size=cold.shape)}


def test_standings_are_students_intervals(regrets: dict[str, np.ndarray]) -> None:
    cold, warm = standings(table_of(regrets), "cold")
    assert (cold.learner, warm.learner, warm.seeds) == ("cold", "warm", 7)
    final = regrets["warm"][:, -1]
    low, high = stats.t.interval(0.95, 6, final.mean(), stats.sem(final))
    np.testing.assert_allclose((warm.mean, warm.low, warm.high), (final.mean(), low, high))
    paired = stats.ttest_rel(final, regrets["cold"][:, -1]).confidence_interval(0.95)
    np.testing.assert_allclose((warm.difference_low, warm.difference_high), (paired.low, paired.high))
    assert (cold.difference, cold.difference_low, cold.difference_high) == (0, 0, 0)


def test_bands_follow_every_round(regrets: dict[str, np.ndarray]) -> None:
    bands = [row for row in regret_bands(table_of(regrets)) if row["learner"] == "warm"]
    assert [row["round"] for row in bands] == ROUNDS.tolist()
    np.testing.assert_allclose([row["mean"] for row in bands], regrets["warm"].mean(axis=0), atol=1e-4)
    half = stats.t.ppf(0.975, 6) * stats.sem(regrets["warm"], axis=0)
    np.testing.assert_allclose([row["high"] - row["mean"] for row in bands], half, atol=2e-4)


def test_one_seed_has_no_interval_and_still_draws(regrets: dict[str, np.ndarray]) -> None:
    table = table_of({name: curve[:1] for name, curve in regrets.items()})
    row = standings(table, "cold")[1]
    assert np.isnan(row.low)
    assert row.to_dict()["low"] is None
    assert json.dumps(row.to_dict(), allow_nan=False)
    assert all(band["low"] == band["mean"] == band["high"] for band in regret_bands(table))


def test_what_cannot_be_compared_is_said(regrets: dict[str, np.ndarray]) -> None:
    with pytest.raises(InputError, match="'nobody' is not a learner"):
        standings(table_of(regrets), "nobody")
    with pytest.raises(InputError, match="not paired"):
        standings(table_of({"cold": regrets["cold"], "warm": regrets["warm"][:4]}), "cold")


def test_seeds_that_differ_are_not_paired(regrets: dict[str, np.ndarray]) -> None:
    """Equal numbers of seeds are not enough: a difference is taken seed by seed."""
    cold, warm = (table_of({name: regrets[name][:3]}) for name in ("cold", "warm"))
    shifted = warm.set_column(1, "seed", pa.array([seed + 1 for seed in warm["seed"].to_pylist()]))
    with pytest.raises(InputError, match="'warm' has the seeds 1, 2, 3 and 'cold' 0, 1, 2: not paired"):
        standings(pa.concat_tables([cold, shifted]), "cold")


@pytest.mark.parametrize("kept", [slice(0, 8), slice(0, 9)])
def test_runs_that_do_not_fit_together_are_refused(regrets: dict[str, np.ndarray], kept: slice) -> None:
    table = table_of({"cold": regrets["cold"][:3]}).sort_by([("seed", "ascending"), ("round", "ascending")])
    rows = table.to_pylist()[kept]
    rows[-1] |= {"seed": 1, "round": 30}  # two runs of seed 1, or one that has a round twice
    with pytest.raises(InputError, match="'cold' do not have the same rounds, each once"):
        standings(pa.Table.from_pylist(rows), "cold")


@pytest.mark.parametrize("level", [0.0, 5.0, 500.0])
def test_labels_keep_a_line_apart(level: float) -> None:
    names = [f"learner {i}" for i in range(7)]
    same = {name: np.full((3, 3), level) + np.arange(3)[:, None] for name in names}
    spec = regret_spec(table_of(same), title="t", height=300)
    labels = next(v for v in spec["datasets"].values() if "position" in v[0]) if "datasets" in spec else None
    if labels is None:
        labels = next(layer["data"]["values"] for layer in spec["layer"] if layer["mark"]["type"] == "text")
    top = next(
        layer["encoding"]["y"]["scale"]["domain"][1] for layer in spec["layer"] if layer["mark"]["type"] == "line"
    )
    positions = np.sort([row["position"] for row in labels])
    assert len(positions) == 7
    assert (np.diff(positions) * 300 / top > 13).all()
    assert positions[0] >= 0
    assert positions[-1] <= top


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_pictures_render(tmp_path: Path, regrets: dict[str, np.ndarray], theme: str) -> None:
    # names with all the characters that Vega's field syntax would read as its own
    table = table_of({"cold": regrets["cold"], "warm [v1.2]: λ = 1": regrets["warm"]})
    spec = regret_spec(table, title="A title", subtitle="below it", emphasis="cold", theme=theme)
    png = render(spec, tmp_path / "deep" / "picture.png").read_bytes()
    assert png.startswith(b"\x89PNG")
    assert len(png) > 5_000
    svg = render(spec, tmp_path / "picture.svg").read_text()
    for text in ("A title", "below it", "cold", "warm [v1.2]: λ = 1"):
        assert text in svg
    with pytest.raises(InputError, match=r"\.png or \.svg"):
        render(spec, tmp_path / "picture.bmp")


def test_standing_is_a_record() -> None:
    row = Standing("a", 2, 1.0, 0.5, 1.5, -1.0, -2.0, 0.0)
    assert row.to_dict()["difference_low"] == -2.0
