"""The state of a ridge learner: one vector of floats, one of integers, and the names of their parts.

Python hands both vectors to a kernel (two arrays cost half a microsecond, thirty cost five), and ``state_of`` names
their parts, in compiled code and in Python alike: the layout is written once, here.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from sidelight.arrays import Array
from sidelight.kernels.compiled import inlined
from sidelight.kernels.views import part

__all__ = ["Numbers", "State", "state_of", "vectors_for"]

#: integers before the parts: K, d, m, R, shifted
HEAD = 5


class Numbers(NamedTuple):
    """The scalars that a learner's settings give its kernels, in the order in which they begin the vector of floats.

    Attributes:
        kind: which radius (``DETERMINANT``, ``PRINTED``, ``POSTERIOR``)   noise: ``σ``.
        prior_term: ``λS_w²``   growth: ``S_x²/λ``   union: ``log K/δ``   alpha: ``α``.
        surprise: how many standard deviations off a reward must be to count as a surprise.
        least_rate: the least rate that a reward of 0 or 1 may be expected to have, by which rounds are weighted; 0
            where rewards are of any other kind.
    """

    kind: float
    noise: float
    prior_term: float
    growth: float
    union: float
    alpha: float
    surprise: float
    least_rate: float


#: floats before the noise of every arm
NUMBERS = len(Numbers._fields)


class State(NamedTuple):
    """The parts, with ``K`` arms, ``d`` features, ``m`` reduced dimensions and ``R`` features that loadings act on.

    Everything is in internal order: recorded features first.
    """

    #: the last ``m`` features enter ``z`` as they are
    shifted: Any
    #: the scalars: see ``Numbers``
    kind: Any
    noise: Any
    prior_term: Any
    growth: Any
    union: Any
    alpha: Any
    surprise: Any
    least_rate: Any
    #: the largest estimated cost of the trials of one arm, as a share of ``spent``; 0 for learners that doubt no log
    doubt: Any

    #: (d,)  internal position → position in the context
    order: Any
    #: (K,)  ``m_a = d − rank M_a``   counts: (K,)  observations   updates: (K,)  since the caches were recomputed
    dimensions: Any
    counts: Any
    updates: Any

    #: (8,)  the scalars above as Python sets them   (K,)  ``σ_a`` of every arm
    numbers: Any
    noises: Any
    #: (K, m, R)  ``z = x_h − loadings x[:R]``   (1, m, R)  their mean   (K,)  at least ``‖loadings_a − centre‖``
    loadings: Any
    centre: Any
    spreads: Any
    #: (K, d)  ``w = anchor + Nθ``
    anchors: Any
    #: (K, m, m)  ``NᵀV₀N``   (K, m)  ``NᵀV₀(μ − anchor)``   (K,)  ``log det NᵀV₀N``, NaN until a refresh computes it
    prior_precisions: Any
    prior_moments: Any
    prior_log_dets: Any
    #: (K,)  factor on the estimated cost of a trial of each arm
    reluctance: Any

    #: the sums: (K, m, m) ``Σzzᵀ``, (K, m) ``Σz(r − x·anchor)``, (K,) ``Σ(r − x·anchor)²``,
    #: (2d + 2,) ``Σx²``, ``Σx``, ``Σr``, ``Σr²`` over all arms
    grams: Any
    moments: Any
    squares: Any
    context_sums: Any
    #: (1,)  the sum of widths at which arms were observed: the scale of the learner's own regret
    spent: Any
    #: (1,)  see ``doubt``
    doubts: Any

    #: the caches: (K, m, m) ``A⁻¹``, (K, d) ``ŵ``, (K,) ``log det A/det A₀``, (K,) ``α√β``, (K,) ``≥ √λ_max(A⁻¹)``
    covariances: Any
    weights: Any
    log_dets: Any
    radii: Any
    bounds: Any


def vectors_for(K: int, d: int, m: int, R: int, shifted: bool) -> tuple[Array, NDArray[np.int64]]:
    """The two vectors of a learner that has seen nothing, all zero but for the sizes."""
    floats = NUMBERS + K + (K + 1) * m * R + 7 * K + 2 * K * d + 3 * K * m * m + 2 * K * m + 2 * d + 2 + 2
    sizes = np.zeros(HEAD + d + 3 * K, dtype=np.int64)
    sizes[:HEAD] = K, d, m, R, shifted
    return np.zeros(floats), sizes


@inlined
def state_of(arena, sizes):  # type: ignore[no-untyped-def]
    """The named parts of the two vectors, which they share memory with."""
    K, d, m, R = sizes[0], sizes[1], sizes[2], sizes[3]
    i = HEAD + d
    order, dimensions = part(sizes, HEAD, (d,)), part(sizes, i, (K,))
    counts, updates = part(sizes, i + K, (K,)), part(sizes, i + 2 * K, (K,))
    numbers, noises = part(arena, 0, (NUMBERS,)), part(arena, NUMBERS, (K,))
    i = NUMBERS + K
    loadings, i = part(arena, i, (K, m, R)), i + K * m * R
    centre, i = part(arena, i, (1, m, R)), i + m * R
    spreads, i = part(arena, i, (K,)), i + K
    anchors, i = part(arena, i, (K, d)), i + K * d
    prior_precisions, i = part(arena, i, (K, m, m)), i + K * m * m
    prior_moments, i = part(arena, i, (K, m)), i + K * m
    prior_log_dets, i = part(arena, i, (K,)), i + K
    reluctance, i = part(arena, i, (K,)), i + K
    grams, i = part(arena, i, (K, m, m)), i + K * m * m
    moments, i = part(arena, i, (K, m)), i + K * m
    squares, i = part(arena, i, (K,)), i + K
    context_sums, i = part(arena, i, (2 * d + 2,)), i + 2 * d + 2
    spent, i = part(arena, i, (1,)), i + 1
    doubts, i = part(arena, i, (1,)), i + 1
    covariances, i = part(arena, i, (K, m, m)), i + K * m * m
    weights, i = part(arena, i, (K, d)), i + K * d
    log_dets, i = part(arena, i, (K,)), i + K
    radii, i = part(arena, i, (K,)), i + K
    bounds, i = part(arena, i, (K,)), i + K
    return State(
        shifted=sizes[4] != 0,
        kind=int(numbers[0]),
        noise=numbers[1],
        prior_term=numbers[2],
        growth=numbers[3],
        union=numbers[4],
        alpha=numbers[5],
        surprise=numbers[6],
        least_rate=numbers[7],
        doubt=doubts[0],
        order=order,
        dimensions=dimensions,
        counts=counts,
        updates=updates,
        numbers=numbers,
        noises=noises,
        loadings=loadings,
        centre=centre,
        spreads=spreads,
        anchors=anchors,
        prior_precisions=prior_precisions,
        prior_moments=prior_moments,
        prior_log_dets=prior_log_dets,
        reluctance=reluctance,
        grams=grams,
        moments=moments,
        squares=squares,
        context_sums=context_sums,
        spent=spent,
        doubts=doubts,
        covariances=covariances,
        weights=weights,
        log_dets=log_dets,
        radii=radii,
        bounds=bounds,
    )
