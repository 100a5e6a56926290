"""Shares of several logs' common error: against explicit inverses, a general optimiser, and logs cut into pieces."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.optimize import minimize
from tests.statistical.fused_worlds import log_of, small_world

import sidelight as sl
from sidelight.side.evidence import LogGeometry
from sidelight.side.intersection import EVENLY, Directions, error_directions, information, intersection_shares

D, K = 6, 4
COLUMNS = ([0, 1, 2, 3], [0, 4], [1, 2, 3, 4, 5])


def geometries(rng, columns=COLUMNS, rows=(900, 2_000, 400), answers=90):
    """Logs of one world that had the same answers, with ``τ²`` and ``s²`` of every arm."""
    world, out = small_world(seed=int(rng.integers(1000))), []
    contexts = world.contexts(answers, rng)
    arms = world.behavior_actions(contexts, rng)
    for recorded, n in zip(columns, rows, strict=True):
        hidden = sl.BehaviorQueries(log_of(world, n, recorded, rng))
        for x, arm in zip(contexts, arms, strict=True):
            hidden.observe(x, int(arm))
        s2 = np.array(hidden.summary.residual_variances)
        out.append((LogGeometry(hidden), rng.uniform(0.1, 0.9, size=K) * s2, s2))
    return out


def order_of(geometry):
    summary = geometry.hidden.summary
    return np.concatenate([summary.recorded, summary.hidden]).astype(np.int64)


def directions(logs):
    return [error_directions(geometry, tau2, s2, order_of(geometry)) for geometry, tau2, s2 in logs]


def explicit(logs, a, shares):
    """``M̂``, ``s²G⁻¹``, ``τ²A⁻¹`` and the sum of ``M̂ᵀ(s²G⁻¹ + τ²A⁻¹/α)⁻¹M̂``, by inverses."""
    parts, total = [], np.zeros((D, D))
    for (geometry, tau2, s2), share in zip(logs, shares, strict=True):
        M = np.zeros((geometry.G.shape[1], D))
        M[:, order_of(geometry)] = np.hstack([np.eye(len(M)), geometry.B[a]])
        C, E = s2[a] * np.linalg.inv(geometry.G[a]), tau2[a] * np.linalg.inv(geometry.A[a])
        parts.append((M, C, E))
        total += M.T @ np.linalg.inv(C + E / share) @ M
    return parts, total


def log_det(matrices):
    return np.linalg.slogdet(matrices)[1]


def test_directions_are_the_evidence_for_any_share(rng):
    logs, P = geometries(rng), np.broadcast_to(0.7 * np.eye(D), (K, D, D))
    shares = rng.dirichlet(np.ones(len(logs)), size=K)
    found = information(directions(logs), shares, P)
    for a in range(K):
        np.testing.assert_allclose(found[a], P[a] + explicit(logs, a, shares[a])[1], rtol=1e-7, atol=1e-7)


def test_the_shares_cover_every_dependence(rng):
    """``blockdiag(D_j/α_j) ⪰ Q`` for every ``Q`` with the blocks ``D_j`` on its diagonal, the extreme ones included."""
    logs = geometries(rng)
    shares = intersection_shares(directions(logs), np.broadcast_to(np.eye(D), (K, D, D)))
    np.testing.assert_allclose(shares.sum(axis=1), 1.0)
    assert (shares > 0.0).all()
    for a in range(K):
        roots = [np.linalg.cholesky(E) for _, _, E in explicit(logs, a, shares[a])[0]]
        sizes = [len(root) for root in roots]
        claimed = np.zeros((sum(sizes), sum(sizes)))
        for root, share, end in zip(roots, shares[a], np.cumsum(sizes), strict=True):
            at = slice(end - len(root), end)
            claimed[at, at] = root @ root.T / share
        for rank in (1, 2, 7):
            # rows of orthonormal columns: δ_j = root_j·(orthonormal)ᵀz, all from the same few z where rank is small
            stacked = [
                root @ np.linalg.qr(rng.normal(size=(max(len(root), rank),) * 2))[0][: len(root), :rank]
                for root in roots
            ]
            Q = np.concatenate(stacked) @ np.concatenate(stacked).T
            assert np.linalg.eigvalsh(claimed - Q).min() > -1e-9 * np.abs(claimed).max()


@pytest.mark.parametrize("known", [0.1, 30.0])
def test_the_shares_are_nearly_those_of_most_information(rng, known):
    """Within 0.1 of what a general optimiser finds; at most ``EVENLY`` below any log alone; above equal shares."""
    logs = geometries(rng)
    P = np.broadcast_to(known * np.eye(D), (K, D, D))
    every = directions(logs)
    shares = intersection_shares(every, P)
    ours = log_det(information(every, shares, P))
    for a in range(K):

        def lost(z, a=a):
            e = np.exp(z - z.max())
            e = np.maximum(e / e.sum(), 1e-9)
            return -log_det(P[a] + explicit(logs, a, e)[1]) - EVENLY * np.log(e).mean()

        best = -min(minimize(lost, start, method="Nelder-Mead").fun for start in (np.zeros(3), rng.normal(size=3)))
        alone = [log_det(P[a] + explicit([log], a, [1.0])[1]) for log in logs]
        assert best - 0.1 < ours[a] + EVENLY * np.log(shares[a]).mean() < best + 1e-6
        assert ours[a] > max(alone) - EVENLY - 0.1
    assert (ours > log_det(information(every, np.full((K, 3), 1 / 3), P))).all()


def test_pieces_of_a_log_are_the_log(rng):
    """Three logs with the same rows and answers count like one with ``3G``: errors that are the same are not halved."""
    ((geometry, tau2, s2),) = geometries(rng, columns=([1, 3, 4],), rows=(700,))
    P = np.broadcast_to(0.3 * np.eye(D), (K, D, D))
    pieces = [error_directions(geometry, tau2, s2, order_of(geometry))] * 3
    shares = intersection_shares(pieces, P)
    np.testing.assert_allclose(shares, 1 / 3)
    # s²/3 with G is s² with 3G
    whole = error_directions(geometry, tau2, s2 / 3.0, order_of(geometry))
    np.testing.assert_allclose(information(pieces, shares, P), information([whole], np.ones((K, 1)), P), rtol=1e-9)


def test_a_log_that_says_nothing_takes_nothing(rng):
    """A log that is not believed (``s² = ∞``), one that lacks an arm, one whose ``B̂`` has no error to share."""
    (first, tau2, s2), other = geometries(rng, columns=COLUMNS[:2], rows=(900, 60))
    P = np.broadcast_to(0.5 * np.eye(D), (K, D, D))
    own = error_directions(first, tau2, s2, order_of(first))
    doubted = error_directions(other[0], other[1], np.full(K, np.inf), order_of(other[0]))
    absent = Directions(np.zeros((K, 2, D)), np.zeros((K, 2)))
    exact = own._replace(errors=np.zeros_like(own.errors))
    for silent in (doubted, absent, exact):
        np.testing.assert_allclose(intersection_shares([silent, own], P), 1.0, rtol=1e-12)
    # arm by arm
    partly = error_directions(*other, order_of(other[0]))
    partly.rows[1] = 0.0
    shares = intersection_shares([partly, own], P)
    np.testing.assert_allclose(shares.sum(axis=1), [1.0, 2.0, 1.0, 1.0])


def test_shares_depend_on_no_unit(rng):
    """Powers of two in features and rewards change no bit of the shares."""
    logs = geometries(rng)
    scale, reward = 2.0 ** np.array([3, -7, 0, 12, -1, 5]), 2.0**-9
    P = np.broadcast_to(0.7 * np.eye(D), (K, D, D))
    before = intersection_shares(directions(logs), P)
    for geometry, tau2, s2 in logs:
        o, h = geometry.hidden.summary.recorded, geometry.hidden.summary.hidden
        geometry.R = geometry.R * scale[o]
        geometry.A = geometry.A * scale[o][:, None] * scale[o]
        geometry.B = geometry.B / scale[o][:, None] * scale[h]
        tau2 *= reward**2
        s2 *= reward**2
    after = intersection_shares(directions(logs), P * scale[:, None] * scale / reward**2)
    np.testing.assert_array_equal(before, after)
