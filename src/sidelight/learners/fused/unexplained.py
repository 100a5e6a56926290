"""How much of the variance that a log left unexplained is the hidden features' doing: ``τ²``, a part of ``s²``."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from sidelight.hidden.protocol import CompleteEstimator, Contexts
from sidelight.learners.log_facts import NOISE_FLOOR, add_answers
from sidelight.linalg import Array, eigenvalues, square
from sidelight.side.coordinates import Tally, Units
from sidelight.side.evidence import AnswersHalf, hidden_variance
from sidelight.side.robust import LEAST
from sidelight.theory import scarcity_factor

__all__ = ["UNTOLD", "Known", "Unexplained", "least_tau2", "most_square", "most_tau2", "rate_floor", "usual_tau2"]

#: the part of what a log left unexplained that is taken for the hidden features' doing while nothing tells it
UNTOLD = 0.5
#: the part of what a log left unexplained that may cancel, at most: noise is never nothing
MOST_LEVEL = 0.99
#: how much larger than recorded ones hidden weights may be expected to be, as a factor of their mean square
LARGER = 4.0


def most_tau2(means: Array, moments: Array, s2: Array, weight_bound: float) -> Array:
    """(K_j,)  The most that ``‖w_h − μ_h‖ ≤ S_w`` allows: ``min(s², (‖μ_h‖ + S_w)² λ_max(Σ_e))``.

    Args:
        means: (K_j, m)  ``μ_h``, prior means of the hidden weights.
        moments: (K_j, m, m)  ``Σ_e``, of what the recorded features leave of the hidden ones.
        s2: (K_j,)  what the log left unexplained.
        weight_bound: ``S_w``.
    """
    return np.minimum(most_square(means, weight_bound) * eigenvalues(moments)[:, -1], s2)


def most_square(means: Array, weight_bound: float) -> Array:
    """(K_j,)  ``(‖μ_h‖ + S_w)²``: the most that ``‖w_h‖²`` can be."""
    return np.asarray(np.square(np.linalg.norm(means, axis=1) + weight_bound))


def least_tau2(s2: Array, freedom: Array, told: NDArray[np.bool_], plays: Array, m: int) -> Array:
    """(K_j,)  What ``s²`` itself says about ``τ²``, as far as few rounds have told about an arm's hidden weights.

    An arm whose ``s²`` is above the least of all arms has more noise or more hidden effects, and nobody knows which
    before it was played.  To take it for noise would make the log sure of what it cannot know, and the shrunk hidden
    weights that follow would confirm it.

    Args:
        s2: (K_j,)  what the log left unexplained.
        freedom: (K_j,)  rows of the log that its regression did not use up.
        told: (K_j,)  whether there are so many rows that its ``s²`` can be compared with others'.
        plays: (K_j,)  rounds of each arm.
        m: how many features are hidden.
    """
    if np.count_nonzero(told) < 2:
        return np.zeros(len(s2))
    # three sampling errors of s² are chance
    chance = 3.0 * np.sqrt(2.0 / np.maximum(freedom, 1.0)) * s2
    above = np.maximum(s2 - float(s2[told].min()) - chance, 0.0)
    return np.where(told, above * (2.0 * m / (2.0 * m + plays)), 0.0)


def usual_tau2(moments: Array, scales: Array, mean_square: float) -> Array:
    """(K_j,)  What ``τ²`` would be if hidden weights had ``LARGER`` times the mean square of recorded ones.

    Args:
        moments: (K_j, m, m)  ``Σ_e`` of those hidden features that are columns themselves.
        scales: (m,)  of these features.
        mean_square: of the recorded ones, in features of scale one.
    """
    return np.asarray(LARGER * mean_square * (np.einsum("aii->ai", moments) / np.square(scales)).sum(axis=1))


def rate_floor(counts: Array, pooled: float) -> Array:
    """(K_j,)  The least that ``s²`` of an arm is taken for where rewards are 0 or 1.

    An arm of ``n`` rows whose rewards are all 0, or all 1, leaves no residuals, which does not say that it always pays
    that: its rate is as well half a success in ``n + 1`` rows.  No more than all arms leave together, of which half a
    success in all rows is the least.

    Args:
        counts: (K_j,)  rows of each arm.
        pooled: what the regressions of all arms leave.
    """
    own, whole = 0.5 / (counts + 1.0), 0.5 / (float(counts.sum()) + 1.0)
    return np.asarray(np.minimum(own * (1.0 - own), max(pooled, whole * (1.0 - whole))))


class Known(NamedTuple):
    """What a learner knows of the weights, from which its logs take ``τ²``.

    Attributes:
        weights: (K, d)  ``ŵ`` (where proven: ``μ``), in the context's order.
        covariances: (K, d, d)  their posterior covariances.
        weight_bound: ``S_w``   context_bound: ``S_x``.
        delta: ``δ_k`` of this log, where proven: few rows and answers count for as much less as it needs.
        plays: (K,)  rounds of every arm, where the prior is learned.
        usual: (d,) scales of features, 0 for those that are derived or of unknown scale, and the mean square of
            recorded weights; where they have been learned.
        units: of features and rewards as of the last refresh, where they are learned.
        means: (d,)  of features, as of now, where they are learned and there is an intercept.
    """

    weights: Array
    covariances: Array
    weight_bound: float
    context_bound: float
    delta: float = 0.05
    plays: Array | None = None
    usual: tuple[Array, float] | None = None
    units: Units | None = None
    means: Array | None = None


class Unexplained:
    """A log's place among the arms and features of a learner, and what its regressions left unexplained.

    Attributes:
        hidden: the estimator of its hidden half, which carries the summary.
        arms: (K_j,)  positions of its arms in the learner.
        order: (d,)  its features, recorded first, as positions in the context   L: how many it recorded.
        counts: (K_j,)  its rows   s2: (K_j,)  the variance that they left unexplained.
        least: the least that the variance of any reward is taken for.
        tau2: (K_j,)  the part of it that the hidden features explain; 0 where ``B̂`` errs by the log's own rows (where
            proven, what then comes on top of ``s²``).
        fresh: whether nothing is known about the hidden weights yet, so that ``τ²`` stays what it is.
        proven: for ``radius="theory"``: nothing here may depend on online rewards, or rest on more than the proof does.
    """

    def __init__(self, hidden: CompleteEstimator, positions: dict[Any, int], proven: bool) -> None:
        summary = hidden.summary
        summary.require_units()
        self.proven, self.hidden = proven, hidden
        self.arms: NDArray[np.int64] = np.array([positions[arm] for arm in summary.arms], dtype=np.int64)
        self.order: NDArray[np.int64] = np.concatenate([summary.recorded, summary.hidden]).astype(np.int64)
        self.L = summary.n_recorded
        self.counts = np.asarray(summary.counts, dtype=np.float64)
        self.s2 = np.array(summary.residual_variances, dtype=np.float64)
        second = summary.reward_variance
        # what a log explains without any rest, or but for rounding, is as exact as noise can be; a log of zeros tells
        # no scale
        self.least = NOISE_FLOOR * second if second > 0 else 1.0
        self.s2 = np.where(np.isfinite(self.s2), np.maximum(self.s2, self.least), max(second, self.least))
        if summary.binary_rewards:
            self.s2 = np.maximum(self.s2, rate_floor(self.counts, float(summary.pooled_residual_variance)))
        # where nothing is hidden there is nothing for it to explain
        self.tau2 = (UNTOLD if len(self.order) > self.L else 0.0) * self.s2
        #: whether features computed from others are among the recorded ones
        self._bent = bool(summary.schema.recorded_terms)
        #: whether the error of ``B̂`` comes from the log's own rows, as with a known R12: its variance is then added to
        #: s², of which it is no part
        self._on_top = hidden.error_from_log
        if self._on_top and not proven:
            self.tau2 = np.zeros_like(self.s2)
        self.fresh = True
        #: the contexts that the estimator looked at beside the answers, recorded features first; None for none
        self.contexts: Contexts | None = None
        #: (K_j,)  the part of ``s²`` by which ``b`` errs as ``B̂`` does, so that it cancels in ``b − M̂w``
        self.level = np.zeros_like(self.s2)
        #: (K_j,)  times which ``s²`` is counted where proven, since it was estimated from so few rows
        self._rows_scarcity = np.ones(len(self.arms))

    def see_contexts(self, contexts: Contexts | None) -> None:
        """Let the estimator learn from all contexts so far, in the context's order."""
        self.contexts = None
        if contexts is not None and not self.proven:
            o = self.order
            own = Contexts(contexts.rows, contexts.sums[o], np.ascontiguousarray(contexts.squares[np.ix_(o, o)]))
            self.contexts = own if self.hidden.see_contexts(own) else None

    def well_told(self) -> NDArray[np.bool_]:
        """(K_j,)  Whether an arm has so many rows that its ``s²`` can be compared with others'."""
        return np.asarray(self.counts >= 10.0 * (self.L + 1))

    def own_variances(self) -> Array:
        """(K_j,)  The variance of the log's rewards around what ``M̂w`` says, without any bias of the log."""
        own = self.s2 + self.tau2 if self._on_top else np.maximum(self.s2 - self.level, self.least)
        return own * self._rows_scarcity if self.proven else own

    def noise_variance(self) -> float:
        """``s² − τ²`` over all arms: ``σ²`` as the log has it; 0 where it does not tell."""
        if self._on_top or not self.counts.any():
            return 0.0
        return float(((self.s2 - self.level - self.tau2) * self.counts).sum() / self.counts.sum())

    def learn_tau2(self, known: Known, sandwich: bool) -> tuple[Array | None, AnswersHalf | None]:
        """Take ``τ²`` from what the learner knows of the hidden weights.

        The proven radius needs a ``τ²`` that no online reward had a say in: the largest that ``‖w_h − μ_h‖ ≤ S_w``
        allows, ``min(s², (‖μ_h‖ + S_w)² λ_max(Σ_e))``; with the sandwich all of the log's squared residuals.  Where
        ``R12`` is known, ``S_x²(‖μ_h‖ + S_w)²`` on top of ``s²``, since ``E[(x_h·w_h)²x_ox_oᵀ] ⪯ S_x²‖w_h‖²R11``.

        Returns:
            (K_j, L, L)  the covariance that the log's own rows add to ``Σ x_o ε``, and the answers' half of the error
            beyond ``τ²A⁻¹``; None for none.
        """
        hidden, error, answers = self.order[self.L :], None, None
        if self.proven:
            means = known.weights[self.arms][:, hidden]
            if self._on_top:
                self.tau2 = square(known.context_bound) * most_square(means, known.weight_bound)
            elif len(hidden):
                self.tau2 = most_tau2(means, self.hidden.residual_moments(), self.s2, known.weight_bound)
            else:
                self.tau2 = np.zeros_like(self.s2)
            if sandwich and self._on_top:
                error = self.tau2[:, None, None] * np.asarray(self.hidden.summary.grams)
                self.tau2 = np.zeros_like(self.s2)
            answers = self._proven_half(sandwich, known.delta)
        elif self._on_top:
            own = known.weights[self.arms][:, hidden]
            second = own[:, :, None] * own[:, None, :] + known.covariances[np.ix_(self.arms, hidden, hidden)]
            # before anything is known about the hidden weights: as if they had half of what the log left unexplained
            fresh = UNTOLD * self.s2[:, None, None] * np.asarray(self.hidden.summary.grams)
            error = fresh if self.fresh else self.hidden.log_error(second)
        elif not self.fresh:
            moments = self.residual_moments(known.units)
            weights = (known.weights, known.covariances, 1.0, self.arms, hidden)
            self.tau2, self.level = hidden_variance(moments, *weights, self.s2), np.zeros_like(self.s2)
            common = None if sandwich else self.hidden.level_moments()
            if common is not None:
                whole = hidden_variance(moments, *weights, np.full_like(self.s2, np.inf))
                part = hidden_variance(common, *weights, whole) / np.where(whole > 0.0, whole, 1.0)
                self.level, moments = np.minimum(part * self.tau2, MOST_LEVEL * self.s2), moments - common
                self.tau2 = self.tau2 - self.level
            if known.plays is not None and len(hidden):
                self.tau2 = np.maximum(self.tau2, self._least_tau2(known.plays[self.arms], known.usual, moments))
        self.fresh = False
        if sandwich and not self.proven and not self._on_top and len(hidden):
            self.tau2 = np.maximum(self.tau2, LEAST * self.s2)
            answers = AnswersHalf(self.tau2, self.s2)
        return error, answers

    def hidden_centres(self, means: Array | None) -> Array | None:
        """(m,)  Means of the hidden features that no answer told, as rounds or another log know them; 0 for others.

        None where there are none.

        means: (d,)  of all features as they are known now, 0 for one that nobody saw; None where they do not matter
        """
        if means is None or self.hidden.sums is None or not (unseen := self.hidden.unseen()).any():
            return None
        return np.where(unseen, means[self.order[self.L :]], 0.0)

    def residual_moments(self, units: Units | None) -> Array:
        """``Σ_e`` (K_j, m, m); of a feature that did not vary in answers or contexts the variance known elsewhere.

        An estimator has nothing to state in such a feature's unit, which rounds or another log may know already.

        units: of features and rewards; None where they are not learned
        """
        moments, answers = np.asarray(self.hidden.residual_moments(), dtype=np.float64), self.hidden.sums
        if units is None or answers is None:
            return moments
        hidden, tally = self.order[self.L :], Tally.empty(len(self.order))
        add_answers(tally, answers, self.order)
        if self.contexts is not None:
            seen, L = self.contexts, self.L
            tally.add(hidden, seen.rows, seen.sums[L:], np.diagonal(seen.squares)[L:])
        still = np.flatnonzero(units.known[hidden] & ~Units.of(tally, units.constant).known[hidden])
        if len(still):
            moments = moments.copy()
            moments[:, still], moments[:, :, still] = 0.0, 0.0
            moments[:, still, still] = np.square(units.scales[hidden[still]])
        return moments

    def _proven_half(self, sandwich: bool, delta: float) -> AnswersHalf | None:
        """The answers' half for the proven radius; None where there is none.  Few rows are accounted for as well."""
        summary = self.hidden.summary
        rows = np.asarray(summary.degrees_of_freedom, dtype=np.float64)
        if sandwich:
            # of normal rows where it is not known
            normal = self.counts * ((self.L + 1.0) / (3.0 * self.L + 5.0))
            rows = normal if summary.meat_freedom is None else np.asarray(summary.meat_freedom)
        self._rows_scarcity = scarcity_factor(self.L, rows, delta, matrix=sandwich)
        if self._on_top or len(self.order) == self.L or self.hidden.precision() is None:
            return None
        few_answers = scarcity_factor(self.L, self.hidden.answer_counts() - self.L, delta)
        if not sandwich:
            return AnswersHalf(self.tau2, self.s2, None, few_answers)
        self.tau2 = self.s2.copy()
        return AnswersHalf(self.tau2, self.s2, self.hidden.cautious_precision(), few_answers * self._rows_scarcity)

    def _least_tau2(self, plays: Array, usual: tuple[Array, float] | None, moments: Array) -> Array:
        """(K_j,)  The least that ``τ²`` is taken for, whatever the hidden weights seem to be.

        Where the log has derived features, ``UNTOLD`` of ``s²``.  Most of them have no effect, their prior variance
        becomes next to nothing, and then ``b_a = w_o + B_aw_h`` says ``B_aw_h ≈ b_a`` of them, in which ``B̂_a`` is
        little but error.  Taken at a ``τ²`` that comes from small hidden weights it says that these are zero, and so
        confirms itself.  But no more than hidden weights can do that are of the recorded ones' size: where noise is
        large, half of ``s²`` would make nothing of a log that is precise.
        """
        hidden = self.order[self.L :]
        least = least_tau2(self.s2 - self.level, self.counts - self.L, self.well_told(), plays, len(hidden))
        if not self._bent:
            return least
        floor = UNTOLD * self.s2
        if usual is not None:
            scales, mean_square = usual
            own = np.flatnonzero(scales[hidden] > 0.0)
            if len(own):
                floor = np.minimum(floor, usual_tau2(moments[:, own][:, :, own], scales[hidden][own], mean_square))
        return np.maximum(least, floor)
