"""Quadratic forms that the rounds suggest, against SciPy's eigenvectors and against their definition."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.linalg

from sidelight.side.forms import forms_of, largest_pairs


@pytest.mark.parametrize("signs", [(1.0, -1.0), (2.0, -1.9), (1.0, 0.2), (-3.0, -2.5)])
def test_the_pair_of_largest_size_is_found(signs, rng):
    """Values of opposite sign and equal size among them, which a power iteration of one vector does not find."""
    d = 9
    root = rng.normal(size=(d, d))
    C = root @ root.T + np.eye(d)
    values = np.concatenate([signs, 0.02 * rng.normal(size=d - 2)])
    Q = scipy.linalg.eigh(np.eye(d), C)[1]
    V = Q @ scipy.linalg.qr(rng.normal(size=(d, d)))[0]  # VᵀCV = I
    S = C @ V @ np.diag(values) @ V.T @ C
    found, sizes = (v[0] for v in largest_pairs(0.5 * (S + S.T)[None], C[None], np.linalg.inv(C)[None]))
    np.testing.assert_allclose(sorted(sizes), sorted(signs), rtol=1e-6)
    np.testing.assert_allclose(found @ C @ found.T, np.eye(2), atol=1e-8)
    np.testing.assert_allclose(S @ found.T, C @ found.T * sizes, atol=1e-4 * np.abs(S).max())


def test_nothing_seen_suggests_nothing():
    found, sizes = largest_pairs(np.zeros((1, 3, 3)), np.eye(3)[None], np.eye(3)[None])
    assert not found.any()
    assert not sizes.any()


@pytest.mark.parametrize("constant", [0, None])
def test_forms_have_mean_zero_and_variance_one_over_the_contexts_of_an_arm(constant, rng):
    """Whatever their means; the first is the square of the arm's own prediction, and a bend is found in the others."""
    n, d, K = 40_000, 6, 2
    root, shift = np.eye(d) + 0.3 * rng.normal(size=(d, d)), 0.5 * rng.normal(size=d)
    bent, grams, weights, Z = np.empty((K, d, d)), np.empty((K, d, d)), rng.normal(size=(K, d)), []
    for a in range(K):
        z = rng.normal(size=(n, d)) @ root.T
        if constant is not None:
            z += shift
            z[:, constant] = 1.0
        curved = (z[:, 2] - z[:, 2].mean()) * (z[:, 5] - z[:, 5].mean())
        e = curved + 0.1 * rng.normal(size=n)
        bent[a], grams[a] = (z * e[:, None]).T @ z, z.T @ z
        Z.append((z, curved))
    forms = forms_of(bent, grams, np.full(K, float(n)), weights, constant)
    for a, (z, curved) in enumerate(Z):
        g = np.square(z @ np.swapaxes(forms.directions[a], 1, 2)) * forms.curvatures[a][:, None, :]
        g = g.sum(axis=2) - forms.levels[a][:, None]
        np.testing.assert_allclose(g.mean(axis=1), 0.0, atol=1e-9)
        if constant is not None:
            np.testing.assert_allclose(g[:2].std(axis=1), 1.0, atol=0.1)
            prediction = z @ weights[a]
            assert np.corrcoef(g[0], np.square(prediction - prediction.mean()))[0, 1] > 1.0 - 1e-9
        linear = np.column_stack([np.ones(n), z])
        bends = np.vstack([g[1:], curved])
        bends -= (linear @ np.linalg.lstsq(linear, bends.T, rcond=None)[0]).T
        assert np.corrcoef(bends)[2, :2].min() > 0.95


def test_units_of_powers_of_two_and_a_feature_that_never_varies_do_no_harm(rng):
    z = rng.normal(size=(500, 4))
    z[:, 0], z[:, 2] = 1.0, 0.0
    e = z[:, 1] ** 2 + rng.normal(size=500)
    forms = forms_of(((z * e[:, None]).T @ z)[None], (z.T @ z)[None], np.full(1, 500.0), np.ones((1, 4)), 0)
    assert np.isfinite(forms.directions).all()
    assert not forms.directions[0, 1:, :, 2].any()
