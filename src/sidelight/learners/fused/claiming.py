"""What one log says as of the last refresh: its evidence, and what it counts for beside other logs."""

from __future__ import annotations

from typing import Any

import numpy as np

from sidelight.hidden.protocol import AS_EXPECTED, MANY_ANSWERS, CompleteEstimator, Scales
from sidelight.learners.fused.excess import LineExcess
from sidelight.learners.fused.given import bias_directions
from sidelight.learners.fused.standing import Standing
from sidelight.learners.fused.unexplained import Known, Unexplained
from sidelight.linalg import Array, apply, inverse, log, square
from sidelight.side.differences import ENOUGH, learned_scales
from sidelight.side.evidence import LogEvidence, LogGeometry
from sidelight.side.intersection import Directions, error_directions
from sidelight.side.preference import all_preferences, recorded_preferences
from sidelight.side.shifted import ERROR_RATE, PopulationShift, level_bias
from sidelight.side.trust import EFFECTIVE_ROWS, FEATURE_ROWS, AnswersTest

__all__ = ["Claiming"]

#: log odds against the log's shares from which on hidden features are taken to have moved
OTHER_SHARES = float(log(1.0 / ERROR_RATE))
#: (levels, 1)  one over the rows that a log may count for
_BIASES = np.array([[1.0 / rows if rows else np.inf] for rows in EFFECTIVE_ROWS])


class Claiming(Unexplained):
    """The part of ``FusedLog`` that makes evidence of the log and its estimator.

    Attributes:
        evidence: what it says   cautious: … with ``τ²`` times the number of logs, whatever they have in common
            counted: what it adds to the evidence of all logs; all three the same where it is the only one.
        standing: how far it is believed.
        excess: how far its lines leave the interval from 0 to 1, where rewards are 0 or 1.
        moved: ``ρ²`` of ``side.shifted``, squared deviations by which today's contexts differ from the log's.
        scales: by how much more than expected the arms' regressions of hidden on recorded features differ.
    """

    def __init__(self, hidden: CompleteEstimator, positions: dict[Any, int], proven: bool = False) -> None:
        super().__init__(hidden, positions, proven)
        #: its arms and features are in the learner's own order
        self._in_place = bool((np.diff(self.order) == 1).all() and (self.arms == np.arange(len(self.arms))).all())
        self.evidence: LogEvidence | None = None
        self.cautious: LogEvidence | None = None
        self.counted: LogEvidence | None = None
        self.geometry: LogGeometry | None = None
        # the proof is a union over all settings that rewards may choose: few of them
        self.standing = Standing(len(self.arms), 0 if proven else self.L)
        self.excess = LineExcess(hidden.summary, self.well_told())
        self._answers_test: AnswersTest | None = None
        self._population: PopulationShift | None = None
        self.moved = 0.0
        self.scales = AS_EXPECTED
        #: the estimator's ``expected_at`` when they were learned
        self._scaled_at = 0
        #: (K_j, L)  what the old policy favoured among recorded features: as the log has it, so worked out once
        self._favoured: Array | None = None
        self._shared, self._bias_bound = 1.0, 0.0
        #: (L, n)  directions in which the user allows for a bias, times its size
        self._bias_directions = np.zeros((self.L, 0))

    def refresh(
        self, known: Known, *, shared: int, bias_bound: float | Array, sandwich: bool, rates: bool = False
    ) -> None:
        """Take ``τ²`` from what the learner knows of the hidden weights, and the evidence from it.

        Args:
            known: what the learner knows.
            shared: how many logs' ``B̂`` come from the same contexts (``τ²`` is multiplied by it: always safe).
            bias_bound: root mean square of the bias the log may have, in reward units; or (d,) the largest bias of each
                feature's coefficient.
            sandwich: use the summary's ``meat``.
            rates: whether rewards are 0 or 1, so that lines which leave that interval are biased.
        """
        error, answers = self.learn_tau2(known, sandwich)
        self._shared = float(shared)
        bias, beyond = 0.0, self.excess.square if rates else 0.0
        if isinstance(bias_bound, float):
            bias = bias_bound
        else:
            self._bias_directions = bias_directions(bias_bound[self.order[: self.L]])
        if beyond > 0.0:
            bias = float(np.sqrt(bias * bias + beyond))
        if not sandwich:
            self._bias_bound = bias
        elif bias > 0.0:
            # nΔ²G⁻¹, as it is added to s²G⁻¹ where there is no sandwich
            more = (self.counts * square(bias))[:, None, None] * np.asarray(self.hidden.summary.grams)
            error = more if error is None else error + more
        if self.geometry is None:
            self.geometry = LogGeometry(self.hidden, self.hidden.summary.meat if sandwich else None, self.s2)
        self.geometry.renew(error, answers, self.hidden_centres(known.means), self.scales)
        self.moved = self._moved()
        self._set_evidence()

    def _moved(self) -> float:
        """``ρ²``; 0 where it does not matter: nothing hidden, ``R12`` known, or proven for one population."""
        sums = self.hidden.sums
        if self.proven or sums is None or not 0 < self.L < len(self.order) or not self.counts.any():
            return 0.0
        if self._population is None:
            self._population = PopulationShift(self.hidden.summary)
        recorded = self._population.square(sums)
        # shares also differ where recorded features moved, which says it all
        if recorded > 0.0 or not self._answers().shares_ratio(self.hidden) > OTHER_SHARES:
            return recorded
        return self._population.hidden_square(sums, self.hidden.hidden_shift())

    def scales_are_due(self) -> bool:
        """Whether answers tell more of the differences between arms than when scales were learned, and were few then.

        Scales are relative to what is expected.  Once answers are many they are close to 1 and wait for a search.
        """
        return self.hidden.expected_at != self._scaled_at and self._scaled_at < MANY_ANSWERS

    def learn_scales(self, J: Array, h: Array, rounds: Array) -> None:
        """Learn how much the arms' regressions of hidden on recorded features differ, and set the evidence by it.

        Args:
            J: (K, d, d)  what is known of every arm without this log, in the context's order.
            h: (K, d)  its linear part.
            rounds: (K,)  of every arm.
        """
        assert self.geometry is not None
        self._scaled_at, before = self.hidden.expected_at, self.scales
        self.scales = self._likely_scales(self.geometry, *self._own(J, h), rounds[self.arms])
        if self.scales != before:
            self.geometry.rescale(self.scales)
            self._set_evidence()

    def _likely_scales(self, geometry: LogGeometry, J: Array, h: Array, rounds: Array) -> Scales:
        """The scales that rounds tell; ``AS_EXPECTED`` where these or the estimator say nothing about them.

        Args: as of ``learn_scales``, of this log's arms, recorded features first.
        """
        s2 = self._variances()
        told = np.flatnonzero((rounds >= ENOUGH * len(self.order)) & np.isfinite(s2) & (self.counts > 0))
        differences = self.hidden.differences() if self.L and len(told) else None
        if differences is None or geometry.stated is None:
            return AS_EXPECTED
        # what an estimator states counts, even if it is not what its differences add up to
        if not np.array_equal(geometry.stated, np.asarray(self.hidden.precision_at(AS_EXPECTED))):
            return AS_EXPECTED
        try:
            covariances = inverse(J[told])
        except np.linalg.LinAlgError:  # rounding left nothing of what is known of some direction
            return AS_EXPECTED
        bias = self._bias(self.standing.feature)
        return learned_scales(
            (geometry.R[told], geometry.y[told], geometry.B[told]),
            differences.of_arms(told),
            (self.tau2[told], s2[told]),
            (apply(covariances, h[told]), covariances),
            None if bias is None else bias[told],
        )

    def _set_evidence(self) -> None:
        self.evidence = self.cautious = self.counted = self._evidence_of(self._shared * self.tau2)
        if self._shared > 1.0 and not self.proven:
            self.evidence = self._evidence_of(self.tau2)

    def _evidence_of(self, tau2: Array) -> LogEvidence:
        assert self.geometry is not None
        return self.geometry.evidence(tau2, self._variances(), self._bias(self.standing.feature))

    def directions(self, n_arms: int) -> Directions:
        """What it says of all arms of the learner, for ``intersection_shares``; biases by feature are left out."""
        assert self.geometry is not None
        own = error_directions(self.geometry, self.tau2, self._variances(), self.order)
        rows, errors = np.zeros((n_arms, self.L, len(self.order))), np.zeros((n_arms, self.L))
        rows[self.arms], errors[self.arms] = own
        return Directions(rows, errors)

    def count(self, shares: Array) -> None:
        """Count for as much as its shares of what several logs together may claim.  shares: (K_j,)"""
        self.counted = self._evidence_of(self.tau2 / shares)

    def _bias(self, feature: int) -> Array | None:
        """(K_j, L, n)  ``U`` with the covariance ``UUᵀ`` of the bias that is allowed for, and of one in ``feature``.

        What the user allows for, and what a moved population may do to levels.
        """
        assert self.geometry is not None
        if not self._bias_directions.shape[1] and feature < 0 and not self.moved:
            return None
        U = np.broadcast_to(self._bias_directions, (len(self.arms), *self._bias_directions.shape))
        if self.moved and self._population is not None:
            U = np.concatenate([U, level_bias(self._population.level, self.moved, self.tau2)], axis=2)
        if feature >= 0:
            sizes = np.sqrt(self._direction_sizes()[:, feature])
            wrong = sizes[:, None] * self.geometry.directions[:, feature % self.L]
            U = np.concatenate([U, wrong[:, :, None]], axis=2)
        return np.ascontiguousarray(U)

    def _direction_sizes(self) -> Array:
        """(K_j, sizes · L)  Variance of a bias in one feature that lets the log count for ``FEATURE_ROWS`` there."""
        assert self.geometry is not None
        return self.geometry.direction_sizes(self.s2, () if self.proven else FEATURE_ROWS)

    def preferences(self, scales: Array) -> Array:
        """(K_j, d)  What the old policy favoured for each arm, recorded features first.  scales: (d,), of all"""
        if self._favoured is None:
            self._favoured = recorded_preferences(self.hidden.summary)
        return all_preferences(self._favoured, self.hidden.hidden_shift(), scales[self.order[self.L :]])

    def _variances(self) -> Array:
        """(K_j,)  ``s²`` at the level of every arm."""
        return np.asarray(self._level_variances()[self.standing.levels, np.arange(len(self.arms))])

    def _level_variances(self) -> Array:
        """(levels, K_j)  ``s²`` where the log counts for at most so many ``EFFECTIVE_ROWS`` of an arm."""
        own = self.own_variances()
        # a bias of covariance Δ²R11⁻¹ = nΔ²G⁻¹ adds to s²G⁻¹: the log counts for at most s²/Δ² rows
        s2 = own + self.counts * square(self._bias_bound)
        return np.asarray(s2 + _BIASES * (own * np.maximum(self.counts, 1.0)))

    def _own(self, J: Array, h: Array) -> tuple[Array, Array]:
        """Matrices and vectors of the learner's arms for this log's arms, its recorded features first."""
        return self._own_matrices(J), h[np.ix_(self.arms, self.order)]

    def _own_matrices(self, J: Array) -> Array:
        """(K_j, d, d)  Those of the learner's arms for this log's arms, its recorded features first."""
        if self._in_place and len(self.arms) == len(J):
            return J
        return np.asarray(J[np.ix_(self.arms, self.order, self.order)])

    def _answers(self) -> AnswersTest:
        if self._answers_test is None:
            self._answers_test = AnswersTest(self.hidden.summary)
        return self._answers_test

    def add_to(self, J: Array, h: Array, cautiously: bool = False) -> None:
        """Add what it counts for to ``J`` (K, d, d) and ``h`` (K, d), in the context's order.

        cautiously: with the same share of the logs' common error for every log
        """
        evidence = self.cautious if cautiously else self.counted
        if evidence is None:
            return
        if self._in_place and len(self.arms) == len(J):
            J += evidence.J
            h += evidence.h
        else:
            J[np.ix_(self.arms, self.order, self.order)] += evidence.J
            h[np.ix_(self.arms, self.order)] += evidence.h
        self.add_companion(J, h)

    def add_companion(self, J: Array, h: Array) -> None:
        """Add what the rewards of a companion log say; doubts about the large log do not touch them."""
        rows = self.hidden.companion
        if rows is not None and not self.proven:
            # the companion's rewards, seen at full contexts, are like rounds of our own
            noise = np.maximum(self.s2 - self.level - self.tau2, np.maximum(0.05 * self.s2, self.least))[:, None]
            J[np.ix_(self.arms, rows.recorded, rows.recorded)] += rows.grams / noise[:, :, None]
            h[np.ix_(self.arms, rows.recorded)] += rows.cross / noise
