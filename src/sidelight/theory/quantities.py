"""The arguments of the package's formulas: numbers, arrays of them, probabilities, and the problem they are about.

Symbols are those of the package's docstring.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from sidelight.errors import InputError

__all__ = ["Floats", "Numbers", "Problem", "probability"]

Floats: TypeAlias = NDArray[np.float64]
Numbers: TypeAlias = float | NDArray[Any]
"""A number, or an array over arms or rounds; results have the same shape."""


@dataclass(frozen=True)
class Problem:
    """The bandit problem that a bound is about, and the learner's λ.

    Attributes:
        n_arms: ``K``.
        dimension: ``m``, what is left to learn of an arm's weights: ``d − L`` with a log, ``d`` without one.
        noise: ``σ``, with which rewards are sub-Gaussian.
        regularization: ``λ``.
        context_bound: ``S_x ≥ ‖x‖``.
        weight_bound: ``S_w ≥ ‖w_a‖``.

    Example:
        >>> from sidelight import theory
        >>> float(theory.projected_regret_bound(1_000, theory.Problem(n_arms=3, dimension=0)))
        0.0
    """

    n_arms: int
    dimension: int
    noise: float = 1.0
    regularization: float = 1.0
    context_bound: float = 1.0
    weight_bound: float = 1.0


def probability(value: Numbers, name: str) -> Floats:
    """``value`` as an array, checked to be a probability of failure in (0, 1]."""
    array = np.asarray(value, dtype=np.float64)
    if not ((array > 0) & (array <= 1)).all():
        raise InputError(f"{name}={array}: a probability of failure lies between 0 (excluded) and 1.")
    return array
