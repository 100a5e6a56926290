"""Bounds of features and rewards: a value beyond them is written down and kept from the learner.

They come from the configuration, where it names one; else from the log, by the definition of a wild value that learners
share (``learners.wild``); else, for what the log does not record, from what the learner was taught here.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from sidelight.errors import InputError
from sidelight.labels import show_labels
from sidelight.learners.log_facts import add_log
from sidelight.learners.wild import Ranges
from sidelight.linalg import Array
from sidelight.logs.schema.schema import Schema
from sidelight.logs.summary import LogSummary
from sidelight.service.sections import BoundsConfig
from sidelight.side.coordinates import UNKNOWN, Tally, Units

__all__ = ["Bounds"]

_CONFIGURED, _LOGGED, _SEEN = "as configured", "by the log", "by what the learner was taught"


#: most features that a reason names: it is kept in the log, and in every snapshot until a person has reviewed it
_NAMED = 3


class Bounds:
    """The bounds of one service.

    Args:
        names: of the ``d`` encoded features.
        low, high: (d + 1,)  fixed bounds, the reward's last; infinite where there is none.
        sources: (d + 1,)  where each comes from; None where it comes from what the learner was taught.
        automatic: whether bounds come from what the learner was taught where there is no fixed one.
    """

    def __init__(
        self, names: Sequence[str], low: Array, high: Array, sources: Sequence[str | None], *, automatic: bool = True
    ) -> None:
        self._names = [*names, "the reward"]
        self._fixed = low, high
        self._sources = list(sources)
        self._open = np.array([source is None and automatic for source in sources])
        self._ranges: Ranges | None = None
        self.low, self.high = low, high

    @classmethod
    def of(cls, config: BoundsConfig, schema: Schema, summaries: Mapping[str, LogSummary]) -> Bounds:
        """The bounds of a configuration.

        Raises:
            InputError: it names a feature that the schema does not have.
        """
        names = list(schema.encoded_names)
        d = len(names)
        low, high = np.full(d + 1, -np.inf), np.full(d + 1, np.inf)
        sources: list[str | None] = [None] * (d + 1)
        if config.automatic and summaries:
            ranges = _ranges_of(schema, summaries)
            for i in np.flatnonzero((ranges.scales != UNKNOWN) & np.isfinite(ranges.low)):
                low[i], high[i], sources[i] = ranges.low[i], ranges.high[i], _LOGGED
        wanted = {**config.features, **({"": config.reward} if config.reward else {})}
        unknown = [name for name in config.features if name not in names]
        if unknown:
            raise InputError(
                f"[bounds] features has {unknown[0]!r}, which is no encoded feature of the schema; it has "
                f"{show_labels(names)}."
            )
        for name, (least, most) in wanted.items():
            at = d if name == "" else names.index(name)
            low[at], high[at], sources[at] = least, most, _CONFIGURED
        return cls(names, low, high, sources, automatic=config.automatic)

    def reason(self, ranges: Ranges, x: Array, reward: float | None = None) -> str | None:
        """Why a context (d,), perhaps with its reward, is to be kept from the learner; None where it is not.

        A deleted context is within all bounds; its reward is not: it still counts for the evidence of the gate.
        The text names the feature and its bounds, not the value: contexts can be deleted, texts of events cannot.

        Args:
            ranges: what the learner was taught, beyond which a value is wild.
            x: the encoded context.
            reward: the reward that followed.
        """
        if ranges is not self._ranges:
            self._take(ranges)
        low, high = self.low, self.high
        given = min(max(0.0, low[-1]), high[-1]) if reward is None else reward
        values = np.append(x, given)
        out = np.flatnonzero((values < low) | (values > high))  # neither holds for a gap
        if not len(out):
            return None
        said = [
            f"{self._names[i]} is not within {low[i]:.6g} to {high[i]:.6g} ({self._sources[i] or _SEEN})"
            for i in out[:_NAMED]
        ]
        return "; ".join(said + ([f"and {len(out) - _NAMED} more"] if len(out) > _NAMED else []))

    def _take(self, ranges: Ranges) -> None:
        self._ranges = ranges
        known = self._open & (ranges.scales != UNKNOWN)
        self.low = np.where(known, ranges.low, self._fixed[0])
        self.high = np.where(known, ranges.high, self._fixed[1])


def _ranges_of(schema: Schema, summaries: Mapping[str, LogSummary]) -> Ranges:
    """The ranges outside which a value is wild, from the log summaries alone."""
    tally = Tally.empty(schema.n_features)
    names = list(schema.encoded_names)
    for summary in summaries.values():
        add_log(tally, summary, np.array([names.index(name) for name in summary.schema.recorded_names], dtype=np.int64))
    return Ranges.of(Units.of(tally, 0 if schema.intercept else None), np.arange(len(names)))
