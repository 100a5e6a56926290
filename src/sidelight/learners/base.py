"""What all learners share: choosing, learning, batches, files.  No algebra lives here."""

from __future__ import annotations

import math
import os
from abc import ABC, abstractmethod
from collections.abc import Sequence
from copy import deepcopy
from typing import TYPE_CHECKING, Any, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray

from sidelight.errors import InputError
from sidelight.labels import plain_label
from sidelight.learners.arguments import LARGEST_SQUARE
from sidelight.learners.cards import decisions_table, learner_card, score_table
from sidelight.learners.containers import save_learner
from sidelight.learners.correcting import Receipt
from sidelight.learners.gaps import Completed, Gaps
from sidelight.learners.hidden_half import BehaviorObserver
from sidelight.learners.inputs import in_the_form_of, is_frame
from sidelight.learners.ledger import FloorLedger
from sidelight.learners.protocol import Allowed, Context, Decision, DecisionColumns
from sidelight.learners.settings import Settings
from sidelight.learners.wild import Ranges
from sidelight.linalg import Array

if TYPE_CHECKING:
    import pyarrow as pa

    from sidelight.logs.schema.schema import Schema

__all__ = ["BaseLearner"]

#: makes a named tuple without the overhead of keyword arguments
_tuple = tuple.__new__
#: methods that decide or learn; compiled shortcuts are off in a subclass that overrides one of them
_PYTHON = {
    "scores",
    "_scores",
    "decide",
    "_choose",
    "observe",
    "_observe",
    "observe_behavior",
    "_learn_answer",
    "wants_query",
}


class BaseLearner(BehaviorObserver, ABC):
    """Arms by label, contexts by array or by name; a subclass supplies ``_scores`` and ``_observe``.

    Attributes:
        arms: the labels, in a fixed order.
        n_features: d, the length of a context.
        schema: names and encodes features where one was given.
        settings: what the learner was made with.
        counts: (K,) observations per arm.
        gaps: what is known about features that contexts may lack; None where the schema lets none be missing.
    """

    #: what a floor keeps (``learners.ledger.FloorLedger``); None without a floor
    ledger: FloorLedger | None = None
    #: Whether compiled code may decide in place of ``scores``: declared by the class that supplies it, and off again in
    #: a subclass that overrides any of ``_PYTHON``.
    compiled_scores: bool = False

    def __init_subclass__(cls, **options: Any) -> None:
        super().__init_subclass__(**options)
        if "compiled_scores" not in vars(cls) and _PYTHON & vars(cls).keys():
            cls.compiled_scores = False

    def __init__(
        self,
        arms: Sequence[Any],
        n_features: int,
        settings: Settings,
        schema: Schema | None,
        rng: np.random.Generator | None,
    ) -> None:
        self.arms = tuple(plain_label(arm) for arm in arms)
        if not self.arms:
            raise InputError("A learner needs at least one arm.")
        self._index = {arm: i for i, arm in enumerate(self.arms)}
        if len(self._index) != len(self.arms):
            raise InputError(f"Arm labels must differ from each other; got {list(self.arms)!r}.")
        if schema is not None and schema.n_features != n_features:
            raise InputError(f"The schema has {schema.n_features} features and the learner {n_features}.")
        self.n_features = int(n_features)
        self.schema = schema
        self.settings = settings
        self.rng = rng
        self._shape = (self.n_features,)
        self.gaps = Gaps.of(schema)
        self.counts: NDArray[np.int64] = np.zeros(len(self.arms), dtype=np.int64)

    # ------------------------------------------------------------------ what a subclass supplies

    @abstractmethod
    def _scores(self, x: Array) -> tuple[Array, Array]:
        """Every arm's estimate and width at ``x`` (d,): (K,) each."""

    def _choose(self, x: Array) -> tuple[int, float, float]:
        """Position, estimate and width of the arm of highest index; ties go to the first.

        The position is −1 where ``x`` (d,) has a value that is not finite, or too large to compute with.
        """
        if not x.dot(x) <= LARGEST_SQUARE:
            return -1, math.nan, math.nan
        estimates, widths = self.scores(x)
        a = int((estimates + widths).argmax())
        return a, float(estimates[a]), float(widths[a])

    @abstractmethod
    def _observe(self, x: Array, index: int, reward: float) -> None:
        """Learn that the arm at position ``index`` was taken at ``x`` (d,) and paid ``reward``."""

    def _correct(self, x: Array, index: int, old: float, new: float | None, receipt: Receipt | None) -> None:
        """Exchange the reward of a round that was observed; None takes the round out."""
        raise InputError(
            f"{type(self).__name__} cannot correct a reward: a learner with an algebra of its own says how in _correct."
        )

    def _observe_completed(self, context: Completed, index: int, reward: float) -> None:
        """Learn from a round whose context had gaps: here as if the filled values had been observed."""
        self._observe(context.x, index, reward)

    def _decide_rows(self, X: Array, rng: np.random.Generator | None) -> DecisionColumns:
        decisions = [self.decide(x, rng=rng) for x in X]
        arms, estimates, widths, propensities = (
            map(list, zip(*decisions, strict=True)) if decisions else ([], [], [], [])
        )
        return arms, estimates, widths, propensities

    def _observe_rows(self, X: Array, indices: NDArray[np.int64], rewards: Array) -> None:
        for x, index, reward in zip(X, indices.tolist(), rewards.tolist(), strict=True):
            self._observe(x, index, reward)

    # ------------------------------------------------------------------------------- deciding

    def _still(self) -> Self:
        """This learner with the arms that it has now: it shares all state, but no arm that is added later.

        Threads may decide while ``add_arm`` runs. What reads more than one thing that depends on the number of arms
        reads it from here.
        """
        still = object.__new__(type(self))
        still.__dict__ = self.__dict__
        return still

    @property
    def n_arms(self) -> int:
        """``K``, the number of arms."""
        return len(self.arms)

    def scores(self, x: Context) -> tuple[Array, Array]:
        """Estimates (K,) and widths (K,) at ``x``; the index is their sum, ``alpha`` and radius included.

        Where values of ``x`` are missing, a width also has how well they can be inferred.
        """
        context, still = self._completed(x), self._still()
        if context is None:
            return still._scores(self._context(x))
        estimates, widths = still._scores(context.x)
        return estimates, still._widened(widths, context)

    def _widened(self, widths: Array, context: Completed) -> Array:
        """Widths (K,) at a context with gaps, of which those at ``x̂`` are given: here the same."""
        return widths

    def decide(
        self, x: Context, allowed: Allowed = None, rng: np.random.Generator | None = None, default: Any = None
    ) -> Decision:
        """The arm of highest index among ``allowed`` (all by default); ties go to the first.

        Args:
            x: the full context, in the schema's order or by feature name.
            allowed: labels of the arms that may be taken here.
            rng: used by learners that draw; this one does not.
            default: the old policy's arm here; used under a floor, which ``FusedOFUL`` keeps, and ignored without one.
        """
        if allowed is None:
            a, estimate, width = self._choose(x if self._is_plain(x) else self._read(x))
            if a >= 0:
                shown = self._shown(estimate) if self.binary else estimate
                return _tuple(Decision, (self.arms[a], shown, width, 1.0))
        # a choice among some arms, or a context with gaps; what is not finite otherwise is an error
        context, still = self._read(x), self._still()
        estimates, widths = still.scores(context)
        mask = still._mask(allowed)
        a = int(np.where(mask, estimates + widths, -np.inf).argmax())
        return Decision(still.arms[a], self._shown(float(estimates[a])), float(widths[a]), 1.0)

    def propensities(self, x: Context, allowed: Allowed = None) -> Array:
        """(K,)  The chance with which ``decide`` takes each arm at ``x``; where it draws nothing, 1 for one of them."""
        still = self._still()
        out = np.zeros(still.n_arms)
        out[still._arm(still.decide(x, allowed).arm)] = 1.0
        return out

    def decide_many(self, X: Any, rng: np.random.Generator | None = None) -> Any:
        """``decide`` for every row of ``X``, the same decisions as one by one.

        Returns:
            A list of decisions; for a pandas or polars frame a frame of that kind, with the same index, whose columns
            are ``arm, estimate, width, propensity``.
        """
        decisions = [_tuple(Decision, row) for row in zip(*self.decide_columns(X, rng), strict=True)]
        return in_the_form_of(X, decisions_table(decisions)) if is_frame(X) else decisions

    def decide_columns(self, X: Any, rng: np.random.Generator | None = None) -> DecisionColumns:
        """:meth:`decide_many` column by column, as a service keeps decisions: arms, estimates, widths, propensities."""
        contexts = self._read_many(X)
        if self.gaps is not None and np.isnan(contexts).any():
            return BaseLearner._decide_rows(self, contexts, rng)
        return self._decide_rows(contexts, rng)

    def _shown(self, estimate: float) -> float:
        """An estimate as a decision shows it: a rate lies within 0 and 1, though the line through it does not."""
        return min(max(estimate, 0.0), 1.0) if self.binary else estimate

    def shown(self, estimates: Array) -> Array:
        """Estimates (K,) as decisions show them: within 0 and 1 where rewards are 0 or 1, else as they are."""
        return np.clip(estimates, 0.0, 1.0) if self.binary else estimates

    def filled(self, x: Context) -> Array:
        """The context as it is decided on (d,), encoded: what is missing is what the values that are there make likely.

        Args:
            x: a context, with gaps where the schema says ``missing="impute"``.
        """
        return np.array(self._context(x))

    def score_table(self, x: Context) -> pa.Table:
        """``scores`` with labels: one row for each arm, ``arm, estimate, width, index, observations``."""
        return score_table(self, x)

    # ------------------------------------------------------------------------------- learning

    def observe(self, x: Context, arm: Any, reward: float) -> None:
        """Learn that ``arm``, taken at ``x``, was followed by ``reward``."""
        index = self._arm(arm)
        value = float(reward) if isinstance(reward, float) else self._reward(reward)
        if self.binary or not value * value <= LARGEST_SQUARE:
            self._reward(reward)  # says why it cannot be used, if so
        context = self._read(x)
        if self.gaps is None:
            self._observe(context, index, value)
        else:
            self._observe_with_gaps(self.gaps, context, index, value)

    def _observe_with_gaps(self, gaps: Gaps, x: Array, index: int, reward: float) -> None:
        """Learn from a round whose context may have gaps, and how its features go together.

        A round that lacks a feature of which nothing is known yet says nothing about rewards.
        """
        self._observe_any(gaps.played(x), index, reward)

    def _observe_any(self, context: Completed, index: int, reward: float) -> None:
        """Learn from a round whose context may have had gaps."""
        if not len(context.gaps):
            self._observe(context.x, index, reward)
        elif context.known:
            self._observe_completed(context, index, reward)

    def receipt(self, x: Context, reward: float, arm: Any = None) -> Receipt | None:
        """What :meth:`correct` must be told about a round that is observed now; ask before observing it.

        None where it needs nothing: the round counts in full and for ever, as most do.  Otherwise it has the weight of
        a wild value, the clock of a learner in which older rounds fade or are dropped, what the noise of the round lets
        it count for (gaps, rewards of 0 and 1), which depends on its ``arm``, and what the gaps were filled with.
        """
        return None

    def correct(
        self,
        x: Context,
        arm: Any,
        before: float,
        reward: float,
        *,
        taken: Any = None,
        receipt: Receipt | None = None,
    ) -> None:
        """The reward ``before``, observed for ``arm`` at ``x``, turned out to be ``reward``.

        For a reward that was assumed (no click within a week) and still came: the sums are then, up to rounding, those
        of a learner that was told ``reward`` at first; prior and noise, where they are learned, follow at the next
        refresh, for whose schedule a correction counts as an event.  A reward that is a wild value, or the first that
        differs from all others, is taken in as a new round in the place of the old one.

        Args:
            x: the context, as it was observed.
            arm: the arm that was observed.
            before: the reward that was observed.
            reward: the right one.
            taken: the arm that was really taken, if it was another one: then its round moves there.
            receipt: what :meth:`receipt` said when the round was observed; without it, gaps are filled as they would be
                now.

        Examples:
            >>> import sidelight as sl
            >>> learner = sl.OFUL(2, 2, noise=0.5)
            >>> learner.observe([1.0, 0.0], 0, 0.0)     # no reward came in time
            >>> learner.correct([1.0, 0.0], 0, 0.0, 1.0)  # it came after all
            >>> round(float(learner.weights_of(0)[0]), 6)
            0.5
        """
        index, read = self._arm(arm), self._read(x)
        if receipt is not None and receipt.filled:
            context = receipt.complete(read)
        else:
            context = read if self.gaps is None else self.gaps.fill(read)
        old, new = self._reward(before), self._reward(reward)
        other = index if taken is None else self._arm(taken)
        if receipt is not None and receipt.noise == 0.0:
            return  # a round that lacked what nobody had seen was never learned
        if other == index and self._corrects_in_place(context, new):
            self._correct(context, index, old, new, receipt)
        else:
            self._correct(context, index, old, None, receipt)
            if self.gaps is None:
                self._observe(context, other, new)
            else:
                self._observe_any(self.gaps.complete(read), other, new)

    def _corrects_in_place(self, x: Array, reward: float) -> bool:
        """Whether exchanging the round's reward is enough: the right one is neither wild nor the first to differ."""
        return True

    def observe_many(self, X: Any, arms: Sequence[Any], rewards: ArrayLike) -> None:
        """``observe`` for every row, in order, in large batches up to rounding; nothing if any row is invalid."""
        contexts = self._read_many(X)
        try:
            values = np.asarray(rewards, dtype=np.float64)
        except (TypeError, ValueError, OverflowError):
            raise InputError(f"The rewards must be {len(contexts)} numbers; got {rewards!r:.200}.") from None
        if len(arms) != len(contexts) or values.shape != (len(contexts),):
            raise InputError(
                f"{len(contexts)} contexts, {len(arms)} arms and rewards of shape {values.shape}: "
                "give one arm and one reward for every context."
            )
        known = self._index
        try:
            indices = [known[arm] for arm in arms]
        except (KeyError, TypeError):
            indices = [self._arm(arm) for arm in arms]  # says which one, and why
        with np.errstate(over="ignore"):
            usable = (values * values <= LARGEST_SQUARE) & ~self._refuses(values)
        if not usable.all():
            self._reward(values[int(np.argmin(usable))])
        if self.gaps is None:
            self._observe_rows(contexts, np.array(indices, dtype=np.int64), np.array(values))
            return
        for x, index, value in zip(contexts, indices, values.tolist(), strict=True):
            self._observe_with_gaps(self.gaps, x, index, value)

    def add_arm(self, label: Any) -> None:
        """Offer one more arm from now on, of which the log says nothing."""
        raise InputError(
            f"{type(self).__name__} cannot add the arm {label!r}: its constraint needs a log of every arm. "
            "FusedOFUL can."
        )

    def ranges(self) -> Ranges | None:
        """What log, answers and rounds have seen of every feature; None for a learner that keeps no account of it."""
        return None

    def log_trust(self) -> list[dict[str, Any]]:
        """What each log still counts for, per arm: nothing here, this learner weighs no log."""
        return []

    def assumptions(self) -> list[dict[str, Any]]:
        """What the rounds say about the model's assumptions: nothing here, this learner tests none."""
        return []

    # ---------------------------------------------------------------------------------- files

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write everything to one file; ``sidelight.load_learner`` gives the same decisions again."""
        save_learner(self, path)

    def __copy__(self) -> Any:
        """As ``copy.deepcopy``: a copy that shared some of what observing changes would spoil the original."""
        return deepcopy(self)

    def options(self) -> dict[str, Any]:
        """Constructor arguments of this class beyond the settings that all share."""
        return {}

    def _repr_html_(self) -> str:
        return learner_card(self)

    def __repr__(self) -> str:
        s = self.settings
        return (
            f"{type(self).__name__}({self.n_arms} arms, {self.n_features} features, "
            f"{int(self.counts.sum())} observations, regularization={s.regularization}, radius={s.radius!r})"
        )
