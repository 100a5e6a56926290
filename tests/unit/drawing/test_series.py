"""One home for how a learner looks: the demo's picture and the report give it the same colour and dash."""

from __future__ import annotations

from types import SimpleNamespace

import pytest
from tests.unit.drawing.test_regret import table_of

from sidelight.cli.demo import BASELINE, contenders
from sidelight.drawing import charts, image_files, series
from sidelight.drawing.colours import PALETTE
from sidelight.drawing.regret import regret_spec
from sidelight.drawing.series import DASHES, learner_series
from sidelight.report.parts import series_of

NAMES = ["a", "cold", "b", "c", "best", "d", "e"]


def test_baseline_grey_best_heavy_and_all_apart():
    drawn = {s.name: s for s in learner_series(NAMES, "cold", "best")}
    assert list(drawn) == NAMES
    assert (drawn["cold"].colour, drawn["cold"].dash, drawn["cold"].heavy) == (0, (1, 0), False)
    assert (drawn["best"].dash, drawn["best"].heavy) == ((1, 0), True)
    assert len({s.colour for s in drawn.values()}) == len(NAMES)
    dashes = [s.dash for name, s in drawn.items() if name not in ("cold", "best")]
    assert len(set(dashes)) == len(dashes)
    assert DASHES[0] not in dashes


def test_more_learners_than_colours_never_look_like_baseline_or_best():
    names = ["cold", "best", *(f"x{i}" for i in range(20))]
    baseline, best, *others = learner_series(names, "cold", "best")
    assert {s.colour for s in others} == set(range(len(PALETTE["light"]))) - {baseline.colour, best.colour}
    assert not any(s.heavy for s in others)


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_the_demo_s_picture_and_the_report_agree(theme, rng):
    names = [player.name for player in contenders()]
    reported = series_of(SimpleNamespace(learners=names, baseline=BASELINE, best=names[-1]))
    assert reported == learner_series(names, BASELINE, names[-1])
    regrets = rng.gamma(2.0, size=(3, 3)).cumsum(axis=1)
    spec = regret_spec(table_of(dict.fromkeys(names, regrets)), title="t", emphasis=names[-1], theme=theme)
    line = next(layer["encoding"] for layer in spec["layer"] if layer["mark"]["type"] == "line")
    assert line["color"]["scale"] == {"domain": names, "range": [s.ink(theme) for s in reported]}
    assert line["strokeDash"]["scale"]["range"] == [list(s.dash) for s in reported]


def test_the_names_of_charts_are_where_they_were():
    for name in ("DASHES", "RAMP", "Series", "ramp_variables"):
        assert getattr(charts, name) is getattr(series, name)
    for name in ("javascript", "pictures"):
        assert getattr(charts, name) is getattr(image_files, name)
