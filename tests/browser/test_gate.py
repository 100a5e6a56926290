"""The ladder in a real browser: seen moving, held, undone; evidence with its history; the page that people share."""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import pytest
from tests.browser.test_dashboard import CONTRAST, Visit
from tests.service.helpers import Server, make_config, random_context, serving

from sidelight.service.config import GateConfig, save_config

pytestmark = pytest.mark.browser

GATE = GateConfig(
    promote="suggest",
    demote="suggest",
    ladder=[0.2, 0.5, 1.0],
    error_rate=0.1,
    holdout=0.1,
    reward_after="1h",
    smallest_gain=0.1,
)
#: where to keep pictures to look at; nowhere by default
PICTURES = os.environ.get("SIDELIGHT_PICTURES")


def earn(url: str, rng: np.random.Generator, batches: int) -> None:
    """Traffic on which the learner's route earns 1 more."""
    for _ in range(batches):
        body = {"decisions": [{"context": random_context(rng)} for _ in range(250)]}
        made = httpx.post(url + "/v1/decisions/batch", json=body, timeout=60).json()["decisions"]
        rewards = [
            {
                "decision": d["id"],
                "reward": (d["by"] == "learner") + float(0.5 * rng.normal()),
                "arm": d["arm"] or "low",
            }
            for d in made
        ]
        assert httpx.post(url + "/v1/rewards", json={"rewards": rewards}, timeout=60).status_code == 200


@pytest.fixture(scope="module")
def climbing(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    folder: Path = tmp_path_factory.mktemp("gate")
    config = make_config(folder, kind="OFUL", mode="act", share=0.2)
    save_config(replace(config, gate=GATE), folder / "sidelight.toml")
    with serving(folder) as server:
        earn(server.url, np.random.default_rng(1), 8)
        yield server


def rails(server: Server) -> dict[str, Any]:
    found: dict[str, Any] = httpx.get(server.url + "/v1/status").json()["rails"]
    return found


def press(page: Any, button: str, yes: str) -> None:
    page.locator(button).click()
    page.locator("#confirm-yes").get_by_text(yes).click()
    page.locator("#confirm").wait_for(state="hidden")


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [390, 1280])
def test_evidence_and_its_history_fit_and_can_be_read(browser: Any, climbing: Server, width: int, scheme: str) -> None:
    settings = {"viewport": {"width": width, "height": 850}, "color_scheme": scheme}
    with Visit(browser, climbing.url, **settings) as visit:
        page = visit.page
        page.wait_for_selector("#part-gate .facts")
        assert page.evaluate("document.documentElement.scrollWidth") <= width
        words = page.locator("#part-gate").inner_text()
        assert "the learner is better than the old policy" in words
        assert "waits for a person" in words
        box = page.locator("#part-gate .plot").bounding_box()
        assert box["height"] > 100
        assert page.locator("#part-gate path.tint").count() == 1
        for selector, what in (("#part-gate dd", "color"), ("#part-gate dt", "color"), ("#part-gate text", "fill")):
            assert page.evaluate(CONTRAST, [selector, what]) >= 4.5
        if PICTURES:
            page.locator("#gate").screenshot(path=f"{PICTURES}/gate-{width}-{scheme}.png")
            page.locator("#odd").screenshot(path=f"{PICTURES}/odd-{width}-{scheme}.png")
        assert visit.messages == []


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [390, 1280])
def test_the_page_that_people_share(browser: Any, climbing: Server, width: int, scheme: str) -> None:
    settings = {"viewport": {"width": width, "height": 850}, "color_scheme": scheme}
    with Visit(browser, climbing.url + "/verdict", **settings) as visit:
        page = visit.page
        assert page.locator("h1").inner_text() == "Yes."
        assert page.evaluate("document.documentElement.scrollWidth") <= width
        assert page.locator("svg:visible").count() >= 1
        for selector in ("h1", ".lead", "figcaption", "li"):
            assert page.evaluate(CONTRAST, [selector, "color"]) >= 4.5
        if PICTURES:
            page.screenshot(path=f"{PICTURES}/verdict-{width}-{scheme}.png", full_page=True)
        assert visit.messages == []


def test_the_ladder_is_seen_moving_held_and_undone(browser: Any, climbing: Server) -> None:
    with Visit(browser, climbing.url) as visit:
        page = visit.page
        gate = page.locator("#part-gate")
        gate.get_by_text("1 (now)").wait_for()
        press(page, "#gate-up", "Go up")
        gate.get_by_text("2 (now)").wait_for()
        assert rails(climbing)["share"] == 0.5
        press(page, "#gate-hold", "Hold")
        gate.get_by_text("a person has stopped promotions").wait_for()
        earn(climbing.url, np.random.default_rng(2), 6)
        gate.get_by_text("the learner is better than the old policy").wait_for()
        assert gate.get_by_text("waits for a person").count() == 0
        press(page, "#gate-free", "Go on")
        gate.get_by_text("waits for a person").wait_for()
        press(page, "#gate-down", "Go down")
        gate.get_by_text("1 (now)").wait_for()
        assert rails(climbing)["share"] == 0.2
        assert "ramp 20" in page.locator("#part-changes").inner_text()
        if PICTURES:
            page.locator("#gate").screenshot(path=f"{PICTURES}/gate-undone.png")
        assert visit.messages == []
