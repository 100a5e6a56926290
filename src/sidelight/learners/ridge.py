"""Learning with one ridge regression per arm: rounds, what is corrected later, and the settings that are not given."""

from __future__ import annotations

from typing import Any

import numpy as np

from sidelight.kernels import ridge_updates
from sidelight.learners.correcting import Receipt, Sums, correct_shared
from sidelight.learners.gaps import Completed
from sidelight.learners.log_facts import NOISE_FLOOR, constraint_evidence, log_variance
from sidelight.learners.noise import learned_noises, own_residuals, rate_noise, residuals, variance_around_levels
from sidelight.learners.protocol import Context
from sidelight.learners.rates import BINARY_VARIANCE, rate_weight
from sidelight.learners.reduced_evidence import constraint_rows, rounds_evidence
from sidelight.learners.ridge_arms import RidgeArms
from sidelight.learners.ridge_state import RATE_AT
from sidelight.learners.wild import Ranges
from sidelight.linalg import Array, apply, product, square
from sidelight.side.coordinates import Units
from sidelight.side.spread import SpreadLikelihood

__all__ = ["FOREVER", "RidgeLearner"]

FOREVER = np.iinfo(np.int64).max
#: events up to which the units of contexts are so rough that widths in them are not added up
FEW_EVENTS = 16


class RidgeLearner(RidgeArms):
    """Learns from rounds: the sums of ``RidgeArms``, and on a schedule the noise and the prior that are not given."""

    compiled_scores = True

    # ------------------------------------------------------------------------- automatic settings

    def _learn_from_log(self) -> None:
        """Take the automatic settings from the log, before the first round."""
        if self.automatic is not None:
            self._relearn()

    def _relearn(self) -> None:
        """Learn noise and prior anew from everything seen, and put them to use."""
        assert self.automatic is not None
        before, units = self.automatic.units, self.automatic.renew(self._tally(), self.reduction.order)
        if (units.reward_known and not before.reward_known) or self.automatic.events <= FEW_EVENTS:
            self.spent[:] = 0.0  # widths from before rewards and features had units, or rough ones
        if self.settings.noise == "auto":
            self._learn_noise(units)
        if self.settings.regularization == "auto":
            self._learn_prior(units)
        self.automatic.refreshed = self.automatic.events
        self._set_prior()
        self.refresh()

    def _learn_noise(self, units: Units) -> None:
        """Take the noise of all arms together, and of each arm, from what the rounds' regressions leave."""
        assert self.automatic is not None
        theta = self._own_weights()
        left, used = residuals(self.squares, self.moments, self.grams, theta, self.covariances)
        rounds, floor = self._arm_rounds(), NOISE_FLOOR * units.reward_square
        if self.binary:
            found = rate_noise(BINARY_VARIANCE, self._least_rate(), left, used, float(rounds.sum()))
            self.automatic.variance = max(found, floor)
            self.automatic.variances = np.full(self.n_arms, self.automatic.variance)
            return
        if self.reduction.loadings.shape[1] == 0:
            # in the features' own units, where a level far from zero costs no digits
            grams, moments = units.evidence(self.grams, self.moments)
            squares = units.squares(self.squares, self.moments, self.grams)
            own_residuals(squares, moments, grams, rounds, left, used)
        guess = self._noise_guess(units)
        self.automatic.variance, self.automatic.variances = learned_noises(guess, left, used, rounds, floor)

    def _own_weights(self) -> Array:
        """``θ̂`` (K, m), with one step of iterative refinement as in ``kernels.ridge_updates.refresh``."""
        right = self.prior_moments + self.moments
        theta = apply(self.covariances, right)
        left = right - apply(self.prior_precisions, theta) - apply(self.grams, theta)
        return np.asarray(theta + apply(self.covariances, left))

    def _learn_prior(self, units: Units) -> None:
        """Take the prior that is most likely at the noise as it is estimated now."""
        assert self.automatic is not None
        hidden, preferences = (lambda: self._spread_of_logs(units)), self._preferences(units)
        evidence = self._evidence(self._cautious_variances())
        self.automatic.learn(*evidence, units, hidden, preferences, self._exact_evidence(units))

    def _evidence(self, variances: Array) -> tuple[Array, Array]:
        """``J`` (K, d, d) and ``h`` (K, d): what each arm's rounds say about its weights.

        variances: (K,)  ``σ_a²`` of the rounds
        """
        r = self.reduction
        J, h = np.zeros((r.n_arms, r.n_features, r.n_features)), np.zeros((r.n_arms, r.n_features))
        for a in range(r.n_arms):
            J[a], h[a] = rounds_evidence(r, a, self.grams[a] / variances[a], self.moments[a] / variances[a])
        return J, h

    def _exact_evidence(self, units: Units) -> tuple[Array, Array] | None:
        """``J`` (K, d, d) and ``h`` (K, d): what each arm's constraint says, in ``units``; None if there is none."""
        r = self.reduction
        if not r.loadings.shape[1]:
            return None
        J, h = np.zeros((r.n_arms, r.n_features, r.n_features)), np.zeros((r.n_arms, r.n_features))
        for a in range(r.n_arms):
            J[a], h[a] = constraint_evidence(
                self._constraint_rows(a), r.anchors[a], units, of_log=self._summary is not None
            )
        return J, h

    def _constraint_rows(self, a: int) -> Array:
        """``M`` of one arm, or rows that span the same.  (L, d)"""
        return constraint_rows(self.reduction, a)

    def _noise_guess(self, units: Units) -> float:
        """``σ²`` as the log has it; without a log, or where its rewards are all zero, the rewards' own variance.

        Without an intercept what arms pay on average may differ by far more than the noise, and it is the variance
        around the arms' levels.  Elsewhere it is not: a guess that is too large tries an arm once too often, one that
        is too small gives it up for good.  Nor where a constraint is exact: sums are then not those of all features.
        """
        found = log_variance(self._summary)
        if found is not None:
            return found
        if units.constant is not None or self.reduction.loadings.shape[1]:
            return units.reward_variance
        grams, moments = units.evidence(self.grams, self.moments)
        squares = units.squares(self.squares, self.moments, self.grams)
        return variance_around_levels(squares, moments, grams, self._arm_rounds(), units.level, units.reward_variance)

    def _spread_of_logs(self, units: Units) -> SpreadLikelihood | None:
        """Log likelihood of the hidden weights' variance from the logs' residual variances: none for this learner."""
        return None

    def _preferences(self, units: Units) -> Array | None:
        """(K, q, d)  What the old policy favoured for each arm: None for a learner that has not asked it."""
        return None

    def _arm_rounds(self) -> Array:
        """(K,)  How many rounds of each arm the sums hold."""
        return np.asarray(self.counts.astype(np.float64))

    # ----------------------------------------------------------------------------------- rounds

    def _observe(self, x: Array, index: int, reward: float, weight: float = 1.0) -> None:
        fresh = False
        if self.binary:
            self._check_binary(reward)
        if self.automatic is not None and self._guarded:
            taken, reward, fresh = self.automatic.admit(x, reward, self._name)
            if taken is not x:  # wild, and so weighted
                self._weigh_context(taken[self.reduction.order], reward, 1.0)
            x = taken
        self._take(x, index, reward, weight)
        if fresh:
            # a first value that differs tells a unit: nothing can be said in it before
            self._relearn()

    def _take(self, x: Array, index: int, reward: float, weight: float = 1.0) -> None:
        """Learn from one row, as it is; its noise has the variance ``σ_a²/weight``."""
        arena, sizes, _ = self._held
        due, surprised = ridge_updates.observe(arena, sizes, x, index, reward, weight)
        if due:
            self._refresh_arm(index)
        self.n_contexts += 1
        if self.automatic is not None and (self.automatic.due() or (surprised and self.automatic.calm() <= 0)):
            self._relearn()

    def _check_binary(self, reward: float) -> None:
        """Check a reward where all were 0 or 1 so far: once one is neither, rounds have equal weights from then on."""
        if reward in (0.0, 1.0):
            return
        self._reward(reward)  # an error where the schema says that all rewards are
        self.binary = False
        self._relearn()

    @property
    def _guarded(self) -> bool:
        """Whether wild values are detected: where settings are learned, and no width is a proven one."""
        return self.automatic is not None

    def _calm(self) -> int:
        """How many events must be taken in before a surprise calls for a refresh."""
        return FOREVER if self.automatic is None else self.automatic.calm()

    def ranges(self) -> Ranges | None:
        """What log, answers and rounds have seen of every feature, as of the last refresh."""
        return None if self.automatic is None else self.automatic.ranges

    def _observe_completed(self, context: Completed, index: int, reward: float) -> None:
        """Learn from a round whose context had gaps, as much as its noise of variance ``σ_a² + wᵀΣw`` lets it count."""
        # of a reward of 0 or 1 the whole variance follows from its rate, gaps or not
        self._observe(context.x, index, reward, 1.0 if self.binary else self._gap_weight(context, index))

    def _gap_weight(self, context: Completed, index: int) -> float:
        """``σ_a²/(σ_a² + E[wᵀΣw])``."""
        variance = square(float(self.noises[index]))
        total = variance + self._gap_variance(context, index)
        return variance / total if total > 0.0 else 1.0

    def _gap_variance(self, context: Completed, index: int) -> float:
        """``E[wᵀΣw] = ŵᵀΣŵ + tr(Σ Cov w)`` of one arm: what the gaps of a context add to the noise of its reward."""
        place = np.argsort(self.reduction.order)[context.gaps]
        N = self.reduction.basis(index)[place]
        spread = product(product(N, self.covariances[index]), N.T) * square(float(self.noises[index]))
        return context.reward_variance(self.weights[index][place], spread)

    def _widened(self, widths: Array, context: Completed) -> Array:
        """``√(width² + (α√β/σ)²wᵀEw)``, where ``E`` is the covariance of the error of ``x̂`` itself."""
        place = np.argsort(self.reduction.order)[context.gaps]
        error = context.reward_error(self.weights[:, place])
        noises = np.maximum(self.noises, 1e-300)
        return np.asarray(np.sqrt(np.square(widths) + np.square(self.radii / noises) * error))

    # ------------------------------------------------------------------------------- corrections

    def receipt(self, x: Context, reward: float, arm: Any = None) -> Receipt | None:
        """What a round with a wild value, gaps or a rate counts for; None where a round counts in full."""
        read = self._read(x)
        context = None if self.gaps is None else self.gaps.complete(read)
        weight = noise = 1.0
        if self._guarded and self.automatic is not None:
            weight = self.automatic.weight_of(read if context is None else context.x, self._reward(reward))
        if arm is not None:
            noise = self._noise_weight(read if context is None else context, weight, self._arm(arm))
        filled = () if context is None else context.filled
        return None if weight == noise == 1.0 and not filled else Receipt(weight, 0, noise, filled)

    def _noise_weight(self, context: Array | Completed, weight: float, index: int) -> float:
        """What the noise of a round of one arm lets it count for; 0 if it teaches nothing.

        weight: of a wild value, by which the context is multiplied
        """
        if isinstance(context, Completed):
            if not context.known:
                return 0.0
            if not self.binary:
                return self._gap_weight(context, index)
            context = context.x
        if not self.binary:
            return 1.0
        least = float(self._held[2].numbers[RATE_AT])
        rate = weight * float(product(context[self.reduction.order], self.weights[index]))
        return float(rate_weight(rate, least))

    def _corrects_in_place(self, x: Array, reward: float) -> bool:
        if self.binary and reward not in (0.0, 1.0):
            return False
        return not self._guarded or self.automatic is None or self.automatic.usual(x, reward)

    def _correct(self, x: Array, index: int, old: float, new: float | None, receipt: Receipt | None) -> None:
        weight, share = self._standing(index, receipt)
        share *= self._noise_weight(x, weight, index) if receipt is None else receipt.noise
        y = weight * x[self.reduction.order]
        level = float(product(y, self.reduction.anchors[index]))
        z = np.zeros(self.reduction.size)
        N = self.reduction.basis(index)
        z[: N.shape[1]] = product(N.T, y)
        held = Sums(self.grams, self.moments, self.squares, self.counts)
        held.change(index, z, weight * old - level, None if new is None else weight * new - level, share)
        self._correct_shared(y, weight * old, None if new is None else weight * new)
        self._refresh_arm(index)
        if new is not None and self.automatic is not None and self.automatic.due():
            self._relearn()

    def _weigh_context(self, y: Array, reward: float, sign: float) -> None:
        """Let a wild row count in the sums of values for what it does in those of squares (``_weight_of_rounds``).

        y: (d,) internal order, and reward: multiplied by the row's weight   sign: −1 to take it out
        """
        k, d = self._intercept(), len(y)
        if k is not None and y[k] != 1.0:
            self.context_sums[d : 2 * d] += sign * (y[k] - 1.0) * y
            self.context_sums[2 * d] += sign * (y[k] - 1.0) * reward

    def _correct_shared(self, y: Array, old: float, new: float | None) -> None:
        """Exchange a round's reward, or take the round out, in the sums that all arms share."""
        self._weigh_context(y, old, -1.0)
        correct_shared(self.context_sums, y, old, new)
        self.n_contexts -= new is None
        if new is not None:
            self._weigh_context(y, new, 1.0)

    def _standing(self, index: int, receipt: Receipt | None) -> tuple[float, float]:
        """The weight with which a round of an arm was taken in, and what part of it still counts."""
        return (1.0 if receipt is None else receipt.weight), 1.0
