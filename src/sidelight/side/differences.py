"""How much the arms' regressions of hidden on recorded features differ, as rewards tell.

Of the error that is claimed for ``B̂`` one part comes from how much the arms' slopes are expected to differ, another
from how much their levels are (``hidden.regression_error.differences``).  Where answers are few, what is expected is
little more than a prior; rounds see the error itself.  With what an arm's rounds (prior and other logs with them) say
of its weights, ``w ~ N(ŵ, P)``, and slopes and levels that differ by ``c_s`` and ``c_l`` times the expected variance,

    b − M̂ŵ ~ N(0, s²G⁻¹ + τ²(A₀⁻¹ + c_sC_s + c_lqqᵀ) + M̂PM̂ᵀ).

The same scales hold for all arms.  Beforehand they are as likely as answers and the priors of pooling make them
(``hidden.strengths``), and what is taken is how much larger their posterior means are than that expects: a scale is one
of variances, and rounds that say nothing change nothing.  An arm counts once it has ``ENOUGH`` rounds for each feature:
before, ``ŵ`` is the prior's doing, which was itself learned from the log.

With the triangular factor ``[R | y]`` of the log's rows, ``G = RᵀR``, and in units of ``s²``, ``y − RM̂ŵ`` has a
covariance in which nothing is inverted, and ``c_l`` is a change of rank one.
"""

from __future__ import annotations

import numpy as np

from sidelight.hidden.protocol import AS_EXPECTED, Differences, Scales
from sidelight.linalg import Array, apply, exp, log1p, product, solve_with_log_det, symmetrize

__all__ = ["ENOUGH", "learned_scales"]

#: rounds of an arm for each feature from which on it tells of differences
ENOUGH = 2.0


def learned_scales(
    log_rows: tuple[Array, Array, Array],
    differences: Differences,
    variances: tuple[Array, Array],
    known: tuple[Array, Array],
    bias: Array | None = None,
) -> Scales:
    """``E[c_s]`` and ``E[c_l]``, given what rounds say, relative to what they were expected to be before.

    Args:
        log_rows: ``R`` (K, L, L), ``y`` (K, L) and ``B̂`` (K, L, m) of these arms.
        differences: the parts of ``A⁻¹``, of these arms.
        variances: ``τ²`` (K,) and ``s²`` (K,), finite.
        known: ``ŵ`` (K, d) and its covariance ``P`` (K, d, d) without this log, recorded features first.
        bias: (K, L, n)  ``U``: a bias with the covariance ``UUᵀ`` is allowed for.
    """
    (R, y, B), (tau2, s2), (weights, covariances) = log_rows, variances, known
    part, Rt = (tau2 / s2)[:, None, None], np.swapaxes(R, 1, 2)
    RM = np.concatenate([R, product(R, B)], axis=2)
    base = np.eye(R.shape[1]) + part * product(product(R, differences.rest), Rt)
    base += product(product(RM, covariances), np.swapaxes(RM, 1, 2)) / s2[:, None, None]
    if bias is not None:
        RU = product(R, bias)
        base += product(RU, np.swapaxes(RU, 1, 2)) / s2[:, None, None]
    slopes = part * product(product(R, differences.slopes), Rt)
    left = (y - apply(RM, weights)) / np.sqrt(s2)[:, None]
    level = np.sqrt(part[:, 0]) * apply(R, differences.levels)
    both = np.stack([left, level], axis=2)
    (of_slopes, of_levels), before = differences.scales, differences.chances
    values = before.copy()
    for i in np.flatnonzero(np.isfinite(before).any(axis=1)):
        solved, log_dets = solve_with_log_det(symmetrize(base + of_slopes[i] * slopes), both)
        across, along = (level * solved[:, :, 0]).sum(axis=1), (level * solved[:, :, 1]).sum(axis=1)
        more = of_levels[:, None] * along
        fits = of_levels[:, None] * np.square(across) / (1.0 + more) - log1p(more)
        fits = 0.5 * (fits - log_dets - (left * solved[:, :, 0]).sum(axis=1))
        # added up in order, so that no processor adds in another one
        values[i] += np.cumsum(fits, axis=1)[:, -1]
    if np.isnan(values).any():
        return AS_EXPECTED
    after, expected = _means(values, of_slopes, of_levels), _means(before, of_slopes, of_levels)
    return Scales(after[0] / expected[0], after[1] / expected[1])


def _means(chances: Array, of_slopes: Array, of_levels: Array) -> tuple[float, float]:
    """The means of both scales.  chances: (p, q)  logarithms of their probabilities, up to a constant"""
    weights = exp(chances - chances.max())
    return _mean(np.cumsum(weights, axis=1)[:, -1], of_slopes), _mean(np.cumsum(weights, axis=0)[-1], of_levels)


def _mean(weights: Array, values: Array) -> float:
    """The weighted mean, added up in order."""
    return float(np.cumsum(weights * values)[-1] / np.cumsum(weights)[-1])
