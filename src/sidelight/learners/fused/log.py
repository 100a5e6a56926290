"""One log inside a fused learner: its place among the learner's features and arms, and what it says now."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from sidelight.errors import InputError
from sidelight.hidden.protocol import CompleteEstimator, HiddenEstimator, completed
from sidelight.learners.hidden_half import behavior_answer
from sidelight.linalg import Array, apply, eigenvalues, product, pseudo_inverse, solve
from sidelight.side.evidence import AnswersHalf, FrozenLog, LogEvidence, LogGeometry, hidden_variance
from sidelight.side.intersection import Directions, error_directions
from sidelight.side.preference import all_preferences, recorded_preferences
from sidelight.side.robust import LEAST
from sidelight.side.trust import EFFECTIVE_ROWS, FEATURE_ROWS, AnswersTest, LogTest, Verdict
from sidelight.theory import scarcity_factor

__all__ = ["FusedLog", "bias_of", "by_key"]

#: how much more readily the other arms of a log are tried that was wrong about one
CAUGHT = 20.0
#: the test allows for so many times the variance that ``B̂`` is claimed to have: pooling biases it, and where features
#: are skewed or few arms tell how much, the claim is too small
ERROR = 4.0
#: the part of what a log left unexplained that is taken for the hidden features' doing while nothing tells it
UNTOLD = 0.5
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
        evidence: what it says   cautious: … with ``τ²`` times the number of logs, whatever they have in common
            counted: what it adds to the evidence of all logs; all three the same where it is the only one.
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
        self.tau2 = (UNTOLD if len(self.order) > self.L else 0.0) * self.s2
        #: whether features computed from others are among the recorded ones
        self._bent = bool(summary.schema.recorded_terms)
        #: a known R12 errs by the log's own rows (see there), which is no part of s² but comes on top of it
        self._on_top = hidden.error_from_log
        if self._on_top and not proven:
            self.tau2 = np.zeros_like(self.s2)
        self.evidence: LogEvidence | None = None
        self.cautious: LogEvidence | None = None
        self.counted: LogEvidence | None = None
        self.geometry: LogGeometry | None = None
        self.fresh = True
        self.levels: NDArray[np.int64] = np.zeros(len(self.arms), dtype=np.int64)
        self.strengths = np.zeros(len(self.arms))
        self.since = np.full(len(self.arms), -1, dtype=np.int64)
        self.common = False
        #: ``size·L`` and the position of the recorded feature that the log is wrong about, or −1
        self.feature = -1
        #: (K_j,)  whether it is the log that is wrong where it counts for less, not curved rewards or a moving present
        self.accused = np.zeros(len(self.arms), dtype=bool)
        self.suspicion = 0.0
        # the proof is a union over all settings that rewards may choose: few of them
        self.test = LogTest(len(self.arms), 0 if proven else self.L)
        self._answers_test: AnswersTest | None = None
        self._gain: Array | None = None
        #: (K_j, L)  what the old policy favoured among recorded features: as the log has it, so worked out once
        self._favoured: Array | None = None
        self._shared, self._bias_bound = 1.0, 0.0
        #: (L, n)  directions in which the user allows for a bias, times its size
        self._bias_directions = np.zeros((self.L, 0))
        self._frozen: _Frozen | None = None
        #: (K_j,)  times which ``s²`` is counted where proven, since it was estimated from so few rows
        self._rows_scarcity = np.ones(len(self.arms))

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
        bias_bound: float | Array,
        sandwich: bool,
        weight_bound: float,
        context_bound: float,
        plays: Array | None = None,
        delta: float = 0.05,
    ) -> None:
        """Take ``τ²`` from what the learner knows of the hidden weights, and the evidence from it.

        The proven radius needs a ``τ²`` that no online reward had a say in: the largest that ``‖w_h − μ_h‖ ≤ S_w``
        allows, ``min(s², (‖μ_h‖ + S_w)² λ_max(Σ_e))``; with the sandwich all of the log's squared residuals.  Where
        ``R12`` is known, ``S_x²(‖μ_h‖ + S_w)²`` on top of ``s²``, since ``E[(x_h·w_h)²x_ox_oᵀ] ⪯ S_x²‖w_h‖²R11``.

        Args:
            weights: (K, d)  ``ŵ`` (where proven: ``μ``), in the context's order.
            covariances: (K, d, d)  ``V⁻¹``.
            variance: ``σ²``: their posterior covariances are ``σ²V⁻¹``.
            shared: how many logs' ``B̂`` come from the same contexts (``τ²`` is multiplied by it: always safe).
            bias_bound: root mean square of the bias the log may have, in reward units; or (d,) the largest bias of each
                feature's coefficient.
            sandwich: use the summary's ``meat``.
            weight_bound: ``S_w``.
            context_bound: ``S_x``.
            plays: (K,)  rounds of every arm, where the prior is learned.
            delta: ``δ_k`` of this log, where proven: few rows and answers count for as much less as it needs.
        """
        hidden, error, answers = self.order[self.L :], None, None
        if self.proven:
            largest = np.square(np.linalg.norm(weights[self.arms][:, hidden], axis=1) + weight_bound)
            widest = eigenvalues(self.hidden.residual_moments())[:, -1] if len(hidden) else 0.0
            self.tau2 = context_bound**2 * largest if self._on_top else np.minimum(largest * widest, self.s2)
            if sandwich and self._on_top:
                error = self.tau2[:, None, None] * np.asarray(self.hidden.summary.grams)
                self.tau2 = np.zeros_like(self.s2)
            answers = self._proven_half(sandwich, delta)
        elif self._on_top:
            own = weights[self.arms][:, hidden]
            second = own[:, :, None] * own[:, None, :] + variance * covariances[np.ix_(self.arms, hidden, hidden)]
            # before anything is known about the hidden weights: as if they had half of what the log left unexplained
            fresh = UNTOLD * self.s2[:, None, None] * np.asarray(self.hidden.summary.grams)
            error = fresh if self.fresh else self.hidden.log_error(second)
        elif not self.fresh:
            self.tau2 = hidden_variance(
                self.hidden.residual_moments(), weights, covariances, variance, self.arms, hidden, self.s2
            )
            if plays is not None and len(hidden):
                self.tau2 = np.maximum(self.tau2, self._least_tau2(plays[self.arms], len(hidden)))
        self.fresh = False
        self._shared = float(shared)
        if isinstance(bias_bound, float) and sandwich and bias_bound > 0.0:
            # nΔ²G⁻¹, as it is added to s²G⁻¹ where there is no sandwich
            more = (self.counts * bias_bound**2)[:, None, None] * np.asarray(self.hidden.summary.grams)
            error = more if error is None else error + more
        elif isinstance(bias_bound, float):
            self._bias_bound = bias_bound
        else:
            self._bias_directions = _bias_directions(bias_bound[self.order[: self.L]])
        if sandwich and not self.proven and not self._on_top and len(hidden):
            self.tau2 = np.maximum(self.tau2, LEAST * self.s2)
            answers = AnswersHalf(self.tau2, self.s2)
        if self.geometry is None:
            self.geometry = LogGeometry(self.hidden, self.hidden.summary.meat if sandwich else None)
        self.geometry.renew(error, answers)
        self._set_evidence()

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

    def _set_evidence(self) -> None:
        self.evidence = self.cautious = self.counted = self._evidence_of(self._shared * self.tau2)
        if self._shared > 1.0 and not self.proven:
            self.evidence = self._evidence_of(self.tau2)

    def _evidence_of(self, tau2: Array) -> LogEvidence:
        assert self.geometry is not None
        return self.geometry.evidence(tau2, self._variances(), self._bias(self.feature))

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
        """(K_j, L, n)  ``U`` with the covariance ``UUᵀ`` of the bias that is allowed for, and of one in ``feature``."""
        assert self.geometry is not None
        if not self._bias_directions.shape[1] and feature < 0:
            return None
        U = np.broadcast_to(self._bias_directions, (len(self.arms), *self._bias_directions.shape))
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

    def well_told(self) -> NDArray[np.bool_]:
        """(K_j,)  Whether an arm has so many rows that its ``s²`` can be compared with others'."""
        return np.asarray(self.counts >= 10.0 * (self.L + 1))

    def _least_tau2(self, plays: Array, m: int) -> Array:
        """(K_j,)  The least that ``τ²`` is taken for, whatever the hidden weights seem to be.

        Where the log has derived features, ``UNTOLD`` of ``s²``.  Most of them have no effect, their prior variance
        becomes next to nothing, and then ``b_a = w_o + B_aw_h`` says ``B_aw_h ≈ b_a`` of them, in which ``B̂_a`` is
        little but error.  Taken at a ``τ²`` that comes from small hidden weights it says that these are zero, and so
        confirms itself.
        """
        least = self._noisier(plays, m)
        return np.maximum(least, UNTOLD * self.s2) if self._bent else least

    def _noisier(self, plays: Array, m: int) -> Array:
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
        if self.proven:
            own = own * self._rows_scarcity
        # a bias of covariance Δ²R11⁻¹ = nΔ²G⁻¹ adds to s²G⁻¹: the log counts for at most s²/Δ² rows
        s2 = own + self.counts * self._bias_bound**2
        return np.asarray(s2 + _BIASES * (own * np.maximum(self.counts, 1.0)))

    def noise_variance(self) -> float:
        """``s² − τ²`` over all arms: ``σ²`` as the log has it; 0 where it does not tell."""
        if self._on_top or not self.counts.any():
            return 0.0
        return float(((self.s2 - self.tau2) * self.counts).sum() / self.counts.sum())

    def freeze(self, J0: Array, h0: Array, rounds: tuple[Array, Array], variance: float) -> None:
        """Fix what the next rounds are compared with; everything in the context's order, for all arms of the learner.

        Args:
            J0: (K, d, d)  what is known without this log and without rounds.
            h0: (K, d)  likewise.
            rounds: ``Σ x xᵀ`` (K, d, d) and ``Σ x r`` (K, d) so far.
            variance: ``σ²``.
        """
        assert self.geometry is not None
        grams, moments = self._own(*rounds)
        J, h = self._own(J0, h0)
        log = self.geometry.frozen(ERROR * self._shared * self.tau2, self._level_variances(), self._bias(-1))
        self._frozen = _Frozen(J + grams / variance, h + moments / variance, variance, log)

    def weigh(self, rounds: tuple[Array, Array], squares: Array, counts: Array, judged: bool) -> None:
        """Compare the rounds since ``freeze`` with what each kind of bias foretold.

        Rounds of an arm whose rewards vary more around what they themselves say than the noise does count for as much
        less: a few wild rewards are no lie of the log.

        Args:
            rounds: their ``Σ x xᵀ`` (K, d, d) and ``Σ x r`` (K, d), in the context's order.
            squares: (K,)  their ``Σ r²``.
            counts: (K,)  their number.
            judged: whether they count as evidence about the log.
        """
        if self._frozen is None or self.geometry is None:
            return
        f = self._frozen
        grams, moments = self._own(*rounds)
        weights = np.ones(len(self.arms))
        played = np.flatnonzero(counts[self.arms] > 0)
        G, g = grams[played], moments[played]
        w = solve(f.J[played] + G / f.variance, (f.h[played] + g / f.variance)[:, :, None])[:, :, 0]
        left = squares[self.arms[played]] + (w * (apply(G, w) - 2.0 * g)).sum(axis=1)
        weights[played] = np.minimum(1.0, f.variance * counts[self.arms[played]] / np.maximum(left, 1e-300))
        grams, moments = weights[:, None, None] * grams, weights[:, None] * moments
        self.test.add(
            *self.geometry.marginals((f.J, f.h), (grams, moments), f.variance, f.log, self._direction_sizes()), judged
        )

    def _own(self, J: Array, h: Array) -> tuple[Array, Array]:
        """Matrices and vectors of the learner's arms for this log's arms, its recorded features first."""
        if self._in_place and len(self.arms) == len(J):
            return J, h
        return J[np.ix_(self.arms, self.order, self.order)], h[np.ix_(self.arms, self.order)]

    def judge(self, found: Verdict, accused: NDArray[np.bool_], events: int) -> bool:
        """Take over a verdict, and say whether it is a new one; remember since when an arm is doubted.

        accused: (K_j,)  whether it is the log that is wrong, where it counts for less
        """
        self.since = np.where(found.doubted, np.where(self.since >= 0, self.since, events), -1)
        self.strengths, self.common, self.accused = found.strengths, found.common, accused
        changed = bool((found.levels != self.levels).any()) or found.feature != self.feature
        self.levels, self.feature = found.levels, found.feature
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
        own = covariances[np.ix_(self.arms, self.order, self.order)]
        left = variances[self.arms] * (self.counted.J * own).sum(axis=(1, 2)) / max(self.L, 1)
        return np.asarray(np.clip(1.0 - left, 0.0, 1.0))

    def readiness(self) -> Array:
        """(K_j,)  How readily to try an arm in doubt: 1; more if the log is wrong elsewhere; 0 where it is silent."""
        wrong = self.levels > 0
        others_wrong = wrong.sum() > wrong
        speaks = (self.counts > 0) & (np.array(EFFECTIVE_ROWS)[self.levels] > 0)
        return np.where(speaks, np.where(others_wrong & (self.levels == 0), CAUGHT, 1.0), 0.0)

    def suspected(self) -> float:
        """Log odds against the log, from the answers alone."""
        if self._answers_test is None:
            self._answers_test = AnswersTest(self.hidden.summary)
        return max(self._answers_test.log_ratio(self.hidden), 0.0)

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
        numbers = np.array([float(self.common), self.suspicion, self._shared, self._bias_bound, float(self.feature)])
        gain = np.zeros((0, 0)) if self._gain is None else self._gain
        e, counted = self.evidence, self.counted
        assert counted is not None
        frozen = {} if self._frozen is None else self._frozen.state()
        return {
            **{f"test_{name}": value for name, value in self.test.state().items()},
            **{f"frozen_{name}": value for name, value in frozen.items()},
            "accused": self.accused,
            "bias": self._bias_directions,
            "tau2": self.tau2,
            "levels": self.levels,
            "strengths": self.strengths,
            "since": self.since,
            "numbers": numbers,
            "gain": gain,
            "J": e.J,
            "h": e.h,
            **({} if counted is e else {"counted_J": counted.J, "counted_h": counted.h}),
        }

    def restore(self, arrays: dict[str, Any]) -> None:
        """The inverse of ``state``."""
        self.tau2 = np.array(arrays["tau2"], dtype=np.float64)
        self.strengths = np.array(arrays["strengths"], dtype=np.float64)
        self.levels = np.array(arrays["levels"], dtype=np.int64)
        self.since = np.array(arrays["since"], dtype=np.int64)
        common, self.suspicion, self._shared, self._bias_bound, *more = (float(v) for v in arrays["numbers"])
        self.common, self.feature = bool(common), int(more[0]) if more else -1
        if more:
            self.test.restore(_under("test_", arrays))
            self.accused = np.array(arrays["accused"], dtype=bool)
            self._bias_directions = np.array(arrays["bias"], dtype=np.float64).reshape(self.L, -1)
            frozen = _under("frozen_", arrays)
            self._frozen = _Frozen.restored(frozen) if frozen else None
        else:
            # a file from before evidence was kept from refresh to refresh: its verdict stands until there is new
            self._continue_verdict()
        self._gain = np.array(arrays["gain"]) if arrays["gain"].size else None
        self.evidence = self.counted = LogEvidence(np.array(arrays["J"]), np.array(arrays["h"]), self.L)
        if "counted_J" in arrays:
            self.counted = LogEvidence(np.array(arrays["counted_J"]), np.array(arrays["counted_h"]), self.L)
        self.cautious = self.counted  # until the next refresh, before which nobody asks for it

    def _continue_verdict(self) -> None:
        """Let the test start where an earlier version's verdict stood."""
        self.accused = self.levels > 0
        for i in np.flatnonzero(self.levels):
            self.test.arms[self.levels[i], i] = self.strengths[i]
        if self.common and len(self.levels):
            self.test.whole[self.levels[0]] = self.strengths.sum()

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
        """Add what the rewards of a companion log say, which is no matter of trust in the large one."""
        rows = self.hidden.companion
        if rows is not None and not self.proven:
            # the companion's rewards, seen at full contexts, are like rounds of our own
            noise = np.maximum(self.s2 - self.tau2, 0.05 * self.s2)[:, None]
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
        return np.asarray(np.clip(part * self.s2 / self.L, 0.0, 1.0) * self.counts)

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
        rows = self.effective_rows()
        wrong = None if self.feature < 0 else features[self.order[self.feature % self.L]]
        return [
            {
                "log": self.key,
                "arm": labels[a],
                "share": float(min(max(shares[i], 0.0), 1.0)),
                "effective_rows": float(rows[i]),
                "doubted": bool(self.accused[i]),
                "reduced": bool(self.levels[i] > 0 or self.feature >= 0),
                "feature": wrong,
                "strength": float(self.strengths[i]),
                "since": int(self.since[i]) if self.since[i] >= 0 else None,
                "whole_log": self.common,
                "suspicion": self.suspicion,
            }
            for i, a in enumerate(self.arms)
        ]


#: what is saved of a ``FrozenLog``
FROZEN = ("R", "y", "B", "A", "tau2", "s2")


@dataclass(frozen=True)
class _Frozen:
    """What rounds are compared with: ``J``, ``h`` without this log, the noise's variance, and the log as it was."""

    J: Array
    h: Array
    variance: float
    log: FrozenLog

    def state(self) -> dict[str, Array]:
        log = self.log
        parts = {name: getattr(log, name) for name in FROZEN}
        return {"J": self.J, "h": self.h, **parts, "variance": np.array([self.variance])}

    @classmethod
    def restored(cls, arrays: Mapping[str, Any]) -> _Frozen:
        J, h, *log = (np.array(arrays[k], dtype=np.float64) for k in ("J", "h", *FROZEN))
        return cls(J, h, float(arrays["variance"][0]), FrozenLog(*log))


def _under(prefix: str, arrays: Mapping[str, Any]) -> dict[str, Any]:
    return {key.removeprefix(prefix): value for key, value in arrays.items() if key.startswith(prefix)}


def _bias_directions(bounds: Array) -> Array:
    """(L, p)  ``√p·Δ_je_j`` of the ``p`` features that are named; ``D = p·diag(Δ_j²)``.  bounds: (L,)"""
    named = np.flatnonzero(bounds > 0.0)
    out = np.zeros((len(bounds), len(named)))
    out[named, np.arange(len(named))] = np.sqrt(float(len(named))) * bounds[named]
    return out


def bias_of(bound: Any, names: Sequence[str], recorded: NDArray[np.int64]) -> float | Array:
    """A ``bias_bound`` as a number, or as (d,) numbers, one for each feature.

    Args:
        bound: a number, a mapping from features to numbers, or a number for each feature.
        names: (d,)  of the features.
        recorded: positions of those that some log records.
    """
    if isinstance(bound, Mapping):
        unknown = [name for name in bound if name not in {names[j] for j in recorded}]
        if unknown:
            raise InputError(
                f"bias_bound names {', '.join(map(repr, unknown))}, which no log records; the recorded features are "
                f"{', '.join(repr(names[j]) for j in recorded)}."
            )
        bound = [bound.get(name, 0.0) for name in names]
    try:
        values = np.array(bound, dtype=np.float64)
    except (TypeError, ValueError):
        values = np.full(1, np.nan)
    if values.ndim == 0 and values >= 0.0 and np.isfinite(values):
        return float(values)
    if values.shape != (len(names),) or not (np.isfinite(values) & (values >= 0.0)).all():
        raise InputError(
            f"bias_bound={bound!r} must be a number of at least 0, a mapping from recorded features to such numbers, "
            f"or {len(names)} of them, one for each feature."
        )
    return values


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
