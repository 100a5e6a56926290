"""Learners of random configurations, fed the same history in other units, decide alike."""

from __future__ import annotations

import numpy as np
import pytest
from tests.contract.random_units import Configuration, Scales

from sidelight.errors import SidelightError

#: configurations for each seed of the fixture
EACH = 12


def configurations(seed, gaps=False):
    for number in range(EACH):
        found = Configuration(1000 * seed + number, gaps)
        try:
            yield found, found.play(Scales())
        except SidelightError:  # a hard constraint of a log that does not determine its coefficients
            continue


@pytest.mark.filterwarnings("ignore")
def test_powers_of_two_change_no_decision(seed):
    for drawn, (past, plain) in configurations(seed):
        decides_alike(drawn, past, plain)


@pytest.mark.filterwarnings("ignore")
def test_other_units_change_scores_by_rounding_alone(seed):
    for drawn, (past, plain) in configurations(seed):
        scores_alike(drawn, past, plain)


@pytest.mark.filterwarnings("ignore")
def test_gaps_have_no_units_either(seed):
    for drawn, (past, plain) in configurations(seed, gaps=True):
        decides_alike(drawn, past, plain)
        scores_alike(drawn, past, plain)


# contexts without an answer tell how hidden features go with recorded ones, in any unit
@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("every", [5, 1_000])
def test_few_answers_have_no_units_either(seed, every):
    for drawn, (past, _) in configurations(seed):
        if drawn.kind.startswith("Fused") and {"queries", "probabilities"} & set(drawn.ways):
            few_alike(drawn, past, every)


# a flag that was never set in the log, and is in contexts without an answer
@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("number", [7300194])
def test_degenerate_data_with_few_answers_have_no_units_either(number):
    drawn = Configuration(number)
    few_alike(drawn, drawn.play(Scales())[0], 5)


@pytest.mark.filterwarnings("ignore")
def test_the_order_of_features_and_arms_changes_scores_by_rounding_alone(seed):
    for drawn, (past, plain) in configurations(seed):
        order_alike(drawn, past, plain)


# a log of rewards that are all 1, which it explains without any rest or but for rounding, as the order has it; the same
# with weights of two constants open; a flag whose mean is as sure as chance
@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("number", [32008, 8100001, 8101330])
def test_degenerate_data_have_no_order_either(number):
    drawn = Configuration(number)
    order_alike(drawn, *drawn.play(Scales()))


# a feature that was zero all over the log; features that repeat each other in a sandwich of few rows; a hidden flag
# that is first set when an episode has begun; a feature that varies in a guess alone; a log that fits exactly; features
# of which an arm's few rows are zero, or repeat each other; answers of so much weight that B is in the thousands; a
# feature that is wild twice; exact constraints, of one arm, that leave two variances open;
# features of known scale that do not vary in the rounds, twice; a sandwich of few rows; a log of 0 and 1
# with a single 1; repeated features in a log of few rows
@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize(
    "number",
    [
        *(8004, 12005, 15000, 16007, 29000, 32008, 62002, 64003, 68002, 80007, 80009, 81004, 89005, 97011),
        *(200021, 7300060, 7300463, 7300486, 8102301, 8102393, 8102439),
    ],
)
def test_degenerate_data_have_no_units_either(number):
    drawn = Configuration(number)
    past, plain = drawn.play(Scales())
    decides_alike(drawn, past, plain)
    scores_alike(drawn, past, plain)


# a first value of zero, where zero is a value as any; hidden features with gaps beside an intercept alone; rewards that
# are all 1; features that repeat each other, whose regression is hardly pulled; logs of rewards that are nearly all 0
@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("number", [7005, 26008, 32008, 7300102, 8101322])
def test_degenerate_data_with_gaps_have_no_units_either(number):
    drawn = Configuration(number, gaps=True)
    past, plain = drawn.play(Scales())
    decides_alike(drawn, past, plain)
    scores_alike(drawn, past, plain)


# features that repeat each other in a log of rewards of 0 and 1, and are apart where gaps were filled
@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("number", [8101232])
def test_degenerate_data_with_gaps_have_no_order_either(number):
    drawn = Configuration(number, gaps=True)
    order_alike(drawn, *drawn.play(Scales()))


def decides_alike(drawn, past, plain):
    rng = np.random.default_rng(drawn.n)
    features, unit = 2.0 ** rng.integers(-100, 101, size=drawn.d), 2.0 ** int(rng.integers(-100, 101))
    again, scores = drawn.play(Scales(features, 1.0 if drawn.binary else unit))
    assert again == past, (drawn.kind, drawn.ways)
    same_scores(drawn, scores, plain)


def same_scores(drawn, scores, plain):
    # the width of a feature that never varied, which has no unit yet, is below rounding, and not zero
    least = np.finfo(float).eps * np.abs(plain[drawn.untold :]).max()
    parts = [np.where(np.abs(part) < least, 0.0, part)[drawn.untold :] for part in (scores, plain)]
    np.testing.assert_array_equal(*parts, err_msg=f"{drawn.kind}, {drawn.ways}")


def scores_alike(drawn, past, plain):
    rng = np.random.default_rng(drawn.n)
    features = 10.0 ** rng.uniform(-4, 4, size=drawn.d)
    shifts, level = (rng.uniform(-3, 3, size=drawn.d) * features, 90.0) if drawn.shifts else (0.0, 0.0)
    reward = (1.0, 0.0) if drawn.binary else (37.0, level)
    signs = rng.choice([-1.0, 1.0], size=drawn.d)
    _, scores = drawn.play(Scales(signs * features, reward[0], shifts, reward[1]), past)
    alike(drawn, scores, plain)


def few_alike(drawn, past, every):
    seldom = [(arm, asked and number % every == every - 1) for number, (arm, asked) in enumerate(past)]
    _, plain = drawn.play(Scales(), seldom)
    rng = np.random.default_rng(drawn.n)
    powers = Scales(2.0 ** rng.integers(-100, 101, size=drawn.d), 1.0 if drawn.binary else 2.0**37)
    same_scores(drawn, drawn.play(powers, seldom)[1], plain)
    scores_alike(drawn, seldom, plain)


def order_alike(drawn, past, plain):
    rng = np.random.default_rng(drawn.n)
    arms = rng.permutation(drawn.K)
    history = [(int(np.argsort(arms)[arm]), asked) for arm, asked in past]
    _, scores = drawn.reordered(rng.permutation(drawn.d), arms).play(Scales(), history)
    alike(drawn, scores, plain[:, :, arms])


def alike(drawn, scores, plain):
    sizes = np.abs(plain).sum(axis=1)[drawn.untold :, None]
    sizes = np.maximum(sizes, max(float(np.median(sizes)), 1e-9))
    worst = (np.abs(scores - plain)[drawn.untold :] / sizes).max()
    assert worst < 1e-6, (drawn.kind, drawn.ways, drawn.options, worst)
