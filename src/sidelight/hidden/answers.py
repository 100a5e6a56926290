"""Estimators of ``B_a`` from what the old policy answers at full contexts.

Three estimators, one accumulator (``AnswerSums``).  With ``t`` answers, ``P`` the arm's share in the log:

- ``ipw``: ``R̂12(a) = (1/t) Σ ω x_o x_hᵀ / P(a)``, ``B̂ = R11(a)⁻¹R̂12`` with ``R11`` of the log.  The paper's.
- ``control_variate``: ``R̂12 − (μ̂_o − μ_o)μ̂_hᵀ`` with the log's mean ``μ_o``: the appendix's form.
  Consistent, not unbiased (order 1/t), and far worse than ``ipw`` for rare arms under a sharp policy.
- ``regression``: least squares of ``x_h`` on ``x_o`` over the answers themselves, shrunk toward the
  regression pooled over arms.  The errors of ``R̂11`` and ``R̂12`` cancel, which the other two give away.

The object here holds the sums, the strengths of pooling and when these are due, and what was worked out from them.
The algebra of the first two is in ``hidden.weighting``; of the third in ``hidden.pooling`` (the regressions),
``hidden.strengths`` (how strongly they are pulled together), ``hidden.filling`` (contexts with gaps) and
``hidden.regression_error``.
"""

from __future__ import annotations

import math
from copy import deepcopy
from typing import Any, Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from sidelight.arrays import is_number
from sidelight.errors import InputError
from sidelight.hidden import regression_error, weighting
from sidelight.hidden.filling import FILLING, fill_gaps
from sidelight.hidden.frame import Frame
from sidelight.hidden.framed_sums import Told
from sidelight.hidden.gap_answers import GapAnswers
from sidelight.hidden.pooling import Fit, Pool, fit_arms, slope_pull
from sidelight.hidden.protocol import (
    MANY_ANSWERS,
    Contexts,
    Differences,
    EstimatorDefaults,
    HiddenShift,
    Needs,
    Scales,
)
from sidelight.hidden.strengths import (
    LEVEL_CENTRE,
    Strengths,
    find_common,
    find_strengths,
    first_own,
    first_strengths,
    own_guess,
    unanswered_chances,
)
from sidelight.hidden.sums import AnswerSums
from sidelight.linalg import Array
from sidelight.logs.summary import LogSummary, one_summary

__all__ = ["AnswerEstimator", "EstimatorName"]

EstimatorName = Literal["regression", "ipw", "control_variate"]

#: contexts without an answer are looked at where there are more than so many for each answer
FEW = 0.1


class Fitted(NamedTuple):
    """The pooled regression and those of the arms, with the answers and the strengths they were worked out from."""

    told: Told
    at: Strengths
    pool: Pool
    fit: Fit


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
        self._fitted: Fitted | None = None
        self._residuals: tuple[Fit, Array] | None = None
        self._strength_at, self._still = 0, False
        #: for a file of version 0.1, until strengths are found anew: the pull of levels relative to that of slopes
        self._past: float | None = None
        self._leveled = Frame.leveled(summary)
        self._guess = own_guess(self._leveled)
        self._strengths = first_strengths(self._leveled, self._guess)
        #: log posterior of every ``κ`` and ``v`` of their grids; None where it is the prior
        self._chances: Array | None = None
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
            return weighting.moment_regression(self.summary, self.cross_moments())
        return self._fit().fit.B.copy()

    def cross_moments(self) -> Array:
        """``R̂12(a)``: (K, L, m), see ``weighting.cross_moments``."""
        return weighting.cross_moments(self.sums, self.summary, self.estimator == "control_variate")

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
        """``_told_with_sums()`` without the cache.

        Gaps are filled by regressions that are pooled weakly, never with learned strengths.
        """
        if not self.gap_answers.n_answers:
            return self._told_by(self.sums, unasked), self.sums
        at = self._strengths
        if self.pooling == "auto":
            at = Strengths(first_own(self._guess), FILLING * self._frame.size, LEVEL_CENTRE)
        return fill_gaps(
            self.gap_answers,
            self.sums,
            tell=lambda sums: self._told_by(sums, unasked),
            regress=lambda told: self._fit_of(told, at),
        )

    def _told_by(self, sums: AnswerSums, unasked: Contexts | None) -> Told:
        return Told.of(sums, self._frame, self._shared_answers, unasked, self._strengths.slopes)

    def _fit(self) -> Fitted:
        """The regression pooled over arms and every arm's own, cached until the sums or the strengths change.

        With the answers behind them: asked for by itself, ``_told()`` may be of another answer meanwhile.
        """
        told, at, fitted = self._told(), self._strengths, self._fitted
        if fitted is None or fitted.told is not told or fitted.at != at:
            fitted = self._fitted = Fitted(told, at, *self._fit_of(told, at))
        return fitted

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
        """``κ``: as set, or as last estimated, which is done whenever answers have grown by some factor (``room``)."""
        return self._strengths.slopes

    def _answered(self) -> None:
        """Refresh the strengths if due; the schedule counts answers alone, so that a replay has the same one."""
        if self.room() <= 0:
            before = self._strengths
            if self._past is not None:
                self._past, self._last = None, None
            self._strengths, self._chances = self._estimate_strengths()
            self._strength_at, self._still = self.n_answers, before == self._strengths

    def _estimate_strengths(self) -> tuple[Strengths, Array | None]:
        """``κ₀``, ``κ`` and ``v`` as answers make likely, and the log posterior of ``κ`` and ``v``."""
        return find_strengths(self._told(), self._strengths, self._guess)

    def room(self) -> int:
        """Answers until the strengths are refreshed.

        It is done after a quarter more of them, or after twice as many if the last time changed nothing, or if they
        are many: then a step to the next value of a grid, found a little later, hardly changes what is claimed.
        """
        if self.pooling != "auto":
            return int(np.iinfo(np.int64).max)
        growth = 2.0 if self._still or self._strength_at >= MANY_ANSWERS else 1.25
        return math.ceil(growth * self._strength_at + 8) - self.n_answers

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
        """``A``: (K, L, L), the effective Gram matrix of the answers: see ``regression_error.pooled_precision``."""
        if self.estimator != "regression":
            return weighting.gram(self.sums, self.summary)
        if self.pooling_strength() == 0.0:
            return regression_error.unpooled_precision(self._told_with_sums()[1])
        told, at, pool, fit = self._fit()
        return regression_error.pooled_precision(told, pool, fit, at.levels)

    @property
    def expected_at(self) -> int:  # type: ignore[override]
        """How many answers had been given when the strengths of pooling were last estimated."""
        return self._strength_at

    def differences(self) -> Differences | None:
        """The parts of ``A⁻¹`` that come from how much arms are expected to differ; None unless that is learned."""
        if self.estimator != "regression" or self.pooling != "auto":
            return None
        told, at, pool, fit = self._fit()
        chances = unanswered_chances(told.frame, len(told.unit)) if self._chances is None else self._chances
        return regression_error.differences(told, pool, fit, at, chances)

    def precision_at(self, scales: Scales) -> Array:
        """``A`` if arms differ by so much more than their strengths of pooling say."""
        if self.estimator != "regression" or self.pooling != "auto":
            return self.precision()
        told, at, pool, fit = self._fit()
        return regression_error.pooled_precision(told, pool, fit, at.levels, scales)

    def cautious_precision(self) -> Array:
        """See ``regression_error.cautious_precision``; for other estimators, and with pooling, ``precision()``."""
        if self.estimator != "regression" or self.pooling_strength() != 0.0:
            return self.precision()
        return regression_error.cautious_precision(self.sums)

    def hidden_shift(self) -> HiddenShift | None:
        """The arms' levels beside that of the pooled regression; None before the first answer, or without levels."""
        if self.estimator != "regression" or not self.n_answers:
            return None
        told, at, _, fit = self._fit()
        c = told.frame.constant
        if c is None:
            return None
        # over all contexts, whatever their arm: shifts are compared with how features vary among all
        pool = Pool.of(told, at.own, 0.0, at.bent)
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
        """``E(1 − u_a·x_o)²c_ac_aᵀ``: (K, m, m); None with a constant in ``x_o``.  See ``regression_error``."""
        if self.estimator != "regression" or not self._frame.missing.any():
            return None
        fitted = self._fit()
        return regression_error.level_moments(fitted.told, fitted.fit)

    #: whether every answer is about all arms at once
    _shared_answers = False

    def residual_moments(self) -> Array:
        """``Σ_e``: (K, m, m).  For ``ipw`` and ``control_variate`` it is ``R22``: nothing cancels there."""
        # an arm's own residuals count once they outnumber 2m + 2 pseudo-residuals of the pool
        prior = 2.0 * self.sums.S22.shape[-1] + 2.0
        if self.estimator != "regression":
            return weighting.pooled_moments(self.sums, prior)
        told, at, pool, fit = self._fit()
        residuals = self._residuals
        if residuals is None or residuals[0] is not fit:
            found = regression_error.residual_moments(told, pool, fit, at.slopes, prior)
            residuals = self._residuals = (fit, found)
        return residuals[1].copy()

    def bound(self, delta: float, horizon: int, context_bound: float = 1.0) -> Array:
        """``ΔM``: (K,), with ``‖M̂_a − M_a‖ ≤ ΔM_a`` for all arms and episodes with probability ``1 − δ/2``.

        It is proven for ``ipw`` (``weighting.proven_bound``), whose bound ``control_variate`` takes; that of the
        regression is asymptotic (``regression_error.asymptotic_bound``).
        """
        K, L, m = self.sums.S12.shape
        if L == 0 or m == 0:
            return np.zeros(K)
        if self.estimator != "regression":
            return weighting.proven_bound(self.sums, self.summary, delta, horizon, context_bound)
        if self.sums.total_weight == 0:
            return np.full(K, np.inf)
        return regression_error.asymptotic_bound(self.precision(), self.residual_moments(), delta, horizon)

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
        if self._chances is not None:
            arrays["chances"] = self._chances
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
        # a file from before it was kept has the prior until strengths are found anew
        self._chances = np.array(arrays["chances"]) if "chances" in arrays else None
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
