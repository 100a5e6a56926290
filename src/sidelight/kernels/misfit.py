"""Compiled sums behind two questions about the rounds themselves: are rewards linear, and does the present move?

One vector of floats and one of integers hold everything, as in ``kernels.state``; ``sums_of`` names the parts.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from sidelight.arrays import Array
from sidelight.kernels.compiled import inlined, kernel
from sidelight.kernels.simd import clear, dot_at
from sidelight.kernels.views import part

__all__ = ["CLIP", "FORMS", "HEAD", "SQUARES", "MisfitSums", "add_rows", "sums_of", "vectors_for"]

#: integers before the pairs: K, d, p, number of pairs
HEAD = 4
#: a feature's deviation counts for at most this much, so that one row of a long tail does not decide
CLIP = 3.0
#: quadratic forms that are tested, and squares in each of them
FORMS, SQUARES = 3, 2


class MisfitSums(NamedTuple):
    """The parts, with ``K`` arms, ``d`` features and ``p`` terms; ``z = (x − centres)/scales``, in internal order."""

    #: (n, 3)  term ``i`` is the sum over its rows ``(i, j, k)`` of ``z_j z_k``
    pairs: Any
    #: (K,)  1 for arms whose weights and projections are known well enough to be tested
    active: Any

    #: (d,)  fixed when the sums begin   (1,)  what is subtracted from rewards
    centres: Any
    scales: Any
    reward_centre: Any

    #: fixed between refreshes: (K, d) weights ``v`` from rounds alone, (K, d) how they moved at the last refresh,
    #: (K, p, d) the terms' regression on ``z``, (K,) ``σ_a``
    weights: Any
    moved: Any
    projections: Any
    noises: Any

    #: the sums: (K, p, d) ``Σ f zᵀ`` of all rounds; of active arms (K, p) ``Σ ef̃``, (K, p, p) ``Σ e²f̃f̃ᵀ`` and (K,)
    #: rounds; (K, 2) ``Σ u`` and ``Σ u²`` since the last refresh, ``u = e(moved·z)/σ``
    cross: Any
    scores: Any
    squares: Any
    rounds: Any
    drift: Any

    #: fixed between refreshes: the forms ``g = Σ_i curvature_i (direction_i·z)² − level`` of every arm,
    #: (K·FORMS·SQUARES, d) directions, (K, FORMS, SQUARES) curvatures, (K, FORMS) levels; 0 before an arm is tested
    directions: Any
    curvatures: Any
    levels: Any
    #: of active arms: (K, d, d) ``Σ e z zᵀ``; (K, FORMS, 2) ``Σ eg`` and ``Σ e²g²``; (K·FORMS, d) ``Σ gz`` since the
    #: last refresh
    bent: Any
    along: Any
    reach: Any


def vectors_for(K: int, d: int, p: int, pairs: NDArray[np.int64]) -> tuple[Array, NDArray[np.int64]]:
    """The two vectors before any round, all zero but for sizes and pairs (n, 3)."""
    sizes = np.concatenate([[K, d, p, len(pairs)], pairs.ravel(), np.zeros(K, dtype=np.int64)]).astype(np.int64)
    terms = 2 * d + 1 + 2 * K * d + 2 * K * p * d + 4 * K + K * p + K * p * p
    forms = K * FORMS * (SQUARES * (d + 1) + 1 + 2 + d) + K * d * d
    return np.zeros(terms + forms), sizes


@inlined
def sums_of(arena, sizes):  # type: ignore[no-untyped-def]
    """The named parts of the two vectors, which they share memory with."""
    K, d, p, n = sizes[0], sizes[1], sizes[2], sizes[3]
    pairs, active = part(sizes, HEAD, (n, 3)), part(sizes, HEAD + 3 * n, (K,))
    i = 0
    centres, i = part(arena, i, (d,)), i + d
    scales, i = part(arena, i, (d,)), i + d
    reward_centre, i = part(arena, i, (1,)), i + 1
    weights, i = part(arena, i, (K, d)), i + K * d
    moved, i = part(arena, i, (K, d)), i + K * d
    projections, i = part(arena, i, (K, p, d)), i + K * p * d
    noises, i = part(arena, i, (K,)), i + K
    cross, i = part(arena, i, (K, p, d)), i + K * p * d
    scores, i = part(arena, i, (K, p)), i + K * p
    squares, i = part(arena, i, (K, p, p)), i + K * p * p
    rounds, i = part(arena, i, (K,)), i + K
    drift, i = part(arena, i, (K, 2)), i + K * 2
    directions, i = part(arena, i, (K * FORMS * SQUARES, d)), i + K * FORMS * SQUARES * d
    curvatures, i = part(arena, i, (K, FORMS, SQUARES)), i + K * FORMS * SQUARES
    levels, i = part(arena, i, (K, FORMS)), i + K * FORMS
    bent, i = part(arena, i, (K, d, d)), i + K * d * d
    along, i = part(arena, i, (K, FORMS, 2)), i + K * FORMS * 2
    reach, i = part(arena, i, (K * FORMS, d)), i + K * FORMS * d
    return MisfitSums(
        pairs,
        active,
        centres,
        scales,
        reward_centre,
        weights,
        moved,
        projections,
        noises,
        cross,
        scores,
        squares,
        rounds,
        drift,
        directions,
        curvatures,
        levels,
        bent,
        along,
        reach,
    )


@inlined
def clipped(value):  # type: ignore[no-untyped-def]
    """``value``, at most ``CLIP`` in size."""
    return min(max(value, -CLIP), CLIP)


@kernel
def add_rows(arena, sizes, order, X, arms, rewards):  # type: ignore[no-untyped-def]
    """Rounds in order: contexts ``X`` (n, d), positions of arms (n,), rewards (n,).  order: (d,) internal → context"""
    s = sums_of(arena, sizes)
    _, p, d = s.cross.shape
    z, near, f = np.empty(d), np.empty(d), np.empty(p)
    for t in range(X.shape[0]):
        a = arms[t]
        for i in range(d):
            z[i] = (X[t, order[i]] - s.centres[i]) / s.scales[i]
            near[i] = clipped(z[i])
        clear(f)
        for n in range(s.pairs.shape[0]):
            f[s.pairs[n, 0]] += near[s.pairs[n, 1]] * near[s.pairs[n, 2]]
        for i in range(p):
            for j in range(d):
                s.cross[a, i, j] += f[i] * z[j]
        if not s.active[a]:
            continue
        error = (rewards[t] - s.reward_centre[0] - dot_at(s.weights, a * d, z, 0, d)) / s.noises[a]
        u = error * dot_at(s.moved, a * d, z, 0, d) / s.noises[a]
        s.drift[a, 0] += u
        s.drift[a, 1] += u * u
        s.rounds[a] += 1.0
        for i in range(p):
            f[i] = error * (f[i] - dot_at(s.projections, (a * p + i) * d, z, 0, d))
        for i in range(p):
            s.scores[a, i] += f[i]
            for j in range(p):
                s.squares[a, i, j] += f[i] * f[j]
        for i in range(d):
            bent = error * near[i]
            for j in range(d):
                s.bent[a, i, j] += bent * near[j]
        for k in range(a * FORMS, (a + 1) * FORMS):
            form = k - a * FORMS
            g = -s.levels[a, form]
            for i in range(SQUARES):
                y = dot_at(s.directions, (k * SQUARES + i) * d, near, 0, d)
                g += s.curvatures[a, form, i] * y * y
            s.along[a, form, 0] += error * g
            s.along[a, form, 1] += (error * g) * (error * g)
            for j in range(d):
                s.reach[k, j] += g * z[j]
