"""What a user gives a learner, checked and encoded: contexts with and without names or gaps, arms, rewards."""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any, TypeGuard

import numpy as np
from numpy.typing import NDArray

from sidelight.arrays import LARGEST
from sidelight.errors import ContextError, InputError, UnknownArmError
from sidelight.labels import position_of
from sidelight.learners.gaps import Completed, Gaps
from sidelight.learners.inputs import is_frame
from sidelight.learners.protocol import Context
from sidelight.linalg import Array
from sidelight.logs.schema.naming import by_name, rows_by_name

if TYPE_CHECKING:
    from sidelight.logs.schema.schema import Schema

__all__ = ["LARGEST_SQUARE", "ArgumentReader", "permitted"]

#: largest sum of squares of a context, and square of a reward: products of larger ones may overflow
LARGEST_SQUARE = LARGEST * LARGEST
_FLOAT = np.dtype(np.float64)


class ArgumentReader:
    """The part of ``BaseLearner`` that reads its arguments; what cannot be used is an error that says why.

    Attributes:
        arms: the labels, in a fixed order.
        n_features: d, the length of a context.
        schema: names and encodes features where one was given.
        gaps: what is known about features that contexts may lack; None where the schema lets none be missing.
    """

    arms: tuple[Any, ...]
    n_features: int
    schema: Schema | None
    gaps: Gaps | None
    #: whether every reward is 0 or 1, so that an estimate is a rate
    binary: bool = False
    #: positions of the arms by label
    _index: dict[Any, int]
    #: ``(d,)``
    _shape: tuple[int, ...]

    def _context(self, x: Context) -> Array:
        """A context as decisions are made on it: checked, encoded, its gaps filled."""
        if self._is_plain(x) and x.dot(x) <= LARGEST_SQUARE:
            return x
        context = self._read(x)
        return context if self.gaps is None else self.gaps.fill(context)

    def _is_plain(self, x: Any) -> TypeGuard[Array]:
        """Whether ``x`` is what most callers give, an array that kernels take as it is, finite or not."""
        return type(x) is np.ndarray and x.dtype is _FLOAT and x.shape == self._shape and x.flags.carray

    def _completed(self, x: Context) -> Completed | None:
        """A context with gaps, completed; None for one without."""
        if self.gaps is None:
            return None
        context = self._read(x)
        return self.gaps.complete(context) if np.isnan(context).any() else None

    def _read(self, x: Context) -> Array:
        """A context checked and encoded, NaN where it has gaps that it may have."""
        if self._is_plain(x):
            return x if x.dot(x) <= LARGEST_SQUARE else self._with_gaps(x)
        named = by_name(x)
        if named is not None:
            if self.schema is None:
                raise ContextError(
                    "A context by feature names needs a schema: make the learner from a log summary, or with schema=…."
                )
            return self._with_gaps(self.schema.encode(named))
        try:
            # a copy where it is read-only: kernels are compiled for arrays that may be written
            out = np.require(x, np.float64, ("C", "A", "W"))
        except (TypeError, ValueError, OverflowError):
            many = " of several rows; decide_many takes many" if is_frame(x) else ""
            raise ContextError(
                f"A context must be {self.n_features} numbers or a mapping from feature name to value; "
                f"got {type(x).__name__}{many}."
            ) from None
        if out.shape != self._shape:
            raise ContextError(f"A context of shape {out.shape}; this learner takes {self.n_features} features.")
        return self._with_gaps(out)

    def _learn_gaps(self, x: Array) -> Array:
        """Learn how features go together from the context of an answer; returns it with its gaps filled."""
        if self.gaps is None:
            return x
        return self.gaps.answered(x).x

    def _with_gaps(self, x: Array) -> Array:
        """``x``, if all that is not finite in it are gaps that it may have."""
        with np.errstate(over="ignore"):
            # one NaN or infinity makes the sum of squares not finite, and no comparison with NaN is true
            if x.dot(x) <= LARGEST_SQUARE:
                return x
            missing = np.isnan(x)
            if self.gaps is None or (missing & ~self.gaps.may_miss).any():
                raise ContextError(self._not_usable(x))
            there = np.where(missing, 0.0, x)
            if not there.dot(there) <= LARGEST_SQUARE:
                raise ContextError(self._not_usable(there))
        if missing.all():
            raise ContextError("Every feature of the context is missing: at least one needs a value to decide.")
        return x

    def _read_many(self, X: Any) -> Array:
        """Contexts checked and encoded, NaN where they have gaps that they may have.  (n, d)"""
        if hasattr(X, "__arrow_c_stream__") or rows_by_name(X) is not None:
            if self.schema is None:
                raise ContextError(
                    f"A {type(X).__name__} names its columns, and this learner knows no names: make it from a log "
                    "summary or with schema=…, or give the numbers in order, an array."
                )
            out = self.schema.encode_many(X)
        else:
            try:
                out = np.require(X, np.float64, ("C", "A", "W"))
            except (TypeError, ValueError, OverflowError):
                raise ContextError(
                    f"Contexts must be an array (n, {self.n_features}) of numbers; got {type(X).__name__}: "
                    f"{X!r:.200}. Contexts by feature name need a schema."
                ) from None
            if out.ndim != 2 or out.shape[1] != self.n_features:
                raise ContextError(f"Contexts of shape {out.shape}; this learner takes (n, {self.n_features}).")
        usable = np.einsum("nd,nd->n", out, out) <= LARGEST_SQUARE
        for row in np.flatnonzero(~usable):
            try:
                self._with_gaps(out[row])
            except ContextError as error:
                raise ContextError(f"Row {row}: {error}") from None
        return out

    def _not_usable(self, x: Array) -> str:
        """Why the sum of squares of ``x`` is not finite, or too large."""
        if not np.isfinite(x).all():
            return f"{self._name(int(np.argmin(np.isfinite(x))))} of the context is not finite."
        position = int(np.argmax(np.abs(x)))
        return (
            f"{self._name(position)} of the context is {x[position]:g}, {_too_large(float(x[position]))}; "
            "use another unit."
        )

    def _name(self, position: int) -> str:
        if self.schema is None:
            return f"Feature {position}"
        return f"Feature {self.schema.encoded_names[position]!r}"

    def _arm(self, arm: Any) -> int:
        index = position_of(arm, self._index)
        if index is None:
            known = ", ".join(map(repr, self.arms[:8])) + (" …" if len(self.arms) > 8 else "")
            raise UnknownArmError(f"{arm!r} is not one of this learner's arms ({known}).")
        return index

    def _reward(self, reward: Any) -> float:
        try:
            value = float(reward)
        except (TypeError, ValueError):
            raise InputError(f"The reward {reward!r} is not a number.") from None
        except OverflowError:
            raise InputError(f"The reward {str(reward)[:20]}… is too large for a number.") from None
        if not value * value <= LARGEST_SQUARE:
            why = _too_large(value) if math.isfinite(value) else "not finite"
            raise InputError(f"The reward {reward!r} is {why}; nothing was learned from it.")
        if self._refuses(value):
            raise InputError(f"The reward {reward!r} is neither 0 nor 1, which the schema says all rewards are.")
        return value

    def _refuses(self, rewards: Any) -> Any:
        """Whether a reward is neither 0 nor 1 though the schema says that all are, and rounds are weighted by rates.

        rewards: a number, or an array of them
        """
        declared = self.binary and self.schema is not None and bool(self.schema.binary)
        return declared & (rewards != 0.0) & (rewards != 1.0)

    def _mask(self, allowed: Any) -> NDArray[np.bool_]:
        """(K,)  The arms whose labels are in ``allowed``; all of them where it is None."""
        labels = permitted(allowed)
        if labels is None:
            return np.ones(len(self.arms), dtype=bool)
        mask = np.zeros(len(self.arms), dtype=bool)
        for arm in labels:
            mask[self._arm(arm)] = True
        if not mask.any():
            raise InputError("allowed is empty: at least one arm must be left to decide for.")
        return mask


def permitted(allowed: Any) -> list[Any] | None:
    """The labels in ``allowed``; None where it is None."""
    if allowed is None:
        return None
    if not isinstance(allowed, Iterable):
        raise InputError(f"allowed={allowed!r} is not a list of arms.")
    return list(allowed)


def _too_large(value: float) -> str:
    return "so large that its square overflows" if not math.isfinite(value * value) else "too large to compute with"
