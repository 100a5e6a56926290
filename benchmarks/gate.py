"""Does the gate keep its error rate, and how long does it take?  Simulated services, looked at after every event.

    make evidence ONLY=gate                       1,000 runs of each scenario; a run that was stopped goes on
    python -m benchmarks.gate --runs 100 --only equal drift

The real fold runs (``sidelight.service.core.fold``): decisions, rewards, default rewards and steps are its events, with
the times of a clock of its own, one unit a second. Routes are drawn by the rails, by subject where there are subjects.
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
from sidelight.service.core.fold import Numbered, State
from sidelight.service.core.gate import GateSettings
from sidelight.service.log.decision_id import DecisionId
from sidelight.service.log.events import Answer, Configuration, Decisions, DefaultReward, GateStep, Reward
from sidelight.service.rails import Rails, subject_draw

RUNS = 1_000
SETTINGS = GateSettings(promote="automatic", ladder=(0.1, 0.5, 1.0), error_rate=0.05, holdout=0.05)
#: runs that are kept together
_PART = 5


@dataclass(frozen=True)
class Scenario:
    """What happens on the ladder, which is entered at its first rung.

    Attributes:
        units: how long.
        gain: what the learner earns more, at the start and at the end, in deviations of a reward.
        later: the gain on rungs after the first; None for the same.
        level: the old policy's mean reward.
        drift: by how much all rewards move over the run.
        subjects: how many there are; 0 for requests without a subject.
        delay: mean seconds until a reward comes; 0 for at once.
        missing: share of rewards that never come on the new route and on the old one.
        wait: seconds after which the default reward, 0, counts.
        smallest_gain: what was agreed.
        again: a person enters the first rung anew after so many units; 0 for never.
    """

    units: int = 4_000
    gain: tuple[float, float] = (0.0, 0.0)
    later: float | None = None
    level: float = 0.0
    drift: float = 0.0
    subjects: int = 0
    delay: float = 0.0
    missing: tuple[float, float] = (0.0, 0.0)
    wait: float = 300.0
    smallest_gain: float = 0.0
    again: int = 0

    def in_time(self, treated: bool) -> float:
        """The chance that a reward comes before the default one counts."""
        came = 1.0 - self.missing[0 if treated else 1]
        return came * (1.0 - float(np.exp(-self.wait / self.delay))) if self.delay else came

    def gain_at(self, at: int, rung: int) -> float:
        """What a reward of the learner's is larger by at unit ``at``, if it comes."""
        if rung > 0 and self.later is not None:
            return self.later
        return self.gain[0] + (self.gain[1] - self.gain[0]) * at / self.units

    def level_at(self, at: int) -> float:
        """The old policy's mean reward at unit ``at``."""
        return self.level + self.drift * at / self.units

    def true_gain(self, at: int, rung: int) -> float:
        """What the learner earns more at unit ``at``, the default reward in the place of those that do not come."""
        level = self.level_at(at)
        return self.in_time(True) * (level + self.gain_at(at, rung)) - self.in_time(False) * level


LADDER = {
    "better": Scenario(units=12_000, gain=(0.2, 0.2)),
    "equal": Scenario(),
    "worse": Scenario(gain=(-0.3, -0.3)),
    "better by less than agreed": Scenario(gain=(0.1, 0.1), smallest_gain=0.15),
    "log lying: worse at first, better later": Scenario(units=8_000, gain=(-0.4, 0.4)),
    "rewards delayed": Scenario(delay=150.0, level=1.0),
    # fewer rewards come from the learner, larger ones: counted without those that never come it looks better by 0.29
    "rewards missing": Scenario(level=1.0, gain=(0.2 / 0.7, 0.2 / 0.7), missing=(0.3, 0.1)),
    "traffic drifting": Scenario(drift=3.0),
    # the share grows while all rewards do: a difference of pooled means would promote it
    "ladder with drift": Scenario(units=8_000, gain=(0.5, 0.5), later=0.0, drift=3.0),
    "2,000 subjects": Scenario(subjects=2_000),
    "few subjects": Scenario(subjects=300),
    "entered anew by a person": Scenario(units=9_000, again=1_500),
}


@dataclass(frozen=True)
class Looking:
    """What happens before the ladder.

    Attributes:
        units: how long.
        gain: what the learner's arm earns more than the others', in deviations of a reward.
        lie: by how much its estimates are off.
        never: the share of contexts in which the old policy never takes the learner's arm.
    """

    units: int = 4_000
    gain: float = 0.0
    lie: float = 0.0
    never: float = 0.0

    @property
    def true_gain(self) -> float:
        """Of the learner over the old policy, which takes the learner's arm in a third of the other contexts."""
        return self.gain * (1.0 - (1.0 - self.never) / 3.0)


SHADOW = {
    "shadow better": Looking(gain=0.3),
    "shadow equal": Looking(),
    "shadow lying": Looking(lie=2.0),
    "shadow no overlap": Looking(gain=-0.3, lie=2.0, never=0.5),
}
SCENARIOS: dict[str, Scenario | Looking] = {**LADDER, **SHADOW}


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


def climb(scenario: Scenario, seed: int) -> Outcome:
    """One ladder."""
    rng = np.random.default_rng([seed, 77])
    settings = replace(SETTINGS, smallest_gain=scenario.smallest_gain)
    service = Service(Rails("act", settings.share_of(0), "old"), settings, ["old", "new"])
    units, state = scenario.units, service.state
    effects = (0.7 * rng.standard_normal(max(scenario.subjects, 1))).tolist()
    noise = ((0.7 if scenario.subjects else 1.0) * rng.standard_normal(units)).tolist()
    draws, chances = rng.random(units).tolist(), rng.random(units).tolist()
    delays = (scenario.delay * rng.exponential(size=units)).tolist()
    people = rng.integers(max(scenario.subjects, 1), size=units).tolist()
    out = Outcome(times=[None] * len(settings.ladder))
    coming: list[tuple[float, int, bool, float | None]] = []
    defaulted: set[int] = set()
    truths: list[float] = []  # of the units that entered this rung, in the order of their decisions
    begun = 0

    def look() -> bool:
        """Let the gate step; whether it left the ladder."""
        gate = state.gate
        done, rung = gate.units - len(gate.waiting), gate.rung
        step = service.step()
        if step is None:
            return False
        average = float(np.mean(truths[:done]))
        if step.after > step.before:
            out.up, out.false_up = True, out.false_up or average <= scenario.smallest_gain
            if out.times[rung] is None:
                out.times[rung] = done
        else:
            out.down, out.false_down = True, out.false_down or average >= 0.0
        truths.clear()
        return step.after < 0

    for i in range(units):
        service.clock = float(i)
        gate = state.gate
        if scenario.again and i - begun >= scenario.again:
            begun = i
            service.write(GateStep(gate.rung, 0, settings.share_of(0), "somebody decided so", {}, "somebody"))
            truths.clear()
        subject = f"{people[i]}" if scenario.subjects else None
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
            truths.append(scenario.true_gain(i, rung))
        reward = scenario.level_at(i) + scenario.gain_at(i, rung) * treated + noise[i]
        if subject is not None:
            reward += effects[people[i]]
        comes = chances[i] >= scenario.missing[0 if treated else 1]
        if comes:
            heappush(coming, (i + delays[i], number, treated, reward))
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
                return out
    return out


def look_on(scenario: Looking, seed: int) -> Outcome:
    """One service in shadow."""
    rng = np.random.default_rng([seed, 78])
    service = Service(Rails("shadow", 0.0, "a"), SETTINGS, ["a", "b", "c"])
    out = Outcome(times=[None])
    units = scenario.units
    noise, draws = rng.standard_normal(units).tolist(), rng.random(units).tolist()
    wants, barred = rng.integers(3, size=units).tolist(), (rng.random(units) < scenario.never).tolist()
    for i in range(units):
        service.clock = float(i)
        wanted = wants[i]
        arms = [a for a in range(3) if not (barred[i] and a == wanted)]
        arm = arms[int(draws[i] * len(arms))]
        chances = tuple(1.0 / len(arms) if a in arms else 0.0 for a in range(3))
        number = service.decide(
            arms=["abc"[arm]],
            recommended=["abc"[wanted]],
            estimates=[scenario.gain + scenario.lie],
            propensities=[chances[arm]],
            routes=["old_policy"],
            answers=[Answer("abc"[arm], chances)],
        )
        reward = scenario.gain * (arm == wanted) + noise[i]
        service.write(Reward(DecisionId(number, 0, 0), reward, "abc"[arm], "old_policy"), service.context)
        if service.step() is not None:
            return Outcome(scenario.true_gain <= 0.0, False, True, False, [i + 1])
    return out


def fixed_sample(gain: float, share: float, alpha: float) -> float:
    """Units that a one-sided fixed-sample test of size ``alpha`` and power 90 % needs, told the gain."""
    variance = 1.0 / share + 1.0 / (1.0 - share)
    return float(variance * (norm.ppf(1.0 - alpha) + norm.ppf(0.9)) ** 2 / gain**2)


def interval(hits: int, runs: int) -> tuple[float, float]:
    """Clopper and Pearson's 95 % interval of a frequency."""
    low = 0.0 if hits == 0 else float(beta.ppf(0.025, hits, runs - hits + 1))
    high = 1.0 if hits == runs else float(beta.ppf(0.975, hits + 1, runs - hits))
    return low, high


def play(name: str, seeds: range) -> list[dict[str, Any]]:
    """Runs of a scenario, JSON-safe."""
    scenario = SCENARIOS[name]
    return [asdict(climb(scenario, s) if isinstance(scenario, Scenario) else look_on(scenario, s)) for s in seeds]


def rows_of(name: str, found: list[dict[str, Any]]) -> Row:
    """One line of the table."""
    runs, scenario = len(found), SCENARIOS[name]
    row: Row = {"scenario": name, "runs": runs}
    for words, key in (("falsely promoted", "false_up"), ("falsely demoted", "false_down")):
        hits = sum(outcome[key] for outcome in found)
        low, high = interval(hits, runs)
        row |= {words: hits / runs, f"{words}, interval": f"{low:.4f} to {high:.4f}"}
    row |= {"promoted": sum(o["up"] for o in found) / runs, "demoted": sum(o["down"] for o in found) / runs}
    steady = isinstance(scenario, Scenario) and scenario.gain[0] == scenario.gain[1] > scenario.smallest_gain
    for rung in range(len(SETTINGS.ladder) - 1):
        times = [outcome["times"][rung] for outcome in found if len(outcome["times"]) > 1]
        came = [t for t in times if t is not None]
        row[f"units on rung {rung + 1}"] = row[f"rung {rung + 1}, of a fixed sample"] = None
        if steady and scenario.later is None and not any(scenario.missing) and len(came) > 0.9 * runs:
            needed = fixed_sample(scenario.gain[0], SETTINGS.share_of(rung), SETTINGS.error_rate / len(SETTINGS.ladder))
            row[f"units on rung {rung + 1}"] = float(np.mean(came))
            row[f"rung {rung + 1}, of a fixed sample"] = float(np.mean(came)) / needed
    return row


def measure(
    part: Callable[[str, Callable[[], Any]], Any], runs: int = RUNS, only: list[str] | None = None
) -> list[Row]:
    """The table: one line for each scenario."""
    return list(_measured(part, runs, list(SCENARIOS) if only is None else only))


def _measured(part: Callable[[str, Callable[[], Any]], Any], runs: int, only: list[str]) -> Iterator[Row]:
    harness = hashlib.sha256(Path(__file__).read_bytes()).hexdigest()[:8]
    for name in only:
        found: list[dict[str, Any]] = []
        started = time.process_time()
        for start in range(0, runs, _PART):
            seeds = range(start, min(start + _PART, runs))
            found += part(f"{harness}-{name}-{seeds.start}-{seeds.stop}", lambda: play(name, seeds))  # noqa: B023
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
    parser.add_argument("--only", nargs="+", default=list(SCENARIOS), choices=list(SCENARIOS), metavar="SCENARIO")
    given = parser.parse_args(arguments)
    rows = []
    for row in _measured(Parts("gate", source_hash()), given.runs, given.only):
        rows.append(row)
        print(" | ".join(show(value) for value in row.values()), file=sys.stderr, flush=True)
    print(f"error rate {SETTINGS.error_rate:.0%}, ladder of {', '.join(f'{s:.0%}' for s in SETTINGS.ladder)}")
    print("\n".join(table(rows)))
    return 0


if __name__ == "__main__":
    sys.exit(main())
