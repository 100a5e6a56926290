"""Evidence at any time: identities of the sequences, states that survive a file, and what they refuse."""

from __future__ import annotations

import math

import numpy as np
import pytest

from sidelight.errors import InputError
from sidelight.judging.sequences import (
    AsymptoticSequence,
    BernsteinSequence,
    asymptotic_width,
    mixing_variance,
    spent,
)


def test_asymptotic_width_is_the_formula_and_narrowest_at_the_target():
    alpha, target, t = 0.04, 250.0, 731
    rho2 = (-2 * math.log(2 * alpha) + math.log(1 - 2 * math.log(2 * alpha))) / target
    assert mixing_variance(alpha, target) == pytest.approx(rho2, rel=1e-14)
    V = 312.5
    expected = math.sqrt(2 * (V * rho2 + 1) / rho2 * math.log(1 + math.sqrt(V * rho2 + 1) / (2 * alpha))) / t
    assert asymptotic_width(t, V, rho2, alpha) == pytest.approx(expected, rel=1e-13)
    # for V = V* fixed, no other ρ² is narrower by more than what the formula's approximation costs
    grid = rho2 * np.geomspace(0.05, 20, 400)
    widths = np.array([asymptotic_width(1, target, value, alpha) for value in grid])
    assert asymptotic_width(1, target, rho2, alpha) < 1.01 * widths.min()
    many = asymptotic_width(np.array([10, 20]), np.array([3.0, 4.0]), rho2, alpha)
    np.testing.assert_allclose(many, [asymptotic_width(10, 3.0, rho2, alpha), asymptotic_width(20, 4.0, rho2, alpha)])


def test_the_sums_of_a_sequence_are_those_of_the_definition():
    rng = np.random.default_rng(3)
    scores = rng.normal(0.3, 2.0, 500)
    sequence = AsymptoticSequence(alpha=0.01, target_rows=2_000, variance=4.0)
    for score in scores:
        sequence.observe(score)
    past = np.concatenate([[0.0], np.cumsum(scores)[:-1] / np.arange(1, 500)])
    assert sequence.count == 500
    assert sequence.mean == pytest.approx(scores.mean(), rel=1e-12)
    assert sequence.variation == pytest.approx(((scores - past) ** 2).sum(), rel=1e-12)
    low, high = sequence.interval()
    assert high - sequence.mean == pytest.approx(sequence.mean - low)


def test_without_a_stated_variance_the_first_units_only_set_the_scale():
    scores = np.random.default_rng(0).normal(size=400)
    learned, told = AsymptoticSequence(), AsymptoticSequence(variance=float(scores[:100].var()))
    for score in scores:
        learned.observe(score)
    assert learned.count == 300
    for score in scores[100:]:
        told.observe(score)
    assert learned.variance == pytest.approx(told.variance, rel=1e-12)
    np.testing.assert_allclose(learned.interval(), told.interval(), rtol=1e-12)


def test_scores_that_never_vary_never_begin_a_sequence():
    sequence = AsymptoticSequence()
    for _ in range(5_000):
        sequence.observe(0.0)
    assert sequence.count == 0
    assert sequence.interval() == (-math.inf, math.inf)


def test_bernstein_bound_is_where_the_mixture_reaches_one_over_alpha():
    rng = np.random.default_rng(1)
    least, most, centre, alpha = -2.0, 3.0, 1.0, 0.03
    scores = rng.choice([-2.0, 0.5, 3.0], 800, p=[0.2, 0.5, 0.3])
    sequence = BernsteinSequence(least, most, centre, alpha, target_rows=1_000)
    for score in scores:
        sequence.observe(score)
    past = np.clip(np.concatenate([[0.0], np.cumsum(scores)[:-1] / np.arange(1, 800)]), -centre, centre)
    c = centre - least
    squares = (((scores - past) / c) ** 2).sum()
    steps = np.arange(-12, 13)
    best = math.sqrt(2 * math.log(1 / alpha) / (1_000 * ((most - least) / (2 * c)) ** 2))
    rates = np.minimum(best * 2.0 ** (steps / 2), 0.9)
    weights = 1 / (1 + np.abs(steps)) ** 2
    u = (scores.sum() - 800 * sequence.lower()) / c
    mixture = (weights / weights.sum() * np.exp(rates * u + (np.log(1 - rates) + rates) * squares)).sum()
    assert mixture == pytest.approx(1 / alpha, rel=1e-6)
    assert sequence.lower() < scores.mean() < sequence.upper()


def test_bernstein_is_symmetric_and_refuses_what_breaks_its_bounds():
    rng = np.random.default_rng(5)
    scores = rng.uniform(-1, 2, 300)
    one, mirrored = BernsteinSequence(-1, 2, 1.5), BernsteinSequence(-2, 1, 1.5)
    for score in scores:
        one.observe(score)
        mirrored.observe(-score)
    assert one.lower() == pytest.approx(-mirrored.upper(), rel=1e-12)
    assert one.upper() == pytest.approx(-mirrored.lower(), rel=1e-12)
    with pytest.raises(InputError, match=r"outside \[-1"):
        one.observe(2.5)


def test_tests_repeated_forever_spend_alpha():
    assert sum(spent(0.05, j) for j in range(1, 100_000)) == pytest.approx(0.05, rel=1e-4)
    with pytest.raises(InputError, match="counted from 1"):
        spent(0.05, 0)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: AsymptoticSequence(alpha=0.5), "alpha=0.5"),
        (lambda: AsymptoticSequence(variance=0.0), "variance=0.0"),
        (lambda: AsymptoticSequence(target_rows=0), "target_rows"),
        (lambda: BernsteinSequence(1.0, 1.0, 1.0), "two finite bounds"),
        (lambda: AsymptoticSequence().observe(math.inf), "not a finite number"),
        (lambda: AsymptoticSequence.from_dict({"speed": 1}), "not the state"),
    ],
)
def test_what_is_refused(make, message):
    with pytest.raises(InputError, match=message):
        make()
