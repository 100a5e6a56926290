"""What a floor promises: how much less than the old policy a learner may earn.  ``learners.ledger`` keeps account."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any

from sidelight.arrays import is_number
from sidelight.errors import InputError
from sidelight.learners.settings import Settings

__all__ = ["Floor", "floor_of"]


@dataclass(frozen=True)
class Floor:
    """What a learner promises: its expected total reward stays above the old policy's, but for what is agreed here.

    Give ``share`` where the old policy's expected reward is never negative, else ``allowance``. The promise is about
    expected rewards given the contexts, at all times at once, with probability ``1 − delta``, for rewards that are
    linear in the features.

    Args:
        share: the part of the old policy's reward that may be lost, for example 0.05.
        allowance: what may be lost a round, in the reward's unit.
        noise: σ: the noise is σ-sub-Gaussian (for rewards within an interval, half its length).
        weight_bound: S_w ≥ ``‖w_a‖`` of every arm.
        regularization: λ of the floor's own regressions; by default ``dσ²/S_w²``, which does not depend on units.
        delta: probability with which the promise may fail.

    Examples:
        >>> import sidelight as sl
        >>> sl.Floor(0.05, noise=0.5, weight_bound=2.0)
        Floor(share=0.05, allowance=0.0, noise=0.5, weight_bound=2.0, regularization=None, delta=0.05)
    """

    share: float = 0.0
    allowance: float = 0.0
    noise: float = 1.0
    weight_bound: float = 1.0
    regularization: float | None = None
    delta: float = 0.05

    def __post_init__(self) -> None:
        for name in ("share", "allowance", "noise", "weight_bound", "regularization", "delta"):
            value = getattr(self, name)
            if not (is_number(value) or (value is None and name == "regularization")):
                raise InputError(f"floor: {name}={value!r} must be a number.")
        if not 0.0 <= self.share < 1.0:
            raise InputError(f"floor: share={self.share!r} must lie in [0, 1): 0.05 keeps 95 % of the old reward.")
        if not 0.0 <= self.allowance < math.inf:
            raise InputError(f"floor: allowance={self.allowance!r} must be a number of at least 0.")
        if (self.share > 0.0) == (self.allowance > 0.0):
            raise InputError(
                f"floor: share={self.share!r} and allowance={self.allowance!r}: give exactly one of them above 0 (a "
                "share where the old policy's mean reward is never negative, else an allowance in the reward's unit)."
            )
        for name in ("noise", "weight_bound", "regularization"):
            value = getattr(self, name)
            if not (0.0 < value < math.inf if value is not None else name == "regularization"):
                raise InputError(f"floor: {name}={value!r} must be a positive number.")
        if not 0.0 < self.delta < 1.0:
            raise InputError(f"floor: delta={self.delta!r} must lie in (0, 1).")


def floor_of(floor: float | Floor | Mapping[str, Any] | None, settings: Settings) -> Floor | None:
    """What a learner's argument ``floor`` says: a share with the learner's own noise and bounds, or a ``Floor``.

    Raises:
        InputError: a share, and the noise is learned: then nothing could be promised.
    """
    if floor is None or isinstance(floor, Floor):
        return floor
    if isinstance(floor, Mapping):
        # what "prompt" said is known of every reward now; files and configurations of before may have it
        given = {name: value for name, value in floor.items() if name != "prompt"}
        unknown = sorted(set(map(str, given)) - {field.name for field in fields(Floor)})
        if unknown:
            raise InputError(f"floor has no {', '.join(unknown)}; it has {', '.join(f.name for f in fields(Floor))}.")
        return Floor(**given)
    if not is_number(floor):
        raise InputError(f"floor={floor!r} must be a share below 1, such as 0.05, or a Floor.")
    if settings.noise == "auto":
        raise InputError(
            f"floor={floor!r} is a promise, which needs a bound on the noise that is known beforehand: give "
            f"noise=… and weight_bound=… as numbers, or floor=sl.Floor({floor!r}, noise=…, weight_bound=…)."
        )
    return Floor(float(floor), noise=settings.sigma, weight_bound=settings.weight_bound, delta=settings.delta)
