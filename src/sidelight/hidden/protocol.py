"""What a learner asks of an estimator of the hidden half (the paper's Assumption 1, as a protocol).

Anything with the members of ``HiddenEstimator`` can be given to ``EpochOFUL``, ``RunningOFUL`` and the fused learners;
the estimators of Sidelight are four examples.  What learners use beyond them are the members of ``EstimatorDefaults``,
each with a default that is right for an estimator that says nothing of the kind.  ``completed`` adds those defaults to
an object that lacks them, so that learners use all members and never ask for a class.  All arrays are in internal
order: recorded features first.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal, NamedTuple, Protocol, cast, runtime_checkable

import numpy as np
from numpy.typing import ArrayLike, NDArray

from sidelight.arrays import Array
from sidelight.errors import InputError

if TYPE_CHECKING:
    from sidelight.hidden.sums import AnswerSums
    from sidelight.logs.summary import LogSummary

__all__ = [
    "AS_EXPECTED",
    "MANY_ANSWERS",
    "CompleteEstimator",
    "Contexts",
    "Differences",
    "EstimatorDefaults",
    "HiddenEstimator",
    "HiddenShift",
    "Needs",
    "Scales",
    "completed",
]

Needs = Literal["action", "probabilities"] | None

#: answers of the old policy from which on a few more change little of what they tell
MANY_ANSWERS = 1_500


class HiddenShift(NamedTuple):
    """How the hidden features of the contexts that the old policy gives to an arm differ from those of all contexts.

    Attributes:
        slopes: (L, m)  ``F``, of the hidden features on the recorded ones over all arms; 0 for a constant.
        levels: (K, m)  mean of ``x_h − Fᵀx_o`` among an arm's contexts, less that of all; 0 where nothing is known.
        residual: (m, m)  covariance of ``x_h − Fᵀx_o``; None where the estimator does not know it.
    """

    slopes: Array
    levels: Array
    residual: Array | None


class Scales(NamedTuple):
    """How much larger than an estimator expects the differences between arms are, as variances of slopes and levels."""

    slopes: float = 1.0
    levels: float = 1.0


AS_EXPECTED = Scales()


class Differences(NamedTuple):
    """``A⁻¹ = rest + slopes + levels levelsᵀ``: what of it comes from how much arms' ``B_a`` are expected to differ.

    Attributes:
        rest: (K, L, L)  from the answers' own noise, and from what all arms have in common.
        slopes: (K, L, L)  from differences between the arms' slopes.
        levels: (K, L)  from differences between their levels.
        scales: (p,) and (q,)  scales that slopes and levels may have.
        chances: (p, q)  logarithms of their probabilities, up to a constant, as far as answers tell.
    """

    rest: Array
    slopes: Array
    levels: Array
    scales: tuple[Array, Array]
    chances: Array

    def of_arms(self, arms: NDArray[np.int64]) -> Differences:
        """Those of some arms.  arms: (n,)  positions in the log"""
        return self._replace(rest=self.rest[arms], slopes=self.slopes[arms], levels=self.levels[arms])


class Contexts(NamedTuple):
    """Sums over complete contexts, asked or not, whatever was played: recorded features first.

    Attributes:
        rows: how many   sums: (d,)  ``Σx``   squares: (d, d)  ``Σxxᵀ``.
    """

    rows: float
    sums: Array
    squares: Array

    def part(self, share: float) -> Contexts:
        """The same means over fewer contexts."""
        return Contexts(share * self.rows, share * self.sums, share * self.squares)


@runtime_checkable
class HiddenEstimator(Protocol):
    """Learns ``B_a = R11(a)⁻¹R12(a)``: how the hidden features go with the recorded ones, per arm."""

    summary: LogSummary
    """The log whose hidden half this learns."""
    needs: Needs
    """What it learns from: the old policy's action, its probabilities, or nothing more."""

    @property
    def n_answers(self) -> int:
        """How many contexts it has learned from (the paper's ``t``)."""

    def observe(self, x: ArrayLike, answer: Any, /, probability: float = 1.0) -> None:
        """Take what the old policy would do at the full context ``x``."""

    def regression(self) -> Array:
        """``B̂``: (K, L, m)."""

    def precision(self) -> Array | None:
        """``A``: (K, L, L), with ``Cov((B − B̂)w_h) = τ²A⁻¹``; None where no answers are behind it."""

    def residual_moments(self) -> Array:
        """``Σ``: (K, m, m), ``τ² = w_hᵀΣw_h``; for a regression ``Σ_e``, what it leaves of the hidden features."""

    def bound(self, delta: float, horizon: int, context_bound: float = 1.0) -> Array:
        """``ΔM``: (K,), with ``‖M̂_a − M_a‖ ≤ ΔM_a`` for all arms and episodes with probability ``1 − δ/2``."""

    def copy(self) -> HiddenEstimator:
        """An independent copy: a learner copies what it is given."""


class EstimatorDefaults:
    """What learners use of an estimator beyond ``HiddenEstimator``, with defaults for one that offers no more."""

    error_from_log: bool = False
    """Whether ``B̂`` errs by the log's own rows: what ``log_error`` tells then adds to the log's ``s²G``."""
    sums: AnswerSums | None = None
    """The weighted second moments of the answered contexts by arm, or None if it does not keep them."""
    companion: LogSummary | None = None
    """Fully recorded rows whose rewards are evidence of their own, or None."""
    takes_actions_by_sums: bool = False
    """Whether ``observe(x, arm)`` is the same as adding to ``sums`` and calling ``took(1)``, as kernels do."""
    estimates_by_weighting: bool = False
    """Whether it estimates ``R̂12(a) = Σ ω x_ox_hᵀ/(tP(a))`` from ``sums``, the paper's estimator."""
    expected_at: int = 0
    """How many answers had been given when it last estimated how much arms differ, which ``differences`` rest on."""

    def log_error(self, second: Array) -> Array:
        """(K, L, L)  what an error of ``B̂`` that comes from the log's own rows adds to ``Σ ε²x_ox_oᵀ`` over them.

        second: (K, m, m)  ``E[w_hw_hᵀ]``, as far as the hidden weights are known; here ``E[w_hᵀΣw_h]`` more noise
        """
        estimator = cast(HiddenEstimator, self)
        more = np.einsum("aij,aij->a", estimator.residual_moments(), second)
        return np.asarray(more[:, None, None] * estimator.summary.grams)

    def level_moments(self) -> Array | None:
        """(K, m, m)  the part of ``residual_moments`` by which ``b`` errs as ``B̂`` does; None for none.

        It comes from the log's own rows, and so cancels in ``b − M̂w``: ``precision`` leaves it out, and of ``s²`` it
        does not count.
        """
        return None

    def hidden_shift(self) -> HiddenShift | None:
        """How hidden features differ between the arms' contexts; None where that is not known."""
        return None

    def observe_gaps(self, x: Array, answer: Any, probability: float = 1.0) -> None:
        """Take what the old policy would do at a context with gaps, NaN; here nothing is learned from it."""

    def differences(self) -> Differences | None:
        """The parts of ``A⁻¹`` that come from how much arms are expected to differ; None where nothing is pooled."""
        return None

    def precision_at(self, scales: Scales) -> Array | None:
        """``A`` if arms differ by so much more than expected, see ``differences()``; here ``precision()``.

        At ``AS_EXPECTED`` it is ``precision()`` to the bit.  If it is not, as where one of the two was overridden, what
        ``precision()`` says counts, and no scales are learned.
        """
        return cast(HiddenEstimator, self).precision()

    def cautious_precision(self) -> Array | None:
        """``A`` for which ``A⁻¹NA⁻¹`` bounds ``Cov((B − B̂)w_h)`` if ``N`` has as many answers; default ``precision()``.

        It may not rest on the answers' weights having nothing to do with ``e``.
        """
        return cast(HiddenEstimator, self).precision()

    def unseen(self) -> NDArray[np.bool_]:
        """(m,)  Hidden features of which no answer has told a value; here all of them until the first answer."""
        estimator = cast(HiddenEstimator, self)
        return np.full(len(estimator.summary.hidden), not estimator.n_answers)

    def answer_counts(self) -> Array:
        """(K,)  effective number of answers of every arm; here as the arms' shares in the log have it."""
        estimator = cast(HiddenEstimator, self)
        return np.asarray(float(estimator.n_answers) * np.asarray(estimator.summary.shares))

    def see_contexts(self, contexts: Contexts) -> bool:
        """Learn from all contexts so far how hidden features go with recorded ones, whatever the arm.

        Returns whether it takes anything from them; here it does not.
        """
        return False

    def room(self) -> int:
        """How many answers kernels may add to ``sums`` before ``took`` must be called."""
        return int(np.iinfo(np.int64).max)

    def took(self, answers: int) -> None:
        """Account for ``answers`` answers of weight one that kernels added to ``sums``."""
        raise NotImplementedError

    def unpooled(self) -> Any:
        """An independent copy that borrows nothing between arms, for bounds that cover no such bias."""
        return cast(HiddenEstimator, self).copy()

    def state(self) -> tuple[dict[str, Any], dict[str, Any]]:
        """Description (with the ``kind`` under which ``hidden.registry`` knows it) and arrays, for files."""
        raise InputError(
            f"A learner with an estimator of your own ({type(self).__name__}) cannot be saved: a file may only "
            "name Sidelight's estimators. Keep its data and make it again."
        )


class CompleteEstimator(HiddenEstimator, Protocol):
    """All members that learners use: those of ``HiddenEstimator`` and of ``EstimatorDefaults``."""

    @property
    def error_from_log(self) -> bool: ...  # noqa: D102  (see EstimatorDefaults)
    @property
    def sums(self) -> AnswerSums | None: ...  # noqa: D102
    @property
    def companion(self) -> LogSummary | None: ...  # noqa: D102
    @property
    def takes_actions_by_sums(self) -> bool: ...  # noqa: D102
    @property
    def estimates_by_weighting(self) -> bool: ...  # noqa: D102
    @property
    def expected_at(self) -> int: ...  # noqa: D102
    def log_error(self, second: Array) -> Array: ...  # noqa: D102
    def level_moments(self) -> Array | None: ...  # noqa: D102
    def hidden_shift(self) -> HiddenShift | None: ...  # noqa: D102
    def observe_gaps(self, x: Array, answer: Any, probability: float = 1.0) -> None: ...  # noqa: D102
    def differences(self) -> Differences | None: ...  # noqa: D102
    def precision_at(self, scales: Scales) -> Array | None: ...  # noqa: D102
    def cautious_precision(self) -> Array | None: ...  # noqa: D102
    def unseen(self) -> NDArray[np.bool_]: ...  # noqa: D102
    def answer_counts(self) -> Array: ...  # noqa: D102
    def see_contexts(self, contexts: Contexts) -> bool: ...  # noqa: D102
    def room(self) -> int: ...  # noqa: D102
    def took(self, answers: int) -> None: ...  # noqa: D102
    def unpooled(self) -> Any: ...  # noqa: D102
    def state(self) -> tuple[dict[str, Any], dict[str, Any]]: ...  # noqa: D102


_DEFAULTS = tuple(name for name in vars(EstimatorDefaults) if not name.startswith("_"))


def completed(hidden: HiddenEstimator) -> CompleteEstimator:
    """``hidden`` itself if it has every member that learners use, else with the defaults for those it lacks."""
    if all(hasattr(hidden, name) for name in _DEFAULTS):
        return cast(CompleteEstimator, hidden)
    return cast(CompleteEstimator, _WithDefaults(hidden))


class _WithDefaults:
    """An estimator and, for the members that it lacks, the defaults."""

    def __init__(self, hidden: HiddenEstimator) -> None:
        self._hidden = hidden

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__") or name == "_hidden":  # what copying and pickling look for before anything is set
            raise AttributeError(name)
        if name in _DEFAULTS and not hasattr(self._hidden, name):
            member = vars(EstimatorDefaults)[name]
            return member.__get__(self._hidden) if callable(member) else member
        return getattr(self._hidden, name)

    def copy(self) -> _WithDefaults:
        """A copy of the estimator, with the same defaults for what it lacks."""
        return _WithDefaults(self._hidden.copy())

    def unpooled(self) -> _WithDefaults:
        """The estimator's own form without pooling; a copy if it has none."""
        unpooled = getattr(self._hidden, "unpooled", self._hidden.copy)
        return _WithDefaults(unpooled())

    def __repr__(self) -> str:
        return repr(self._hidden)
