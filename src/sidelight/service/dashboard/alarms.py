"""Alarms about unusual traffic, each with a remedy, computed from the last contexts and hours.

They say what is odd, not that something is broken: whoever knows the traffic decides. None of them stops a decision.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from sidelight.learners.wild import Ranges
from sidelight.linalg import Array
from sidelight.service.core.fold import State
from sidelight.service.dashboard.rolling import Rolling
from sidelight.side.coordinates import UNKNOWN

__all__ = ["ALARMS", "Alarm", "alarms"]

#: kinds of alarms; each is a label of the metric ``sidelight_alarm``
ALARMS = ("contexts", "answers", "arm", "shares", "floor")
#: contexts that are needed before anything is said about them
_CONTEXTS = 100
#: a value is far if it is more than this many standard deviations from the mean; alarm if this share of contexts is
_FAR, _MANY = 6.0, 0.02
#: alarm if the mean of the last contexts is off by more than this many standard deviations
_SHIFT = 1.0
#: rewards and answers that must have come before contexts are compared with the known ranges
_KNOWN = 100
#: alarm if the old policy, which used to answer, was asked this many times in an hour and gave no answer
_ASKED = 50
#: alarm if an arm was allowed in none of this many decisions
_FORBIDDEN = 1_000
#: alarm if this many rewards wait for earlier ones before the floor may count them, and no time-out ends the wait
_BEHIND = 100


class Alarm(NamedTuple):
    """Something that should be looked at.

    Attributes:
        kind: one of ``ALARMS``.
        words: what was seen.
        remedy: what to do.
    """

    kind: str
    words: str
    remedy: str


def alarms(state: State, rolling: Rolling, names: list[str], now: float) -> list[Alarm]:
    """What is odd about the traffic.

    Args:
        state: learner and evidence.
        rolling: the last contexts, hours and decisions.
        names: (d,)  names of the encoded features.
        now: seconds since 1970.
    """
    found = _of_contexts(state, rolling, names) + _of_answers(state, rolling, now) + _of_arms(state, rolling)
    found += _of_floor(state)
    if state.gate.evidence().get("ratio_wrong"):
        found.append(
            Alarm(
                "shares",
                "the share of units on each route is not the one that was set",
                "Look for requests that get lost on one route, or subjects that are renamed; nothing is promoted "
                "until then",
            )
        )
    return found


def _of_contexts(state: State, rolling: Rolling, names: list[str]) -> list[Alarm]:
    contexts, known = rolling.last_contexts(), _known_ranges(state)
    if len(contexts) < _CONTEXTS or known is None:
        return []
    centres, scales = known.centres[:-1], known.scales[:-1]
    varies = scales != UNKNOWN
    off = np.where(varies, np.abs(contexts - centres) / np.where(varies, scales, 1.0), 0.0)
    # a feature that was constant so far and has another value now
    off = np.where(~varies & (np.abs(contexts - centres) > 1e-9 * np.abs(centres)), np.inf, off)
    share = (off > _FAR).mean(axis=0)
    finite = np.where(np.isfinite(off), contexts - centres, 0.0)
    shift = np.where(varies, np.abs(finite.mean(axis=0)) / np.where(varies, scales, 1.0), 0.0)
    out = []
    for i in np.flatnonzero((share > _MANY) | (shift > _SHIFT))[:3]:
        what = (
            f"lies far from all that log and rounds have seen in {share[i]:.0%} of the last contexts"
            if share[i] > _MANY
            else f"is on average {shift[i]:.1f} deviations from what log and rounds have seen"
        )
        out.append(
            Alarm(
                "contexts",
                f"{names[i]!r} {what} (now about {_middle(contexts[:, i])}, before {centres[i]:.4g})",
                "Check its unit and where it comes from; if the world has changed, estimates there are guesses until "
                "rewards have come",
            )
        )
    return out


def _middle(values: Array) -> str:
    return f"{float(np.nanmedian(values)):.4g}"


def _known_ranges(state: State) -> Ranges | None:
    """Mean and spread of every feature over log and rounds; None until enough rewards and answers have come."""
    if state.counts["rewards"] + state.counts["answers"] < _KNOWN:
        return None
    learned: Ranges | None = state.learner.ranges()
    return state.seen.ranges if learned is None else learned


def _of_answers(state: State, rolling: Rolling, now: float) -> list[Alarm]:
    asked, answers = rolling.hour.total("asked", now), rolling.hour.total("answers", now)
    if state.learner.needs is None or asked < _ASKED or answers or not state.counts["answers"]:
        return []
    return [
        Alarm(
            "answers",
            f"the old policy was asked {asked:,.0f} times in the last hour and has answered none; it used to answer",
            "See that whoever asks it still runs, and sends what it says to /v1/decisions/{id}/behavior; without "
            "answers the log is worth less",
        )
    ]


def _of_arms(state: State, rolling: Rolling) -> list[Alarm]:
    arms = [arm for arm in state.learner.arms if rolling.decisions - rolling.last_allowed(arm) >= _FORBIDDEN]
    if not arms:
        return []
    listed = ", ".join(repr(arm) for arm in arms[:5]) + (" …" if len(arms) > 5 else "")
    return [
        Alarm(
            "arm",
            f"{listed} {'was' if len(arms) == 1 else 'were'} allowed in none of the last {_FORBIDDEN:,} decisions",
            "If that is meant, retire the arm (`sidelight successor`); if not, look at how `allowed` is made",
        )
    ]


def _of_floor(state: State) -> list[Alarm]:
    ledger = state.learner.ledger
    if ledger is None or state.defaults.seconds is not None or len(ledger.awaiting) < _BEHIND:
        return []
    awaited = ledger.awaiting.open
    behind = len(ledger.awaiting) - awaited
    if behind < _BEHIND:
        return []
    return [
        Alarm(
            "floor",
            f"{behind:,} rewards that came tell the floor nothing: they wait behind {awaited:,} decisions without one, "
            "and [gate] reward_after is not set, so that one reward that never comes holds them up for ever",
            "Set [gate] reward_after and default_reward and start the service again, or send the rewards that are "
            "missing; until then the floor holds the learner back, and nothing is at risk",
        )
    ]
