"""One log inside a fused learner: its place among the learner's features and arms, and what it says now."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from sidelight.errors import InputError
from sidelight.hidden.protocol import CompleteEstimator, HiddenEstimator, completed
from sidelight.learners.hidden_half import behavior_answer
from sidelight.linalg import Array, apply, eigenvalues, product, pseudo_inverse
from sidelight.side.evidence import LogEvidence, LogGeometry, hidden_variance
from sidelight.side.trust import EFFECTIVE_ROWS, AnswersTest, Verdict

__all__ = ["FusedLog", "by_key"]

#: how much more readily the other arms of a log are tried that was wrong about one
CAUGHT = 20.0
#: (levels, 1)  one over the rows that a log may count for
_BIASES = np.array([[1.0 / rows if rows else np.inf] for rows in EFFECTIVE_ROWS])


class FusedLog:
    """A log, the estimator of its hidden half, and its evidence as of the last refresh.

    Attributes:
        key: the user's name for the log.
        hidden: the estimator, which carries the summary.
        labels: its arms, with their positions in the log   arms: (K_j,)  their positions in the learner.
        order: (d,)  its features, recorded first, as positions in the context.
        s2: (K_j,)  residual variance of the log   tau2: (K_j,)  the part that the hidden features explain; 0 where
            ``B̂`` errs by the log's own rows (where proven, what then comes on top of ``s²``).
        proven: for ``radius="theory"``: nothing here may depend on online rewards, or rest on more than the proof does.
    """

    def __init__(self, key: Any, hidden: CompleteEstimator, positions: dict[Any, int], proven: bool = False) -> None:
        summary = hidden.summary
        self.proven = proven
        self.key, self.hidden = key, hidden
        self.labels = {arm: i for i, arm in enumerate(summary.arms)}
        self.arms: NDArray[np.int64] = np.array([positions[arm] for arm in summary.arms], dtype=np.int64)
        self.order: NDArray[np.int64] = np.concatenate([summary.recorded, summary.hidden]).astype(np.int64)
        self.L = summary.n_recorded
        #: its arms and features are in the learner's own order
        self._in_place = bool((np.diff(self.order) == 1).all() and (self.arms == np.arange(len(self.arms))).all())
        self.counts = np.asarray(summary.counts, dtype=np.float64)
        self.s2 = np.array(summary.residual_variances, dtype=np.float64)
        # a log too small to have residuals has at most the rewards' own second moment of noise
        second = float(summary.reward_squares.sum()) / max(summary.n_rows, 1)
        second = second if second > 0 else 1.0  # a log of zeros tells no scale
        self.s2[~(np.isfinite(self.s2) & (self.s2 > 0))] = second
        # what a log explains without any rest is exact to rounding, not beyond
        self.s2 = np.maximum(self.s2, 1e-12 * second)
        # where nothing is hidden there is nothing for it to explain
        self.tau2 = (0.5 if len(self.order) > self.L else 0.0) * self.s2
        #: a known R12 errs by the log's own rows (see there), which is no part of s² but comes on top of it
        self._on_top = hidden.error_from_log
        if self._on_top and not proven:
            self.tau2 = np.zeros_like(self.s2)
        self.evidence: LogEvidence | None = None
        self.geometry: LogGeometry | None = None
        self.fresh = True
        self.levels: NDArray[np.int64] = np.zeros(len(self.arms), dtype=np.int64)
        self.strengths = np.zeros(len(self.arms))
        self.since = np.full(len(self.arms), -1, dtype=np.int64)
        self.common = False
        self.suspicion = 0.0
        self._test: AnswersTest | None = None
        self._gain: Array | None = None
        self._shared, self._bias_bound = 1.0, 0.0

    def answer(self, x: Array, arm: Any, probabilities: ArrayLike | None, probability: float) -> None:
        """What the old policy would do at ``x``; ``arm`` is matched by label, whatever the learner's order of arms."""
        behavior_answer(self, self.hidden, x, arm, probabilities, probability)

    def _arm(self, arm: Any) -> int:
        return self.labels[arm]

    def refresh(
        self,
        weights: Array,
        covariances: Array,
        *,
        variance: float,
        shared: int,
        bias_bound: float,
        sandwich: bool,
        weight_bound: float,
        context_bound: float,
        plays: Array | None = None,
    ) -> None:
        """Take ``τ²`` from what the learner knows of the hidden weights, and the evidence from it.

        The proven radius needs a ``τ²`` that no online reward had a say in: the largest that ``‖w_h − μ_h‖ ≤ S_w``
        allows, ``min(s², (‖μ_h‖ + S_w)² λ_max(Σ_e))``; where ``R12`` is known, ``S_x²(‖μ_h‖ + S_w)²`` on top of ``s²``,
        since ``E[(x_h·w_h)²x_ox_oᵀ] ⪯ S_x²‖w_h‖²R11``.

        Args:
            weights: (K, d)  ``ŵ`` (where proven: ``μ``), in the context's order.
            covariances: (K, d, d)  ``V⁻¹``.
            variance: ``σ²``: their posterior covariances are ``σ²V⁻¹``.
            shared: how many logs' ``B̂`` come from the same contexts (``τ²`` is multiplied by it: always safe).
            bias_bound: root mean square of the bias the log may have, in reward units.
            sandwich: use the summary's ``meat``.
            weight_bound: ``S_w``.
            context_bound: ``S_x``.
            plays: (K,)  rounds of every arm, where the prior is learned.
        """
        hidden, error = self.order[self.L :], None
        if self.proven:
            largest = np.square(np.linalg.norm(weights[self.arms][:, hidden], axis=1) + weight_bound)
            widest = eigenvalues(self.hidden.residual_moments())[:, -1] if len(hidden) else 0.0
            self.tau2 = context_bound**2 * largest if self._on_top else np.minimum(largest * widest, self.s2)
        elif self._on_top:
            own = weights[self.arms][:, hidden]
            second = own[:, :, None] * own[:, None, :] + variance * covariances[np.ix_(self.arms, hidden, hidden)]
            # before anything is known about the hidden weights: as if they had half of what the log left unexplained
            fresh = 0.5 * self.s2[:, None, None] * np.asarray(self.hidden.summary.grams)
            error = fresh if self.fresh else self.hidden.log_error(second)
        elif not self.fresh:
            self.tau2 = hidden_variance(
                self.hidden.residual_moments(), weights, covariances, variance, self.arms, hidden, self.s2
            )
            if plays is not None and len(hidden):
                self.tau2 = np.maximum(self.tau2, self._least_tau2(plays[self.arms], len(hidden)))
        self.fresh = False
        self._shared, self._bias_bound = float(shared), bias_bound
        if self.geometry is None:
            self.geometry = LogGeometry(self.hidden, self.hidden.summary.meat if sandwich else None)
        self.geometry.renew(error)
        self.evidence = self.geometry.evidence(self._shared * self.tau2, self._variances())

    def well_told(self) -> NDArray[np.bool_]:
        """(K_j,)  Whether an arm has so many rows that its ``s²`` can be compared with others'."""
        return np.asarray(self.counts >= 10.0 * (self.L + 1))

    def _least_tau2(self, plays: Array, m: int) -> Array:
        """(K_j,)  What ``s²`` itself says about ``τ²``, as far as few rounds have told about an arm's hidden weights.

        An arm whose ``s²`` is above the least of all arms has more noise or more hidden effects, and nobody knows which
        before it was played.  To take it for noise would make the log sure of what it cannot know, and the shrunk
        hidden weights that follow would confirm it.
        """
        told = self.well_told()
        if np.count_nonzero(told) < 2:
            return np.zeros(len(self.s2))
        # three sampling errors of s² are chance
        chance = 3.0 * np.sqrt(2.0 / np.maximum(self.counts - self.L, 1.0)) * self.s2
        above = np.maximum(self.s2 - float(self.s2[told].min()) - chance, 0.0)
        return np.where(told, above * (2.0 * m / (2.0 * m + plays)), 0.0)

    def _variances(self) -> Array:
        """(K_j,)  ``s²`` at the level of every arm."""
        return np.asarray(self._level_variances()[self.levels, np.arange(len(self.arms))])

    def _level_variances(self) -> Array:
        """(levels, K_j)  ``s²`` where the log counts for at most so many ``EFFECTIVE_ROWS`` of an arm."""
        own = self.s2 + self.tau2 if self._on_top else self.s2
        # a bias of covariance Δ²R11⁻¹ = nΔ²G⁻¹ adds to s²G⁻¹: the log counts for at most s²/Δ² rows
        s2 = own + self.counts * self._bias_bound**2
        return np.asarray(s2 + _BIASES * (own * np.maximum(self.counts, 1.0)))

    def noise_variance(self) -> float:
        """``s² − τ²`` over all arms: ``σ²`` as the log has it; 0 where it does not tell."""
        if self._on_top or not self.counts.any():
            return 0.0
        return float(((self.s2 - self.tau2) * self.counts).sum() / self.counts.sum())

    def marginals(self, J0: Array, h0: Array, grams: Array, moments: Array, variance: float) -> Array:
        """(levels, K_j)  how well the rounds fit each level, given ``J0``, ``h0`` from elsewhere.

        All of them in the context's order and for all arms of the learner; see ``LogGeometry.marginals``.
        """
        assert self.geometry is not None
        if not self._in_place or len(self.arms) != len(J0):
            matrices, vectors = np.ix_(self.arms, self.order, self.order), np.ix_(self.arms, self.order)
            J0, h0, grams, moments = J0[matrices], h0[vectors], grams[matrices], moments[vectors]
        s2 = self._level_variances()
        return self.geometry.marginals(J0, h0, grams, moments, variance, self._shared * self.tau2, s2)

    def judge(self, verdict: Verdict, events: int) -> bool:
        """Take over a verdict, and say whether it is a new one; remember since when an arm is doubted."""
        assert self.geometry is not None
        doubted = verdict.levels > 0
        self.since = np.where(doubted, np.where(self.since >= 0, self.since, events), -1)
        self.strengths, self.common = verdict.strengths, verdict.common
        changed = bool((verdict.levels != self.levels).any())
        if changed:
            self.levels = verdict.levels
            self.evidence = self.geometry.evidence(self._shared * self.tau2, self._variances())
        return changed

    def tested(self, covariances: Array, grams: Array) -> Array:
        """(K_j,)  What part of an arm's rounds could have told a lie of the log from the truth, between 0 and 1.

        A lie adds ``x_o·β`` to rewards.  Weights that the log leaves open may take its place: of a lie about recorded
        feature ``j`` the rounds see ``[G − GV⁻¹G]_jj`` where they would see ``G_jj`` if all weights were known.  The
        mean over recorded features is taken.

        Args:
            covariances: (K, d, d)  ``V⁻¹``, the log's evidence in it.
            grams: (K, d, d)  ``G = Σ x xᵀ`` of the rounds.
        """
        G, recorded = grams[self.arms], self.order[: self.L]
        columns = G[:, :, recorded]
        own = np.einsum("ajj->aj", columns[:, recorded])
        explained = (columns * product(covariances[self.arms], columns)).sum(axis=1)
        seen = own > 0.0
        parts = np.where(seen, 1.0 - explained / np.where(seen, own, 1.0), 0.0)
        return np.asarray(np.clip(parts.sum(axis=1) / np.maximum(seen.sum(axis=1), 1), 0.0, 1.0))

    def readiness(self) -> Array:
        """(K_j,)  How readily to try an arm in doubt: 1; more if the log is wrong elsewhere; 0 where it is silent."""
        others_wrong = (self.levels > 0).sum() > (self.levels > 0)
        speaks = (self.counts > 0) & (np.array(EFFECTIVE_ROWS)[self.levels] > 0)
        return np.where(speaks, np.where(others_wrong & (self.levels == 0), CAUGHT, 1.0), 0.0)

    def suspected(self) -> float:
        """Log odds against the log, from the answers alone."""
        if self._test is None:
            self._test = AnswersTest(self.hidden.summary)
        return max(self._test.log_ratio(self.hidden), 0.0)

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
        inverse = pseudo_inverse(A)
        part = (self.evidence.precision * np.swapaxes(inverse, 1, 2)).sum(axis=(1, 2)) * self.tau2 / self.L
        H = ((np.asarray(summary.shares) * part)[:, None, None] * inverse).sum(axis=0)
        typical = float((np.asarray(summary.shares)[:, None, None] * summary.second_moments * H.T).sum())
        if typical > 0:
            self._gain = H / typical

    def state(self) -> dict[str, Any]:
        """Arrays to be saved: what the learner knows of this log beyond its estimator."""
        assert self.evidence is not None
        numbers = np.array([float(self.common), self.suspicion, self._shared, self._bias_bound])
        gain = np.zeros((0, 0)) if self._gain is None else self._gain
        e = self.evidence
        return {
            "tau2": self.tau2,
            "levels": self.levels,
            "strengths": self.strengths,
            "since": self.since,
            "numbers": numbers,
            "gain": gain,
            "J": e.J,
            "h": e.h,
        }

    def restore(self, arrays: dict[str, Any]) -> None:
        """The inverse of ``state``."""
        self.tau2 = np.array(arrays["tau2"], dtype=np.float64)
        self.strengths = np.array(arrays["strengths"], dtype=np.float64)
        self.levels = np.array(arrays["levels"], dtype=np.int64)
        self.since = np.array(arrays["since"], dtype=np.int64)
        common, self.suspicion, self._shared, self._bias_bound = (float(v) for v in arrays["numbers"])
        self.common = bool(common)
        self._gain = np.array(arrays["gain"]) if arrays["gain"].size else None
        self.evidence = LogEvidence(np.array(arrays["J"]), np.array(arrays["h"]), self.L)

    def add_to(self, J: Array, h: Array) -> None:
        """Add its evidence to ``J`` (K, d, d) and ``h`` (K, d), in the context's order."""
        if self.evidence is None:
            return
        if self._in_place and len(self.arms) == len(J):
            J += self.evidence.J
            h += self.evidence.h
        else:
            J[np.ix_(self.arms, self.order, self.order)] += self.evidence.J
            h[np.ix_(self.arms, self.order)] += self.evidence.h
        self.add_companion(J, h)

    def add_companion(self, J: Array, h: Array) -> None:
        """Add what the rewards of a companion log say, which is no matter of trust in the large one."""
        rows = self.hidden.companion
        if rows is not None and not self.proven:
            # the companion's rewards, seen at full contexts, are like rounds of our own
            noise = np.maximum(self.s2 - self.tau2, 0.05 * self.s2)[:, None]
            J[np.ix_(self.arms, rows.recorded, rows.recorded)] += rows.grams / noise[:, :, None]
            h[np.ix_(self.arms, rows.recorded)] += rows.cross / noise

    def information_share(self, online: Array) -> Array:
        """(K_j,)  the log's part in ``tr(J_log + J_online)``, features scaled alike.  online: (K, d, d)"""
        if self.evidence is None:
            return np.zeros(len(self.arms))
        mine = np.einsum("aii->ai", self.evidence.J)
        rounds = np.einsum("aii->ai", online)[self.arms][:, self.order]
        total = mine + rounds
        return np.asarray(np.mean(np.where(total > 0, mine / np.where(total > 0, total, 1.0), 0.0), axis=1))

    def trust(self, labels: Sequence[Any], online: Array) -> list[dict[str, Any]]:
        """What it still counts for, arm by arm, as ``FusedOFUL.log_trust`` tells it.  online: (K, d, d)"""
        shares = self.information_share(online)
        return [
            {
                "log": self.key,
                "arm": labels[a],
                "share": float(shares[i]),
                "effective_rows": min(EFFECTIVE_ROWS[self.levels[i]], float(self.counts[i])),
                "doubted": bool(self.levels[i] > 0),
                "strength": float(self.strengths[i]),
                "since": int(self.since[i]) if self.since[i] >= 0 else None,
                "whole_log": self.common,
                "suspicion": self.suspicion,
            }
            for i, a in enumerate(self.arms)
        ]


def by_key(hidden: Any, learner: str) -> dict[Any, CompleteEstimator]:
    """The estimators by the name of their log: one alone, a list or a dictionary of them."""
    if isinstance(hidden, Mapping):
        estimators = dict(hidden)
    elif isinstance(hidden, list | tuple):
        estimators = dict(enumerate(hidden))
    else:
        estimators = {None: hidden}
    if not estimators:
        raise InputError(f"{learner} needs at least one log; without any, use OFUL.")
    for key, estimator in estimators.items():
        if not isinstance(estimator, HiddenEstimator):
            where = "" if key is None else f" for the log {key!r}"
            raise InputError(
                f"{learner} takes an estimator of how hidden features go with recorded ones{where} (BehaviorQueries, "
                f"BehaviorProbabilities, CompanionLog, KnownCrossMoments, or your own), got "
                f"{type(estimator).__name__}. A LogSummary goes inside one: BehaviorQueries(summary)."
            )
    return {key: completed(estimator) for key, estimator in estimators.items()}
