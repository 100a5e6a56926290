"""The table of a simulation, for people."""

from __future__ import annotations

import pyarrow as pa
import pytest

import sidelight as sl


def table(seeds: int = 3) -> pa.Table:
    rows = [
        {"learner": name, "seed": seed, "round": t, "arm": 0, "reward": 0.0, "regret": slope * t + seed}
        for name, slope in (("cold <b>", 2.0), ("warm", 1.0))
        for seed in range(seeds)
        for t in (50, 100)
    ]
    return pa.Table.from_pylist(rows)


def test_it_says_who_lost_what_and_how_they_differ():
    found = sl.Regret(table())
    assert found.baseline == "cold <b>"
    assert found.rounds == 100
    assert [row.mean for row in found.standings] == [201.0, 101.0]
    assert repr(found).splitlines() == [
        "Regret after 100 rounds, 3 seeds",
        "learner   regret  95% interval     minus 'cold <b>'",
        "cold <b>     201    199 to 203",
        "warm         101   98.5 to 103  −100 (−100 to −100)",
    ]
    assert found.to_table()["difference"].to_pylist() == [0.0, -100.0]


def test_a_notebook_shows_the_standings_and_no_markup_of_a_name():
    shown = sl.Regret(table(), baseline="warm")._repr_html_()
    assert "Regret after 100 rounds, 3 seeds" in shown
    assert "+100" in shown
    assert "<b>" not in shown


def test_one_seed_has_no_interval():
    assert "nan" not in repr(sl.Regret(table(seeds=1))).lower()
    assert sl.Regret(table(seeds=1)).to_table()["low"].to_pylist() == [None, None]


def test_the_picture_names_every_learner(tmp_path):
    picture = sl.Regret(table()).plot(title="Who learns faster")
    assert "Who learns faster" in picture.svg
    assert "warm" in picture.svg
    picture.save(tmp_path / "regret.svg")
    assert (tmp_path / "regret.svg").read_text(encoding="utf-8") == picture.svg


def test_tables_that_are_none_of_simulate_s_are_refused():
    with pytest.raises(sl.SidelightError, match="no column 'seed' nor 'regret'"):
        sl.Regret(pa.table({"learner": ["a"], "round": [1]}))
    with pytest.raises(sl.SidelightError, match="no rows"):
        sl.Regret(table().slice(0, 0))
    with pytest.raises(sl.SidelightError, match="'hot' is not a learner"):
        sl.Regret(table(), baseline="hot")
