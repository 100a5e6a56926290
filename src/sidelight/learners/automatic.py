"""``regularization="auto"``: prior mean, prior precision and noise learned while the learner runs, for any learner."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sidelight.learners.wild import LIMITS, Ranges, warn_of, weight_of
from sidelight.linalg import Array, square
from sidelight.side.coordinates import Tally, Units
from sidelight.side.prior import Hyper, Prior, reference_variance
from sidelight.side.prior_likelihood import PriorLikelihood
from sidelight.side.prior_search import estimate_prior, most_probable
from sidelight.side.spread import SpreadLikelihood

__all__ = ["Automatic", "feature_blocks"]

#: events grow by the first factor from one refresh to the next, so that the cost of refreshes is amortised; from
#: ``MANY_EVENTS`` on by the second, when refreshes change few decisions, unless something is unsettled
GROWTH, LATE_GROWTH, MANY_EVENTS = 1.3, 1.9, 3_000
#: and by at least this factor where rewards keep surprising
SURPRISE_GROWTH = 1.02
#: events up to which variances are searched globally, and not only around the last ones
WIDE_UNTIL = 64
#: refreshes of a learner that forgets, a quarter of its memory apart, from one competition of noises to the next
RENEWED = 4


@dataclass
class Automatic:
    """What the automatic settings know now.

    Attributes:
        blocks: positions of the features that share a variance: recorded, hidden, intercept (internal order; none where
            there is no intercept: it is then the block of levels).
        derived: how many of the blocks, the last ones, are of derived features.
        hyper: the variances found last   reference: the variance of a weight that they were found relative to.
        widening: (b,)  by which factors the blocks' variances are larger on average than these, the most probable ones.
        variance: ``σ²`` of all arms together   variances: (K,)  ``σ_a²`` of each arm; empty where all are alike.
        mean: (d,)   precision: (d, d)   the prior ``N(mean, precision⁻¹)`` of every arm, or, where a log tells what the
            old policy favoured, of further ones: then
        means: (K, d)   precisions: (K, d, d)  are those of the arms that it told about; else None.
        events: observations and answers so far   refreshed: the number of them at the last refresh.
        eager: whether a prior is learned; refreshes then begin with the first event, since each may tell a unit.
        unsettled: whether refreshes come as often as at first however many events there are: a log may be wrong, the
            present moves, or answers of the old policy are few.
        longest: the most events from one refresh to the next, for a learner that forgets between them.
        search_at: number of events from which on a refresh searches for better variances again: the next refresh if
            the last search found some, twice as many events if not, and four times as many from ``MANY_EVENTS`` on
            while nothing is unsettled.
        compete_at: number of events from which on smaller noises compete again, where rounds are forgotten; else 0.
        constant: position of the intercept, if contexts have one.
        units: of features and rewards, as of the last refresh.
        ranges: beyond which a value is wild or new, as of the last refresh, in the order of contexts.
        excess: (d + 1,)  what wild values add to the sums of squares behind the ranges, in the order of contexts, the
            reward's last.
        alike: (d + 1,)  how many values of each came before the first that differed, in the same order.
        wild_rows: how many rows and answers had wild values.
    """

    blocks: Sequence[NDArray[np.int64]]
    variance: float
    mean: Array
    precision: Array
    units: Units
    hyper: Hyper | None = None
    widening: tuple[float, ...] | None = None
    reference: float = 0.0
    events: int = 0
    refreshed: int = 0
    unsettled: bool = False
    longest: int | None = None
    eager: bool = True
    search_at: int = 0
    compete_at: int = 0
    constant: int | None = None
    ranges: Ranges | None = None
    excess: Array = field(default_factory=lambda: np.zeros(0))
    alike: Array = field(default_factory=lambda: np.zeros(0))
    wild_rows: int = 0
    variances: Array = field(default_factory=lambda: np.zeros(0))
    derived: int = 0
    means: Array | None = None
    precisions: Array | None = None

    @classmethod
    def begin(
        cls,
        blocks: Sequence[NDArray[np.int64]],
        d: int,
        variance: float,
        constant: int | None = None,
        derived: int = 0,
    ) -> Automatic:
        """The settings before any data: without units, so that every arm has the same index everywhere."""
        units = Units.of(Tally.empty(d), constant)
        spread = reference_variance(units, d)
        return cls(
            blocks,
            variance,
            np.zeros(d),
            units.precision(np.eye(d) / spread),
            units,
            constant=constant,
            derived=derived,
        )

    def renew(self, tally: Tally, order: NDArray[np.int64]) -> Units:
        """Take units and ranges from what was seen (internal order); ``order[i]`` is where feature ``i`` stands."""
        d = len(order)
        if not len(self.alike):
            self.excess, self.alike = np.zeros(d + 1), np.zeros(d + 1)
        self.units = wide = Units.of(tally, self.constant)
        unknown = order[~self.units.known]
        self.alike[unknown] = tally.rows[~self.units.known]
        if not self.units.reward_known:
            self.alike[d] = tally.rewards[0]
        if self.excess.any():  # ranges are wider by what was wild
            tally.squares += self.excess[order]
            tally.rewards[2] += self.excess[d]
            wide = Units.of(tally, self.constant)
        self.ranges = Ranges.of(wide, order, self.alike)
        return self.units

    def admit(self, x: Array, reward: float, name: Callable[[int], str]) -> tuple[Array, float, bool]:
        """The row and reward to learn from, and whether they tell a unit.

        Where a value is wild both are multiplied by a weight below 1, and a warning says so.

        Args:
            x: (d,)  in the order of contexts.
            reward: as observed.
            name: a feature's name by its position.
        """
        if self.ranges is None or self.ranges.usual(x, reward):
            return x, reward, False
        new, values = self.ranges.new(x, reward), self.ranges.wild(x, reward)
        if not values:
            return x, reward, new
        self.wild_rows += 1
        warn_of(values, name, self.wild_rows)
        for value in values:
            at = len(x) if value.position is None else value.position
            self.excess[at] += square(LIMITS[0] * self.ranges.scales[at])
        weight = weight_of(values)
        return weight * x, weight * reward, new

    def usual(self, x: Array, reward: float) -> bool:
        """Whether a row has no wild and no new value.  x: (d,)"""
        return self.ranges is None or self.ranges.usual(x, reward)

    def weight_of(self, x: Array, reward: float) -> float:
        """What :meth:`admit` would multiply a row by.  x: (d,)"""
        return 1.0 if self.ranges is None or self.ranges.usual(x, reward) else weight_of(self.ranges.wild(x, reward))

    def answerable(self, x: Array, name: Callable[[int], str]) -> tuple[bool, bool]:
        """Whether an answer at ``x`` is taken in, and whether it tells a unit.

        One at a wild context is not: it would decide how all hidden features go with the wild one.
        """
        if self.ranges is None:
            return True, False
        centre = float(self.ranges.centres[-1])
        if self.ranges.usual(x, centre):
            return True, False
        if values := self.ranges.wild(x):
            self.wild_rows += 1
            warn_of(values, name, self.wild_rows)
            return False, False
        return True, self.ranges.new(x, centre)

    def due(self) -> bool:
        """Count one event; true when a refresh is due: when events grew by ``GROWTH``, or later by ``LATE_GROWTH``."""
        self.events += 1
        return self.room() <= 0

    def room(self) -> int:
        """Events until the next refresh; where a prior is learned, the first few events have one each (``eager``)."""
        growth = GROWTH if self.refreshed < MANY_EVENTS or self.unsettled else LATE_GROWTH
        due = math.ceil(growth * self.refreshed + (min(16, self.refreshed + 1) if self.eager else 16))
        return (due if self.longest is None else min(due, self.refreshed + self.longest)) - self.events

    def calm(self) -> int:
        """Events until a surprise may call for a refresh: they too grow by a factor, a smaller one."""
        return math.ceil(SURPRISE_GROWTH * self.refreshed + 4) - self.events

    def priors(self, K: int) -> tuple[Array, Array]:
        """Means (K, d) and precisions, (d, d) where all arms have the same, else (K, d, d)."""
        d = len(self.mean)
        if self.means is None or self.precisions is None:
            return np.broadcast_to(self.mean, (K, d)), self.precision
        more = K - len(self.means)
        if not more:
            return self.means, self.precisions
        means = np.concatenate([self.means, np.broadcast_to(self.mean, (more, d))])
        return means, np.concatenate([self.precisions, np.broadcast_to(self.precision, (more, d, d))])

    def learn(
        self,
        J: Array,
        h: Array,
        units: Units,
        hidden: Callable[[], SpreadLikelihood | None] = lambda: None,
        preferences: Array | None = None,
        exact: tuple[Array, Array] | None = None,
    ) -> Prior:
        """Take the prior of highest marginal likelihood given every arm's evidence.

        Args:
            J: (K, d, d)  evidence of every arm.
            h: (K, d)  evidence of every arm.
            units: of features and rewards.
            hidden: gives the log likelihood of the mean square of the second block's weights from elsewhere, or None;
                it is asked only where variances are searched.
            preferences: (K, q, d)  of the old policy (``side.preference``), or None.
            exact: (K, d, d), (K, d)  further evidence, of constraints, in the features' own units; or None.
        """
        searching = self.searches()
        reference = reference_variance(units, len(self.mean))
        previous = self.hyper
        if previous is not None:
            # what was found is relative to the rewards' variance, of which more is known by now
            previous = previous.rescaled(reference / self.reference)
        prior = estimate_prior(
            J,
            h,
            self.blocks,
            units,
            previous,
            search=searching,
            wide=self.events <= WIDE_UNTIL,
            widening=self.widening,
            hidden=hidden() if searching else None,
            derived=self.derived,
            preferences=preferences,
            exact=exact,
        )
        if searching:
            late, stood = self.events >= MANY_EVENTS and not self.unsettled, prior.hyper == previous
            self.search_at = (4 if late else 2 * stood) * self.events
        self.reference = reference
        self.take(prior)
        return prior

    def searches(self) -> bool:
        """Whether variances are searched for in a refresh now, or stay as they are."""
        # where rounds are forgotten, their number does not tell how much has changed
        return self.events >= self.search_at or self.longest is not None

    def competes(self) -> bool:
        """Whether smaller noises compete with the one that was learned, each with a prior searched far and wide."""
        return self.searches() and self.events >= self.compete_at

    def competed(self) -> None:
        """Take note of a competition: where rounds are forgotten, the next is due once all in memory is nearly new."""
        if self.longest is not None:
            self.compete_at = self.events + RENEWED * self.longest

    def best_prior(
        self, J: Array, h: Array, units: Units, hidden: SpreadLikelihood | None, preferences: Array | None
    ) -> tuple[float, Callable[[], Prior]]:
        """The highest marginal likelihood of a prior, searched far and wide, and how that prior is made.

        Args: as for :meth:`learn`, which has been called with the same units.
        """
        likelihood = PriorLikelihood(
            J, h, self.blocks, units, hidden=hidden, derived=self.derived, preferences=preferences
        )
        best = most_probable(likelihood, self.hyper, search=True, wide=True)
        return likelihood.log_marginal(best), lambda: likelihood.prior(best)

    def take(self, prior: Prior) -> None:
        """Replace the prior of the arms, its mean, precision and variances, by ``prior``."""
        self.hyper, self.widening = prior.hyper, prior.widening
        self.mean, self.precision = prior.mean, prior.precision
        self.means, self.precisions = prior.means, prior.precisions

    def _bounds(self) -> list[Array]:
        """The arrays of the ranges; empty where there are none yet."""
        r = self.ranges
        return [np.zeros(0)] * 5 if r is None else [r.low, r.high, r.centres, r.scales, r.limits]

    def state(self) -> dict[str, Any]:
        """The arrays that a file keeps of it, by name."""
        hyper = () if self.hyper is None else self.hyper.numbers
        u = self.units
        arms = {} if self.means is None else {"auto_means": self.means, "auto_precisions": self.precisions}
        return {
            **arms,
            "auto_hyper": np.array(hyper, dtype=np.float64),
            "auto_widening": np.array(self.widening or (), dtype=np.float64),
            "auto_mean": self.mean,
            "auto_precision": self.precision,
            "auto_numbers": np.array(
                [
                    self.variance,
                    self.events,
                    self.refreshed,
                    self.search_at,
                    self.reference,
                    self.wild_rows,
                    self.unsettled,
                    self.compete_at,
                ]
            ),
            "auto_units": np.stack([u.centres, u.scales, u.rows, u.means]),
            "auto_variances": self.variances,
            "auto_ranges": np.stack([self.excess, self.alike, *self._bounds()]),
            "auto_rewards": np.array(
                [u.reward_centre, u.reward_variance, u.reward_rows, float(u.reward_known), u.mean_reward]
            ),
        }

    def restore(self, arrays: dict[str, Any]) -> None:
        """The inverse of ``state``; a file from before units were kept searches for its variances anew."""
        hyper = [float(v) for v in arrays["auto_hyper"]]
        # a file from before there were any goes on with the most probable variances until the next search
        widening = [float(v) for v in arrays.get("auto_widening", np.ones(max(len(hyper) - 3, 0)))]
        self.mean = np.array(arrays["auto_mean"])
        self.precision = np.array(arrays["auto_precision"])
        self.means = self.precisions = None
        if "auto_means" in arrays:
            self.means, self.precisions = np.array(arrays["auto_means"]), np.array(arrays["auto_precisions"])
        variance, events, refreshed, *more = (float(v) for v in arrays["auto_numbers"])
        self.variance, self.events, self.refreshed = variance, int(events), int(refreshed)
        self.search_at, self.reference = (int(more[0]) if more else 0), (more[1] if len(more) > 1 else 0.0)
        self.unsettled = len(more) > 3 and bool(more[3])
        self.compete_at = int(more[4]) if len(more) > 4 else 0
        # variances of other blocks than today's are searched for anew
        usable = len(hyper) == len(self.blocks) + 3 and self.reference > 0.0
        self.hyper = Hyper.of(hyper) if usable else None
        self.widening = tuple(widening) if usable else None
        if "auto_units" in arrays:
            centres, scales, rows, *means = np.array(arrays["auto_units"], dtype=np.float64)
            centre, variance, reward_rows, known, *mean = (float(v) for v in arrays["auto_rewards"])
            self.units = Units(
                centres,
                scales,
                rows,
                self.constant,
                centre,
                variance,
                reward_rows,
                bool(known),
                # a file from before means were kept goes on without them until the next refresh
                means[0] if means else np.zeros_like(scales),
                mean[0] if mean else 0.0,
            )
            self.variances = np.array(arrays["auto_variances"], dtype=np.float64)
            self.wild_rows = int(more[2]) if len(more) > 2 else 0
            self.excess, self.alike, *bounds = np.array(arrays["auto_ranges"], dtype=np.float64)
            self.ranges = Ranges(*bounds) if len(self.alike) else None


def feature_blocks(
    d: int, recorded: Sequence[int], constant: int | None = None, derived: Sequence[int] = ()
) -> tuple[list[NDArray[np.int64]], int]:
    """The features that share a variance, and how many of these blocks are of derived features.

    Recorded features first (the others are tied to them), then hidden ones, then the intercept; where there is none, a
    block of no feature, whose variance is that of levels (``side.levels``).

    What is derived (bends, products) comes last, in blocks of its own, recorded and hidden: where effects are straight
    its weights shrink, and those of the columns themselves do not.
    """
    bent, is_recorded = set(derived), set(recorded)
    known = [i for i in recorded if i != constant]
    rest = [i for i in range(d) if i not in is_recorded and i != constant]
    straight = [[i for i in block if i not in bent] or block for block in (known, rest)]
    curved = [[i for i in block if i not in own] for block, own in zip((known, rest), map(set, straight), strict=True)]
    straight, curved = ([block for block in some if block] for some in (straight, curved))
    blocks = [*straight, [] if constant is None else [constant], *curved]
    return [np.array(block, dtype=np.int64) for block in blocks], len(curved)
