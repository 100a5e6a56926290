"""Worlds and learners by name, for settings, TOML files and the command line."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from functools import lru_cache
from typing import Any, cast

from sidelight.errors import InputError, SidelightError
from sidelight.experiments.figure_settings import WorldSetting
from sidelight.experiments.first_plays import FirstPlays
from sidelight.hidden.known import KnownCrossMoments
from sidelight.hidden.probabilities import BehaviorProbabilities
from sidelight.hidden.queries import BehaviorQueries
from sidelight.learners.protocol import Learner
from sidelight.learners.registry import KINDS, learner_class
from sidelight.side.constraint import SideInformation
from sidelight.simulation import Run
from sidelight.worlds.confounded import ConfoundedWorld
from sidelight.worlds.dosing import DosingWorld
from sidelight.worlds.drifted import DriftedWorld
from sidelight.worlds.paper import PRESETS, PaperWorld
from sidelight.worlds.protocol import KnownWorld
from sidelight.worlds.signals import TrafficWorld

__all__ = ["HIDDEN", "WORLDS", "default_recorded", "learner_factory", "make_world", "world_of"]

WORLDS = {
    "paper_text": "the paper's experiment as its text has it",
    "authors_code": "the paper's experiment as the authors released it",
    "confounded": "a log that misleads whoever ignores what it hides",
    "dosing": "chemotherapy dosing; socioeconomic features were removed from the records",
    "traffic": "signal timing; the cameras of the log told fewer kinds of vehicles apart",
    "drifted": "the confounded world with a log that lies (lies = 'slandered', 'redrawn', …)",
}
"""Kind of world → what it is."""

HIDDEN = {
    "queries": "what the old policy would do, asked in every round",
    "ipw": "the same, with the paper's estimator",
    "probabilities": "the old policy's probabilities in every round",
    "known": "the true cross moments, which nobody has outside a simulation",
}
"""Way of learning what the log hides → what it is."""


def make_world(kind: str, seed: int, values: Mapping[str, Any] | None = None) -> KnownWorld:
    """The world of this kind.

    Args:
        kind: a key of ``WORLDS``.
        seed: draws what is random in it; the dosing world has nothing to draw.
        values: its other arguments.
    """
    given = dict(values or {})
    try:
        return _make_world(kind, seed, given)
    except SidelightError:
        raise
    except (TypeError, ValueError) as error:
        raise InputError(f"the world {kind!r} does not take these settings ({error}).") from error


def _make_world(kind: str, seed: int, given: dict[str, Any]) -> KnownWorld:
    if kind in PRESETS:
        preset: Any = kind
        return PaperWorld.preset(preset, seed=seed, **given)
    if kind == "confounded":
        return ConfoundedWorld(seed=seed, **given)
    if kind == "dosing":
        return DosingWorld(**given)
    if kind == "traffic":
        return TrafficWorld(seed=seed, **given)
    if kind == "drifted":
        lie = {name: given.pop(name) for name in ("lies", "size", "share") if name in given}
        return DriftedWorld(ConfoundedWorld(seed=seed, **given), seed=seed, **lie)
    raise InputError(f"there is no world {kind!r}; choose one of {', '.join(WORLDS)}.")


@lru_cache(maxsize=64)
def world_of(setting: WorldSetting, seed: int) -> KnownWorld:
    """The world of a setting; kept, since its moments take seconds to compute."""
    return make_world(setting.kind, seed, dict(setting.values))


def default_recorded(world: KnownWorld) -> Any:
    """The default of ``recorded``: what the world names as recorded, else two thirds of its features."""
    inner = getattr(world, "world", world)
    named = getattr(inner, "default_recorded", None)
    return (2 * world.n_features) // 3 if named is None else named


def learner_factory(kind: str, values: Mapping[str, Any] | None = None) -> Callable[[Run], Learner]:
    """``factory(run)`` for a kind of learner.

    Args:
        kind: a key of ``learners.registry.KINDS``.
        values: its keyword arguments. ``hidden`` is a key of ``HIDDEN``; ``noise="true"`` is the world's noise;
            ``first_plays=True`` has it play every arm once, in order, before it decides for itself.
    """
    if kind not in KINDS:
        raise InputError(f"there is no learner {kind!r}; choose one of {', '.join(KINDS)}.")
    known_kind = KINDS[kind]
    given = dict(values or {})
    way = given.pop("hidden", None)
    first_plays = bool(given.pop("first_plays", False))
    if way is not None and known_kind.made_from != "hidden":
        raise InputError(f"{kind} learns nothing about what the log hides, so it takes no hidden={way!r}.")
    way = known_kind.hidden if way is None else way
    if way is not None and way not in HIDDEN:
        raise InputError(f"hidden={way!r} is not one of {', '.join(HIDDEN)}.")
    cls = learner_class(kind)
    known = set(inspect.signature(cls).parameters)
    unknown = sorted(set(given) - known)
    if unknown:
        raise InputError(f"{kind} has no setting {unknown[0]!r}; it has {', '.join(sorted(known))}.")

    def make(run: Run) -> Learner:
        settings = dict(given)
        if settings.get("noise") == "true":
            settings["noise"] = run.world.noise
        learner: Learner
        if known_kind.made_from == "schema":
            learner = cls(run.world.n_arms, run.world.n_features, arms=run.world.arms, schema=run.schema, **settings)
        elif known_kind.made_from == "summary":
            learner = cls(run.summary, **settings)
        elif known_kind.made_from == "constraint":
            learner = cls(SideInformation.from_log(run.summary, run.true_cross_moments), **settings)
        else:
            horizon = [run.horizon] if known_kind.takes_horizon else []
            learner = cls(_estimator(way, run), *horizon, **settings)
        # simulate calls nothing but what FirstPlays has
        return cast(Learner, FirstPlays(learner)) if first_plays else learner

    return make


def _estimator(way: str | None, run: Run) -> Any:
    if way == "known":
        return KnownCrossMoments(run.summary, run.true_cross_moments)
    if way == "probabilities":
        return BehaviorProbabilities(run.summary)
    return BehaviorQueries(run.summary, estimator="ipw" if way == "ipw" else "regression")
