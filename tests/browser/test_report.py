"""The report in a real browser: it draws, asks no network, its controls work, its numbers are the results'."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import pytest

import sidelight as sl
from sidelight.drawing.intervals import number, student
from sidelight.report.document import write_report
from sidelight.report.study import of_world

pytestmark = pytest.mark.browser


@pytest.fixture(scope="module")
def page_path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    learners = {
        "OFUL": lambda run: sl.OFUL(3, 5, noise=0.3, radius="posterior"),
        "Zero-filled": lambda run: sl.ZeroFilledOFUL(run.summary, noise=0.3),
        "FusedOFUL": lambda run: sl.FusedOFUL(sl.BehaviorQueries(run.summary)),
    }
    study = of_world(
        lambda seed: sl.worlds.ConfoundedWorld(seed=seed, n_arms=3, n_features=5, n_hidden=2),
        learners, 300, 3, 800, baseline="OFUL", best="FusedOFUL", seeds=4, workers=1,
    )  # fmt: skip
    return write_report(study, tmp_path_factory.mktemp("report") / "report.html")


class Visit:
    """An open page, and all it said and asked for."""

    def __init__(self, browser: Any, path: Path, **settings: Any) -> None:
        self.page = browser.new_page(**settings)
        self.messages: list[str] = []
        self.requests: list[str] = []
        self.page.on("console", lambda message: self.messages.append(message.text))
        self.page.on("pageerror", lambda error: self.messages.append(str(error)))
        self.page.on("request", lambda request: self.requests.append(request.url))
        self.page.goto(path.as_uri())
        self.page.wait_for_selector("html[data-drawn=yes]", timeout=60_000)

    def __enter__(self) -> Visit:
        return self

    def __exit__(self, *details: Any) -> None:
        self.page.close()


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [360, 1200])
def test_it_draws_alone_and_fits(browser: Any, page_path: Path, width: int, scheme: str) -> None:
    with Visit(browser, page_path, viewport={"width": width, "height": 800}, color_scheme=scheme) as visit:
        page = visit.page
        assert visit.messages == []
        assert visit.requests == [page_path.as_uri()]
        plots = page.locator(".plot svg")
        assert plots.count() == 5
        for i in range(5):
            box = plots.nth(i).bounding_box()
            assert box["height"] > 100
            assert 0.6 * (min(width, 900) - 40) < box["width"] <= width
        # nothing sticks out to the side
        assert page.evaluate("document.documentElement.scrollWidth") <= width
        # letters stand out from the paper, in charts too (WCAG: 4.5)
        for selector, what in (("body", "color"), (".plot svg text", "fill")):
            ratio = page.evaluate(CONTRAST, [selector, what])
            assert ratio >= 4.5, (selector, ratio)


CONTRAST = """([selector, what]) => {
  const light = text => {
    const [r, g, b] = text.match(/[0-9.]+/g).map(Number).slice(0, 3).map(v => v / 255)
      .map(v => v <= 0.03928 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4);
    return 0.2126 * r + 0.7152 * g + 0.0722 * b;
  };
  const ink = light(getComputedStyle(document.querySelector(selector))[what]);
  const paper = light(getComputedStyle(document.body).backgroundColor);
  return (Math.max(ink, paper) + 0.05) / (Math.min(ink, paper) + 0.05);
}"""


def drawn_lines(page: Any, name: str) -> int:
    return int(page.locator(f"#{name} .plot svg g.mark-line path[d]").count())


def test_legend_buttons_by_keyboard(browser: Any, page_path: Path) -> None:
    with Visit(browser, page_path) as visit:
        page = visit.page
        before = drawn_lines(page, "regret")
        button = page.locator("#regret button", has_text="Zero-filled")
        assert button.get_attribute("aria-pressed") == "true"
        button.focus()
        page.keyboard.press("Enter")
        assert button.get_attribute("aria-pressed") == "false"
        page.wait_for_function(
            "n => document.querySelectorAll('#regret .plot svg g.mark-line path[d]').length < n", arg=before
        )
        page.keyboard.press("Space")
        page.wait_for_function(
            "n => document.querySelectorAll('#regret .plot svg g.mark-line path[d]').length == n", arg=before
        )
        assert visit.messages == []


def test_choices_change_the_picture(browser: Any, page_path: Path) -> None:
    with Visit(browser, page_path) as visit:
        page = visit.page
        for name in ("arms", "estimates"):
            before = page.locator(f"#{name} .plot svg").inner_html()
            page.locator(f"#{name} select").first.select_option("OFUL")
            page.wait_for_function(
                "([id, old]) => document.querySelector(`#${id} .plot svg`).innerHTML !== old", arg=[name, before]
            )
        assert visit.messages == []


def test_colours_follow_the_reader_at_once(browser: Any, page_path: Path) -> None:
    with Visit(browser, page_path, color_scheme="light") as visit:
        ink = "getComputedStyle(document.querySelector('#regret .plot svg text')).fill"
        light = visit.page.evaluate(ink)
        visit.page.emulate_media(color_scheme="dark")
        dark = visit.page.evaluate(ink)
        assert light != dark
        # on paper everything is dark on white, whatever the screen
        visit.page.emulate_media(media="print", color_scheme="dark")
        assert visit.page.evaluate(ink) == light
        assert visit.page.evaluate("getComputedStyle(document.body).backgroundColor") == "rgb(255, 255, 255)"


def test_it_can_be_printed(browser: Any, page_path: Path) -> None:
    with Visit(browser, page_path) as visit:
        assert visit.page.pdf(format="A4").startswith(b"%PDF")


def test_structure_for_a_screen_reader(browser: Any, page_path: Path) -> None:
    with Visit(browser, page_path) as visit:
        page = visit.page
        assert page.locator("html").get_attribute("lang") == "en"
        assert page.locator("h1").count() == 1
        assert page.locator("main").count() == 1
        images = page.locator("[role=img]:has(> .plot)").all()
        assert len(images) == 5
        for plot in images:
            assert plot.locator(".plot").get_attribute("aria-hidden") == "true"
            assert len(plot.get_attribute("aria-label") or "") > 20
        for select in page.locator("select").all():
            assert select.evaluate("s => s.labels.length") == 1
        for table in page.locator("table").all():
            assert table.locator("caption").count() == 1
            assert table.locator("th[scope=col]").count() > 1
        ids = page.evaluate("[...document.querySelectorAll('[id]')].map(e => e.id)")
        assert len(ids) == len(set(ids))
        for link in page.locator("nav a").all():
            assert (link.get_attribute("href") or "").removeprefix("#") in ids
        # every picture has its numbers, and they open by keyboard
        assert page.locator("figure.chart details table").count() >= 5
        summary = page.locator("#regret details summary")
        summary.focus()
        page.keyboard.press("Enter")
        assert page.locator("#regret details table").is_visible()


def test_numbers_are_those_of_the_results(browser: Any, page_path: Path) -> None:
    rows = pq.read_table(page_path.with_suffix(".parquet")).to_pylist()
    with Visit(browser, page_path) as visit:
        cells = visit.page.locator("#learners table").first.locator("tbody tr")
        shown = {row.locator("th").inner_text(): row.locator("td").first.inner_text() for row in cells.all()}
        for name in ("OFUL", "Zero-filled", "FusedOFUL"):
            finals = np.array([r["regret"] for r in rows if r["learner"] == name and r["round"] == 300])
            assert len(finals) == 4
            assert shown[name] == number(student(finals).mean)
        # and the line is drawn from the same numbers
        drawn = visit.page.evaluate(
            "JSON.parse(document.getElementById('specifications').textContent).regret.data.values"
        )
        last = next(d for d in drawn if d["series"] == "FusedOFUL" and d["x"] == 300)
        finals = np.array([r["regret"] for r in rows if r["learner"] == "FusedOFUL" and r["round"] == 300])
        assert last["y"] == pytest.approx(finals.mean())
