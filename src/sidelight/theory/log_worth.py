"""What a finite log costs and what it is worth, in rounds.

Symbols are those of the package's docstring.
"""

from __future__ import annotations

import numpy as np

from sidelight.errors import InputError
from sidelight.linalg import eigenvalues as symmetric_values
from sidelight.linalg import log1p, log_det, square
from sidelight.theory.quantities import Floats

__all__ = ["equivalent_rounds", "finite_log_penalty"]


def finite_log_penalty(
    horizon: float,
    context_bound: float,
    pseudo_inverse: Floats,
    coefficient_error: Floats | None = None,
    covariance: Floats | None = None,
) -> Floats:
    """``T·S_x·‖M†δb‖`` for each arm: about what a hard constraint pays in ``T`` rounds for the error of a
    finite log.

    The paper's discussion names a linear penalty without computing it. ``M w = b + δb`` shifts the estimate
    by ``M†δb``, up to what the free directions can compensate, so the reward of a round is off by up to
    ``S_x‖M†δb‖``, for ever. An order of magnitude, not a bound: the regret of a round involves two arms, and
    only errors that change the choice cost anything.

    Args:
        horizon: ``T``.
        context_bound: ``S_x``.
        pseudo_inverse: ``M†`` ``(..., d, L)``.
        coefficient_error: ``δb`` ``(..., L)``, where it is known (a simulation), or
        covariance: of ``b``, ``(..., L, L)``, as a log reports it (``s²G⁻¹``): ``‖M†δb‖`` is then its root
            mean square ``√tr(M† C M†ᵀ)``.
    """
    if coefficient_error is not None and covariance is None:
        shift = np.einsum("...dl,...l->...d", pseudo_inverse, coefficient_error)
        squared = square(shift).sum(axis=-1)
    elif covariance is not None and coefficient_error is None:
        squared = ((pseudo_inverse @ covariance) * pseudo_inverse).sum(axis=(-1, -2))
    else:
        raise InputError("pass either coefficient_error (δb) or covariance (of b), not both and not neither.")
    penalty: Floats = horizon * context_bound * np.sqrt(squared)
    return penalty


def equivalent_rounds(information: Floats, context_moments: Floats, regularization: float) -> float:
    """How many online rounds of an arm hold as much information as the log does about it. Ours.

    The ``n`` with ``log det(I + nΣ/λ) = log det(I + J/λ)``, where ``J`` ``(d, d)`` is the log's precision in
    units of the online noise (``σ²MᵀΛM``) and ``Σ = E[xxᵀ]`` ``(d, d)``. A log knows nothing about its
    hidden directions, so the number is finite however long the log is, and small if those directions carry
    most of the weight.
    """
    information, context_moments = np.asarray(information), np.asarray(context_moments)
    identity = np.eye(len(information))
    target = float(log_det(identity + information / regularization))
    eigenvalues = np.maximum(symmetric_values(context_moments), 0.0) / regularization
    if target <= 0:
        return 0.0
    if eigenvalues[-1] == 0:
        raise InputError("context_moments is zero: no number of such rounds holds any information.")
    low, high = 0.0, 1.0
    while log1p(high * eigenvalues).sum() < target:
        high *= 2.0
    for _ in range(200):
        middle = 0.5 * (low + high)
        low, high = (middle, high) if log1p(middle * eigenvalues).sum() < target else (low, middle)
    return 0.5 * (low + high)
