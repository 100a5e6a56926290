"""The spread of residual variances over arms: a likelihood of the hidden weights' variance."""

from __future__ import annotations

import numpy as np
import pytest
from tests import reference

from sidelight.side import spread
from sidelight.side.spread import LogSpread, SpreadLikelihood

OMEGAS = 4.0 ** np.arange(-8, 4)


def variances(rng, K, m, omega, noise, noise_spread=0.0, freedom=2_000):
    """``s²`` (K,) as a log of so many rows would have it."""
    weights = np.sqrt(omega) * rng.normal(size=(K, m))
    noises = noise * np.exp(np.sqrt(noise_spread) * rng.normal(size=K))
    return (noises + np.square(weights).sum(axis=1)) * rng.chisquare(freedom, size=K) / freedom


@pytest.mark.parametrize("omega", [0.25, 4.0])
def test_many_arms_tell_the_variance(rng, omega):
    """24 arms, four hidden features: 96 weights, a relative error of 0.14; a factor of four is the next step."""
    s2 = variances(rng, 24, 4, omega, 0.3)
    likelihood = LogSpread(s2, np.full(24, 2_000.0), np.ones((24, 4)))
    values = [likelihood(o) for o in OMEGAS]
    assert abs(np.log(OMEGAS[int(np.argmax(values))] / omega)) <= np.log(4.0) + 1e-9
    # noise that happens to differ just so explains the spread as well, but is thought less likely beforehand
    assert max(values) - values[0] > 1.5


def test_residual_variances_that_are_alike_speak_against_hidden_effects(rng):
    s2 = variances(rng, 24, 4, 0.0, 1.0)
    likelihood = LogSpread(s2, np.full(24, 2_000.0), np.ones((24, 4)))
    assert likelihood(1e-4) - likelihood(4.0) > 10.0


def test_noise_that_differs_by_arm_is_not_taken_for_hidden_effects(rng):
    """Noise spread over four orders of magnitude to both sides, as squares of normal weights never are."""
    s2 = np.geomspace(0.001, 10.0, 24)
    likelihood = LogSpread(s2, np.full(24, 2_000.0), np.ones((24, 4)))
    # nothing is said for large hidden effects over none at all
    assert max(likelihood(o) for o in OMEGAS) - likelihood(1e-5) < 5.0


def test_units_do_not_matter(rng):
    s2, spreads = variances(rng, 10, 3, 1.0, 0.3), rng.uniform(0.5, 2.0, size=(10, 3))
    one = LogSpread(s2, np.full(10, 500.0), spreads)
    other = LogSpread(7.0 * s2, np.full(10, 500.0), spreads)
    assert other(7.0 * 0.4) - other(7.0 * 0.1) == pytest.approx(one(0.4) - one(0.1), rel=1e-9)


@pytest.mark.parametrize("omega", [1e-6, 0.3, 1e4])
def test_it_is_the_formula(rng, omega):
    s2, freedom, spreads = variances(rng, 7, 3, 1.0, 0.3), rng.uniform(20, 900, 7), rng.uniform(0.5, 2.0, size=(7, 3))
    grid = np.linspace(np.log(1e-3 * s2.min()), np.log(1.1 * s2.max()), spread.NOISE_POINTS)
    literal = reference.spread_likelihood(
        omega,
        s2,
        freedom,
        spreads,
        spread.NODES,
        grid,
        spread.NOISE_SPREADS,
        spread.NOISE_WEIGHTS,
        spread.ERROR,
    )
    assert LogSpread(s2, freedom, spreads)(omega) == pytest.approx(literal, rel=1e-11)


def test_variances_that_were_asked_for_before_change_nothing(rng):
    """Whichever effects are kept of earlier ones, on the same steps of a factor of ``2^(1/4)`` or between them."""
    given = variances(rng, 9, 3, 1.0, 0.3), rng.uniform(20, 900, 9), rng.uniform(0.5, 2.0, size=(9, 3))
    likelihood = LogSpread(*given)
    for omega in (0.3, 0.3 * 2.0**0.25, 0.3 * 2.0**-7.75, 0.3 * 2.0**-3.0, 0.3 * 2.0**9.5, 0.35, 0.35 * 2.0**30, 0.3):
        assert likelihood(omega) == pytest.approx(LogSpread(*given)(omega), rel=1e-11)
    assert len(likelihood._lattices) == 2


def test_a_mean_over_logs_is_never_above_what_it_says_is_the_most(rng):
    parts = [
        (weight, LogSpread(variances(rng, K, 3, 1.0, 0.3), np.full(K, freedom), rng.uniform(0.5, 2.0, size=(K, 3))))
        for weight, K, freedom in ((1.0, 2, 2.0), (3.0, 9, 400.0))
    ]
    both = SpreadLikelihood(parts, 2.0)
    for omega in OMEGAS:
        one, other = (part(omega / 2.0) for _, part in parts)
        assert both(omega) == pytest.approx(0.25 * one + 0.75 * other, rel=1e-12)
        assert both(omega) <= both.most
    # no more than it has to be: two arms with next to no rows come near it
    assert both.most - max(parts[0][1](omega) for omega in OMEGAS) < 1.5
