"""``choose_among`` skips arms that cannot win; it must choose as if it had scored all of them."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sidelight.kernels.ridge_choice import choose, score
from sidelight.kernels.state import state_of, vectors_for
from sidelight.learners.ridge_state import arm_spreads


def width_bound(covariance):
    """As the kernels bound ``√λ_max(A⁻¹)``."""
    return np.sqrt(min(np.trace(covariance), np.abs(covariance).sum(axis=1).max())) if len(covariance) else 0.0


def held(geometry, spreads, weights, covariances, radii, bounds, counts):
    """The two vectors of a state that has these parts."""
    order, loadings, shifted = geometry
    K, m, R = loadings.shape
    arena, sizes = vectors_for(K, len(order), m, R, shifted)
    state = state_of(arena, sizes)
    state.centre[:], state.spreads[:] = spreads
    parts = (order, loadings, weights, covariances, radii, bounds, counts)
    for name, value in zip(
        ("order", "loadings", "weights", "covariances", "radii", "bounds", "counts"), parts, strict=True
    ):
        getattr(state, name)[:] = value
    state.reluctance[:] = 1.0
    return arena, sizes, state


def scores_of(arena, sizes, x):
    out = np.empty((2, sizes[0]))
    score(arena, sizes, x, out)
    return out


sizes = st.tuples(st.sampled_from([1, 2, 3, 4, 5, 8, 33]), st.integers(1, 6), st.integers(0, 4))


def random_state(seed: int, K: int, m: int, R: int, kind: str, width: float, levels: int):
    """Weights and covariances with ties, duplicates, tiny and huge widths; ``kind`` as a reduction has it.

    kind: ``plain`` (no constraint), ``shifted`` (``[I, B]``), ``general`` (orthonormal kernel basis, some padded).
    """
    rng = np.random.default_rng(seed)
    d = m if kind == "plain" else R + m
    weights = rng.normal(size=(K, d))
    if levels:  # few distinct values, so that estimates tie
        weights = np.round(weights * levels) / levels
    roots = rng.normal(size=(K, m, m)) * 10.0 ** rng.uniform(-3, 1, size=(K, m, 1))
    covariances = roots @ np.swapaxes(roots, 1, 2)
    if kind == "plain":
        loadings, shifted = np.zeros((K, m, 0)), True
    elif kind == "shifted":
        # from all the same, for which the bound is as tight as it gets, to all different
        common = rng.normal(size=(m, R))
        loadings, shifted = common + rng.choice([0.0, 1e-13, 1e-3, 1.0]) * rng.normal(size=(K, m, R)), True
    else:
        loadings, shifted = np.zeros((K, m, d)), False
        for a in range(K):
            k = int(rng.integers(0, m + 1))
            loadings[a, :k] = -np.linalg.qr(rng.normal(size=(d, m)))[0][:, :k].T
            padded = np.arange(k, m)
            covariances[a, padded] = 0.0
            covariances[a, :, padded] = 0.0
            covariances[a, padded, padded] = 1.0
    radii = width * rng.choice([0.0, 0.3, 1.0, 1.0], size=K)
    if K > 2:  # twins: the first of them must win
        for array in (weights, covariances, loadings, radii):
            array[-1] = array[0]
    bounds = np.array([width_bound(covariances[a]) for a in range(K)])
    counts = rng.integers(0, 5, size=K)
    order = rng.permutation(d).astype(np.int64)
    return rng, (order, loadings, shifted), arm_spreads(loadings, shifted), weights, covariances, radii, bounds, counts


@settings(max_examples=150, deadline=None)
@given(
    seed=st.integers(0, 2**32 - 1),
    size=sizes,
    kind=st.sampled_from(["plain", "shifted", "general"]),
    width=st.sampled_from([0.0, 1e-12, 1e-3, 1.0, 1e3, 1e9]),
    levels=st.sampled_from([0, 1, 2]),
    limit=st.sampled_from([0.0, 1e-3, 1.0, 1e12]),
)
def test_it_chooses_as_if_all_arms_were_scored(seed, size, kind, width, levels, limit):
    K, m, R = size
    rng, geometry, spreads, weights, covariances, radii, bounds, counts = random_state(
        seed, K, m, R, kind, width, levels
    )
    order, loadings, _ = geometry
    d = len(order)
    arena, sizes, state = held(geometry, spreads, weights, covariances, radii, bounds, counts)
    reluctance = state.reluctance[:] = rng.choice([0.1, 1.0, np.inf], size=K)
    contexts = [rng.normal(size=d), np.zeros(d), np.eye(d)[0], 1e6 * rng.normal(size=d), np.round(rng.normal(size=d))]
    if kind == "shifted":  # one arm's z cancels to rounding alone
        cancelled = np.empty(d)
        cancelled[order[:R]] = 1e6 * rng.normal(size=R)
        cancelled[order[R:]] = loadings[0] @ cancelled[order[:R]]
        contexts.append(cancelled)
    for x in contexts:
        estimates, widths = scores_of(arena, sizes, x)
        a, estimate, w, doubted = choose(arena, sizes, x, limit)
        index = estimates + widths
        assert a == int(index.argmax())
        assert (estimate, w) == (estimates[a], widths[a])
        often = (1.0 + counts) * np.sqrt(1.0 + counts)
        never = (np.arange(K) == a) | np.isinf(reluctance)
        cost = np.where(never, np.inf, (index[a] - estimates) * often * np.where(never, 1.0, reluctance))
        possible = limit > 0 and cost.min() <= limit
        assert doubted == (int(K - 1 - cost[::-1].argmin()) if possible else -1)


@settings(max_examples=150, deadline=None)
@given(
    seed=st.integers(0, 2**32 - 1),
    size=sizes,
    kind=st.sampled_from(["shifted", "general"]),
    scales=st.tuples(*[st.sampled_from([1e-160, 1e-42, 1e-20, 1e-3, 1.0, 1e3, 1e20, 1e37, 1e45])] * 3),
    apart=st.sampled_from([0.0, 1e-15, 1e-12, 1e-8, 1e-6]),
)
def test_arms_that_rounding_alone_tells_apart(seed, size, kind, scales, apart):
    """Arms next to equal, and numbers at both ends of the range."""
    K, m, R = size
    rng, geometry, _, weights, covariances, radii, _, counts = random_state(seed, K, m, R, kind, 1.0, 0)
    for array in (weights, covariances, geometry[1], radii):
        array[:] = array[0]
    weights *= scales[0] * (1.0 + apart * rng.normal(size=(K, 1)))
    covariances *= min(scales[1], 1e100) * (1.0 + apart * np.abs(rng.normal(size=(K, 1, 1))))
    bounds = np.array([width_bound(covariances[a]) for a in range(K)])
    arena, sizes, _ = held(geometry, arm_spreads(*geometry[1:]), weights, covariances, radii, bounds, counts)
    for x in scales[2] * rng.normal(size=(4, len(geometry[0]))):
        estimates, widths = scores_of(arena, sizes, x)
        chosen = choose(arena, sizes, x, 0.0)
        a = int((estimates + widths).argmax())
        assert chosen == (a, estimates[a], widths[a], -1)


@settings(max_examples=100, deadline=None)
@given(seed=st.integers(0, 2**32 - 1), size=sizes, kind=st.sampled_from(["plain", "shifted", "general"]))
def test_the_bound_is_one(seed, size, kind):
    """``√(zᵀA⁻¹z) ≤ bound·(‖z̄‖ + spread·‖x[:R]‖)``, at the worst ``z`` and the worst ``x`` too."""
    K, m, R = size
    rng, (order, loadings, shifted), ([centre], spreads), _, covariances, _, bounds, _ = random_state(
        seed, K, m, R, kind, 1.0, 0
    )
    d = len(order)
    for a in range(K):
        values, vectors = np.linalg.eigh(covariances[a])
        assert np.sqrt(max(values[-1], 0.0)) <= bounds[a] * (1 + 1e-9)
        N = np.hstack([-loadings[a], np.eye(m)]).T if shifted else -loadings[a].T
        N_centre = np.hstack([-centre, np.eye(m)]).T if shifted else -centre.T
        assert N.shape == (d, m)
        apart = np.linalg.svd(N - N_centre)[0][:, 0]
        for y in (rng.normal(size=d), N @ vectors[:, -1], apart, 1e3 * apart + N_centre @ vectors[:, -1]):
            width = np.sqrt(max((N.T @ y) @ covariances[a] @ (N.T @ y), 0.0))
            recorded = np.linalg.norm(y[: loadings.shape[2]])
            most = bounds[a] * (np.linalg.norm(N_centre.T @ y) + spreads[a] * recorded)
            assert width <= most * (1 + 1e-9)


def test_a_bound_met_exactly_is_not_pruned():
    """One feature: index and bound coincide, and the second arm's equals the first one's index."""
    order = np.zeros(1, dtype=np.int64)
    loadings, counts = np.zeros((3, 1, 0)), np.zeros(3, dtype=np.int64)
    spreads = arm_spreads(loadings, True)
    covariances = np.array([[[4.0]], [[1.0]], [[4.0]]])
    for weights, expected in (([[0.0], [1.0], [0.0]], 0), ([[0.0], [1.5], [0.5]], 1), ([[0.0], [0.5], [0.0]], 0)):
        w = np.array(weights)
        bounds = np.array([2.0, 1.0, 2.0])
        arena, sizes, _ = held((order, loadings, True), spreads, w, covariances, np.ones(3), bounds, counts)
        chosen = choose(arena, sizes, np.array([1.0]), 0.0)
        assert chosen[0] == expected


@pytest.mark.parametrize("radius", ["determinant", "printed", "posterior"])
def test_bounds_stay_bounds_while_a_learner_learns(rng, radius):
    """Between refreshes the covariances shrink and the radii grow; decisions stay those of the scores."""
    import sidelight as sl

    rows = [rng.normal(size=(k, 6)) for k in (2, 0, 3, 1)]
    learner = sl.ProjectedOFUL(
        sl.SideInformation(rows, [M @ np.ones(6) for M in rows]), noise=0.3, regularization=0.2, radius=radius
    )
    for t in range(300):
        x = rng.normal(size=6) * 10.0 ** rng.uniform(-2, 2)
        estimates, widths = learner.scores(x)
        decision = learner.decide(x)
        a = int((estimates + widths).argmax())
        assert (decision.arm, decision.estimate, decision.width) == (a, estimates[a], widths[a])
        learner.observe(x, a if t % 3 else int(rng.integers(4)), float(rng.normal()))


@pytest.mark.parametrize(("scale", "regularization"), [(1e6, 1.0), (1e7, 1.0), (1.0, 1e-12)])
def test_decisions_are_those_of_the_scores_where_rounding_is_large(rng, scale, regularization):
    """Contexts so large against the prior that covariances lose most of their digits: they lose them symmetrically."""
    import sidelight as sl

    K, d, L = 24, 8, 3
    rows = [np.hstack([np.eye(L), rng.normal(size=(L, d - L))])] * K
    side = sl.SideInformation(rows, [np.zeros(L)] * K)
    learner = sl.ProjectedOFUL(side, regularization=regularization, radius="posterior", noise=1.0)
    X, rewards = scale * rng.normal(size=(40, d)), rng.normal(size=40)
    for a in range(K):  # the same rows in another order: arms that differ by rounding alone
        for t in rng.permutation(40):
            learner.observe(X[t], a, float(rewards[t]))
    for x in scale * rng.normal(size=(200, d)):
        estimates, widths = learner.scores(x)
        a = int((estimates + widths).argmax())
        assert learner.decide(x).arm == a
    np.testing.assert_array_equal(learner.covariances, np.swapaxes(learner.covariances, 1, 2))
