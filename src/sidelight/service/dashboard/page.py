"""The page itself: places for the parts, and what a reader can change.

Controls stay outside the places whose content is replaced, so that nothing loses the focus when numbers change.
"""

from __future__ import annotations

from collections.abc import Sequence
from html import escape

from sidelight.service.dashboard.learning import SHOWN
from sidelight.version import __version__

__all__ = ["dashboard", "sign_in"]

_MODES = (
    ("shadow", "Shadow", "the old policy acts, the learner only says what it would do"),
    ("assist", "Assist", "the learner proposes, a person confirms"),
    ("act", "Act", "the learner decides its share of the traffic"),
)


def sign_in(version: str) -> str:
    """The way in."""
    return _page(
        "Sign in – Sidelight",
        version,
        "sign-in.js",
        """
<main class="door">
<h1><img src="/dashboard/icon.svg" alt="" width="36" height="36"> Sidelight</h1>
<form id="sign-in">
<input type="text" name="username" autocomplete="username" value="sidelight" hidden>
<label for="token">Token</label>
<input id="token" name="token" type="password" autocomplete="current-password" required spellcheck="false"
 autocapitalize="off" placeholder="sl_…" aria-describedby="token-help problem">
<p id="token-help" class="note">A token with the scope <code>read</code> may watch, one with <code>admin</code> too may
switch. <code>sidelight tokens create</code> makes one. It is not stored in this browser.</p>
<p id="problem" class="alarm" role="alert"></p>
<button type="submit" class="strong">Sign in</button>
</form>
<noscript><p class="alarm">The dashboard needs JavaScript.</p></noscript>
</main>""",
    )


def dashboard(version: str, *, features: Sequence[str], n_arms: int, may_switch: bool, watcher: str | None) -> str:
    """The dashboard.

    Args:
        version: of its files.
        features: what subgroups can be made by.
        n_arms: ``K``
        may_switch: whether mode, ramp and kill switch can be changed.
        watcher: the name of the token; None where there are no tokens.
    """
    who = (
        '<span class="note">no tokens: this machine only</span>'
        if watcher is None
        else f'<span class="note">{escape(watcher)}</span> <button type="button" id="sign-out">Sign out</button>'
    )
    options = "".join(f"<option>{escape(name)}</option>" for name in features)
    all_arms = (
        ""
        if n_arms <= SHOWN
        else f'<details id="every-arm"><summary>All {n_arms} arms</summary><label class="find">Find an arm '
        '<input type="search" id="find-arm" autocomplete="off"></label><div class="scroll" tabindex="0" role="region" '
        'aria-label="All arms" id="part-every-arm"></div></details>'
    )
    body = f"""
<a class="skip" href="#main">Skip to the numbers</a>
<header class="top">
<h1><img src="/dashboard/icon.svg" alt="" width="28" height="28"> Sidelight</h1>
<p class="live" role="status" id="live" data-live="waiting"><span class="dot" aria-hidden="true"></span><span
 id="live-words">connecting</span></p>
<div class="who">{who}</div>
</header>
<main id="main">
<div id="part-banner" role="alert"></div>
<div id="part-tiles" class="part"></div>
<div class="grid">
{_card("acts", "Who acts", _controls(may_switch) + _place("changes", "Last changes", heading=True), "third")}
{
        _card(
            "traffic",
            "Decisions and rewards per minute",
            _place("traffic") + _numbers("traffic-numbers"),
            "two-thirds",
            _SPAN,
        )
    }
{_card("arms-over-time", "Arms over time", _place("arms-over-time"), "two-thirds", _ARMS)}
{_card("queries", "Asking the old policy", _place("queries"), "third")}
{_card("arms", "Estimates and widths", _scroll("arms", "Estimates and widths per arm") + all_arms, "whole")}
{_card("trust", "What each log still contributes", _scroll("trust", "Trust in each log"), "half")}
{
        _card(
            "groups",
            "Subgroups",
            _scroll("groups", "Mean reward of subgroups"),
            "half",
            f'<span class="choice"><label for="feature">by</label> <select id="feature">{options}</select></span>',
        )
    }
{_card("overrides", "Overrides", _scroll("overrides", "Overrides"), "half")}
{_card("errors", "Last errors", _scroll("errors", "Last errors"), "half")}
</div>
</main>
<footer><span id="part-about"></span> · Sidelight {escape(__version__)} · what is shown of the past is this server's
memory: the last 24 hours at most</footer>
<dialog id="confirm" aria-labelledby="confirm-title" aria-describedby="confirm-words">
<form method="dialog">
<h2 id="confirm-title"></h2><p id="confirm-words"></p><p id="confirm-problem" class="alarm" role="alert"></p>
<div class="buttons"><button type="button" id="confirm-no">Cancel</button><button type="button" id="confirm-yes"
 class="strong"></button></div>
</form>
</dialog>
<noscript><p class="alarm">The dashboard needs JavaScript; GET /v1/status and /metrics do not.</p></noscript>"""
    return _page("Sidelight", version, "dashboard.js", body)


def _page(title: str, version: str, script: str, body: str) -> str:
    return f"""<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="color-scheme" content="light dark">
<title>{escape(title)}</title>
<link rel="icon" href="/dashboard/icon.svg" type="image/svg+xml">
<link rel="stylesheet" href="/dashboard/style.css?v={version}">
<script src="/dashboard/{script}?v={version}" defer></script>
</head>
<body>{body}
</body>
</html>
"""


def _card(name: str, title: str, content: str, width: str, choices: str = "") -> str:
    return (
        f'<section class="card {width}" id="{name}" aria-labelledby="{name}-title"><div class="head">'
        f'<h2 id="{name}-title">{escape(title)}</h2>{choices}</div>{content}</section>'
    )


def _place(name: str, title: str = "", heading: bool = False) -> str:
    above = f"<h3>{escape(title)}</h3>" if heading else ""
    return f'{above}<div class="part" id="part-{name}"><p class="empty">…</p></div>'


def _scroll(name: str, title: str) -> str:
    """A place for a table that may be wider than the screen: it can be scrolled by keyboard."""
    return (
        f'<div class="part scroll" id="part-{name}" tabindex="0" role="region" aria-label="{escape(title)}">'
        '<p class="empty">…</p></div>'
    )


def _numbers(name: str) -> str:
    return (
        "<details><summary>The numbers of this picture</summary>"
        f'<div class="scroll" id="part-{name}" tabindex="0" role="region" aria-label="Numbers"></div></details>'
    )


def _choice(name: str, label: str, options: Sequence[tuple[str, str]]) -> str:
    buttons = "".join(
        f'<label><input type="radio" name="{name}" value="{value}"{" checked" if i == 0 else ""}>'
        f"<span>{escape(words)}</span></label>"
        for i, (value, words) in enumerate(options)
    )
    return f'<fieldset class="switch"><legend class="unseen">{escape(label)}</legend>{buttons}</fieldset>'


_SPAN = _choice("span", "How far back", (("hour", "1 hour"), ("day", "24 hours")))
_ARMS = _choice("arms", "Which arms", (("taken", "to take"), ("recommended", "recommended"), ("rewarded", "rewarded")))


def _controls(may_switch: bool) -> str:
    if not may_switch:
        return (
            '<p class="mode"><b id="mode-now">…</b> <span id="ramp-now"></span></p><p class="note" id="mode-means"></p>'
            '<p class="note">This token may watch. Switching needs one with the scope <code>admin</code>.</p>'
        )
    modes = "".join(
        f'<label class="mode-option"><input type="radio" name="mode" value="{value}"><span><b>{title}</b> '
        f"<small>{escape(words)}</small></span></label>"
        for value, title, words in _MODES
    )
    return f"""
<p class="mode"><b id="mode-now">…</b> <span id="ramp-now"></span></p><p class="note unseen" id="mode-means"></p>
<form id="rails">
<fieldset><legend>Mode</legend>{modes}</fieldset>
<div class="ramp"><label for="share">Ramp, the learner's share in act</label>
<span class="unit"><input id="share" type="number" min="0" max="100" step="any" inputmode="decimal" required>%</span>
</div>
<div class="buttons"><button type="submit" id="apply" disabled>Switch…</button>
<button type="button" id="kill" class="danger">Stop the learner…</button></div>
</form>
<p id="done" role="status" class="note"></p>"""
