"""Estimators of ``B_a`` from what the old policy answers at full contexts.

Three estimators, one accumulator (``AnswerSums``).  With ``t`` answers, ``P`` the arm's share in the log:

- ``ipw``: ``R̂12(a) = (1/t) Σ ω x_o x_hᵀ / P(a)``, ``B̂ = R11(a)⁻¹R̂12`` with ``R11`` of the log.  The paper's.
- ``control_variate``: ``R̂12 − (μ̂_o − μ_o)μ̂_hᵀ`` with the log's mean ``μ_o``: the appendix's form.
  Consistent, not unbiased (order 1/t), and far worse than ``ipw`` for rare arms under a sharp policy.
- ``regression``: least squares of ``x_h`` on ``x_o`` over the answers themselves, shrunk toward the
  regression pooled over arms.  The errors of ``R̂11`` and ``R̂12`` cancel, which the other two give away.
"""

from __future__ import annotations

import math
from copy import deepcopy
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from sidelight.arrays import is_number
from sidelight.errors import InputError
from sidelight.hidden.frame import FADING, Frame, unitless_pseudo_inverse
from sidelight.hidden.gap_answers import GapAnswers, Prediction
from sidelight.hidden.pooling import Fit, Pool, Told, fit_arms, regress, slope_pull
from sidelight.hidden.protocol import Contexts, EstimatorDefaults, HiddenShift, Needs
from sidelight.hidden.strengths import (
    LEVEL_CENTRE,
    Strengths,
    find_common,
    find_strengths,
    first_own,
    first_strengths,
    own_guess,
)
from sidelight.hidden.sums import AnswerSums
from sidelight.kernels.answers import answers_precision, residual_moments
from sidelight.linalg import Array, eigenvalues, log, product, pseudo_inverse, square, symmetrize
from sidelight.logs.summary import LogSummary, one_summary

__all__ = ["AnswerEstimator", "EstimatorName"]

EstimatorName = Literal["regression", "ipw", "control_variate"]

#: EM for missing hidden features: at most this many iterations, until coefficients and means change by less than this,
#: in deviations
STEPS, STILL = 20, 1e-4
#: the least pull, in answers, with which the answers that a regression has used up are counted
LEAST_PULL = 1e-8
#: contexts without an answer are looked at where there are more than so many for each answer
FEW = 0.1
#: pull of the regressions that fill gaps toward the pooled one, in answers for each of their coordinates
FILLING = 2.0


class AnswerEstimator(EstimatorDefaults):
    """The algebra that queries, probabilities and a companion log share.

    Args:
        summary: the log whose hidden half is learned.
        estimator: ``"regression"``, ``"ipw"`` or ``"control_variate"``.
        pooling: ``κ``, the strength of the pull toward the pooled regression, in answers; ``"auto"`` takes
            it from how much the arms' regressions differ.
    """

    estimators: tuple[str, ...] = ("regression", "ipw", "control_variate")
    sums: AnswerSums
    needs: Needs

    def __init__(
        self, summary: LogSummary, estimator: str = "regression", pooling: float | Literal["auto"] = "auto"
    ) -> None:
        self._begin(summary, estimator, pooling)

    def _begin(self, summary: LogSummary, estimator: str, pooling: float | Literal["auto"]) -> None:
        """Set everything to the state before the first answer."""
        one_summary(summary, type(self).__name__)
        if estimator not in self.estimators:
            raise InputError(f"estimator={estimator!r} is not one of {', '.join(self.estimators)}.")
        if pooling != "auto" and not (is_number(pooling) and math.isfinite(pooling) and pooling >= 0):
            raise InputError(f"pooling={pooling!r} must be 'auto' or a number of at least 0.")
        self.summary = summary
        self.estimator = estimator
        self.pooling = pooling
        self.sums = AnswerSums(summary)
        #: answers at contexts with gaps
        self.gap_answers = GapAnswers(summary)
        #: contexts at which the old policy was not asked, as far as they are worth a look; None for none
        self._unasked: Contexts | None = None
        self._last: tuple[Array, Contexts | None, tuple[float, ...], Told, AnswerSums] | None = None
        self._fitted: tuple[Told, Strengths, Pool, Fit] | None = None
        self._residuals: tuple[Fit, Array] | None = None
        self._strength_at, self._still = 0, False
        #: for a file of version 0.1, until strengths are found anew: the pull of levels relative to that of slopes
        self._past: float | None = None
        self._leveled = Frame.leveled(summary)
        self._guess = own_guess(self._leveled)
        self._strengths = first_strengths(self._leveled, self._guess)
        if pooling != "auto":
            self.fix_pooling(float(pooling))

    @property
    def n_answers(self) -> int:
        """``t``: the number of contexts answered, with those that had gaps if the regression could use them."""
        return self.sums.n_answers + self.gap_answers.n_answers

    def _observe_gaps(self, x: Array, chances: Array, probability: float) -> None:
        """Take an answer at a context with gaps: a regression learns from it, the other estimators do not.

        Args:
            x: (d,)  NaN where something is missing.
            chances: (K,)  1 for the arm that was named, or the policy's probabilities.
            probability: with which the context was asked about.
        """
        if self.estimator == "regression" and self.gap_answers.add(x, chances, probability):
            self._answered()

    # ---------------------------------------------------------------------------------- estimates

    def regression(self) -> Array:
        """``B̂``: (K, L, m)."""
        if self.estimator != "regression":
            return self._moment_regression()
        return self._fit()[1].B.copy()

    def cross_moments(self) -> Array:
        """``R̂12(a)``: (K, L, m), with the weights ``1/t`` (errata: ``1/(t − 1)`` is not the unbiased one)."""
        t = self.sums.total_weight
        if t == 0:
            return np.zeros_like(self.sums.S12)
        P = np.where(self.summary.shares > 0, self.summary.shares, 1.0)[:, None, None]
        R12 = self.sums.S12 / (t * P)
        if self.estimator == "control_variate":
            L = self.sums.L
            means = self.sums.sums / (t * P[:, :, 0])
            gap = means[:, :L] - self.summary.means
            R12 = R12 - gap[:, :, None] * means[:, None, L:]
        return np.asarray(R12)

    def _moment_regression(self) -> Array:
        R12 = self.cross_moments()
        moments = np.concatenate([self.summary.second_moments, R12], axis=2)
        nothing = np.zeros(R12.shape[1:])
        return regress(moments, np.zeros((len(nothing), len(nothing))), nothing, fallback=nothing)

    @property
    def _frame(self) -> Frame:
        """The coordinates to regress in: centred if strengths are learned, the plain features if one was given."""
        if self.pooling == "auto" and self._past is None:
            return self._leveled
        return Frame.plain(self.summary, old_ridge=self._past is not None)

    def _told(self) -> Told:
        """The sums of answers in the frame's coordinates, cached until the next answer."""
        return self._told_with_sums()[0]

    def _told_with_sums(self) -> tuple[Told, AnswerSums]:
        """``_told()`` and the raw sums it was computed from, in which missing hidden features have their expectations.

        Threads that read may work on sums that the writer is changing.  What they cache carries the number of answers
        from before, so that it is not used later; and each thread returns its own result, never one that another thread
        may have cached meanwhile.
        """
        S, last, unasked = self.sums, self._last, self._unasked
        slopes = 0.0 if unasked is None else self._strengths.slopes
        at = (S.n_answers, S.total_weight, self.gap_answers.n_answers, slopes)
        if last is None or last[0] is not S.S or last[1] is not unasked or last[2] != at:
            last = self._last = (S.S, unasked, at, *self._all_told(unasked))
        return last[3:]

    def _all_told(self, unasked: Contexts | None) -> tuple[Told, AnswerSums]:
        """``_told_with_sums()`` without the cache; contexts with gaps are completed by regressions (EM).

        These regressions are pooled weakly, and never with learned strengths: gaps filled by strongly pooled
        regressions would confirm that the arms are alike.
        """
        if not self.gap_answers.n_answers:
            return self._told_by(self.sums, unasked), self.sums
        at, frame = self._strengths, self._frame
        if self.pooling == "auto":
            at = Strengths(first_own(self._guess), FILLING * frame.size, LEVEL_CENTRE)
        sums = self.gap_answers.completed(self.sums, self.gap_answers.start(self.sums))
        told, before = self._told_by(sums, unasked), np.zeros(0)
        for step in range(STEPS):
            pool, fit = self._fit_of(told, at)
            # slopes for a deviation of the recorded feature, and means: in deviations of the hidden ones, so that no
            # unit decides when to stop
            slopes, means = fit.plain * np.sqrt(np.diagonal(told.D))[:, None], np.tile(told.means, (len(told.S), 1, 1))
            found = np.concatenate([slopes, means], axis=1) * told.unit
            deviations = np.sqrt(np.diagonal(pool.residual)) * told.unit
            if step and (np.abs(found - before) / deviations).max(initial=0.0) <= STILL:
                break
            before = found
            theta = np.concatenate([fit.plain, pool.theta[None]])
            slopes, levels = told.unit * frame.slopes(theta), told.unit * frame.levels(theta, told.means)
            unit = np.where(told.hidden_scale > 0.0, told.unit, 0.0)
            residual = pool.residual * unit[:, None] * unit
            sums = self.gap_answers.completed(self.sums, Prediction(slopes, levels, residual))
            told = self._told_by(sums, unasked)
        return told, sums

    def _told_by(self, sums: AnswerSums, unasked: Contexts | None) -> Told:
        return Told.of(sums, self._frame, self._shared_answers, unasked, self._strengths.slopes)

    def _fit(self) -> tuple[Pool, Fit]:
        """The regression pooled over arms and every arm's own, cached until the sums or the strengths change."""
        told, at, fitted = self._told(), self._strengths, self._fitted
        if fitted is None or fitted[0] is not told or fitted[1] != at:
            fitted = self._fitted = (told, at, *self._fit_of(told, at))
        return fitted[2:]

    def _fit_of(self, told: Told, at: Strengths) -> tuple[Pool, Fit]:
        pool = Pool.of(told, at.own, at.levels, at.bent)
        pull = slope_pull(told, at.slopes, at.levels)
        if self._past is not None:
            mean = told.frame.mean
            pull -= at.slopes * (1.0 - self._past) * mean[:, None] * mean
        return pool, fit_arms(told, pool, pull)

    # ------------------------------------------------------------------------------------ pooling

    def fix_pooling(self, strength: float) -> None:
        """Set ``κ`` and never estimate it; levels are then pulled like slopes, and ``κ₀`` is one answer."""
        self.pooling = strength
        self._strengths = Strengths(1.0, strength, 0.0)
        self._unasked = self._last = self._fitted = None

    def unpooled(self) -> Any:
        """A copy without pooling: shrinking toward the pooled regression is a bias that no proof covers."""
        twin = self.copy()
        twin.fix_pooling(0.0)
        return twin

    def pooling_strength(self) -> float:
        """``κ``: as set, or as last estimated, which is done each time the answers grew by a quarter (see ``room``)."""
        return self._strengths.slopes

    def _answered(self) -> None:
        """Refresh the strengths if due; the schedule counts answers alone, so that a replay has the same one."""
        if self.room() <= 0:
            before = self._strengths
            if self._past is not None:
                self._past, self._last = None, None
            self._strengths = self._estimate_strengths()
            self._strength_at, self._still = self.n_answers, before == self._strengths

    def _estimate_strengths(self) -> Strengths:
        """``κ₀``, ``κ`` and ``v`` of highest posterior probability."""
        return find_strengths(self._told(), self._strengths, self._guess)

    def room(self) -> int:
        """Answers until the strengths are refreshed: after 25 % more, or after twice as many if they did not change."""
        if self.pooling != "auto":
            return int(np.iinfo(np.int64).max)
        return math.ceil((2.0 if self._still else 1.25) * self._strength_at + 8) - self.n_answers

    def see_contexts(self, contexts: Contexts) -> bool:
        """Learn from contexts at which the old policy was not asked; True if they are worth a look.

        They are if there are more than ``FEW`` of them for each answer, and if strengths of pooling are learned.  The
        answered contexts are taken to be among ``contexts``, and to have the means of all.
        """
        unasked = contexts.rows - self.n_answers
        if self.needs is None or self.estimator != "regression" or self.pooling != "auto" or self._past is not None:
            return False
        if not unasked > FEW * self.n_answers:
            self._unasked = None
            return False
        self._unasked = contexts.part(unasked / contexts.rows)
        self._strengths = find_common(self._told(), self._strengths, self._guess)
        return True

    def took(self, answers: int) -> None:
        """Count ``answers`` answers of weight one that a kernel has added to the sums."""
        self.sums.n_answers += answers
        self.sums.total_weight += float(answers)
        self.sums.heaviest = np.maximum(self.sums.heaviest, 1.0)
        self._answered()

    # -------------------------------------------------------------------------------- uncertainty

    def precision(self) -> Array:
        """``A``: (K, L, L), the effective Gram matrix of the answers.

        For the regression ``A⁻¹ = Cov(B̂_a w_h)/τ² = EW⁻¹(S² + Q + F + Q Cov(θ_pool) Q)W⁻¹Eᵀ`` with ``W = S + Q``:
        sampling noise of the arm's own answers, its random effect, how its level fades (``_fading_error``), and the
        pooled regression, which enters with weight ``W⁻¹Q``.
        ``E`` leads from slopes and level to ``B``.  Without a constant among the recorded features ``u_a`` errs by the
        log's rows, which ``level_moments`` accounts for.  Weighted answers count by ``A_p(Σω²xxᵀ)⁻¹A_p`` (see
        ``Told``).
        """
        S = self.sums
        if self.estimator != "regression":
            return np.asarray(S.total_weight * self.summary.shares[:, None, None] * self.summary.second_moments)
        if self.pooling_strength() == 0.0:
            # no pooling: A_p(Σω²x_ox_oᵀ)⁺A_p, which is the Gram matrix itself where every weight is one
            sums = self._told_with_sums()[1]
            return _congruent(sums.S11, sums.S_squared)
        told, (pool, fit) = self._told(), self._fit()
        shared = fit.pull + symmetrize(product(product(fit.share.T, pool.noise + pool.pull), fit.share))
        E = told.frame.projection
        A = np.empty((len(E), S.L, S.L))
        middle = told.squared + self._fading_error(told, fit)
        if not answers_precision(told.S, middle, fit.pull, shared, E, A):
            # collinear features, and so many answers that rounding errors exceed the prior: use pseudo-inverses
            n = told.frame.size
            for a in np.flatnonzero(np.isnan(A).any(axis=(1, 2))):
                H = product(pseudo_inverse(told.S[a, :n, :n] + fit.pull), E[a].T)
                C = symmetrize(product(H.T, product(middle[a] + shared, H)))
                A[a] = unitless_pseudo_inverse(C)
        return A

    def _fading_error(self, told: Told, fit: Fit) -> Array:
        """(K, n, n)  ``f²v(Qp_a)(Qp_a)ᵀ``: the standard error of an arm's fading is taken to be ``f`` itself.

        A shift that fades by more or less is a difference of slopes along ``p_a`` that ``Q`` holds back.
        """
        held = FADING * product(told.frame.preferred, fit.pull)
        return np.asarray(self._strengths.levels * (held[:, :, None] * held[:, None, :]))

    def cautious_precision(self) -> Array:
        """``Σωx_ox_oᵀ/max ω``: (K, L, L).  See ``EstimatorDefaults``; for the weighting estimators ``precision()``.

        ``E[ω²(e·w_h)²x_ox_oᵀ] ⪯ max ω · E[ω(e·w_h)²x_ox_oᵀ]``, and the latter is ``E[(e·w_h)²x_ox_oᵀ | a]`` for each of
        ``Σω`` answers.  ``precision()`` takes ``ω`` and ``e`` for unrelated, which they are not where the old policy
        looks at hidden features.
        """
        if self.estimator != "regression" or self.pooling_strength() != 0.0:
            return self.precision()
        heaviest = self.sums.heaviest
        return np.asarray(self.sums.S11 / np.where(heaviest > 0.0, heaviest, 1.0)[:, None, None])

    def hidden_shift(self) -> HiddenShift | None:
        """The arms' levels beside that of the pooled regression; None before the first answer, or without levels."""
        if self.estimator != "regression" or not self.n_answers:
            return None
        told, (_, fit) = self._told(), self._fit()
        c = told.frame.constant
        if c is None:
            return None
        # over all contexts, whatever their arm: shifts are compared with how features vary among all
        pool = Pool.of(told, self._strengths.own, 0.0, self._strengths.bent)
        levels = (fit.theta[:, c] - pool.theta[c]) * told.unit
        residual = pool.residual * told.unit[:, None] * told.unit
        return HiddenShift(told.frame.slopes(pool.theta[None])[0] * told.unit, levels, residual)

    def unseen(self) -> NDArray[np.bool_]:
        """(m,)  Hidden features of which neither an answer nor a context without one has told a value."""
        unseen = np.full(len(self.summary.hidden), not self.sums.n_answers and self._unasked is None)
        for missing in self.gap_answers.patterns:
            unseen &= np.isin(np.arange(len(unseen)), missing)
        return unseen

    def answer_counts(self) -> Array:
        """``(Σω)²/Σω²``: (K,), every arm's answers in answers of equal weight."""
        return self.sums.effective_counts()

    def level_moments(self) -> Array | None:
        """``E(1 − u_a·x_o)²c_ac_aᵀ``: (K, m, m), what ``x_o`` cannot tell of a level; None with a constant in ``x_o``.

        A logged reward has ``c_a·w_h`` in it, and ``b = G⁻¹Σx_or`` errs by ``(û_a − u_a)(c_a·w_h)``, ``û_a = G⁻¹Σx_o``.
        So does ``B̂_aw_h = F̂_aw_h + û_a(ĉ_a·w_h)``, and of the difference nothing is left.
        """
        if self.estimator != "regression" or not self._frame.missing.any():
            return None
        told, (_, fit) = self._told(), self._fit()
        levels = told.frame.levels(fit.plain, told.means) * told.unit
        return np.asarray(told.frame.missing[:, None, None] * (levels[:, :, None] * levels[:, None, :]))

    #: whether every answer is about all arms at once
    _shared_answers = False

    def residual_moments(self) -> Array:
        """``Σ_e``: (K, m, m).  For ``ipw`` and ``control_variate`` it is ``R22``: nothing cancels there.

        Of an arm's residuals ``tr SW⁻¹`` are used up by its own regression, and ``tr SW⁻¹QT⁻¹`` by the pooled one
        (``T`` its Gram matrix).  Nothing is subtracted there, so that neither a strong nor a weak pull loses digits.
        """
        S = self.sums
        m = S.S22.shape[-1]
        # an arm's own residuals count once they outnumber 2m + 2 pseudo-residuals of the pool
        prior = 2.0 * m + 2.0
        if self.estimator != "regression":
            total, count = np.sum(S.S22, axis=0), float(np.sum(S.counts))
            own = np.diagonal(total) / max(count, 1.0)
            pooled = (total + np.diag(np.where(own > 0, own, 1.0))) / (count + 1.0)
            return symmetrize((S.S22 + prior * pooled) / (S.counts + prior)[:, None, None])
        told, (pool, fit), Sigma = self._told(), self._fit(), np.empty_like(S.S22)
        residuals = self._residuals
        if residuals is not None and residuals[0] is fit:
            return residuals[1].copy()
        pull, used = fit.pull + 1e-12 * told.D, np.array(fit.share.T, order="C")
        # without pooling fewer answers than features leave a singular matrix: rounding is small beside what is added
        np.einsum("ii->i", pull)[...] += max(LEAST_PULL - self.pooling_strength(), 0.0) * np.diagonal(told.D)
        np.einsum("ii->i", used)[...] += 1.0
        residual_moments(told.S, told.counts, fit.theta, pull, used, pool.residual, prior, Sigma)
        found = np.asarray(Sigma * told.unit[:, None] * told.unit)
        # without a constant among the recorded features the level is predicted by u_a·x_o, which errs
        level = self.level_moments()
        if level is not None:
            found += level
        self._residuals = (fit, found)
        return found.copy()

    def bound(self, delta: float, horizon: int, context_bound: float = 1.0) -> Array:
        """``ΔM``: (K,), with ``‖M̂_a − M_a‖ ≤ ΔM_a`` for all arms and episodes with probability ``1 − δ/2``.

        For ``ipw`` it is ``C_B1/√t + C_B2/t`` (``theory.cross_moment_constants``, corrected), with
        ``tr R22(a) ≤ S_x² − tr R11(a)``.  For the others there is no such proof: ``control_variate`` takes ipw's,
        and the regression the asymptotic ``‖A^{−1/2}‖‖Σ_e^{1/2}‖(√L + √m + √(2 log(2K·episodes/δ)))``.
        """
        from sidelight.theory import cross_moment_constants, delta_m, episode_count

        K, L, m = self.sums.S12.shape
        if L == 0 or m == 0:
            return np.zeros(K)
        t = self.sums.total_weight
        if self.estimator == "regression":
            if t == 0:
                return np.full(K, np.inf)
            spread = eigenvalues(self.residual_moments())[:, -1]
            weakest = np.maximum(eigenvalues(self.precision())[:, 0], 1e-300)
            union = 2.0 * K * episode_count(horizon) / delta
            # two roots: the quotient may overflow, and whether there is a bound does not depend on the features' units
            ratio = np.sqrt(spread) / np.sqrt(weakest)
            return np.asarray(ratio * (math.sqrt(L) + math.sqrt(m) + math.sqrt(2.0 * log(union))))
        R11 = self.summary.second_moments
        constants = cross_moment_constants(
            R11,
            self.summary.shares,
            recorded_bound=context_bound,
            hidden_bound=context_bound,
            n_features=L + m,
            delta=delta,
            horizon=horizon,
            hidden_traces=np.maximum(square(context_bound) - np.einsum("aii->a", R11), 0.0),
        )
        # the constants come first: a log that has none is refused before there are answers
        return np.full(K, np.inf) if t == 0 else np.asarray(delta_m(constants, t))

    # ---------------------------------------------------------------------------------- lifecycle

    def copy(self) -> Any:
        """An independent copy."""
        twin = type(self).__new__(type(self))
        twin.__dict__.update(self.__dict__)
        twin.sums = AnswerSums(self.summary)
        twin.sums.restore({k: np.array(v) for k, v in self.sums.state().items()})
        twin.gap_answers = self.gap_answers.copy()
        return twin

    def __copy__(self) -> Any:
        """As ``copy.deepcopy``: sums that two of them share would be wrong for both."""
        return deepcopy(self)

    def state(self) -> tuple[dict[str, Any], dict[str, Array]]:
        """What a file needs to restore it, beside the summary."""
        meta = {
            "kind": type(self).__name__,
            "estimator": self.estimator,
            "pooling": self.pooling,
            "strengths": list(self._strengths),
            "past": self._past,
            "strength_at": self._strength_at,
            "strength_still": self._still,
        }
        arrays = {**self.sums.state(), **self.gap_answers.state()}
        if self._unasked is not None:
            rows, sums, squares = self._unasked
            arrays["unasked"] = np.vstack([np.append(rows, sums), np.column_stack([sums, squares])])
        return meta, arrays

    @classmethod
    def from_state(cls, summary: LogSummary, meta: dict[str, Any], arrays: dict[str, Array]) -> Any:
        """An estimator of ``summary`` with the state that ``state`` gave."""
        estimator = cls.__new__(cls)
        estimator._begin(summary, meta["estimator"], meta["pooling"])
        estimator.restore(meta, arrays)
        return estimator

    def restore(self, meta: dict[str, Any], arrays: dict[str, Array]) -> None:
        """The inverse of ``state``."""
        self._strength_at = int(meta["strength_at"])
        self._still = bool(meta.get("strength_still", False))
        self.sums.restore(arrays)
        self.gap_answers.restore(arrays)
        if "unasked" in arrays:
            kept = np.array(arrays["unasked"], dtype=np.float64)
            self._unasked = Contexts(float(kept[0, 0]), kept[0, 1:].copy(), kept[1:, 1:].copy())
        if "strengths" in meta:
            self._strengths = Strengths(*(float(value) for value in meta["strengths"]))
            self._past = meta["past"]
        elif self.pooling == "auto":
            self._strengths, self._past = Strengths(1.0, float(meta["strength"]), 0.0), float(meta["level"])

    def _repr_html_(self) -> str:
        from sidelight.hidden.cards import estimator_card

        return estimator_card(self, self.summary, self.sums.counts)

    def __repr__(self) -> str:
        s = self.summary
        return (
            f"{type(self).__name__}({self.estimator}, {self.n_answers} answers, "
            f"{s.n_features - s.n_recorded} of {s.n_features} features hidden)"
        )


def _congruent(W: Array, S: Array) -> Array:
    """``WS⁺W`` of symmetric matrices.  W, S: (K, L, L)"""
    return symmetrize(product(product(W, unitless_pseudo_inverse(S)), W))
