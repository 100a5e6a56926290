"""The parts of the dashboard as HTML, each made at most once a second however many people watch."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple, TypeVar

from sidelight.service.core.engine import Engine
from sidelight.service.dashboard import climbing, learning, proving, traffic, watching
from sidelight.service.dashboard.alarms import Alarm, alarms
from sidelight.service.dashboard.groups import dividing_features, groups_by
from sidelight.service.dashboard.pieces import count
from sidelight.service.dashboard.rolling import Rolling
from sidelight.service.dashboard.watching import ErrorLog
from sidelight.service.dashboard.window import ARMS

__all__ = ["Renderer", "View"]

T = TypeVar("T")

#: seconds for which a rendered part is cached; slow ones call the learner or scan arrays
_FAST, _SLOW = 0.9, 3.0
_CACHED = 100


class View(NamedTuple):
    """What a reader picked.

    Attributes:
        span: ``"hour"`` or ``"day"``.
        arms: which arms over time, one of ``window.ARMS``.
        feature: subgroups are made by this one; empty where there is none to divide by.
    """

    span: str
    arms: str
    feature: str

    @classmethod
    def of(cls, asked: Mapping[str, str], features: list[str]) -> View:
        """From the query of an address; what is not known has its default."""
        feature = asked.get("feature", "")
        return cls(
            "day" if asked.get("span") == "day" else "hour",
            arms if (arms := asked.get("arms", "")) in ARMS else ARMS[0],
            feature if feature in features else next(iter(features), ""),
        )


class Renderer:
    """Makes parts of one service's dashboard."""

    def __init__(self, engine: Engine, rolling: Rolling, errors: ErrorLog) -> None:
        self.engine, self.rolling, self.errors = engine, rolling, errors
        self.features = dividing_features(engine.schema)
        self._made: dict[Any, tuple[float, Any]] = {}

    def parts(self, view: View) -> dict[str, str]:
        """Every part by the id of its place in the page."""
        now = time.time()
        engine, rolling, state = self.engine, self.rolling, self.engine.state
        span = view.span

        def arms() -> tuple[str, list[Any]]:
            rows = learning.arm_rows(state, rolling, span, now)
            return learning.arms_table(rows, span, self._contexts()), [row.arm for row in rows[: learning.SHOWN]]

        table, first = self._once(("arms", span), _SLOW, arms)
        parts: dict[str, Any] = {
            "banner": watching.banner(state.rails, engine.error),
            "tiles": self._once("tiles", _FAST, lambda: traffic.tiles(rolling, now)),
            "traffic": self._once(("traffic", span), _FAST, lambda: traffic.per_minute(rolling, span, now)),
            "traffic-numbers": self._once(
                ("numbers", span), _SLOW, lambda: traffic.per_minute_numbers(rolling, span, now)
            ),
            "arms-over-time": self._once(
                ("over time", span, view.arms),
                _FAST,
                lambda: traffic.arms_over_time(rolling, span, view.arms, now),
            ),
            "arms": table,
            "trust": self._once(("trust", span), _SLOW, lambda: learning.trust(state, first)),
            "verdict": self._once("verdict", math.inf, lambda: proving.proved(engine.config)),
            "queries": self._once("queries", _FAST, lambda: learning.queries(state, rolling, now)),
            "overrides": self._once("overrides", _FAST, lambda: watching.overrides(rolling, now)),
            "quarantine": self._once("quarantine", _FAST, lambda: watching.quarantine(state.quarantine)),
            "groups": self._once(
                ("groups", view.feature),
                _SLOW,
                lambda: watching.subgroups(view.feature, groups_by(view.feature, rolling.rewarded, engine.schema)),
            ),
            "changes": watching.changes(rolling),
            "gate": self._once(
                "gate",
                _FAST,
                lambda: (
                    climbing.gate_card(state.gate, state.rails.killed)
                    + climbing.floor_card(state)
                    + climbing.waits_card(state.defaults, rolling, now)
                ),
            ),
            "odd": self._once("odd", _SLOW, lambda: watching.odd(self.alarms(now))),
            "errors": self._once(
                "errors", _FAST, lambda: watching.errors(list(self.errors.lines), engine.metrics.refused())
            ),
            "about": f"{type(state.learner).__name__}, event {count(state.number)}, "
            f"learner as of event {count(state.version)}",
        }
        return {name: str(part) for name, part in parts.items()}

    def alarms(self, now: float) -> list[Alarm]:
        """What is odd about the traffic."""
        return alarms(self.engine.state, self.rolling, list(self.engine.schema.encoded_names), now)

    def every_arm(self, view: View) -> str:
        """The table of all arms, however many."""
        made = self._once(
            ("every arm", view.span),
            _SLOW,
            lambda: learning.arms_table(
                learning.arm_rows(self.engine.state, self.rolling, view.span, time.time()),
                view.span,
                self._contexts(),
                every=True,
            ),
        )
        return str(made)

    def _contexts(self) -> int:
        found = self.rolling.mean_context()
        return 0 if found is None else found[1]

    def _once(self, key: Any, seconds: float, make: Callable[[], T]) -> T:
        """The cached value of this key, recomputed if it is older than ``seconds``."""
        now = time.monotonic()
        held = self._made.get(key)
        if held is not None and now - held[0] < seconds:
            value: T = held[1]
            return value
        if len(self._made) > _CACHED:
            self._made.clear()
        made = make()
        self._made[key] = (now, made)
        return made
