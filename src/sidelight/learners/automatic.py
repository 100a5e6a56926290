"""``regularization="auto"``: prior mean, prior precision and noise learned while the learner runs, for any learner."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sidelight.linalg import Array, apply
from sidelight.logs.summary import LogSummary
from sidelight.side.prior import Hyper, Prior, estimate_prior

__all__ = ["Automatic", "feature_blocks", "feature_scales", "residual_noise"]

#: events grow by this factor from one refresh to the next, so that the cost of all of them is amortised
GROWTH = 1.3
#: and by at least this factor where rewards keep surprising
SURPRISE_GROWTH = 1.02
#: how many rounds of the log's (or the first rewards') guess the noise estimate starts with
NOISE_WEIGHT = 20.0


@dataclass
class Automatic:
    """What the automatic settings know now.

    Attributes:
        blocks: positions of the features that share a variance: intercept, recorded, hidden (internal order).
        hyper: the variances found last.
        variance: ``σ²``.
        mean: (d,)   precision: (d, d)   the prior ``N(mean, precision⁻¹)`` of every arm.
        events: observations and answers so far   refreshed: the number of them at the last refresh.
        longest: the most events from one refresh to the next, for a learner that forgets between them.
        search_at: from how many events on to look for better variances: at the next refresh after some were found, and
            where they stood still when the events have doubled.
        constant: position of the intercept, if contexts have one.
    """

    blocks: Sequence[NDArray[np.int64]]
    variance: float
    mean: Array
    precision: Array
    hyper: Hyper | None = None
    events: int = 0
    refreshed: int = 0
    longest: int | None = None
    search_at: int = 0
    constant: int | None = None

    @classmethod
    def begin(cls, blocks: Sequence[NDArray[np.int64]], d: int, variance: float, reward_scale: float) -> Automatic:
        """Before anything is known: weights as large as the rewards allow, spread over the features."""
        spread = max(reward_scale, 1e-300) / d
        return cls(blocks, variance, np.zeros(d), np.eye(d) / spread)

    def due(self) -> bool:
        """Count one event; true when a refresh is due: when events grew by the factor ``GROWTH``."""
        self.events += 1
        return self.room() <= 0

    def room(self) -> int:
        """Events until the next refresh."""
        due = math.ceil(GROWTH * self.refreshed + 16)
        return (due if self.longest is None else min(due, self.refreshed + self.longest)) - self.events

    def calm(self) -> int:
        """Events until a surprise may call for a refresh: they too grow by a factor, a smaller one."""
        return math.ceil(SURPRISE_GROWTH * self.refreshed + 4) - self.events

    def learn(self, J: Array, h: Array, scales: Array, reward_scale: float) -> Prior:
        """Take the prior of highest marginal likelihood given every arm's evidence."""
        # where rounds are forgotten, their number does not tell how much has changed
        searching = self.events >= self.search_at or self.longest is not None
        prior = estimate_prior(J, h, self.blocks, scales, reward_scale, self.hyper, search=searching)
        if searching:
            self.search_at = 2 * self.events if prior.hyper == self.hyper else 0
        self.hyper, self.mean, self.precision = prior.hyper, prior.mean, prior.precision
        return prior

    def state(self) -> dict[str, Any]:
        """Arrays to be saved."""
        hyper = [] if self.hyper is None else [*self.hyper.variances, self.hyper.mean_variance]
        return {
            "auto_hyper": np.array(hyper, dtype=np.float64),
            "auto_mean": self.mean,
            "auto_precision": self.precision,
            "auto_numbers": np.array([self.variance, self.events, self.refreshed, self.search_at]),
        }

    def restore(self, arrays: dict[str, Any]) -> None:
        """The inverse of ``state``."""
        hyper = [float(v) for v in arrays["auto_hyper"]]
        self.hyper = Hyper(tuple(hyper[:-1]), hyper[-1]) if hyper else None
        self.mean = np.array(arrays["auto_mean"])
        self.precision = np.array(arrays["auto_precision"])
        # a file from before the last of them was kept has three
        variance, events, refreshed, *search_at = (float(v) for v in arrays["auto_numbers"])
        self.variance, self.events, self.refreshed = variance, int(events), int(refreshed)
        self.search_at = int(search_at[0]) if search_at else 0


def residual_noise(
    guess: float, squares: Array, moments: Array, grams: Array, weights: Array, covariances: Array, counts: float
) -> float:
    """``σ²`` from the online residuals, started with ``NOISE_WEIGHT`` rounds of a guess.

    Args:
        guess: what the log says (its residual variance less what the hidden features explain).
        squares: (K,)  ``Σ r²``.
        moments: (K, d)  ``Σ x r``.
        grams: (K, d, d)  ``Σ x xᵀ``.
        weights: (K, d)  ``ŵ``.
        covariances: (K, d, d)  ``V⁻¹``; they say how many rounds the fit used up.
        counts: rounds in all.
    """
    fit = apply(grams, weights) - 2.0 * moments
    residual = float(squares.sum() + (weights * fit).sum())
    used = float((grams * covariances).sum())
    free = max(counts - used, 0.0)
    return (NOISE_WEIGHT * guess + max(residual, 0.0)) / (NOISE_WEIGHT + free)


def feature_blocks(d: int, recorded: Sequence[int], constant: int | None = None) -> list[NDArray[np.int64]]:
    """Recorded features first (the others are tied to them), then hidden ones, then the intercept."""
    first = np.array([i for i in recorded if i != constant], dtype=np.int64)
    rest = np.array([i for i in range(d) if i not in set(recorded) and i != constant], dtype=np.int64)
    last = np.array([] if constant is None else [constant], dtype=np.int64)
    return [block for block in (first, rest, last) if len(block)]


def feature_scales(d: int, online: Array, rounds: float, logs: Sequence[tuple[LogSummary, NDArray[np.int64]]]) -> Array:
    """(d,) root second moments: of recorded features from the logs, of the others from the contexts met online.

    A feature of which nothing was seen yet has the scale of those that were.
    """
    squares, rows = np.array(online, dtype=np.float64), np.full(d, float(rounds))
    for summary, positions in logs:
        squares[positions] += summary.feature_squares
        rows[positions] += summary.n_rows
    seen = (rows > 0) & (squares > 0)
    n = int(np.count_nonzero(seen))
    typical = float((np.where(seen, squares, 0.0) * (1.0 / np.where(seen, rows, 1.0))).sum()) / n if n else 1.0
    return np.asarray(np.sqrt((squares + typical) / (rows + 1.0)))
