"""Would something simpler do? Rules that read the log once and never learn, to stand beside the learners.

:func:`log_at_its_word` plays the arm whose regression on the recorded features is largest, as if nothing were hidden;
:func:`best_fixed_arm` always plays the arm that is best on average by the log's regressions. Both are factories, as
``simulate`` and ``ReplayWorld.from_trial(…).replay`` take them.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Collection, Sequence
from typing import Any, NoReturn

import numpy as np
from numpy.typing import NDArray

from sidelight.errors import InputError
from sidelight.learners.protocol import Decision
from sidelight.linalg import Array
from sidelight.logs.summary import LogSummary

__all__ = ["COLD", "FIXED_ARM", "SIMPLER", "WORD", "FixedRule", "best_fixed_arm", "log_at_its_word", "simpler_rules"]

COLD = "cold, the same prior"
"""The name of the learner without a log that learns its prior as the fused one does."""
WORD = "the log at its word"
FIXED_ARM = "the log's best arm"
SIMPLER = {
    WORD: "no learning: in each round the arm whose regression in the log is largest",
    FIXED_ARM: "no learning: always the arm that is best on average by the log's regressions",
}
"""Name → what it is."""


class FixedRule:
    """A learner that does not learn: in context ``x`` it plays the arm with the largest ``x·c_a``.

    Args:
        coefficients: ``c_a`` ``(K, d)``; rows with NaN are arms that it never plays.
        arms: their labels.
    """

    needs = None

    def __init__(self, coefficients: Array, arms: Sequence[Any]) -> None:
        self.arms = tuple(arms)
        self.n_features = coefficients.shape[1]
        self._known: NDArray[np.bool_] = np.asarray(np.isfinite(coefficients).all(axis=1))
        if not self._known.any():
            raise InputError("no arm of the log has enough rows for a regression, so there is no rule to follow.")
        self._coefficients = np.where(self._known[:, None], coefficients, 0.0)

    def scores(self, x: Any) -> tuple[Array, Array]:
        """Estimates ``x·c_a`` ``(K,)``, ``-inf`` for arms that are never played, and widths of zero."""
        estimates = np.where(self._known, self._coefficients @ np.asarray(x, dtype=float), -np.inf)
        return estimates, np.zeros(len(self.arms))

    def decide(self, x: Any, allowed: Collection[Any] | None = None, rng: Any = None, default: Any = None) -> Decision:
        """The arm with the largest estimate among those allowed."""
        estimates, _ = self.scores(x)
        if allowed is not None:
            estimates = np.where([arm in allowed for arm in self.arms], estimates, -np.inf)
        best = int(estimates.argmax())
        return Decision(self.arms[best], float(estimates[best]), 0.0, 1.0)

    def observe(self, x: Any, arm: Any, reward: float) -> None:
        """Ignored: the rule is fixed."""

    def observe_behavior(self, x: Any, arm: Any = None, **_: Any) -> None:
        """Ignored: the rule is fixed."""

    def wants_query(self, x: Any) -> bool:
        """False: answers would change nothing."""
        return False

    def decide_many(self, X: Any, rng: Any = None) -> list[Decision]:
        """``decide`` for each row."""
        return [self.decide(x) for x in X]

    def observe_many(self, X: Any, arms: Any, rewards: Any) -> None:
        """Ignored: the rule is fixed."""

    def save(self, path: str | os.PathLike[str]) -> NoReturn:
        """Raises ``InputError``: there is nothing to save."""
        raise InputError(f"a fixed rule of a report is not saved (to {path}); save a learner.")


def log_at_its_word(run: Any) -> FixedRule:
    """The rule that takes the log's regressions ``b_a`` as the arms' effects, as if nothing were hidden."""
    summary: LogSummary = run.summary
    return FixedRule(_regressions(summary), summary.arms)


def best_fixed_arm(run: Any) -> FixedRule:
    """The rule that always plays one arm: the largest ``x̄_o·b_a``, ``x̄_o`` the mean over all rows of the log."""
    summary: LogSummary = run.summary
    b = _regressions(summary)[:, summary.recorded]
    mean = summary.shares @ summary.means
    values = np.where(np.isfinite(b).all(axis=1), b @ mean, -np.inf)
    fixed = np.full((summary.n_arms, summary.n_features), np.nan)
    fixed[int(values.argmax())] = 0.0
    return FixedRule(fixed, summary.arms)


def simpler_rules() -> dict[str, Callable[[Any], Any]]:
    """Both rules by name, for ``simulate`` or ``replay``."""
    return {WORD: log_at_its_word, FIXED_ARM: best_fixed_arm}


def _regressions(summary: LogSummary) -> Array:
    """``(K, d)``: the log's ``b_a`` at the recorded features, zero at the hidden ones; NaN where it has none."""
    known = np.flatnonzero(summary.determined)
    out = np.full((summary.n_arms, summary.n_features), np.nan)
    if len(known):
        out[known] = 0.0
        out[np.ix_(known, summary.recorded)] = summary.least_squares(known)
    return out
