"""Side information: what it accepts, what it drops, and what it refuses by name."""

from __future__ import annotations

import numpy as np
import pytest
from tests import reference
from tests.unit.learners.histories import draw_problem

import sidelight as sl
from sidelight.errors import InputError, SideInformationError


def test_dependent_rows_are_dropped_whatever_their_units(rng):
    row = rng.normal(size=5)
    other = rng.normal(size=5)
    side = sl.SideInformation([np.array([row, 1e-7 * other, 1e6 * row + 1e6 * other])], [[1.0, 2e-7, 3e6]])
    assert side.ranks.tolist() == [2]


def test_contradictory_rows_name_the_arm(rng):
    row = rng.normal(size=3)
    with pytest.raises(SideInformationError, match=r"Arm 'high'.*2 rows have rank 1 and contradict each other"):
        sl.SideInformation([[row], [row, 2.0 * row]], [[1.0], [1.0, 2.5]], arms=["low", "high"])
    with pytest.raises(SideInformationError, match="Arm 0"):
        sl.SideInformation([np.zeros((1, 3))], [[1.0]])


def test_arms_may_have_different_numbers_of_rows(rng):
    side = sl.SideInformation([np.zeros((0, 4)), rng.normal(size=(3, 4))], [[], rng.normal(size=3)])
    assert side.ranks.tolist() == [0, 3]
    assert (side.n_arms, side.n_features) == (2, 4)
    assert "0 to 3 of 4" in repr(side)


@pytest.mark.parametrize(
    ("M", "b", "message"),
    [
        ([], [], "at least one arm"),
        ([[[1.0, 0.0]]], [[1.0], [2.0]], "1 matrices and b has 2 vectors"),
        ([[[1.0, 0.0]], [[1.0]]], [[1.0], [1.0]], "same d"),
        ([[1.0, 0.0]], [[1.0]], "shape"),
        ([[[1.0, 0.0]]], [[1.0, 2.0]], "Arm 0: M has 1 rows"),
        ([[[1.0, np.nan]]], [[1.0]], "Arm 0: M or b has a value that is not finite"),
        ([[[1.0, 0.0]]], [[np.inf]], "not finite"),
    ],
)
def test_what_does_not_fit_is_refused(M, b, message):
    with pytest.raises(SideInformationError, match=message):
        sl.SideInformation(M, b)


@pytest.mark.parametrize("M", ["text", [[[1.0, 2.0], [3.0]]], None, 3.0])
def test_what_are_no_numbers_is_refused(M):
    with pytest.raises(InputError, match="M"):
        sl.SideInformation(M, [[1.0]])


def test_the_arrays_given_are_copied_and_left_alone(rng):
    M, b = rng.normal(size=(2, 3)), rng.normal(size=2)
    kept = M.copy(), b.copy()
    side = sl.SideInformation([M], [b])
    M[:] = 0.0
    np.testing.assert_array_equal(side.M[0], kept[0])
    np.testing.assert_array_equal(side.b[0], kept[1])


def test_from_log_is_proposition_1_in_the_contexts_order(rng):
    p = draw_problem(rng, d=6, L=3, K=2)
    R12 = rng.normal(size=(2, 3, 3))
    side = sl.SideInformation.from_log(p.summary, R12)
    for a in range(2):
        M = np.zeros((3, 6))
        M[:, p.recorded] = np.eye(3)
        M[:, p.order[3:]] = np.linalg.inv(p.R11[a]) @ R12[a]
        np.testing.assert_allclose(side.M[a], M, rtol=1e-9, atol=1e-12)
        np.testing.assert_allclose(side.b[a], p.b[a].astype(float), rtol=1e-9)
        np.testing.assert_allclose(side.pseudo_inverse(a), reference.pinv(M, 3).astype(float), atol=1e-11)
    assert side.arms == p.summary.arms
    assert side.schema is p.summary.schema


def test_pseudo_inverse_of_any_matrix(rng):
    rows = rng.normal(size=(2, 5))
    M = np.concatenate([rows, rows[:1] + rows[1:]])
    side = sl.SideInformation([M], [M @ np.ones(5)])
    np.testing.assert_allclose(side.pseudo_inverse(0), reference.pinv(M, 2).astype(float), atol=1e-13)


@pytest.mark.parametrize("shape", [(2, 3, 2), (1, 3, 3), (2, 2, 4)])
def test_a_regression_of_the_wrong_shape_says_what_it_should_be(rng, shape):
    p = draw_problem(rng, d=6, L=3, K=2)
    with pytest.raises(SideInformationError, match=r"\(2, 3, 3\)"):
        sl.SideInformation.structured(p.summary, np.zeros(shape))
    with pytest.raises(SideInformationError, match="not finite"):
        sl.SideInformation.structured(p.summary, np.full((2, 3, 3), np.nan))


def test_the_structured_case_never_computes_a_decomposition(rng, monkeypatch):
    """``[I, B]`` needs no pseudo-inverse: with every factorization of SciPy and NumPy gone it still decides."""
    import scipy.linalg

    p = draw_problem(rng, d=5, L=2, K=2)
    R12 = rng.normal(size=(2, 2, 3))
    p.summary.coefficients  # computed before the tools are taken away

    def gone(*_, **__):
        raise AssertionError("a decomposition was computed")

    for module, name in [(scipy.linalg, "svd"), (scipy.linalg, "pinv"), (np.linalg, "svd"), (np.linalg, "pinv")]:
        monkeypatch.setattr(module, name, gone)
    learner = sl.ProjectedOFUL(sl.SideInformation.from_log(p.summary, R12))
    learner.observe(np.ones(5), 1, 0.5)
    learner.decide(np.ones(5))
