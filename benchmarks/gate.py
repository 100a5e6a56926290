"""Does the gate keep its error rate, and how long does it take?  Simulated services, looked at after every event.

    make evidence ONLY=gate                       1,000 runs of each scenario; a run that was stopped goes on
    python -m benchmarks.gate --runs 100 --by-fold 100 --only equal worse

The first runs of each scenario are the real fold's (``sidelight.service.core.fold``): decisions, rewards, default
rewards and steps are its events, with the times of a clock of its own, one unit a second. The compiled sums of
``benchmarks.gate_replay`` play the same runs and must come to the same steps and the same bits; the others are theirs
alone. Routes are drawn by the rails, by subject where there are subjects.
The learner is one that never changes, so what it is worth is known. Rewards have noise 1.

A step up is false where the average over the rung's units of what the learner truly earned more is not above the
smallest gain, a step down where it is not below 0. Intervals are Clopper and Pearson's. Time to promotion is counted in
units of the rung and compared with a fixed-sample test of the same size on one side, with a power of 90 %, that was
told the gain.

Scenarios called "shadow" are before the ladder: the old policy draws one of three arms and tells its chances, and the
learner, as good or better, looks on; ``lying`` is a log that has its estimates off by 2, ``no overlap`` an old policy
that never takes what the learner wants in half of the contexts. A step that is not merely asked for is a promotion.
"""

from __future__ import annotations

import argparse
import hashlib
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass, replace
from heapq import heappop, heappush
from pathlib import Path
from typing import Any

import numpy as np
from scipy.stats import beta, norm

from benchmarks.evidence import Parts, Row, show, source_hash, table
from benchmarks.gate_replay import Sums
from benchmarks.gate_replay import rows as evidence_of_rows
from benchmarks.gate_replay import rung as evidence_on_rung
from benchmarks.gate_scenarios import SCENARIOS, SETTINGS, Drawn, Looking, Scenario
from sidelight.linalg import Array
from sidelight.service.core.fold import Numbered, State
from sidelight.service.core.gate import Gate
from sidelight.service.core.ladder import GateSettings
from sidelight.service.log.decision_id import DecisionId
from sidelight.service.log.events import Answer, Configuration, Decisions, DefaultReward, GateStep, Reward
from sidelight.service.rails import Rails, subject_draw

RUNS = 1_000
#: of them by the fold as well, which must agree to the bit
BY_FOLD = 50
#: runs that are kept together
_PART = 10


class Unchanging:
    """A learner that learns nothing: what the fold asks of one."""

    schema = needs = ledger = None
    n_features = 1

    def __init__(self, arms: list[str]) -> None:
        self.arms = arms

    def observe(self, *_: Any) -> None:
        """Learn nothing."""

    def correct(self, *_: Any, **__: Any) -> None:
        """Correct nothing."""

    def receipt(self, *_: Any) -> None:
        """No receipt is needed."""


@dataclass
class Outcome:
    """What a run came to.

    Attributes:
        false_up, false_down: whether a step was ever false.
        up, down: whether there was ever one.
        times: units of each rung, in order, until its first promotion.
    """

    false_up: bool = False
    false_down: bool = False
    up: bool = False
    down: bool = False
    times: list[int | None] = None  # type: ignore[assignment]

    def stepped(self, step: int, rung: int, truths: Array, smallest_gain: float) -> None:
        """Note a step up or down, after units of these true gains on a rung."""
        average = float(np.mean(truths))
        if step > 0:
            self.up, self.false_up = True, self.false_up or average <= smallest_gain
            if self.times[rung] is None:
                self.times[rung] = len(truths)
        else:
            self.down, self.false_down = True, self.false_down or average >= 0.0


class Service:
    """The fold of one server, and who takes the gate's steps.

    Args:
        rails: who acts at the beginning.
        settings: of the gate.
        arms: of the learner.
    """

    def __init__(self, rails: Rails, settings: GateSettings, arms: list[str]) -> None:
        self.state = State(Unchanging(arms), rails)
        self.context = np.zeros(1)
        self.clock = 0.0
        self.write(Configuration(gate=settings.to_dict(), source="file"))

    def write(self, event: Any, context: Any = None) -> int:
        """Fold an event in at the present time; returns its number."""
        number = self.state.number + 1
        self.state.apply(Numbered(number, self.clock, event, context))
        return number

    def decide(self, **columns: Any) -> int:
        """Write one decision."""
        rails = self.state.rails
        event = Decisions(
            contexts=self.context[None],
            widths=[0.0],
            asked=[False],
            query_probabilities=[0.0],
            version=0,
            mode=rails.mode,
            share=rails.share,
            **columns,
        )
        return self.write(event)

    def step(self) -> GateStep | None:
        """Take the step that the evidence calls for, if that needs no person, as the gatekeeper does."""
        gate = self.state.gate
        step = gate.proposal()
        if step is None or not gate.automatic(step):
            return None
        mode = "act" if step.before < 0 else None
        event = GateStep(step.before, step.after, step.share, step.reason, step.evidence, mode=mode)
        self.write(event)
        return event


def climb(scenario: Scenario, seed: int) -> tuple[Outcome, Sums]:
    """One ladder by the fold, and where the sequence of its last rung stands at the end."""
    drawn = Drawn(scenario, seed)
    settings = replace(SETTINGS, smallest_gain=scenario.smallest_gain)
    service = Service(Rails("act", settings.share_of(0), "old"), settings, ["old", "new"])
    state = service.state
    draws, chances, delays = drawn.draws.tolist(), drawn.chances.tolist(), drawn.delays.tolist()
    out = Outcome(times=[None] * len(settings.ladder))
    coming: list[tuple[float, int, bool, float | None]] = []
    defaulted: set[int] = set()
    truths: list[float] = []  # of the units that entered this rung, in the order of their decisions
    begun = 0
    sums = Sums(0, 0.0, 0.0)

    def look() -> bool:
        """Let the gate step; whether it left the ladder."""
        nonlocal sums
        gate = state.gate
        done, rung = gate.units - len(gate.waiting), gate.rung
        assert gate.promotion is not None
        sums = Sums.of(gate.promotion.sequence)
        step = service.step()
        if step is None:
            return False
        out.stepped(step.after - step.before, rung, np.array(truths[:done]), scenario.smallest_gain)
        truths.clear()
        return step.after < 0

    for i in range(scenario.units):
        service.clock = float(i)
        gate = state.gate
        if scenario.again and i - begun >= scenario.again:
            begun = i
            service.write(GateStep(gate.rung, -1, 0.0, "somebody decided so", {}, "somebody"))
            service.write(GateStep(-1, 0, settings.share_of(0), "somebody decided so", {}, "somebody"))
            truths.clear()
        subject = f"{drawn.people[i]}" if scenario.subjects else None
        route = state.rails.route(
            "new",
            1.0,
            old_arm="old",
            old_propensity=None,
            allowed=None,
            draw=draws[i] if subject is None else subject_draw(subject, gate.salt),
        )
        treated = route.by == "learner"
        entered, rung = gate.units, gate.rung
        number = service.decide(
            arms=[route.arm],
            recommended=["new"],
            estimates=[0.0],
            propensities=[route.propensity],
            routes=[route.by],
            subjects=None if subject is None else [subject],
            answers=[Answer("old")],
        )
        if gate.units > entered:
            truths.append(float(scenario.true_gain(i, rung)))
        comes = chances[i] >= scenario.missing[0 if treated else 1]
        if comes:
            heappush(coming, (i + delays[i], number, treated, float(drawn.rewards(i, rung, treated))))
        if not comes or delays[i] > scenario.wait:
            heappush(coming, (i + scenario.wait, number, treated, None))
        while coming and coming[0][0] <= i:
            service.clock, about, was_treated, value = heappop(coming)
            arm, id = "new" if was_treated else "old", DecisionId(about, 0, 0)
            if value is None:
                defaulted.add(about)
                service.write(DefaultReward(id, 0.0, arm), service.context)
            else:
                late = {"replaces": 0.0, "replaces_arm": arm} if about in defaulted else {}
                service.write(Reward(id, value, arm, "service", **late), service.context)
            if look():
                return out, sums
    return out, sums


def climb_again(scenario: Scenario, seed: int) -> tuple[Outcome, Sums]:
    """What ``climb`` returns, by compiled sums: one visit to a rung at a time."""
    drawn = Drawn(scenario, seed)
    settings = replace(SETTINGS, smallest_gain=scenario.smallest_gain)
    # as the fold makes it: at a share, then told the settings
    gate, top = Gate.at_share(GateSettings(), settings.share_of(0)), len(settings.ladder) - 1
    gate.configure(settings, settings.share_of(0))
    out, sums = Outcome(times=[None] * len(settings.ladder)), Sums(0, 0.0, 0.0)
    start = 0
    while start < scenario.units:
        end = min((start // scenario.again + 1) * scenario.again, scenario.units) if scenario.again else scenario.units
        at, rung = np.arange(start, end), gate.rung
        draws = drawn.draws[start:end]
        if scenario.subjects:
            people, first = np.unique(drawn.people[start:end], return_index=True)
            at = np.sort(at[first])
            found = {person: subject_draw(f"{person}", gate.salt) for person in people.tolist()}
            draws = np.array([found[person] for person in drawn.people[at].tolist()])
        routes = draws < gate.share
        comes = drawn.chances[at] >= np.where(routes, scenario.missing[0], scenario.missing[1])
        real = comes & (drawn.delays[at] <= scenario.wait)
        ends = at + np.where(real, drawn.delays[at], scenario.wait)
        rewards = np.where(real, drawn.rewards(at, rung, routes), 0.0)
        # a unit enters when the waits of all before it are over; the gate is looked at after every event
        order = np.empty(len(at), dtype=np.int64)
        order[np.lexsort((at, ends))] = np.arange(len(at))
        entered = np.maximum.accumulate(order)
        turn = np.ceil(np.sort(ends))[entered].astype(np.int64)  # the unit after whose decision that event comes
        known = int(np.searchsorted(turn, end))
        assert gate.promotion is not None
        assert gate.demotion is not None
        step, last, sums = evidence_on_rung(
            routes[:known],
            rewards[:known],
            np.append(np.diff(entered) > 0, True)[:known],
            np.searchsorted(at, turn[:known], side="right"),
            routes,
            gate.share,
            (gate.promotion.sequence.alpha, gate.demotion.sequence.alpha),
            settings.smallest_gain,
            rung == top,
        )
        gate.units = len(at)
        if step == 0:
            start = end
            gate.enter(-1)
            gate.enter(0)
            continue
        truths = np.broadcast_to(scenario.true_gain(at, rung), len(at))[: last + 1]
        out.stepped(step, rung, truths, scenario.smallest_gain)
        if rung + step < 0:
            break
        start = int(turn[last]) + 1
        gate.enter(rung + step)
    return out, sums


@dataclass(frozen=True)
class Seen:
    """The old policy's rows of a run in shadow, all (n,)."""

    wants: Array
    arms: Array
    chances: Array
    rewards: Array

    @classmethod
    def of(cls, scenario: Looking, seed: int) -> Seen:
        """Drawn: one of three arms, the one that the learner wants left out where it is never tried."""
        rng, units = np.random.default_rng([seed, 78]), scenario.units
        noise, draws = rng.standard_normal(units), rng.random(units)
        wants, barred = rng.integers(3, size=units), rng.random(units) < scenario.never
        others = np.array([[1, 2], [0, 2], [0, 1]])[wants, (draws * 2).astype(int)]
        arms = np.where(barred, others, (draws * 3).astype(int))
        chances = np.where(barred, 0.0, 1.0 / 3.0)
        if scenario.rewards == "clicks":
            noise = (noise > norm.ppf(0.98)) * 1.0
        return cls(wants, arms, chances, scenario.gain * (arms == wants) + noise)


def look_on(scenario: Looking, seed: int) -> tuple[Outcome, Sums]:
    """One service in shadow, by the fold."""
    service = Service(Rails("shadow", 0.0, "a"), SETTINGS, ["a", "b", "c"])
    seen = Seen.of(scenario, seed)
    columns = (seen.wants.tolist(), seen.arms.tolist(), seen.chances.tolist(), seen.rewards.tolist())
    sums = Sums(0, 0.0, 0.0)
    for i, (wanted, arm, chance, reward) in enumerate(zip(*columns, strict=True)):
        service.clock = float(i)
        chances = [1.0 / 3.0] * 3
        if chance == 0.0:
            chances = [0.0 if a == wanted else 0.5 for a in range(3)]
        number = service.decide(
            arms=["abc"[arm]],
            recommended=["abc"[wanted]],
            estimates=[scenario.gain + scenario.lie],
            propensities=[chances[arm]],
            routes=["old_policy"],
            answers=[Answer("abc"[arm], tuple(chances))],
        )
        service.write(Reward(DecisionId(number, 0, 0), reward, "abc"[arm], "old_policy"), service.context)
        assert service.state.gate.shadow is not None
        sums = Sums.of(service.state.gate.shadow.rows.sequence)
        if service.step() is not None:
            return Outcome(scenario.true_gain <= 0.0, False, True, False, [i + 1]), sums
    return Outcome(times=[None]), sums


def look_on_again(scenario: Looking, seed: int) -> tuple[Outcome, Sums]:
    """What ``look_on`` returns, by compiled sums."""
    seen, gate = Seen.of(scenario, seed), Gate(SETTINGS)
    gate.look_on("shadow", ["a", "b", "c"], 1)
    assert gate.shadow is not None
    at, sums = evidence_of_rows(
        seen.wants,
        seen.arms == seen.wants,
        seen.rewards,
        scenario.gain + scenario.lie,
        seen.chances,
        gate.shadow.rows.sequence.alpha,
        SETTINGS.smallest_gain,
        3,
    )
    if at < 0:
        return Outcome(times=[None]), sums
    return Outcome(scenario.true_gain <= 0.0, False, True, False, [at + 1]), sums


def fixed_sample(gain: float, share: float, alpha: float) -> float:
    """Units that a one-sided fixed-sample test of size ``alpha`` and power 90 % needs, told the gain."""
    variance = 1.0 / share + 1.0 / (1.0 - share)
    return float(variance * (norm.ppf(1.0 - alpha) + norm.ppf(0.9)) ** 2 / gain**2)


def interval(hits: int, runs: int) -> tuple[float, float]:
    """Clopper and Pearson's 95 % interval of a frequency."""
    low = 0.0 if hits == 0 else float(beta.ppf(0.025, hits, runs - hits + 1))
    high = 1.0 if hits == runs else float(beta.ppf(0.975, hits + 1, runs - hits))
    return low, high


def play(name: str, seeds: range, by_fold: int = BY_FOLD) -> list[dict[str, Any]]:
    """Runs of a scenario, JSON-safe; those of seeds below ``by_fold`` by the fold, which the compiled sums must equal.

    Raises:
        AssertionError: they do not.
    """
    scenario = SCENARIOS[name]
    slow, fast = (climb, climb_again) if isinstance(scenario, Scenario) else (look_on, look_on_again)
    found = []
    for seed in seeds:
        outcome = fast(scenario, seed)  # type: ignore[operator]
        if seed < by_fold and (real := slow(scenario, seed)) != outcome:  # type: ignore[operator]
            raise AssertionError(f"{name}, seed {seed}: the fold has {real}, the compiled sums {outcome}.")
        found.append(asdict(outcome[0]))
    return found


def rows_of(name: str, found: list[dict[str, Any]]) -> Row:
    """One line of the table."""
    runs, scenario = len(found), SCENARIOS[name]
    row: Row = {"scenario": name, "runs": runs}
    for words, key in (("falsely promoted", "false_up"), ("falsely demoted", "false_down")):
        hits = sum(outcome[key] for outcome in found)
        low, high = interval(hits, runs)
        row |= {words: hits / runs, f"{words}, interval": f"{low:.4f} to {high:.4f}"}
    row |= {"promoted": sum(o["up"] for o in found) / runs, "demoted": sum(o["down"] for o in found) / runs}
    for rung in range(len(SETTINGS.ladder) - 1):
        times = [outcome["times"][rung] for outcome in found if len(outcome["times"]) > 1]
        came = [t for t in times if t is not None]
        row[f"units on rung {rung + 1}"] = row[f"rung {rung + 1}, of a fixed sample"] = None
        if isinstance(scenario, Scenario) and scenario.steady and len(came) > 0.9 * runs:
            needed = fixed_sample(scenario.gain[0], SETTINGS.share_of(rung), SETTINGS.error_rate / len(SETTINGS.ladder))
            row[f"units on rung {rung + 1}"] = float(np.mean(came))
            row[f"rung {rung + 1}, of a fixed sample"] = float(np.mean(came)) / needed
    return row


def measure(
    part: Callable[[str, Callable[[], Any]], Any],
    runs: int = RUNS,
    only: list[str] | None = None,
    by_fold: int = BY_FOLD,
) -> list[Row]:
    """The table: one line for each scenario."""
    return list(_measured(part, runs, list(SCENARIOS) if only is None else only, by_fold))


def _measured(part: Callable[[str, Callable[[], Any]], Any], runs: int, only: list[str], by_fold: int) -> Iterator[Row]:
    files = sorted(Path(__file__).parent.glob("gate*.py"))
    harness = hashlib.sha256(b"".join(path.read_bytes() for path in files)).hexdigest()[:8]
    for name in only:
        found: list[dict[str, Any]] = []
        started = time.process_time()
        for start in range(0, runs, _PART):
            seeds = range(start, min(start + _PART, runs))
            folded = max(min(by_fold, seeds.stop) - seeds.start, 0)
            key = f"{harness}-{name}-{seeds.start}-{seeds.stop}-{folded}"
            found += part(key, lambda: play(name, seeds, by_fold))  # noqa: B023
        print(f"{name}: {time.process_time() - started:.0f} s of processor time", file=sys.stderr, flush=True)
        yield rows_of(name, found)


def holds(rows: list[Row]) -> bool:
    """Errors at most as agreed, as far as so many runs can tell, and promotions in time."""
    most = SETTINGS.error_rate
    for row in rows:
        for words in ("falsely promoted", "falsely demoted"):
            if float(row[f"{words}, interval"].split(" ")[0]) > most:
                return False
        ratios = (row[name] for name in row if name.endswith("of a fixed sample"))
        if any(ratio is not None and ratio > 1.5 for ratio in ratios):
            return False
    return True


def main(arguments: list[str] | None = None) -> int:
    """The command line."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.gate", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--runs", type=int, default=RUNS)
    parser.add_argument("--by-fold", type=int, default=BY_FOLD, help="of these runs, by the fold as well")
    parser.add_argument("--only", nargs="+", default=list(SCENARIOS), choices=list(SCENARIOS), metavar="SCENARIO")
    given = parser.parse_args(arguments)
    rows = []
    for row in _measured(Parts("gate", source_hash()), given.runs, given.only, given.by_fold):
        rows.append(row)
        print(" | ".join(show(value) for value in row.values()), file=sys.stderr, flush=True)
    print(f"error rate {SETTINGS.error_rate:.0%}, ladder of {', '.join(f'{s:.0%}' for s in SETTINGS.ladder)}")
    print("\n".join(table(rows)))
    return 0


if __name__ == "__main__":
    sys.exit(main())
