"""One log inside a fused learner: its place among the learner's features and arms, and what it says now."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from sidelight.hidden.frame import unitless_pseudo_inverse
from sidelight.hidden.protocol import AS_EXPECTED, CompleteEstimator, Scales
from sidelight.learners.fused.excess import LineExcess
from sidelight.learners.fused.given import bias_directions
from sidelight.learners.fused.standing import Frozen, Standing
from sidelight.learners.fused.unexplained import Known, Unexplained
from sidelight.learners.hidden_half import Answer, take_answer
from sidelight.linalg import Array, apply, inverse, log, product, pseudo_inverse, square
from sidelight.side.differences import ENOUGH, learned_scales
from sidelight.side.evidence import LogEvidence, LogGeometry
from sidelight.side.intersection import Directions, error_directions
from sidelight.side.preference import all_preferences, recorded_preferences
from sidelight.side.rare import RareContexts
from sidelight.side.shifted import ERROR_RATE, PopulationShift, level_bias
from sidelight.side.trust import EFFECTIVE_ROWS, FEATURE_ROWS, AnswersTest

__all__ = ["FusedLog"]

#: the test allows for so many times the variance that ``B̂`` is claimed to have: pooling biases it, and where features
#: are skewed or few arms tell how much, the claim is too small
ERROR = 4.0
#: log odds against the log's shares from which on hidden features are taken to have moved
OTHER_SHARES = float(log(1.0 / ERROR_RATE))
#: (levels, 1)  one over the rows that a log may count for
_BIASES = np.array([[1.0 / rows if rows else np.inf] for rows in EFFECTIVE_ROWS])


class FusedLog(Unexplained):
    """A log, the estimator of its hidden half, and its evidence as of the last refresh.

    Attributes:
        key: the user's name for the log.
        labels: its arms, with their positions in the log.
        evidence: what it says   cautious: … with ``τ²`` times the number of logs, whatever they have in common
            counted: what it adds to the evidence of all logs; all three the same where it is the only one.
        standing: how far it is believed.
        excess: how far its lines leave the interval from 0 to 1, where rewards are 0 or 1.
    """

    def __init__(self, key: Any, hidden: CompleteEstimator, positions: dict[Any, int], proven: bool = False) -> None:
        super().__init__(hidden, positions, proven)
        summary = hidden.summary
        self.key = key
        self.labels = {arm: i for i, arm in enumerate(summary.arms)}
        #: its arms and features are in the learner's own order
        self._in_place = bool((np.diff(self.order) == 1).all() and (self.arms == np.arange(len(self.arms))).all())
        self.evidence: LogEvidence | None = None
        self.cautious: LogEvidence | None = None
        self.counted: LogEvidence | None = None
        self.geometry: LogGeometry | None = None
        # the proof is a union over all settings that rewards may choose: few of them
        self.standing = Standing(len(self.arms), 0 if proven else self.L)
        self.excess = LineExcess(summary, self.well_told())
        self._answers_test: AnswersTest | None = None
        self._population: PopulationShift | None = None
        #: ``ρ²`` of ``side.shifted``: squared deviations by which today's contexts differ from the log's
        self.moved = 0.0
        #: by how much more than expected the arms' regressions of hidden on recorded features differ
        self.scales = AS_EXPECTED
        self._rare: RareContexts | None = None
        self._gain: Array | None = None
        #: (K_j, L)  what the old policy favoured among recorded features: as the log has it, so worked out once
        self._favoured: Array | None = None
        self._shared, self._bias_bound = 1.0, 0.0
        #: (L, n)  directions in which the user allows for a bias, times its size
        self._bias_directions = np.zeros((self.L, 0))

    def answer(self, x: Array, answer: Answer) -> None:
        """What the old policy would do at ``x``; its arm is matched by label, whatever the learner's order of arms."""
        take_answer(self.hidden, x, None if answer.arm is None else self.labels[answer.arm], answer)

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

    def learn_scales(self, J: Array, h: Array, rounds: Array) -> None:
        """Learn how much the arms' regressions of hidden on recorded features differ, and set the evidence by it.

        Args:
            J: (K, d, d)  what is known of every arm without this log, in the context's order.
            h: (K, d)  its linear part.
            rounds: (K,)  of every arm.
        """
        geometry, s2 = self.geometry, self._variances()
        enough = rounds[self.arms] >= ENOUGH * len(self.order)
        told = np.flatnonzero(enough & np.isfinite(s2) & (self.counts > 0))
        differences = self.hidden.differences()
        if geometry is None or differences is None or not self.L or not len(told):
            return
        J, h = self._own(J, h)
        covariances = inverse(J[told])
        bias = self._bias(self.standing.feature)
        self.scales = learned_scales(
            (geometry.R[told], geometry.y[told], geometry.B[told]),
            differences.of_arms(told),
            (self.tau2[told], s2[told]),
            (apply(covariances, h[told]), covariances),
            None if bias is None else bias[told],
        )
        geometry.rescale(self.scales)
        self._set_evidence()

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

    def freeze(self, J0: Array, h0: Array, rounds: tuple[Array, Array], variance: float) -> None:
        """Fix what the next rounds are compared with; everything in the context's order, for all arms of the learner.

        Args:
            J0: (K, d, d)  what is known without this log and without rounds.
            h0: (K, d)  its linear part.
            rounds: ``Σ x xᵀ`` (K, d, d) and ``Σ x r`` (K, d) so far.
            variance: ``σ²``.
        """
        assert self.geometry is not None
        grams, moments = self._own(*rounds)
        J, h = self._own(J0, h0)
        held = self.geometry.frozen(ERROR * self._shared * self.tau2, self._level_variances(), self._bias(-1))
        self.standing.frozen = Frozen(J + grams / variance, h + moments / variance, variance, held)

    def weigh(self, rounds: tuple[Array, Array], squares: Array, counts: Array, judged: bool) -> None:
        """Compare the rounds since ``freeze`` with what each kind of bias predicted.

        Rounds of an arm whose rewards vary more around what they themselves say than the noise does count for as much
        less: a few wild rewards are no lie of the log.

        Args:
            rounds: their ``Σ x xᵀ`` (K, d, d) and ``Σ x r`` (K, d), in the context's order.
            squares: (K,)  their ``Σ r²``.
            counts: (K,)  their number.
            judged: whether they count as evidence about the log.
        """
        frozen = self.standing.frozen
        if frozen is None or self.geometry is None:
            return
        weighted = frozen.weighted(self._own(*rounds), squares[self.arms], counts[self.arms])
        values, gains = self.geometry.marginals(
            (frozen.J, frozen.h), weighted, frozen.variance, frozen.log, self._direction_sizes()
        )
        # an honest log may be off by more in contexts that it hardly has: it is what it is at its best
        honest = np.fmax(values[0], self._honest_elsewhere(frozen, weighted, rounds[0], counts))
        gains -= honest - values[0]
        values[0] = honest
        self.standing.test.add(values, gains, judged)

    def _honest_elsewhere(self, frozen: Frozen, weighted: tuple[Array, Array], grams: Array, counts: Array) -> Array:
        """(K_j,)  The most that rounds fit an honest log whose answers err by more in rare contexts (``side.rare``).

        Args:
            frozen: what the rounds are compared with.
            weighted: their sums, as they count.
            grams: (K, d, d)  their ``Σ x xᵀ``.
            counts: (K,)  their number.
        """
        assert self.geometry is not None
        found, held = np.full(len(self.arms), -np.inf), frozen.log
        if self.proven or not len(held.A) or not self.L:
            return found
        if self._rare is None:
            self._rare = RareContexts(self.hidden.summary, self.geometry.directions)
        own = np.ascontiguousarray(self._own_matrices(grams)[:, : self.L, : self.L])
        times = self._rare.times(own, counts[self.arms])
        if (times > 1.0).any():
            nothing = np.zeros((len(self.arms), 0))
            for larger in (np.sqrt(times), times):
                other = replace(held, tau2=larger * held.tau2, s2=held.s2[:1])
                fits, _ = self.geometry.marginals((frozen.J, frozen.h), weighted, frozen.variance, other, nothing)
                found = np.fmax(found, fits[0])
        return found

    def _own(self, J: Array, h: Array) -> tuple[Array, Array]:
        """Matrices and vectors of the learner's arms for this log's arms, its recorded features first."""
        return self._own_matrices(J), h[np.ix_(self.arms, self.order)]

    def _own_matrices(self, J: Array) -> Array:
        """(K_j, d, d)  Those of the learner's arms for this log's arms, its recorded features first."""
        if self._in_place and len(self.arms) == len(J):
            return J
        return np.asarray(J[np.ix_(self.arms, self.order, self.order)])

    def tested(self, covariances: Array, grams: Array) -> Array:
        """(K_j,)  What part of an arm's rounds could have told a lie of the log from the truth, between 0 and 1.

        A lie adds ``x_o·β`` to rewards.  Weights that the log leaves open may take its place: of a lie about recorded
        feature ``j`` the rounds see ``[G − GV⁻¹G]_jj`` where they would see ``G_jj`` if all weights were known.  The
        mean over recorded features is taken.

        Args:
            covariances: (K, d, d)  ``V⁻¹``, the log's evidence in it.
            grams: (K, d, d)  ``G = Σ x xᵀ`` of the rounds.
        """
        columns = np.ascontiguousarray(self._own_matrices(grams)[:, :, : self.L])
        own = np.einsum("ajj->aj", columns[:, : self.L])
        explained = (columns * product(self._own_matrices(covariances), columns)).sum(axis=1)
        seen = own > 0.0
        parts = np.where(seen, 1.0 - explained / np.where(seen, own, 1.0), 0.0)
        return np.asarray(np.clip(parts.sum(axis=1) / np.maximum(seen.sum(axis=1), 1), 0.0, 1.0))

    def overruled(self, covariances: Array, variances: Array) -> Array:
        """(K_j,)  What part of a lie of the log about an arm its rounds have taken back, between 0 and 1.

        Of a bias ``β`` of the log the estimate ``M̂ŵ`` has the part ``σ²M̂V⁻¹M̂ᵀΛβ``; the mean over directions is
        ``σ² tr(JV⁻¹)/L``.  Rounds that outweigh the log cannot tell its lie from the truth either (``tested``), but it
        does no harm any more.

        Args:
            covariances: (K, d, d)  ``V⁻¹``, the log's evidence in it.
            variances: (K,)  ``σ_a²``.
        """
        if self.counted is None:
            return np.zeros(len(self.arms))
        left = variances[self.arms] * (self.counted.J * self._own_matrices(covariances)).sum(axis=(1, 2))
        left /= max(self.L, 1)
        return np.asarray(np.clip(1.0 - left, 0.0, 1.0))

    def readiness(self) -> Array:
        """(K_j,)  How readily to try an arm in doubt of this log."""
        return self.standing.readiness(self.counts)

    def suspected(self) -> float:
        """Log odds against the log, from the answers alone."""
        return max(self._answers().log_ratio(self.hidden), 0.0)

    def _answers(self) -> AnswersTest:
        if self._answers_test is None:
            self._answers_test = AnswersTest(self.hidden.summary)
        return self._answers_test

    def norms(self, v: Array) -> Array:
        """(K_j,)  ``‖Λ^{1/2}M̂v_a‖ = √(v_aᵀJv_a)``.  v: (K_j, d), in the context's order"""
        if self.evidence is None:
            return np.zeros(len(self.arms))
        u = v[:, self.order]
        return np.asarray(np.sqrt(np.maximum((u * apply(self.evidence.J, u)).sum(axis=1), 0.0)))

    def query_gain(self, x: Array) -> float:
        """How much an answer at ``x`` is expected to reduce the log's uncertainty, relative to the average context."""
        if self._gain is None:
            return 1.0
        y = x[self.order[: self.L]]
        return float((y * apply(self._gain, y)).sum())

    def learn_gain(self) -> None:
        """``H ∝ Σ_a P(a) f_a A_a⁻¹``, ``f_a = tr(Λτ²A⁻¹)/L`` the part of ``Cov ξ`` that answers can reduce."""
        A, summary = self.hidden.precision(), self.hidden.summary
        self._gain = None
        if A is None or self.L == 0 or self.evidence is None:
            return
        inverse = unitless_pseudo_inverse(A)
        part = (self.evidence.precision * np.swapaxes(inverse, 1, 2)).sum(axis=(1, 2)) * self.tau2 / self.L
        H = ((np.asarray(summary.shares) * part)[:, None, None] * inverse).sum(axis=0)
        typical = float((np.asarray(summary.shares)[:, None, None] * summary.second_moments * H.T).sum())
        if typical > 0:
            self._gain = H / typical

    def state(self) -> dict[str, Any]:
        """Arrays to be saved: what the learner knows of this log beyond its estimator."""
        assert self.evidence is not None
        standing = self.standing
        numbers = [float(standing.common), standing.suspicion, self._shared, self._bias_bound, float(standing.feature)]
        numbers += [self.moved, *self.scales]
        gain = np.zeros((0, 0)) if self._gain is None else self._gain
        e, counted = self.evidence, self.counted
        assert counted is not None
        about_evidence, verdict = standing.state()
        return {
            **about_evidence,
            "bias": self._bias_directions,
            "tau2": self.tau2,
            "level": self.level,
            **verdict,
            "numbers": np.array(numbers),
            "excess": self.excess.total,
            "gain": gain,
            "J": e.J,
            "h": e.h,
            **({} if counted is e else {"counted_J": counted.J, "counted_h": counted.h}),
        }

    def restore(self, arrays: dict[str, Any]) -> None:
        """The inverse of ``state``."""
        self.tau2 = np.array(arrays["tau2"], dtype=np.float64)
        # a file from before it was kept has none until the next refresh
        self.level = np.array(arrays.get("level", np.zeros_like(self.tau2)), dtype=np.float64)
        common, suspicion, self._shared, self._bias_bound, *more = (float(v) for v in arrays["numbers"])
        self.standing.restore(arrays, bool(common), suspicion, int(more[0]) if more else -1)
        # a file from before populations were compared does so at the next refresh, and nobody asks before it
        self.moved = more[1] if len(more) > 1 else 0.0
        # from before scales were learned: arms differ as expected until they are
        self.scales = Scales(*more[2:4])
        if "bias" in arrays:
            self._bias_directions = np.array(arrays["bias"], dtype=np.float64).reshape(self.L, -1 if self.L else 0)
        # a file from before lines were compared with the interval begins to do so
        self.excess.total = np.array(arrays.get("excess", np.zeros(2)), dtype=np.float64)
        self._gain = np.array(arrays["gain"]) if arrays["gain"].size else None
        self.evidence = self.counted = LogEvidence(np.array(arrays["J"]), np.array(arrays["h"]), self.L)
        if "counted_J" in arrays:
            self.counted = LogEvidence(np.array(arrays["counted_J"]), np.array(arrays["counted_h"]), self.L)
        self.cautious = self.counted  # until the next refresh, before which nobody asks for it

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

    def effective_rows(self) -> Array:
        """(K_j,)  ``n·tr(ΛG⁻¹)s²/L``: as many rows with a known hidden half, and no bias, would say as much."""
        if self.counted is None or not self.L:
            return np.zeros(len(self.arms))
        G = np.asarray(self.hidden.summary.grams)
        scale = np.sqrt(np.maximum(np.einsum("aii->ai", G), 1e-300))
        scales = scale[:, :, None] * scale[:, None, :]
        part = (pseudo_inverse(G / scales, 1e-12) * self.counted.precision / scales).sum(axis=(1, 2))
        return np.asarray(np.clip(part * (self.s2 - self.level) / self.L, 0.0, 1.0) * self.counts)

    def trust(self, labels: Sequence[Any], covariances: Array, features: Sequence[Any]) -> list[dict[str, Any]]:
        """What it still counts for, arm by arm, as ``FusedOFUL.log_trust`` tells it.

        Args:
            labels: of the learner's arms.
            covariances: (K, d, d)  of the arms' weights, in the context's order.
            features: names of the context's features.
        """
        shares = np.zeros(len(self.arms))
        if self.counted is not None:
            covariance = covariances[np.ix_(self.arms, self.order, self.order)]
            shares = (self.counted.J * covariance).sum(axis=(1, 2)) / len(self.order)
        rows, standing = self.effective_rows(), self.standing
        wrong = None if standing.feature < 0 else features[self.order[standing.feature % self.L]]
        return [
            {
                "log": self.key,
                "arm": labels[a],
                "share": float(min(max(shares[i], 0.0), 1.0)),
                "effective_rows": float(rows[i]),
                "doubted": bool(standing.accused[i]),
                "reduced": bool(standing.levels[i] > 0 or standing.feature >= 0),
                "feature": wrong,
                "strength": float(standing.strengths[i]),
                "since": int(standing.since[i]) if standing.since[i] >= 0 else None,
                "whole_log": standing.common,
                "suspicion": standing.suspicion,
                "moved": float(np.sqrt(self.moved)),
            }
            for i, a in enumerate(self.arms)
        ]
