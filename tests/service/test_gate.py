"""The ladder: steps on evidence, in order, with the stated error rate, and the same after a replay."""

from __future__ import annotations

import datetime as dt
import json

import numpy as np
import pytest

from sidelight.errors import InputError
from sidelight.judging.sequences import mostly_first
from sidelight.service.core.gate import Gate
from sidelight.service.core.ladder import GateSettings
from sidelight.service.dashboard.climbing import gate_card
from sidelight.service.dashboard.sharing import verdict_page

SETTINGS = GateSettings(promote="automatic", ladder=(0.1, 0.3, 1.0), smallest_gain=0.0, error_rate=0.05, holdout=0.05)


def traffic(gate: Gate, n: int, gain: float, rng: np.random.Generator, drift: float = 0.0, start: int = 0) -> list:
    """``n`` units with noise of 1; the learner earns ``gain`` more; every level moves by ``drift`` over the run."""
    steps = []
    for i in range(start, start + n):
        share = gate.share
        treated = bool(rng.random() < share)
        gate.decided(i, 0, treated, share)
        gate.settled(i, 0, drift * (i - start) / n + gain * treated + rng.normal())
        step = gate.proposal()
        if step is not None and gate.automatic(step):
            gate.enter(step.after)
            steps.append(step)
    return steps


def test_a_better_learner_climbs_to_the_top_and_keeps_a_holdout(seed):
    gate = Gate(SETTINGS, rung=0)
    steps = traffic(gate, 12_000, 0.5, np.random.default_rng(seed))
    assert [step.after for step in steps] == [1, 2]
    assert gate.share == 0.95
    assert all(step.evidence["low"] > 0 for step in steps)


def test_a_worse_learner_falls_back_below_the_ladder(seed):
    gate = Gate(SETTINGS, rung=1)
    steps = traffic(gate, 12_000, -0.5, np.random.default_rng(seed))
    assert [step.after for step in steps] == [0, -1]
    assert gate.share == 0.0
    assert gate.says() == "no shared traffic"


@pytest.mark.parametrize("drift", [0.0, 5.0])
def test_an_equal_learner_is_rarely_promoted(drift):
    """40 runs at 5 %, also where all rewards drift by five deviations: seven or more have probability below 0.5 %."""
    promoted = 0
    for seed in range(40):
        gate = Gate(SETTINGS, rung=0)
        steps = traffic(gate, 3_000, 0.0, np.random.default_rng(seed), drift)
        promoted += any(step.after > step.before for step in steps)
    assert promoted < 7


def test_units_enter_in_the_order_of_their_decisions():
    """Rewards in any order give the same evidence as rewards in order, as long as nothing else differs."""
    rng = np.random.default_rng(1)
    plan = [(i, bool(rng.random() < 0.1), float(rng.normal())) for i in range(3_000)]
    ordered, mixed = Gate(SETTINGS, rung=0), Gate(SETTINGS, rung=0)
    for gate in (ordered, mixed):
        for i, treated, _ in plan:
            gate.decided(i, 0, treated, 0.1)
    for i, _, reward in plan:
        ordered.settled(i, 0, reward)
    for k in rng.permutation(len(plan)):
        i, _, reward = plan[k]
        mixed.settled(i, 0, reward)
    assert ordered.to_dict() == mixed.to_dict()
    assert ordered.evidence()["waiting"] == 0


def test_a_unit_without_a_reward_holds_up_those_behind_it_until_its_wait_is_over():
    gate = Gate(SETTINGS, rung=0)
    for i in range(3):
        gate.decided(i, 0, False, 0.1)
    gate.settled(1, 0, 1.0)
    gate.settled(2, 0, 1.0)
    assert gate.evidence()["waiting"] == 3
    gate.settled(0, 0, 0.0)  # the default reward
    gate.settled(0, 0, 7.0)  # a late correction changes nothing
    assert gate.evidence()["waiting"] == 0
    assert gate.promotion is not None
    assert gate.promotion.rewards[0] == 2.0


def test_a_subject_enters_once():
    gate = Gate(SETTINGS, rung=0)
    assert gate.decided(1, 0, True, 0.1, "anna")
    assert not gate.decided(2, 0, True, 0.1, "anna")
    assert gate.decided(3, 0, True, 0.1, "ben")
    before = gate.salt
    gate.enter(gate.move(1, "a person decided").after)
    assert gate.salt != before
    assert gate.decided(4, 0, True, 0.3, "anna")


def test_who_was_forgotten_enters_as_somebody_new_and_their_unit_stays():
    gate = Gate(SETTINGS, rung=0)
    gate.decided(1, 0, True, 0.1, "anna")
    gate.decided(1, 1, False, 0.1, "ben")
    gate.forget({(1, 0), (7, 0)})
    for one in (gate, Gate.from_dict(json.loads(json.dumps(gate.to_dict())))):
        assert "anna" not in json.dumps(one.to_dict())
        assert not one.decided(8, 0, True, 0.1, "ben")
        assert one.decided(9, 0, True, 0.1, "anna")
        assert [(unit.number, unit.position) for unit in one.waiting] == [(1, 0), (1, 1), (9, 0)]


def test_a_state_of_before_subjects_had_decisions_is_read():
    gate = Gate(SETTINGS, rung=0)
    gate.decided(1, 0, True, 0.1, "anna")
    body = gate.to_dict()
    body["subjects"] = [subject for subject, *_ in body.pop("entered")]
    assert not Gate.from_dict(body).decided(2, 0, True, 0.1, "anna")


def test_suggestions_wait_for_a_person_and_a_hold_stops_promotions():
    gate = Gate(GateSettings(promote="suggest", demote="suggest", ladder=(0.5, 1.0)), rung=0)
    traffic(gate, 6_000, 1.0, np.random.default_rng(0))
    step = gate.proposal()
    assert step is not None
    assert step.after == 1
    assert not gate.automatic(step)
    assert gate.rung == 0
    gate.hold(True)
    assert gate.proposal() is None
    gate.hold(False)
    assert gate.proposal() == step


def test_visits_together_spend_the_error_rate_and_those_without_units_nothing():
    settings = GateSettings(promote="automatic", ladder=(0.1, 0.3, 1.0), error_rate=0.06, holdout=0.05)
    gate = Gate(settings, rung=0)
    up: dict[int, list[float]] = {-1: [], 0: [], 1: []}
    down = []
    for entry in range(400):
        rung = (0, 1, 0, -1, 2)[entry % 5]
        gate.enter(rung)
        gate.enter(rung)  # nobody was decided about in between
        if rung < 0:
            gate.look_on("shadow", ["a", "b"], 1)
            assert gate.shadow is not None
            up[rung].append(gate.shadow.rows.sequence.alpha)
            continue
        assert gate.promotion is not None
        assert gate.demotion is not None
        down.append(gate.demotion.sequence.alpha)
        if rung < 2:  # nothing is above the last one
            up[rung].append(gate.promotion.sequence.alpha)
        gate.decided(entry, 0, True, gate.share)
    assert up[0][0] == up[1][0] == up[-1][0] == mostly_first(mostly_first(0.06, 1) / 3, 1) == pytest.approx(0.0162)
    assert sum(map(sum, up.values())) < 0.06
    assert sum(down) < 0.06
    assert sum(down) > 0.059
    assert gate.tests == 1 + 2 * 320


def test_ladders_that_follow_each_other_share_the_error_rate_and_those_without_units_spend_nothing():
    ladders = [(0.1, 0.3, 1.0), (0.1, 0.5), (0.2, 1.0)]
    gate = Gate(GateSettings(promote="automatic", ladder=ladders[0], error_rate=0.06), rung=0)
    spent_on = []
    for edit in range(300):
        for _ in range(2):  # edited twice in a row: nothing was looked at in between
            ladder = ladders[(edit + _) % 3]
            gate.configure(GateSettings(promote="automatic", ladder=ladder, error_rate=0.06), ladder[0])
        for rung in (*range(len(ladder) - 1), 0):  # the last one has nothing above it; the first is visited twice
            gate.enter(rung)
            assert gate.promotion is not None
            spent_on.append(gate.promotion.sequence.alpha)
            gate.decided(edit, rung, True, gate.share)
        # a setting that leaves the evidence's meaning alone is no other ladder
        gate.configure(GateSettings(promote="suggest", ladder=ladder, error_rate=0.06), gate.share)
    assert spent_on[0] == mostly_first(mostly_first(0.06, 1) / 2, 1)
    assert sum(spent_on) < 0.06
    again = Gate.from_dict(json.loads(json.dumps(gate.to_dict())))
    for one in (gate, again):
        one.configure(GateSettings(promote="automatic", ladder=(0.1, 1.0), error_rate=0.06), 0.1)
    assert (
        gate.promotion.sequence.alpha == again.promotion.sequence.alpha == mostly_first(mostly_first(0.06, 301) / 2, 1)
    )


def test_rewards_far_from_zero_are_as_good_as_others():
    """A reward of 1,000,000 ± 1 says as much about a difference as one of 0 ± 1."""
    near, far = Gate(SETTINGS, rung=0), Gate(SETTINGS, rung=0)
    for gate, level in ((near, 0.0), (far, 2.0**20)):
        rng = np.random.default_rng(11)
        for i in range(3_000):
            treated = bool(rng.random() < 0.1)
            gate.decided(i, 0, treated, 0.1)
            gate.settled(i, 0, level + 0.3 * treated + rng.normal())
    one, other = near.evidence(), far.evidence()
    assert other["gain"] == pytest.approx(one["gain"], rel=1e-3)
    assert other["low"] == pytest.approx(one["low"], rel=1e-3)
    assert other["high"] == pytest.approx(one["high"], rel=1e-3)


def test_equal_rewards_stay_open():
    gate = Gate(SETTINGS, rung=0)
    rng = np.random.default_rng(12)
    for i in range(3_000):
        gate.decided(i, 0, bool(rng.random() < 0.1), 0.1)
        gate.settled(i, 0, 1.0)
    assert gate.says() in ("open", "too early")
    assert gate.proposal() is None
    assert gate.evidence()["gain"] in (None, 0.0)


def test_a_reward_that_no_evidence_can_hold_ends_that_of_its_rung():
    gate = Gate(SETTINGS, rung=0)
    rng = np.random.default_rng(13)
    for i in range(3_000):
        treated = bool(rng.random() < 0.1)
        gate.decided(i, 0, treated, 0.1)
        gate.settled(i, 0, 1e308 if i == 500 else 2.0 * treated + rng.normal())
    assert gate.says() == "too early"
    assert gate.proposal() is None
    assert "too large for any evidence" in gate.evidence()["problem"]
    copy = Gate.from_dict(json.loads(json.dumps(gate.to_dict())))
    assert copy.evidence() == gate.evidence()
    gate.enter(0)
    assert gate.evidence()["problem"] is None


def test_the_card_says_what_keeps_the_evidence_from_speaking(monkeypatch):
    def card(gate: Gate) -> str:
        return str(gate_card(gate))

    gate, rng = Gate(SETTINGS, rung=0), np.random.default_rng(14)
    assert "too early to tell: 0 units count so far; at least 1,000, 50 on each side, are needed" in card(gate)
    behind = Gate(SETTINGS, rung=0)
    for i in range(1_500):
        behind.decided(i, 0, False, 0.1)
    for i in [*range(2), *range(3, 1_500)]:
        behind.settled(i, 0, 0.0)
    assert "2 units count so far; at least 1,000" in card(behind)  # the others wait behind the third
    for i in range(3_000):
        treated = bool(rng.random() < 0.1)
        gate.decided(i, 0, treated, 0.1)
        gate.settled(i, 0, 0.0 if treated else float(rng.normal()))
    assert gate.evidence()["problem"].startswith("all ")
    assert f"nothing can be told yet: {gate.evidence()['problem']}" in card(gate)
    assert "at least 1,000" not in card(gate)
    gate.decided(3_000, 0, True, 0.1)
    gate.settled(3_000, 0, 1e308)
    assert "nothing can be told yet: 1 reward(s) are too large for any evidence" in card(gate)
    assert "at least 1,000" not in card(gate)

    monkeypatch.setattr("sidelight.service.core.entering.MOST_WAITING", 10)
    stuck = Gate(SETTINGS, rung=0)
    for i in range(20):
        stuck.decided(i, 0, False, 0.1)
    assert "nothing can be told yet: 10 units wait behind one without a reward" in card(stuck)


def test_the_card_says_beside_a_verdict_that_no_more_units_are_taken(monkeypatch):
    gate = Gate(SETTINGS, rung=0)
    rng = np.random.default_rng(16)
    for i in range(6_000):
        treated = bool(rng.random() < 0.1)
        gate.decided(i, 0, treated, 0.1)
        gate.settled(i, 0, 0.5 * treated + rng.normal())
    monkeypatch.setattr("sidelight.service.core.entering.MOST_WAITING", 1)
    gate.decided(6_000, 0, False, 0.1)
    card = str(gate_card(gate))
    assert "the learner is better than the old policy" in card
    assert "1 units wait behind one without a reward" in card


@pytest.mark.parametrize("mode", ["shadow", "assist"])
def test_the_card_of_rows_that_are_not_enough(monkeypatch, mode):
    gate = Gate(SETTINGS)
    gate.look_on(mode, ["low", "high"], 2)
    assert "too early to tell: 0 rows count so far; at least 1,000 are needed" in str(gate_card(gate))
    rows = gate.shadow.rows
    rng = np.random.default_rng(15)
    for i in range(1_500):
        rows.observe(1, bool(rng.random() < 0.5), 1e6 if i == 1_400 else float(rng.normal()), 0.0, 0.5, known=True)
    assert gate.says() == "too early"
    assert "nothing can be told yet: rewards are rare or very uneven" in str(gate_card(gate))
    monkeypatch.setattr("sidelight.service.core.entering.MOST_WAITING", 0)
    card = str(gate_card(gate))
    assert "set [gate] reward_after" in card
    assert "drawn at random" not in card  # a share would not end the wait


def test_the_page_that_people_share_gives_the_same_reason():
    def page(gate: Gate) -> str:
        return verdict_page(gate, [], [], "reward", 1, dt.datetime(2026, 1, 1, tzinfo=dt.UTC))

    gate = Gate(SETTINGS)
    gate.look_on("shadow", ["Low", "High"], 2)
    assert "Too early to tell." in page(gate)
    for _ in range(500):
        gate.shadow.rows.observe(1, False, 0.0, 0.0, 0.0, known=True)
    assert gate.says() == "cannot tell"
    assert "These rows cannot tell, because the old policy never tries arm &#39;High&#39;" in page(gate)
    stopped = Gate(SETTINGS, rung=0)
    for i, reward in enumerate((0.0, 1e308)):
        stopped.decided(i, 0, True, 0.1)
        stopped.settled(i, 0, reward)
    assert stopped.says() == "too early"
    assert "Too early to tell." not in page(stopped)
    assert "1 reward(s) are too large for any evidence" in page(stopped)


def test_a_log_without_rewards_needs_no_end_of_memory(monkeypatch):
    monkeypatch.setattr("sidelight.service.core.entering.MOST_WAITING", 10)
    gate = Gate(SETTINGS, rung=0)
    entered = [gate.decided(i, 0, False, 0.1) for i in range(20)]
    assert entered == [True] * 10 + [False] * 10
    assert "set [gate] reward_after" in gate.evidence()["problem"]
    gate.settled(0, 0, 0.0)
    assert gate.decided(20, 0, False, 0.1)


def test_subjects_without_end_need_no_end_of_memory(monkeypatch):
    monkeypatch.setattr("sidelight.service.core.entering.MOST_SUBJECTS", 10)
    gate = Gate(SETTINGS, rung=0)
    entered = []
    for i in range(20):
        entered.append(gate.decided(i, 0, False, 0.1, f"person {i}"))
        gate.settled(i, 0, 0.0)
    assert entered == [True] * 10 + [False] * 10
    assert "10 subjects have entered" in gate.evidence()["problem"]
    assert gate.decided(20, 0, False, 0.1), "about nobody in particular"
    copy = Gate.from_dict(json.loads(json.dumps(gate.to_dict())))
    assert not copy.decided(21, 0, False, 0.1, "somebody new")
    gate.forget({(3, 0)})
    assert gate.decided(22, 0, False, 0.1, "somebody new"), "there is room again"
    gate.enter(0)
    assert gate.decided(23, 0, False, 0.1, "person 5"), "a rung that is entered anew begins with nobody"


def test_nothing_is_promoted_while_the_routes_shares_are_wrong():
    gate = Gate(SETTINGS, rung=0)
    rng = np.random.default_rng(3)
    for i in range(6_000):
        treated = bool(rng.random() < 0.2)  # twice the share that was set
        gate.decided(i, 0, treated, 0.1)
        gate.settled(i, 0, 2.0 * treated + rng.normal())
    assert gate.says() == "better"
    assert gate.evidence()["ratio_wrong"]
    assert gate.proposal() is None


def test_a_restored_gate_goes_on_to_the_bit():
    gate = Gate(SETTINGS, rung=0)
    traffic(gate, 2_500, 0.3, np.random.default_rng(5))
    gate.decided(10_000, 3, True, gate.share, "waiting")
    copy = Gate.from_dict(json.loads(json.dumps(gate.to_dict())))
    for one in (gate, copy):
        one.settled(10_000, 3, 0.25)
        traffic(one, 2_500, 0.3, np.random.default_rng(6), start=20_000)
    assert gate.to_dict() == copy.to_dict()
    assert gate.evidence() == copy.evidence()


@pytest.mark.parametrize(
    ("values", "words"),
    [
        ({"promote": "always"}, "promote = 'always'"),
        ({"ladder": ()}, "ladder"),
        ({"ladder": (0.2, 0.1)}, "grow"),
        ({"ladder": (0.0, 0.1)}, "above 0"),
        ({"ladder": (0.5, 1.5)}, "at most at 1"),
        ({"holdout": 0.0}, "holdout = 0.0"),
        ({"error_rate": 0.5}, "error_rate = 0.5"),
        ({"smallest_gain": -1.0}, "smallest_gain = -1.0"),
    ],
)
def test_bad_settings(values, words):
    with pytest.raises(InputError, match=words):
        GateSettings(**values)


def test_no_such_rung():
    gate = Gate(SETTINGS, rung=0)
    with pytest.raises(InputError, match="no rung 3"):
        gate.move(3, "too high")
