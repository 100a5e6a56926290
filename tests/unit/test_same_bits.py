"""The functions of ``sidelight.linalg`` that replace BLAS, LAPACK and the C library: accuracy.

That they have the same bits on every processor is tested in ``contract/test_same_bits_everywhere.py``.
"""

from __future__ import annotations

import ast
from decimal import Decimal, localcontext
from pathlib import Path

import numpy as np
import pytest
from scipy.special import chdtrc, gammaln

import sidelight
from sidelight import linalg


def units_off(found, exact):
    """The largest error in units of the last place."""
    with localcontext() as context:
        context.prec = 50
        return max(
            abs((Decimal(float(a)) - b) / Decimal(float(np.spacing(abs(float(b))))))
            for a, b in zip(found, exact, strict=True)
        )


def test_logarithms_and_powers_are_within_a_unit_in_the_last_place(rng):
    with localcontext() as context:
        context.prec = 50
        x = np.concatenate(
            [np.exp(rng.uniform(-700, 700, 200)), rng.uniform(0.5, 2, 300), 1 + 1e-8 * rng.normal(size=100)]
        )
        assert units_off(linalg.log(x), [Decimal(float(v)).ln() for v in x]) < 0.51
        x = np.concatenate([rng.uniform(-0.9, 3, 300), 1e-9 * rng.normal(size=100), np.exp(rng.uniform(-30, 30, 200))])
        assert units_off(linalg.log1p(x), [(1 + Decimal(float(v))).ln() for v in x]) < 0.51
        x = np.concatenate([rng.uniform(-700, 700, 300), rng.normal(size=300)])
        assert units_off(linalg.exp(x), [Decimal(float(v)).exp() for v in x]) < 1
        x, y = np.exp(rng.uniform(-5, 5, 300)), rng.uniform(-100, 100, 300)
        exact = [(Decimal(float(b)) * Decimal(float(a)).ln()).exp() for a, b in zip(x, y, strict=True)]
        assert units_off(linalg.power(x, y), exact) < 1


def test_logarithms_at_the_ends_of_their_range():
    ends = np.array([0.0, -1.0, np.inf, np.nan, 5e-324, 1.7976931348623157e308])
    with np.errstate(all="ignore"):
        np.testing.assert_allclose(linalg.log(ends), np.log(ends), rtol=1e-15)
        np.testing.assert_allclose(linalg.log1p(ends - 1.0), np.log1p(ends - 1.0), rtol=1e-15)
        hot = np.array([-np.inf, -800.0, -745.0, -708.5, 0.0, 709.7, 710.0, np.inf, np.nan])
        np.testing.assert_allclose(linalg.exp(hot), np.exp(hot), rtol=1e-15)
        bases, exponents = [
            a.ravel() for a in np.meshgrid([0.0, 0.5, 1.0, 3.0, np.inf, np.nan], [-np.inf, -2.0, 0.0, 1.5, np.inf])
        ]
        np.testing.assert_allclose(linalg.power(bases, exponents), np.power(bases, exponents), rtol=1e-15)
    assert linalg.log(1.0) == 0.0
    assert isinstance(linalg.log(2.0), float)
    assert np.isnan(linalg.power(-2.0, 2.0))


def test_gamma_function_and_chi_square_tail(rng):
    x = np.exp(rng.uniform(-8, 10, 500))
    np.testing.assert_allclose(linalg.log_gamma(x), gammaln(x), rtol=1e-13, atol=1e-13)
    freedom = np.exp(rng.uniform(-1, 7, 500))
    x = freedom * np.exp(0.3 * rng.normal(size=500))
    expected = chdtrc(freedom, x)
    tested = expected > 1e-290
    np.testing.assert_allclose(linalg.chi_square_tail(x, freedom)[tested], expected[tested], rtol=1e-11)
    assert linalg.chi_square_tail(0.0, 3.0) == 1.0


@pytest.mark.parametrize(
    ("left", "right"),
    [
        ((3, 4), (4, 5)),
        ((7, 3, 4), (4, 5)),
        ((3, 4), (7, 4, 5)),
        ((2, 3, 4, 6), (3, 6, 1)),
        ((4,), (4, 3)),
        ((5, 4), (4,)),
        ((4,), (4,)),
        ((3, 0), (0, 2)),
        ((0, 3, 4), (4, 2)),
        ((1, 3, 4), (6, 4, 2)),
        ((6, 2, 4), (4,)),
    ],
)
def test_products_have_the_shapes_of_matmul(rng, left, right):
    A, B = rng.normal(size=left), rng.normal(size=right)
    found = linalg.product(A, B)
    assert found.shape == np.matmul(A, B).shape
    np.testing.assert_allclose(found, np.matmul(A, B), rtol=1e-13, atol=1e-13)


@pytest.mark.parametrize(("i", "k", "j"), [(1, 1, 1), (4, 9, 8), (7, 5, 13), (33, 40, 2)])
def test_every_entry_of_a_product_adds_up_in_order(rng, i, k, j):
    A, B = rng.normal(size=(i, k)), rng.normal(size=(k, j))
    expected = np.zeros((i, j))
    for inner in range(k):
        expected += A[:, inner, None] * B[inner]
    np.testing.assert_array_equal(linalg.product(A, B), expected)


def test_a_product_of_transposed_arrays_and_of_lengths_that_do_not_fit(rng):
    A, B = rng.normal(size=(4, 3)), rng.normal(size=(5, 4))
    np.testing.assert_allclose(linalg.product(A.T, B.T), A.T @ B.T, rtol=1e-13)
    with pytest.raises(ValueError, match="inner lengths"):
        linalg.product(A, B)


@pytest.mark.parametrize("m", [1, 2, 5, 8, 17, 60])
def test_inverse_solution_and_determinant(rng, m):
    root = rng.normal(size=(4, m, m + 2))
    A = root @ np.swapaxes(root, 1, 2)
    inverse = linalg.inverse(A)
    np.testing.assert_array_equal(inverse, np.swapaxes(inverse, 1, 2))
    np.testing.assert_allclose(A @ inverse, np.broadcast_to(np.eye(m), A.shape), atol=1e-7)
    B = rng.normal(size=(4, m, 3))
    np.testing.assert_allclose(A @ linalg.solve(A, B), B, atol=1e-7)
    np.testing.assert_allclose(A[0] @ linalg.solve(A[0], B[0, :, 0]), B[0, :, 0], atol=1e-7)
    np.testing.assert_allclose(linalg.log_det(A), np.linalg.slogdet(A)[1], rtol=1e-10, atol=1e-10)


def test_what_is_not_positive_definite_is_refused():
    A = np.array([[1.0, 2.0], [2.0, 1.0]])
    for function in (linalg.inverse, lambda A: linalg.solve(A, np.ones(2))):
        with pytest.raises(np.linalg.LinAlgError, match="positive definite"):
            function(A)
    assert np.isnan(linalg.log_det(A))


@pytest.mark.parametrize("n", [1, 2, 3, 10, 40])
def test_eigenvalues_and_eigenvectors(rng, n):
    A = rng.normal(size=(3, n, n))
    A = A + np.swapaxes(A, 1, 2)
    A[1] = np.diag(np.repeat([1.0, 2.0], [n // 2, n - n // 2]))  # repeated ones
    A[2] = np.outer(A[0, 0], A[0, 0])  # of rank one
    values, vectors = linalg.symmetric_eigen(A)
    np.testing.assert_allclose(values, np.linalg.eigvalsh(A), atol=1e-12 * n * max(1, np.abs(A).max()))
    np.testing.assert_allclose(np.swapaxes(vectors, 1, 2) @ vectors, np.broadcast_to(np.eye(n), A.shape), atol=1e-12)
    np.testing.assert_allclose(
        (vectors * values[:, None, :]) @ np.swapaxes(vectors, 1, 2), A, atol=1e-12 * n * max(1, np.abs(A).max())
    )
    np.testing.assert_array_equal(linalg.eigenvalues(A), values)
    covariance = linalg.symmetrize(A[0] @ A[0] + np.eye(n))
    np.testing.assert_allclose(linalg.pseudo_inverse(covariance), np.linalg.inv(covariance), rtol=1e-8, atol=1e-8)
    with pytest.raises(np.linalg.LinAlgError, match="finite"):
        linalg.symmetric_eigen(np.full((2, 2), np.nan))


def test_eigenvalues_over_many_orders_of_magnitude(rng):
    """Graded matrices: absolute accuracy relative to the largest eigenvalue, also at 1e±150."""
    Q = np.linalg.qr(rng.normal(size=(6, 6)))[0]
    for unit in (1e-150, 1.0, 1e150):
        expected = unit * np.array([0.0, 1e-12, 1e-6, 1e-3, 0.5, 1.0])
        values = linalg.eigenvalues(linalg.symmetrize((Q * expected) @ Q.T))
        np.testing.assert_allclose(values, expected, atol=1e-15 * unit * 8)


def test_pseudo_inverse_of_a_singular_matrix(rng):
    root = rng.normal(size=(5, 2))
    A = root @ root.T
    np.testing.assert_allclose(
        linalg.pseudo_inverse(A, rcond=1e-12), np.linalg.pinv(A, rcond=1e-12, hermitian=True), atol=1e-10
    )
    assert not linalg.pseudo_inverse(np.zeros((3, 3))).any()


@pytest.mark.parametrize(("n", "d"), [(1, 4), (3, 7), (6, 6), (9, 4)])
def test_singular_values(rng, n, d):
    M = rng.normal(size=(n, d)) * 10.0 ** rng.integers(-6, 6, size=(n, 1))
    left, sigma, right = linalg.singular_values(M)
    expected = np.linalg.svd(M, compute_uv=False)
    # LAPACK is accurate relative to the largest only
    np.testing.assert_allclose(sigma[: len(expected)], expected, rtol=1e-12, atol=1e-15 * expected[0])
    np.testing.assert_allclose(sigma[len(expected) :], 0.0, atol=1e-14 * expected[0])
    np.testing.assert_allclose(left.T @ left, np.eye(n), atol=1e-13)
    np.testing.assert_allclose((left * sigma) @ right, M, atol=1e-14 * n * expected[0])
    k = min(n, d)
    np.testing.assert_allclose(right[:k] @ right[:k].T, np.eye(k), atol=1e-12)


@pytest.mark.parametrize(("n", "p"), [(1, 1), (5, 3), (3, 5), (6, 6), (4, 0)])
def test_orthogonal_and_triangular_factor(rng, n, p):
    A = rng.normal(size=(2, n, p))
    if p > 1:
        A[1, :, 1] = 0.0
    Q, R = linalg.orthogonal(A), linalg.triangle(A)
    np.testing.assert_allclose(Q @ R, A, atol=1e-13)
    np.testing.assert_allclose(
        np.swapaxes(Q, 1, 2) @ Q, np.broadcast_to(np.eye(min(n, p)), (2, min(n, p), min(n, p))), atol=1e-13
    )
    np.testing.assert_array_equal(R, np.triu(R))
    whole = linalg.orthogonal(A, complete=True)
    np.testing.assert_allclose(np.swapaxes(whole, 1, 2) @ whole, np.broadcast_to(np.eye(n), (2, n, n)), atol=1e-13)
    np.testing.assert_array_equal(whole[:, :, : min(n, p)], Q)


def test_no_learner_asks_the_c_library_for_a_power():
    """``x**2`` of a number is the C library's ``pow``: one in a thousand differs between processors in its last bit."""
    root = Path(sidelight.__file__).parent
    powers = [
        f"{path.relative_to(root)}:{node.lineno} {ast.unparse(node)}"
        for part in ("learners", "side", "hidden", "theory")
        for path in sorted((root / part).rglob("*.py"))
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Pow) and isinstance(node.right, ast.Constant)
        if not isinstance(node.left, ast.Constant)
    ]
    assert not powers, "use linalg.square or linalg.power:\n" + "\n".join(powers)


def test_no_estimate_or_radius_asks_scipy():
    """SciPy's special functions are compiled against the C library, whose last bits depend on the processor."""
    root = Path(sidelight.__file__).parent
    asked = [
        f"{path.relative_to(root)}:{node.lineno}"
        for part in ("side", "hidden", "theory")
        for path in sorted((root / part).rglob("*.py"))
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("scipy")
    ]
    assert not asked, "use linalg and theory.quantiles:\n" + "\n".join(asked)
