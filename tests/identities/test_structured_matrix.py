"""What holds for ``M = [I, B]`` and not for every matrix: rank, norm of the inverse, perturbation constants of 1."""

from __future__ import annotations

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st
from tests import reference

import sidelight as sl
from sidelight.linalg import structured_pseudo_inverse

seeds = st.integers(0, 2**32 - 1)
magnitudes = st.floats(-3.0, 3.0).map(lambda e: 10.0**e)
few = settings(max_examples=80, deadline=None, derandomize=True)


@st.composite
def regressions(draw):
    """``B`` and an error ``F`` of any size, also large."""
    rng = np.random.default_rng(draw(seeds))
    L, m = draw(st.integers(1, 6)), draw(st.integers(1, 6))
    return draw(magnitudes) * rng.normal(size=(L, m)), draw(magnitudes) * rng.normal(size=(L, m))


@few
@given(regressions())
def test_rank_and_norm(pair):
    B, _ = pair
    L = len(B)
    M = reference.structured(B)
    assert np.linalg.svd(M, compute_uv=False)[-1] >= 1.0 - 1e-9  # so the rank is L, and ‖M†‖ ≤ 1
    M_dagger = structured_pseudo_inverse(B)
    assert np.linalg.norm(M_dagger, 2) <= 1.0 + 1e-9
    scale = 1.0 + np.abs(B).max()
    np.testing.assert_allclose(M @ M_dagger, np.eye(L), atol=1e-11 * scale**2)


@few
@given(regressions())
def test_perturbation_constants_are_one(pair):
    """``‖M̂† − M†‖ ≤ ‖M̂ − M‖`` and ``‖P̂ − P‖ ≤ ‖M̂ − M‖``: 1 where 2 is printed."""
    B, F = pair
    M_dagger, P = (A.astype(float) for A in reference.side_matrices(reference.structured(B), len(B)))
    hat_dagger, hat_P = (A.astype(float) for A in reference.side_matrices(reference.structured(B + F), len(B)))
    error = np.linalg.norm(F, 2)
    bound = sl.theory.error_propagation(error, weight_bound=2.5)
    assert bound.pseudo_inverse == error
    assert np.linalg.norm(hat_dagger - M_dagger, 2) <= bound.pseudo_inverse + 1e-9
    assert np.linalg.norm(hat_P - P, 2) <= bound.projection + 1e-9
    # third claim: b − M̂w = (M − M̂)w
    w = np.random.default_rng(0).normal(size=B.shape[0] + B.shape[1])
    w *= 2.5 / np.linalg.norm(w)
    missed = reference.structured(B) @ w - reference.structured(B + F) @ w
    assert np.linalg.norm(missed) <= bound.coefficients * (1.0 + 1e-9) + 1e-9


@few
@given(regressions())
def test_the_difference_of_the_pseudo_inverses_has_two_orthogonal_parts(pair):
    """``M̂† − M† = −M̂†EM† + P̂Eᵀ(MMᵀ)⁻¹``: the identity behind the constant 1."""
    B, F = pair
    M, hat = reference.structured(B), reference.structured(B + F)
    E = hat - M
    M_dagger, _ = reference.side_matrices(M, len(B))
    hat_dagger, hat_P = reference.side_matrices(hat, len(B))
    one = -hat_dagger @ E @ M_dagger
    two = hat_P @ E.T @ reference.pinv(M @ M.T, len(B))
    scale = float(1.0 + np.abs(B).max() + np.abs(F).max()) ** 2
    np.testing.assert_allclose((one + two).astype(float), (hat_dagger - M_dagger).astype(float), atol=1e-12 * scale)
    np.testing.assert_allclose((one.T @ two).astype(float), 0.0, atol=1e-11 * scale)


@few
@given(st.integers(2, 6), seeds)
def test_the_norm_is_not_bounded_for_every_matrix(d, seed):
    """``‖M†‖ ≤ 1`` is a property of ``[I, B]``: half a row of the identity has 2."""
    rng = np.random.default_rng(seed)
    row = rng.normal(size=(1, d))
    row *= 0.5 / np.linalg.norm(row)
    side = sl.SideInformation([row], [[1.0]])
    assert np.isclose(np.linalg.norm(side.pseudo_inverse(0), 2), 2.0)
