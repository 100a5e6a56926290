"""Bad input raises its own class, with a message that names the value, and nothing is lost."""

from __future__ import annotations

import numpy as np
import pytest
from tests.contract.conftest import SETTINGS
from tests.contract.registry import ARMS, FEATURES

import sidelight as sl
from sidelight.errors import ContextError, InputError, SidelightError, UnknownArmError
from sidelight.learners.saving import learner_bytes

D = len(FEATURES)
GOOD = np.linspace(-0.5, 0.7, D)
NAMED = dict(zip(FEATURES, GOOD.tolist(), strict=True))


def with_value(position: int, value: float) -> np.ndarray:
    x = GOOD.copy()
    x[position] = value
    return x


CONTEXTS = {
    "too short": (GOOD[:-1], ContextError, rf"\({D - 1},\).*{D} features"),
    "too long": (np.zeros(D + 2), ContextError, rf"{D} features"),
    "two of them": (np.zeros((2, D)), ContextError, rf"\(2, {D}\)"),
    "not a number": (with_value(2, np.nan), ContextError, "severity"),
    "infinite": (with_value(4, -np.inf), ContextError, "smoker"),
    "text": (["a"] * D, ContextError, f"{D} numbers"),
    "nothing": (None, ContextError, "context"),
    "a feature too few": ({k: v for k, v in NAMED.items() if k != "age"}, ContextError, "'age'"),
    "a named value missing": ({**NAMED, "dose": None}, ContextError, "'dose'"),
    "a named value not a number": ({**NAMED, "dose": "much"}, ContextError, "'dose'.*'much'"),
    "a named value not finite": ({**NAMED, "dose": np.inf}, ContextError, "'dose'"),
}


@pytest.fixture
def learner(played):
    return played(30)


@pytest.fixture(autouse=True)
def nothing_is_lost(learner):
    """After every error here the learner is what it was, to the bit, and goes on learning."""
    before = learner_bytes(learner)
    yield
    assert learner_bytes(learner) == before
    learner.observe(GOOD, ARMS[0], 0.2)
    assert np.isfinite(np.concatenate(learner.scores(GOOD))).all()


@pytest.mark.parametrize("case", CONTEXTS)
def test_a_bad_context(learner, case):
    x, error, message = CONTEXTS[case]
    for use in (
        lambda: learner.decide(x),
        lambda: learner.scores(x),
        lambda: learner.observe(x, ARMS[0], 1.0),
    ):
        with pytest.raises(error, match=message):
            use()
    if learner.needs == "action":
        with pytest.raises(error, match=message):
            learner.observe_behavior(x, ARMS[0])
    elif learner.needs == "probabilities":
        with pytest.raises(error, match=message):
            learner.observe_behavior(x, probabilities=[0.2, 0.3, 0.5])


@pytest.mark.parametrize("arm", ["medium", 1, None, ["low"], ("low",), np.array(["low"]), np.nan])
def test_an_unknown_arm(learner, arm):
    shown = "'medium'.*'low'" if isinstance(arm, str) else "is not one of|not an arm"
    with pytest.raises(UnknownArmError, match=shown):
        learner.observe(GOOD, arm, 1.0)
    with pytest.raises(UnknownArmError, match=shown):
        learner.observe_many([GOOD, GOOD], [ARMS[0], arm], [1.0, 1.0])
    with pytest.raises(UnknownArmError, match=shown):
        learner.decide(GOOD, allowed=[ARMS[0], arm])
    if learner.needs == "action" and arm is not None:
        with pytest.raises(UnknownArmError, match=shown):
            learner.observe_behavior(GOOD, arm)


@pytest.mark.parametrize("reward", [np.nan, np.inf, -np.inf, "high", None, [1.0, 2.0], 10**400])
def test_a_reward_that_is_no_number(learner, reward):
    with pytest.raises(InputError, match="eward"):
        learner.observe(GOOD, ARMS[0], reward)
    with pytest.raises(InputError, match="eward"):
        learner.observe_many([GOOD, GOOD], [ARMS[0]] * 2, [1.0, reward])


def test_no_arm_is_allowed(learner):
    for allowed in ([], 5):
        with pytest.raises(InputError, match="allowed"):
            learner.decide(GOOD, allowed=allowed)


@pytest.mark.parametrize(
    ("X", "message"),
    [
        (np.zeros((3, D - 1)), rf"\(3, {D - 1}\)"),
        (np.zeros(D), rf"\({D},\)"),
        (np.array([GOOD, with_value(3, np.nan)]), "1.*dose"),
        ([[0.0] * D, [0.0] * (D - 1)], "ontexts"),
        ([["a"] * D], "'a'"),
        ([{**NAMED, "dose": None}], "'dose'"),
        (None, "ontexts"),
        ([[10**400] * D], "ontexts"),
    ],
    ids=["too narrow", "one context", "not a number", "ragged", "text", "by name", "nothing", "too large"],
)
def test_many_bad_contexts(learner, X, message):
    with pytest.raises(ContextError, match=message):
        learner.decide_many(X)
    n = len(X) if X is not None else 1
    with pytest.raises(ContextError, match=message):
        learner.observe_many(X, [ARMS[0]] * n, np.zeros(n))


def test_observations_that_do_not_go_together(learner):
    with pytest.raises(InputError, match="2 contexts, 3 arms"):
        learner.observe_many([GOOD, GOOD], [ARMS[0]] * 3, [1.0, 1.0])
    with pytest.raises(InputError, match="2 contexts"):
        learner.observe_many([GOOD, GOOD], [ARMS[0]] * 2, [1.0])


@pytest.mark.parametrize(
    "probabilities",
    [[0.5, 0.5], [0.5, 0.6, 0.1], [-0.1, 0.6, 0.5], [np.nan, 0.5, 0.5], "even", [[0.2, 0.3, 0.5]]],
    ids=["too few", "sum 1.2", "negative", "nan", "text", "nested"],
)
def test_probabilities_that_are_none(learner, probabilities):
    if learner.needs != "probabilities":
        pytest.skip("takes no probabilities")
    with pytest.raises(InputError, match="probabilities"):
        learner.observe_behavior(GOOD, probabilities=probabilities)


def test_an_answer_in_the_wrong_form(learner):
    if learner.needs is None:
        pytest.skip("takes no answers")
    with pytest.raises(InputError, match="exactly one"):
        learner.observe_behavior(GOOD)
    with pytest.raises(InputError, match="exactly one"):
        learner.observe_behavior(GOOD, ARMS[0], probabilities=[0.2, 0.3, 0.5])
    wrong = {"probabilities": [0.2, 0.3, 0.5]} if learner.needs == "action" else {"arm": ARMS[0]}
    with pytest.raises(InputError, match=r"BehaviorQueries|BehaviorProbabilities"):
        learner.observe_behavior(GOOD, **wrong)


@pytest.mark.parametrize("bad", ["arm", "form", "sum", "lengths", "shape", "chance"])
def test_of_many_answers_with_a_bad_one_none_is_taken(learner, bad):
    if learner.needs is None:
        pytest.skip("takes no answers")
    X, even = np.array([GOOD, 0.5 * GOOD]), [1.0 / 3.0] * 3
    right = {"arms": ARMS[:2]} if learner.needs == "action" else {"probabilities": [even, even]}
    wrong = {
        "arm": {"arms": [ARMS[0], "nobody"]},
        "form": {"arms": ARMS[:2]} if learner.needs == "probabilities" else {"probabilities": [even, even]},
        "sum": {"probabilities": [even, [0.5, 0.5, 0.5]]},
        "lengths": {"probabilities": [even, [0.5, 0.5]]},
        "shape": {"probabilities": 0.5},
        "chance": {**right, "probability": 2.0},
    }
    with pytest.raises(InputError):
        learner.observe_behavior_many(X, **wrong[bad])


@pytest.mark.parametrize("chance", [0.0, -0.5, 1.5, np.nan, "often"])
def test_a_chance_of_asking_that_is_none(learner, chance):
    if learner.needs is None:
        pytest.skip("takes no answers")
    answer = {"arm": ARMS[0]} if learner.needs == "action" else {"probabilities": [0.2, 0.3, 0.5]}
    with pytest.raises(InputError, match="probability"):
        learner.observe_behavior(GOOD, **answer, probability=chance)


@pytest.mark.parametrize("cls", [lambda h: sl.EpochOFUL(h, 10), sl.RunningOFUL], ids=["EpochOFUL", "RunningOFUL"])
@pytest.mark.parametrize("several", [list, tuple, lambda pair: dict(enumerate(pair))], ids=["list", "tuple", "dict"])
def test_several_logs_are_for_the_fused_learners(learner, log, cls, several):
    pair = [sl.BehaviorQueries(log.summary), sl.BehaviorQueries(log.summary)]
    with pytest.raises(InputError, match=r"takes one log, and got 2.*FusedOFUL"):
        cls(several(pair))


@pytest.mark.parametrize("cls", [lambda h: sl.EpochOFUL(h, 10), sl.RunningOFUL, sl.ProjectedOFUL])
def test_something_that_is_no_log(learner, log, cls):
    with pytest.raises(InputError, match="LogSummary"):
        cls(log.summary)


def test_settings_are_checked_by_every_learner(entry, make, learner):
    for setting, value in {"regularization": -1.0, "delta": 2.0, "noise": np.nan, "radius": "wide"}.items():
        with pytest.raises(InputError, match=setting):
            make(**{setting: value})
    if entry.joins_arms:
        assert make(arms=["a", ARMS[1]]).arms == ("a", ARMS[1], ARMS[0], ARMS[2])
    else:
        with pytest.raises(InputError, match=r"arm labels|differ"):
            make(arms=["a", "b"])
    with pytest.raises(InputError, match="differ"):
        make(arms=["a", "b", "a"])


def test_every_error_is_a_sidelight_error():
    assert issubclass(ContextError, InputError)
    assert issubclass(InputError, SidelightError)
    assert issubclass(InputError, ValueError)
    assert SETTINGS  # the learners here are not made with defaults
