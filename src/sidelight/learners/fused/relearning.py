"""What a refresh of the fused learner learns: ``τ²``, what the logs say, noise and prior, from everything seen."""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import cache
from typing import TYPE_CHECKING

import numpy as np

from sidelight.hidden.protocol import Contexts
from sidelight.learners.fused.asking import QueryBudget
from sidelight.learners.fused.hyperparameters import (
    add_logs,
    likeliest_noise,
    most_noise,
    preferences_of_logs,
    smaller_noises,
    spread_of_logs,
)
from sidelight.learners.fused.proven import Proven
from sidelight.learners.fused.unexplained import Known
from sidelight.learners.log_facts import NOISE_FLOOR
from sidelight.learners.noise import least_residuals, rounds_likelihood
from sidelight.learners.rates import BINARY_VARIANCE
from sidelight.learners.settings import Settings
from sidelight.linalg import Array, apply, in_order, log_det, square
from sidelight.side.coordinates import Tally, Units
from sidelight.side.intersection import intersection_shares
from sidelight.side.prior import Prior
from sidelight.side.spread import SpreadLikelihood

if TYPE_CHECKING:
    from sidelight.logs.schema.schema import Schema
    from sidelight.logs.summary import LogSummary

__all__ = ["Relearning"]

#: how many standard deviations off a reward must be to have the logs judged before their time
SURPRISE = 5.0


class Relearning(Proven):
    """The part of ``FusedOFUL`` that learns its logs' evidence, its noise and its prior, on a schedule.

    Attributes:
        sandwich: whether the covariances of logs and answers are the heteroskedasticity-robust ones.
        asking: how often the old policy may be asked.
    """

    sandwich: bool
    asking: QueryBudget

    @property
    def _guarded(self) -> bool:
        return self.settings.radius != "theory"

    @property
    def _surprise(self) -> float:
        """Standard deviations off its prediction above which a reward has the logs judged at once; infinite: never."""
        # a click at a rate of 1 % is far off what was expected, and no surprise
        return SURPRISE if self.safety and self.settings.radius != "theory" and not self.binary else math.inf

    def _level_feature(self, schema: Schema | None, log: LogSummary | None) -> int | None:
        # a column that was 1 throughout one log and not throughout another is no level
        alike = len({entry.hidden.summary.level for entry in self.logs}) == 1
        return super()._level_feature(schema, log if alike else None)

    def _rewards_are_binary(self) -> bool:
        declared = None if self.schema is None else self.schema.binary
        return all(log.hidden.summary.binary_rewards for log in self.logs) if declared is None else declared

    def _first_variance(self, settings: Settings) -> float:
        if settings.noise != "auto":
            return square(settings.sigma)
        if self.binary:
            return BINARY_VARIANCE
        return max(float(np.mean([np.mean(log.s2) for log in self.logs])), 1e-300)

    def _noise_guess(self, units: Units) -> float:
        return most_noise(self.logs, self._first_variance(self.settings), units)

    def _tally(self) -> Tally:
        tally = self._tally_of_rounds()
        add_logs(tally, self.logs)
        return tally

    def _preferences(self, units: Units) -> Array | None:
        """(K, 2, d)  What the old policy favoured for each arm among recorded and among hidden features."""
        assert self.automatic is not None
        blocks = [block for block in self.automatic.blocks[:2] if len(block)]
        return preferences_of_logs(self.logs, units, blocks, self.n_arms)

    def _spread_of_logs(self, units: Units) -> SpreadLikelihood | None:
        # of rewards of 0 and 1 the residual variances follow from the rates, and tell nothing
        if self.binary:
            return None
        assert self.automatic is not None
        return spread_of_logs(self.logs, units, self.reduction.order[self.automatic.blocks[0]])

    def _log_sums(self) -> tuple[Array, Array]:
        K, d = self.n_arms, self.n_features
        J, h = np.zeros((K, d, d)), np.zeros((K, d))
        for log in self.logs:
            log.add_to(J, h)
        if self.fading.forgets:
            J *= self.fading.left_of_logs()
            h *= self.fading.left_of_logs()
        return J, h

    def _evidence(self, variances: Array) -> tuple[Array, Array]:
        J, h = self._log_sums()
        J += self.grams / variances[:, None, None]
        h += self.moments / variances[:, None]
        return J, h

    def _set_prior(self) -> None:
        """``V₀ = σ_a²(Ω⁻¹ + Σ_j J_j)`` and ``V₀μ₀ = σ_a²(Ω⁻¹μ + Σ_j h_j)`` for every arm."""
        precision, means = self._prior()
        weights, variances = self._prior_weights()[:, None], np.square(self.noises)[:, None]
        J, h = self._log_sums()
        J *= variances[:, :, None]
        J += weights[:, :, None] * precision
        self.prior_precisions = J
        self.prior_moments = weights * apply(precision, means) + variances * h
        self.prior_log_dets = log_det(J)
        self._set_bounds(precision)

    def _relearn(self, passes: int = 1) -> None:
        """Learn ``τ²``, the logs' evidence, noise and prior anew from everything seen, and put them to use."""
        self.refreshes += 1
        if self.fading.forgets:
            for a in range(self.n_arms):
                self._fade(a)
        self._judge()
        for _ in range(passes):
            self._learn_from_logs()
            super()._relearn()
        if self.automatic is not None:
            self.automatic.unsettled = self._unsettled()
        self._freeze()

    def _learn_from_logs(self) -> None:
        """Learn ``τ²`` and the logs' evidence anew."""
        s, seen = self.settings, np.ones(self.n_features, dtype=bool)
        if self.automatic is not None and s.regularization == "auto":
            # as of the last refresh, from which the weights are
            seen = self.automatic.units.known & self.automatic.units.reward_known
        units = self.automatic.units if self.automatic is not None and self._guarded else None
        means = None
        if units is not None and units.constant is not None:
            tally = self._tally()
            means = tally.sums / np.maximum(tally.rows, 1.0)
        known = Known(
            self._prior()[1] if s.radius == "theory" else self.weights,
            np.square(self.noises)[:, None, None] * self.covariances,
            weight_bound=s.weight_bound,
            context_bound=s.context_bound,
            delta=self._refresh_delta() / len(self.logs),
            plays=self._arm_rounds() if s.regularization == "auto" and not self.binary else None,
            usual=self._usual_weights(),
            units=units,
            means=means,
        )
        contexts = self._contexts()
        for log in self.logs:
            log.see_contexts(contexts)
            # while nothing was known about any hidden feature there are no weights to take τ² from, and without an
            # answer no second moments in the features' own units
            hidden = log.order[log.L :]
            unanswered = log.hidden.sums is not None and not log.hidden.n_answers and log.contexts is None
            log.fresh = log.fresh or (len(hidden) > 0 and (unanswered or not seen[hidden].any()))
            log.refresh(
                known, shared=len(self.logs), bias_bound=self.bias_bound, sandwich=self.sandwich, rates=self.binary
            )
        self._learn_scales()
        if not self.asking.unlimited:
            for log in self.logs:
                log.learn_gain()
        # before a prior is learned there is nothing in the features' own units to weigh the logs against
        unlearned = self.settings.regularization == "auto" and self.automatic is not None and not self.automatic.hyper
        if len(self.logs) > 1 and self.settings.radius != "theory" and not unlearned:
            self._intersect()

    def _learn_scales(self) -> None:
        """Learn how much arms differ in what logs hide: where variances are searched for, or few answers told more.

        Not where rounds are forgotten: a present that moves away from a log looks like arms that differ.
        """
        if self.settings.regularization != "auto" or self.automatic is None or not self.automatic.hyper:
            return
        if not self._guarded or self.fading.forgets:
            return
        due = [entry for entry in self.logs if self.automatic.searches() or entry.scales_are_due()]
        if not due:
            return
        precision, means = self._prior()
        unit, variances = square(self.noise), np.square(self.noises)
        known = precision / unit + self.grams / variances[:, None, None]
        linear = apply(precision, means) / unit + self.moments / variances[:, None]
        # before any of them changes, so that their order does not matter
        without = [self._add_others(entry, known.copy(), linear.copy()) for entry in due]
        for entry, (J, h) in zip(due, without, strict=True):
            entry.learn_scales(J, h, self._arm_rounds())

    def _contexts(self) -> Contexts | None:
        """Sums over the contexts of all rounds, in the context's order; None where rounds do not count alike."""
        if self.automatic is None or not self._guarded or self.fading.forgets or self.binary or self.gaps is not None:
            return None
        if not self.n_contexts:
            return None
        d, sums = self.n_features, self.context_sums
        return Contexts(self._weight_of_rounds(), sums[d : 2 * d].copy(), in_order(self.grams))

    def _usual_weights(self) -> tuple[Array, float] | None:
        """Scales of features (d,), 0 for derived ones and unknown scales, and the mean square of recorded weights.

        A common mean of all arms counts as what it was expected to be.
        """
        if self.automatic is None or self.automatic.hyper is None or self.schema is None:
            return None
        units = self.automatic.units
        scales = np.where(units.known, units.scales * units.spreads, 0.0)
        scales[self.schema.derived_index] = 0.0
        hyper = self.automatic.hyper
        return scales, hyper.variances[0] + hyper.mean_variance

    def _intersect(self) -> None:
        """Weigh several logs, whose errors are dependent in an unknown way, by covariance intersection."""
        variances = self._cautious_variances()[:, None, None]
        known = self._prior()[0] / square(self.noise) + self.grams / variances
        shares = intersection_shares([log.directions(self.n_arms) for log in self.logs], known)
        for j, log in enumerate(self.logs):
            log.count(shares[log.arms, j])

    def _learn_prior(self, units: Units) -> None:
        """Learn the prior; where rounds seem noisier than the logs allow, noise and prior together.

        A log leaves ``s²_a = σ_a² + τ_a²``, so no arm's noise is above the least ``s²``, unless it differs by arm.
        Residuals of weights that a narrow prior shrinks seem to say so, and at that noise the narrow prior is the most
        likely one: each confirms the other.  So smaller noises compete, each with the prior that is most likely at it.
        """
        assert self.automatic is not None
        automatic, preferences = self.automatic, self._preferences(units)
        competing, variances = automatic.competes(), self._cautious_variances()
        told = cache(lambda: self._spread_of_logs(units))
        learned = automatic.learn(*self._evidence(variances), units, told, preferences)
        if self.settings.noise != "auto" or self.binary or not competing:
            return
        most = self._noise_guess(units)
        if automatic.variance <= most or (hidden := told()) is None:
            return
        rounds, unit = self._arm_rounds(), units.reward_variance
        squares = units.squares(self.squares, self.moments, self.grams)
        grams, moments = units.evidence(self.grams, self.moments)

        def of_rounds(variances: Array) -> float:
            return rounds_likelihood(rounds, squares / unit, variances / unit)

        def likelihood(variances: Array) -> tuple[float, Callable[[], Prior]]:
            value, make = automatic.best_prior(*self._evidence(variances), units, hidden, preferences)
            return value + of_rounds(variances), make

        found = likeliest_noise(
            likelihood,
            (variances, learned.log_marginal + of_rounds(variances)),
            smaller_noises(self.logs, automatic.variance, most, NOISE_FLOOR * units.reward_square),
            (rounds, least_residuals(squares, moments, grams, rounds)),
        )
        automatic.competed()
        if found is not None:
            variances, prior = found
            automatic.variance, automatic.variances = float(variances[0]), variances
            automatic.take(prior)
