"""The dashboard in a real browser: signing in, watching live, switching with confirmation; keyboard, words, policy."""

from __future__ import annotations

import re
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import pytest
from tests.service.helpers import ARMS, Server, make_config, post, random_context, serving

import sidelight as sl
from sidelight.service.config import initial_config, save_config
from sidelight.service.core.starting import open_store
from sidelight.service.http.auth import create_token

pytestmark = pytest.mark.browser


class Service:
    """A running service with tokens, and an application that uses it."""

    def __init__(self, server: Server, tokens: dict[str, str], store: Any) -> None:
        self.server, self.tokens, self.store = server, tokens, store
        self.client = httpx.Client(base_url=server.url, headers={"Authorization": f"Bearer {tokens['app']}"})
        self._rng = np.random.default_rng(4)

    def decide(self, n: int, **more: Any) -> None:
        """Decisions with rewards; ``more`` goes with the rewards."""
        contexts = [{"context": random_context(self._rng)} for _ in range(n)]
        decisions = post(self.client, "/v1/decisions/batch", {"decisions": contexts}).json()["decisions"]
        rewards = [{"decision": d["id"], "reward": float(self._rng.normal()), **more} for d in decisions]
        assert post(self.client, "/v1/rewards", {"rewards": rewards}).status_code == 200

    def rails(self) -> dict[str, Any]:
        answer = self.client.get("/v1/status", headers={"Authorization": f"Bearer {self.tokens['watch']}"})
        rails: dict[str, Any] = answer.json()["rails"]
        return rails


@pytest.fixture(scope="module")
def service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Service]:
    folder: Path = tmp_path_factory.mktemp("dashboard")
    config = make_config(folder, kind="FusedOFUL", mode="shadow", share=0.25, limits={"seconds": 4.0})
    store = open_store(config)
    tokens = {
        "watch": create_token(store, "wall screen", ["read"]),
        "switch": create_token(store, "night shift", ["read", "admin"]),
        "app": create_token(store, "app", ["decide", "reward"]),
    }
    with serving(folder) as server:
        made = Service(server, tokens, store)
        made.decide(30, arm="mid")
        made.decide(10, arm="low")
        yield made
    store.close()


class Visit:
    """An open page, and all it said and asked for."""

    def __init__(self, browser: Any, url: str, token: str | None = None, **settings: Any) -> None:
        self.context = browser.new_context(**({"viewport": {"width": 1280, "height": 900}} | settings))
        self.url = url
        self.page = self.context.new_page()
        self.page.set_default_timeout(60_000)  # for a busy machine; nothing waits so long otherwise
        self.messages: list[str] = []
        self.requests: list[str] = []
        self.page.on("console", lambda message: self.messages.append(message.text))
        self.page.on("pageerror", lambda error: self.messages.append(str(error)))
        self.page.on("request", lambda request: self.requests.append(request.url))
        self.page.goto(url)
        if token is not None:
            self.sign_in(token)
            self.page.wait_for_selector("html[data-updates]")

    def sign_in(self, token: str) -> None:
        self.page.get_by_label("Token").fill(token)
        self.page.keyboard.press("Enter")

    def __enter__(self) -> Visit:
        return self

    def __exit__(self, *details: Any) -> None:
        self.context.close()
        if details[0] is None:
            # whatever a test does, the page stays at home
            assert {url.split("/")[2] for url in self.requests} == {self.url.split("/")[2]}


# ------------------------------------------------------------------------------------------- signing in


def test_bad_tokens_are_told_apart_and_good_ones_open(browser: Any, service: Service) -> None:
    with Visit(browser, service.server.url) as visit:
        page = visit.page
        assert page.get_by_label("Token").evaluate("e => e === document.activeElement")
        assert page.get_by_label("Token").get_attribute("type") == "password"
        visit.sign_in("sl_00000000_" + "x" * 43)
        page.get_by_role("alert").filter(has_text="not valid").wait_for()
        assert page.get_by_label("Token").evaluate("e => e === document.activeElement")
        visit.sign_in(service.tokens["app"])
        page.get_by_role("alert").filter(has_text="needs the scope 'read'").wait_for()
        # the browser itself reports answers with 401 and 403, and nothing else was said
        assert all("401" in message or "403" in message for message in visit.messages)
        visit.sign_in(service.tokens["watch"])
        page.wait_for_selector("html[data-updates]")
        # the token is nowhere a script, an address or a log could find it
        kept = page.evaluate("JSON.stringify([document.cookie, {...localStorage}, {...sessionStorage}, location.href])")
        assert kept == f'["",{{}},{{}},"{service.server.url}/"]'
        (cookie,) = visit.context.cookies()
        assert cookie["httpOnly"]
        assert cookie["sameSite"] == "Strict"
        assert service.tokens["watch"].split("_", 2)[2] not in cookie["value"]
        assert not any(service.tokens["watch"] in url for url in visit.requests)


def test_it_stays_open_over_a_reload_and_closes_when_signed_out(browser: Any, service: Service) -> None:
    with Visit(browser, service.server.url, service.tokens["watch"]) as visit:
        visit.page.reload()
        visit.page.wait_for_selector("html[data-updates]")
        visit.page.get_by_role("button", name="Sign out").click()
        visit.page.get_by_label("Token").wait_for()
        visit.page.reload()
        assert visit.page.get_by_label("Token").is_visible()
        assert visit.messages == []


def test_a_link_from_elsewhere_finds_the_way_in(browser: Any, service: Service) -> None:
    """The browser keeps the cookie back when another site's page links here; the door looks once more."""
    with Visit(browser, service.server.url, service.tokens["watch"]) as visit:
        page, elsewhere = visit.page, service.server.url.replace("127.0.0.1", "localhost")
        page.goto(elsewhere)
        assert page.get_by_label("Token").is_visible()
        # twice: the door, to which the browser brings no cookie, and then the room
        visits: list[Any] = []
        page.on("response", lambda response: visits.append(response.url == service.server.url + "/"))
        page.evaluate("url => { location.href = url; }", service.server.url)
        page.wait_for_selector("html[data-updates]")
        assert sum(visits) == 2
        visit.requests = [url for url in visit.requests if "localhost" not in url]


def test_a_watching_token_cannot_switch(browser: Any, service: Service) -> None:
    with Visit(browser, service.server.url, service.tokens["watch"]) as visit:
        page = visit.page
        assert page.locator("#rails").count() == page.locator("#kill").count() == 0
        page.get_by_text("This token may watch.").wait_for()
        assert page.locator("#mode-now").inner_text() == "shadow"
        # nor can its page, by hand
        status = page.evaluate(
            """async () => (await fetch("/v1/kill", {method: "POST", body: '{"killed":true}', headers:
            {"Content-Type": "application/json", "X-Sidelight-Dashboard": "1"}})).status"""
        )
        assert status == 403


# --------------------------------------------------------------------------------------------- watching


def tile(page: Any, name: str) -> float:
    note: str = page.locator(f"#tile-{name} + dd").inner_text()
    (found,) = re.findall(r"[\d,]+", note)[:1]
    return float(found.replace(",", ""))


def test_numbers_change_while_it_is_open(browser: Any, service: Service) -> None:
    with Visit(browser, service.server.url, service.tokens["watch"]) as visit:
        page = visit.page
        page.evaluate("window.here = true")
        before, picture = tile(page, "decisions"), page.locator("#part-traffic .plot").inner_html()
        for _ in range(3):
            service.decide(11, arm="high")
        page.wait_for_function(
            "n => document.querySelector('#tile-decisions + dd').textContent.startsWith(n)", arg=f"{before + 33:.0f} "
        )
        page.wait_for_function("old => document.querySelector('#part-traffic .plot').innerHTML !== old", arg=picture)
        # longer than one stream lasts: the next one takes over, and nobody notices
        streams = sum("/dashboard/events" in url for url in visit.requests)
        end = time.monotonic() + 60
        while sum("/dashboard/events" in url for url in visit.requests) == streams:
            assert time.monotonic() < end, "no second stream"
            page.wait_for_timeout(50)
        assert page.locator("#live").get_attribute("data-live") == "live"
        service.decide(5, arm="high")
        page.wait_for_function(
            "n => document.querySelector('#tile-decisions + dd').textContent.startsWith(n)", arg=f"{before + 38:.0f} "
        )
        assert page.evaluate("window.here"), "the page was loaded again"
        assert visit.messages == []


def test_what_the_reader_picks_is_shown(browser: Any, service: Service) -> None:
    with Visit(browser, service.server.url, service.tokens["watch"]) as visit:
        page = visit.page
        page.get_by_label("by", exact=True).select_option("ward")
        page.wait_for_function("() => document.querySelector('#part-groups').textContent.includes('south')")
        names = page.locator("#part-groups tbody th").all_inner_texts()
        assert names == ["north", "south", "east"]
        # in shadow the old policy's arm is not told with the decision; the learner's choice is known
        assert page.locator("#part-arms-over-time .legend li").all_inner_texts() == ["not told yet\n100\u00a0%"]
        page.get_by_label("rewarded").check()
        page.wait_for_function(
            "() => document.querySelector('#part-arms-over-time .legend').textContent.includes('mid')"
        )
        page.get_by_label("recommended").check()
        page.wait_for_function(
            "() => !document.querySelector('#part-arms-over-time').textContent.includes('not told yet')"
        )
        page.get_by_label("24 hours").check()
        page.wait_for_function("() => document.querySelector('#part-traffic').textContent.includes('24 h ago')")
        rows = page.locator("#part-arms tbody tr")
        assert sorted(rows.locator("th").all_inner_texts()) == sorted(ARMS)
        assert page.locator("#part-trust tbody tr").count() == 3
        assert "no limit" in page.locator("#part-queries").inner_text()
        assert visit.messages == []


def test_it_says_when_the_service_is_away(browser: Any, service: Service) -> None:
    with Visit(browser, service.server.url, service.tokens["watch"]) as visit:
        visit.context.set_offline(True)
        visit.page.wait_for_selector("#live[data-live=lost]")
        assert "no connection" in visit.page.locator("#live").inner_text()
        visit.context.set_offline(False)
        visit.page.wait_for_selector("#live[data-live=live]")


# -------------------------------------------------------------------------------------------- switching


def test_switching_the_mode_asks_first(browser: Any, service: Service) -> None:
    head = service.store.head()
    with Visit(browser, service.server.url, service.tokens["switch"]) as visit:
        page = visit.page
        button = page.get_by_role("button", name="Switch…")
        assert button.is_disabled()
        page.get_by_label("Act the learner decides").check()
        page.get_by_label("Ramp").fill("12.5")
        button.click()
        dialog = page.get_by_role("dialog", name="Switch from shadow to act?")
        assert "12.5 %" in dialog.inner_text()
        # who presses Enter without reading, or Escape, changes nothing
        assert dialog.get_by_role("button", name="Cancel").evaluate("e => e === document.activeElement")
        page.keyboard.press("Escape")
        dialog.wait_for(state="hidden")
        assert service.store.head() == head
        assert service.rails()["mode"] == "shadow"
        button.click()
        dialog.get_by_role("button", name="Switch to act").click()
        page.get_by_role("status").filter(has_text="Switched to act.").wait_for()
        assert service.rails() == {
            "mode": "act",
            "share": 0.125,
            "fallback": "low",
            "killed": False,
            "explore": 0.0,
        }
        assert page.locator("#mode-now").inner_text() == "act"
        assert page.locator("#ramp-now").inner_text() == "12.5 % of the traffic"
        assert button.is_disabled()
        page.get_by_text("mode act, ramp 12.5").wait_for()
        assert "night shift" in page.locator("#part-changes").inner_text()
        row = service.store.read(head, service.store.head())[0]
        assert row.kind == "configuration"
        assert visit.messages == []


def test_the_kill_switch_by_keyboard_and_for_everybody(browser: Any, service: Service) -> None:
    with (
        Visit(browser, service.server.url, service.tokens["switch"]) as visit,
        Visit(browser, service.server.url, service.tokens["watch"]) as other,
    ):
        page = visit.page
        page.get_by_role("button", name="Stop the learner…").focus()
        page.keyboard.press("Enter")
        dialog = page.get_by_role("dialog", name="Stop the learner?")
        assert "fallback “low”" in dialog.inner_text()
        page.keyboard.press("Tab")
        page.keyboard.press("Enter")
        dialog.wait_for(state="hidden")
        assert service.rails()["killed"] is True
        for watching in (page, other.page):
            watching.get_by_role("alert").filter(has_text="The kill switch is on.").wait_for()
            watching.wait_for_selector("#mode-now[data-mode=killed]")
        # focus is back where it was, and the same button now does the opposite
        again = page.get_by_role("button", name="Let the learner decide again…")
        assert again.evaluate("e => e === document.activeElement")
        page.keyboard.press("Enter")
        page.get_by_role("dialog").get_by_role("button", name="Let it decide").click()
        page.get_by_text("The learner decides again.").wait_for()
        assert service.rails()["killed"] is False
        other.page.wait_for_selector("#mode-now:not([data-mode=killed])")
        assert visit.messages == other.messages == []


# ----------------------------------------------------------------------------------------- for everybody


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [390, 1280])
def test_it_fits_and_can_be_read(browser: Any, service: Service, width: int, scheme: str) -> None:
    settings = {"viewport": {"width": width, "height": 850}, "color_scheme": scheme}
    with Visit(browser, service.server.url, service.tokens["switch"], **settings) as visit:
        page = visit.page
        assert page.evaluate("document.documentElement.scrollWidth") <= width
        box = page.locator("#part-traffic .plot").bounding_box()
        assert box["height"] > 150
        assert box["width"] > 0.5 * min(width, 800)
        assert page.locator("#part-traffic path.stroke").count() == 2
        for selector, what in (
            ("#main", "color"), (".tile dt", "color"), (".note", "color"), ("#kill", "color"), ("#mode-now", "color"),
            (".legend li", "color"), (".plot text", "fill"), ("td small", "color"),
        ):  # fmt: skip
            ratio = page.evaluate(CONTRAST, [selector, what])
            assert ratio >= 4.5, (selector, ratio)
        assert visit.messages == []


CONTRAST = """([selector, what]) => {
  const numbers = text => text.startsWith("color(srgb") ? text.match(/[0-9.]+/g).map((v, i) => i < 3 ? v * 255 : +v)
    : text.match(/[0-9.]+/g).map(Number);
  const over = (top, below) => { const a = top[3] ?? 1; return [0, 1, 2].map(i => a * top[i] + (1 - a) * below[i]); };
  const light = rgb => {
    const [r, g, b] = rgb.map(v => v / 255).map(v => v <= 0.03928 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4);
    return 0.2126 * r + 0.7152 * g + 0.0722 * b;
  };
  const element = document.querySelector(selector);
  const layers = [];
  for (let e = element; e; e = e.parentElement) layers.push(numbers(getComputedStyle(e).backgroundColor));
  const paper = layers.reverse().reduce((below, top) => over(top, below), [255, 255, 255]);
  const [ink, ground] = [light(over(numbers(getComputedStyle(element)[what]), paper)), light(paper)];
  return (Math.max(ink, ground) + 0.05) / (Math.min(ink, ground) + 0.05);
}"""


def test_structure_for_a_screen_reader_and_the_keyboard(browser: Any, service: Service) -> None:
    with Visit(browser, service.server.url, service.tokens["switch"]) as visit:
        page = visit.page
        assert page.locator("html").get_attribute("lang") == "en"
        assert page.locator("h1").count() == page.locator("main").count() == 1
        for section in page.locator("section").all():
            title = section.get_attribute("aria-labelledby")
            assert section.locator(f"#{title}").inner_text()
        for control in page.locator("input, select").all():
            assert control.evaluate("e => e.labels.length") == 1
        for picture in page.locator("[role=img]").all():
            assert len(picture.get_attribute("aria-label") or "") > 20
        for drawing in page.locator("main svg").all():
            assert drawing.evaluate("e => e.closest('[aria-hidden=true], [role=img]') !== null")
        for table in page.locator("main table").all():
            assert table.locator("caption").count() == 1
            assert table.locator("th[scope=col]").count() > 1
        ids = page.evaluate("[...document.querySelectorAll('[id]')].map(e => e.id)")
        assert len(ids) == len(set(ids))
        # every stop of the tab key can be seen, and all controls are among them
        page.keyboard.press("Tab")
        stops = []
        for _ in range(40):
            stop = page.evaluate(
                """() => { const e = document.activeElement, style = getComputedStyle(e);
                  const shown = e.matches('.switch input') ? getComputedStyle(e.nextElementSibling) : style;
                  return [e.id || e.name || e.tagName, shown.outlineStyle !== 'none' || e.matches('.skip')]; }"""
            )
            if stop[0] == "BODY":
                break
            stops.append(stop)
            page.keyboard.press("Tab")
        assert all(visible for _, visible in stops), stops
        assert {"sign-out", "mode", "share", "kill", "span", "arms", "feature"} <= {name for name, _ in stops}
        # numbers that change do not take the focus away
        page.locator("#part-arms").focus()
        updates = page.evaluate("document.documentElement.dataset.updates")
        service.decide(3, arm="high")
        page.wait_for_function("n => document.documentElement.dataset.updates > Number(n) + 2", arg=updates)
        assert page.evaluate("document.activeElement.id") == "part-arms"


def test_the_policy_is_enforced(browser: Any, service: Service) -> None:
    """An injected script or style does not run, and nothing can be sent elsewhere."""
    with Visit(browser, service.server.url, service.tokens["watch"]) as visit:
        ran = visit.page.evaluate(
            """async () => {
              const place = document.createElement("div");
              place.innerHTML = '<img src="x" onerror="window.ran = true"><p style="color: rgb(1, 2, 3)">x</p>';
              document.body.append(place);
              const script = document.createElement("script");
              script.textContent = "window.ran = true";
              document.body.append(script);
              let sent = true;
              try { await fetch("http://127.0.0.1:9/"); } catch { sent = false; }
              await new Promise(done => setTimeout(done, 300));
              const colour = getComputedStyle(place.querySelector("p")).color;
              return [window.ran === true, sent, colour === "rgb(1, 2, 3)"];
            }"""
        )
        assert ran == [False, False, False]
        assert sum("Content Security Policy" in message for message in visit.messages) >= 3
        visit.requests = [url for url in visit.requests if "127.0.0.1:9/" not in url]


# ------------------------------------------------------------------------------- many arms, and no tokens


def test_two_hundred_arms_without_tokens(browser: Any, tmp_path: Path) -> None:
    arms = [f"item-{i:03d}" for i in range(200)]
    schema = sl.Schema(["u", "v"], recorded=["u"], arms=arms, intercept=True)
    save_config(initial_config(schema, kind="OFUL", port=0, mode="act"), tmp_path / "sidelight.toml")
    with serving(tmp_path) as server, httpx.Client(base_url=server.url) as client:
        rng = np.random.default_rng(2)
        asks = [{"context": {"u": float(rng.normal()), "v": 0.5}, "allowed": [arms[i % 150]]} for i in range(450)]
        assert post(client, "/v1/decisions/batch", {"decisions": asks}).status_code == 201
        with Visit(browser, server.url, viewport={"width": 390, "height": 850}) as visit:
            page = visit.page
            page.wait_for_selector("html[data-updates]")
            assert page.locator("#part-arms tbody tr").count() == 10
            assert page.locator("#part-arms-over-time .legend li").count() == 7
            assert "144 other arms" in page.locator("#part-arms-over-time .legend").inner_text()
            page.get_by_text("All 200 arms").click()
            rows = page.locator("#part-every-arm tbody tr")
            rows.nth(199).wait_for()
            page.get_by_label("Find an arm").fill("item-07")
            assert [row.locator("th").inner_text() for row in rows.all() if row.is_visible()] == [
                f"item-07{i}" for i in range(10)
            ]
            # a refresh keeps what was searched for
            page.get_by_label("24 hours").check()
            page.wait_for_function("() => document.querySelector('#part-every-arm').textContent.includes('24 hours')")
            assert rows.first.is_hidden()
            assert page.evaluate("document.documentElement.scrollWidth") <= 390
            # whoever may use this machine may switch
            page.get_by_role("button", name="Stop the learner…").click()
            page.get_by_role("dialog").get_by_role("button", name="Stop the learner").click()
            page.get_by_role("alert").filter(has_text="The kill switch is on.").wait_for()
            assert client.get("/v1/status").json()["rails"]["killed"] is True
            assert visit.messages == []
