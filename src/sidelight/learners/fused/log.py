"""One log inside a fused learner: what it says now, how rounds compare with it, and what is told of it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from sidelight.hidden.frame import unitless_pseudo_inverse
from sidelight.hidden.protocol import CompleteEstimator, Scales
from sidelight.learners.fused.claiming import Claiming
from sidelight.learners.fused.standing import Frozen
from sidelight.learners.hidden_half import Answer, take_answer
from sidelight.linalg import Array, apply, product, pseudo_inverse
from sidelight.side.evidence import LogEvidence
from sidelight.side.rare import RareContexts

__all__ = ["FusedLog"]

#: the test allows for so many times the variance that ``B̂`` is claimed to have: pooling biases it, and where features
#: are skewed or few arms tell how much, the claim is too small
ERROR = 4.0


class FusedLog(Claiming):
    """A log, the estimator of its hidden half, and what rounds make of it.

    Attributes:
        key: the user's name for the log.
        labels: its arms, with their positions in the log.
    """

    def __init__(self, key: Any, hidden: CompleteEstimator, positions: dict[Any, int], proven: bool = False) -> None:
        super().__init__(hidden, positions, proven)
        self.key = key
        self.labels = {arm: i for i, arm in enumerate(hidden.summary.arms)}
        self._rare: RareContexts | None = None
        self._gain: Array | None = None

    def answer(self, x: Array, answer: Answer) -> None:
        """What the old policy would do at ``x``; its arm is matched by label, whatever the learner's order of arms."""
        take_answer(self.hidden, x, None if answer.arm is None else self.labels[answer.arm], answer)

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
        summary, geometry = self.hidden.summary, self.geometry
        self._gain = None
        if geometry is None or not len(geometry.A) or self.L == 0 or self.evidence is None:
            return
        inverse = unitless_pseudo_inverse(geometry.A)
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
        numbers += [self.moved, *self.scales, float(self._scaled_at)]
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
        self.scales, self._scaled_at = Scales(*more[2:4]), int(more[4]) if len(more) > 4 else 0
        if "bias" in arrays:
            self._bias_directions = np.array(arrays["bias"], dtype=np.float64).reshape(self.L, -1 if self.L else 0)
        # a file from before lines were compared with the interval begins to do so
        self.excess.total = np.array(arrays.get("excess", np.zeros(2)), dtype=np.float64)
        self._gain = np.array(arrays["gain"]) if arrays["gain"].size else None
        self.evidence = self.counted = LogEvidence(np.array(arrays["J"]), np.array(arrays["h"]), self.L)
        if "counted_J" in arrays:
            self.counted = LogEvidence(np.array(arrays["counted_J"]), np.array(arrays["counted_h"]), self.L)
        self.cautious = self.counted  # until the next refresh, before which nobody asks for it

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
