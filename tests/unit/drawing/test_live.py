"""Pictures of the dashboard: where things are drawn, what is said in words, and nothing a content policy refuses."""

from __future__ import annotations

import itertools
import math
import re
import xml.etree.ElementTree as ET

import pytest

from sidelight.drawing.live import Line, columns, lines, share_bar, spark, strip


def shapes(text: str, kind: str) -> list[ET.Element]:
    return [element for element in ET.fromstring(f"<div>{text}</div>").iter() if element.tag == kind]


@pytest.mark.parametrize("highest", [0.0, 0.037, 1.0, 97.0, 1250.0, 3.1e7])
def test_the_scale_holds_every_value_in_round_steps(highest):
    values = [highest * share for share in (0.0, 0.4, 1.0, 0.7)]
    text = lines([Line("n", values, "look")], ["then", "now"], describes="n over time")
    labels = [float(e.text.replace(",", "")) for e in shapes(text, "text") if e.text not in ("then", "now")]
    assert labels[0] == 0.0
    assert 3 <= len(labels) <= 7
    steps = {round((b - a) / labels[1], 6) for a, b in itertools.pairwise(labels)}
    assert steps == {1.0}
    assert labels[-1] >= highest
    (path,) = shapes(text, "path")
    drawn = [float(pair.split()[1]) for pair in re.split("[ML]", path.get("d"))[1:]]
    for value, y in zip(values, drawn, strict=True):
        assert y == pytest.approx(100.0 * (1.0 - value / labels[-1]), abs=0.006)
        assert 0.0 <= y <= 100.0


def test_a_gap_stays_a_gap():
    text = lines([Line("n", [1.0, None, 2.0, 3.0], "look", filled=True)], ["a", "b"], describes="with a gap")
    area, stroke = (path.get("d") for path in shapes(text, "path"))
    assert stroke.count("M") == 2
    assert area.count("M") == 1  # a single point has no area below it


def test_columns_fill_their_height_in_order():
    text = columns([[0.25, 0.75], [], [0.0, 1.0]], ["a", "b"], describes="two parts")
    first, second = shapes(text, "path")
    assert (first.get("class"), second.get("class")) == ("part-0", "part-1")
    assert first.get("d") == "M0 75.00h.86v25.00h-.86z"
    assert second.get("d") == "M0 0.00h.86v75.00h-.86zM2 0.00h.86v100.00h-.86z"


def test_strips_of_one_table_share_an_axis():
    bounds = (-2.0, 6.0)
    text = strip(2.0, -2.0, math.inf, bounds)
    zero, whisker = shapes(text, "line")
    (point,) = shapes(text, "circle")
    assert point.get("cx") == "50.00%"
    assert (whisker.get("x1"), whisker.get("x2")) == ("3.00%", "97.00%")
    assert zero.get("x1") == "26.50%"
    assert len(shapes(strip(2.0, 1.0, 3.0, (1.0, 3.0)), "line")) == 1  # zero is not on this axis
    assert shapes(strip(1.0, 1.0, 1.0, (1.0, 1.0)), "circle")[0].get("cx") == "3.00%"


@pytest.mark.parametrize(("share", "width"), [(0.5, "50.0%"), (1.7, "100.0%"), (-1.0, "0.0%"), (math.nan, "0.0%")])
def test_a_bar_keeps_to_its_place(share, width):
    assert shapes(share_bar(share), "rect")[1].get("width") == width


def test_words_are_escaped_and_no_picture_styles_itself():
    evil = '"><script>'
    text = (
        lines([Line("n", [1.0, 2.0], "look")], [evil, "b"], describes=evil)
        + columns([[1.0]], [evil, "b"], describes=evil)
        + spark([1, 2, 3])
        + strip(0.0, -1.0, 1.0, (-1.0, 1.0))
        + share_bar(0.3, "alarm")
    )
    assert "<script" not in text
    assert " style=" not in text
    # one image with words, or hidden: nothing in between
    for element in ET.fromstring(f"<div>{text}</div>"):
        assert element.get("role") == "img" or element.get("aria-hidden") == "true"
        if element.get("role") == "img":
            assert element.get("aria-label") == evil
