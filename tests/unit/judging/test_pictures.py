"""The pictures and the page of a verdict: what they say where something cannot be told, and that nothing leaks in."""

from __future__ import annotations

import datetime as dt
import re
import xml.etree.ElementTree as ET

import numpy as np
import pytest

import sidelight as sl
from sidelight.drawing.stages import Bar, contour_picture, stages_picture
from sidelight.errors import InputError


@pytest.fixture(scope="module")
def verdict():
    rng = np.random.default_rng(0)
    n = 3_000
    u, v, arm = rng.normal(size=n), rng.normal(size=n), rng.integers(0, 3, n)
    reward = u * (arm - 1) + 0.2 * v + rng.normal(size=n)
    log = {"u": u, "v<w>": v, "arm": np.array(["a", "b", "<c>"])[arm], "reward": reward}
    keep = ~((arm == 2) & (u < 0))  # the best policy takes <c> where u > 0: what it is worth can be told
    log = {name: values[keep] for name, values in log.items()}
    return sl.judge(log, sl.Schema(["u", "v<w>"], ["u", "v<w>"]), policies=["best", lambda c: "<c>"])


def test_pictures_are_well_formed(verdict):
    for picture in (verdict.plot(), verdict.plot("contour"), verdict.plot(policy="function")):
        root = ET.fromstring(picture.svg)
        assert root.tag.endswith("svg")
        assert root.attrib["role"] == "img"
        assert picture._repr_svg_() == picture.svg
        assert "nan" not in re.sub(r"<style>.*</style>", "", picture.svg).lower()
    with pytest.raises(InputError, match="not one of 'stages', 'contour'"):
        verdict.plot("pie")
    with pytest.raises(InputError, match="nothing about"):
        verdict.plot(policy="nobody")


def test_bars_lie_where_the_numbers_say():
    bars = [Bar("one", "", 0.2, 0.1, 0.3, -0.1, 0.5), Bar("two", "why", *[float("nan")] * 5)]
    svg = stages_picture(bars, "EUR", "t").svg
    zero = float(re.search(r'class="zero" x1="([\d.]+)"', svg)[1])
    point = float(re.search(r'class="point" cx="([\d.]+)"', svg)[1])
    x, width = (
        float(v) for v in re.search(r'class="core open" x="([\d.]+)" y="[\d.]+" width="([\d.]+)"', svg).groups()
    )
    band_x, band_width = (
        float(v) for v in re.search(r'class="band open" x="([\d.]+)" y="[\d.]+" width="([\d.]+)"', svg).groups()
    )
    unit = (point - zero) / 0.2
    assert x == pytest.approx(zero + 0.1 * unit, abs=0.2)
    assert width == pytest.approx(0.2 * unit, abs=0.3)
    assert band_x == pytest.approx(zero - 0.1 * unit, abs=0.2)
    assert band_width == pytest.approx(0.6 * unit, abs=0.3)
    assert "cannot be told" in svg
    inf = float("inf")
    endless = stages_picture([Bar("one", "", 0.2, 0.2, 0.2, -inf, inf)], "EUR", "t", width=350).svg
    assert ET.fromstring(endless) is not None
    assert "inf" not in endless


def test_the_curve_is_where_the_shares_overturn():
    strength = 0.04
    svg = contour_picture(strength, 0.18, [("age", 0.1, 0.2)], "t").svg
    path = re.search(r'class="curve" points="([^"]+)"', svg)[1]
    left, top, size = 60, 16, 420
    limit = float(re.findall(r">(\d+)%<", svg)[-1]) / 100
    for pair in path.split()[::40]:
        a, b = map(float, pair.split(","))
        choice, reward = (a - left) / size * limit, (top + size - b) / size * limit
        assert reward * choice / (1 - choice) == pytest.approx(strength, rel=0.06)
    assert "polygon" not in contour_picture(float("inf"), 1.0, [], "t").svg


def test_the_page_says_when_and_how(verdict, tmp_path):
    page = verdict.to_html(tmp_path / "page.html", "sidelight judge <log>", "EUR", dt.date(2026, 1, 2))
    assert (tmp_path / "page.html").read_text(encoding="utf-8") == page
    for words in ("2026-01-02", "sidelight judge &lt;log&gt;", "EUR for every 1,000 decisions", "v&lt;w&gt;"):
        assert words in page
    assert "v<w>" not in page
    assert "<c>" not in page
    assert "Yes, if nothing hidden matters." in page


@pytest.mark.parametrize(("effect", "answer"), [(0.5, "Yes, if"), (0.08, "Yes, but only if")])
def test_an_answer_that_something_like_a_recorded_feature_would_undo_is_not_a_plain_yes(effect, answer):
    rng = np.random.default_rng(2)
    u = rng.normal(size=20_000)
    arm = (rng.random(20_000) < 1 / (1 + np.exp(-0.5 * u))).astype(int)
    log = {"u": u, "arm": arm, "reward": effect * arm + 0.3 * u + 0.3 * rng.normal(size=20_000)}
    verdict = sl.judge(log, sl.Schema(["u"], ["u"]), policies=1)
    assert (verdict.yardsticks[0].times > 1) == answer.startswith("Yes, if")
    page = verdict.to_html()
    assert f"{answer} nothing hidden matters.</h1>" in page
    assert ('<h1 class="good">' in page) == answer.startswith("Yes, if")


def test_what_cannot_be_told_is_said_in_large_type():
    rng = np.random.default_rng(1)
    arm = rng.integers(0, 2, 400)
    log = {"u": rng.normal(size=400), "arm": arm, "reward": rng.normal(size=400)}
    verdict = sl.judge(log, sl.Schema(["u"], ["u"]), policies=1)
    assert verdict.line("always 1").sign == 0
    page = verdict.to_html()
    assert '<h1 class="open">Cannot be told.</h1>' in page


@pytest.mark.parametrize("width", [350, 700])
def test_no_line_crosses_the_words_of_a_bar(width):
    bars = [Bar(f"{i} % of the traffic, now", "on condition", 1.0, 0.9, 1.1, 0.8, 1.2) for i in range(3)]
    svg = stages_picture(bars, "EUR", "t", width=width).svg
    lines = [
        (float(top), float(bottom)) for top, bottom in re.findall(r'<line [^>]*y1="([\d.]+)"[^>]*y2="([\d.]+)"', svg)
    ]
    words = [float(y) for y in re.findall(r'<text [^>]*y="([\d.]+)"[^>]*>(?:\d % of|on condition)', svg)]
    assert len(words) == 6
    assert len(lines) > 6
    for baseline in words:
        assert all(bottom <= baseline - 10 or top >= baseline + 3 for top, bottom in lines)
