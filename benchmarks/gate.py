"""Does the gate keep its error rate, and how long does it take?  Simulated ladders, looked at after every unit.

    python -m benchmarks.gate                    1,000 runs of each scenario
    python -m benchmarks.gate --runs 100 --only equal drift

Scenarios called "shadow" are before the ladder: the old policy draws one of three arms and tells its chances, and the
learner, as good or better, looks on; ``lying`` is a log that has its estimates off by 2, ``no overlap`` an old policy
that never takes what the learner wants in half of the contexts. A step that is not merely asked for is a promotion.

The ladder's own code runs (``sidelight.service.core.gate``), with rewards of noise 1: the learner better, equal or
worse, all rewards drifting by three deviations, subjects who come back, rewards that are late, and rewards that never
come and count as 0 for one route more often than for the other. A promotion of a learner that is not better, or a
demotion of one that is not worse, is false; intervals are Clopper and Pearson's. Time to promotion is compared with a
fixed-sample test of the same size on one side, with a power of 90 %, that was told the gain.
"""

from __future__ import annotations

import argparse
import sys
import time
from dataclasses import dataclass

import numpy as np
from scipy.stats import beta, norm

from sidelight.service.core.gate import Gate, GateSettings
from sidelight.service.log.events import Answer, Decisions

SETTINGS = GateSettings(promote="automatic", ladder=(0.1, 0.5, 1.0), error_rate=0.05, holdout=0.05)


@dataclass(frozen=True)
class Scenario:
    """What happens on the ladder.

    Attributes:
        gain: what the learner earns more, in deviations of a reward.
        drift: by how much all rewards move over the run.
        subjects: how many there are; 0 for requests without a subject.
        delay: units until a reward comes.
        missing: share of rewards that never come on the new route and on the old one; they count as 0.
    """

    gain: float = 0.0
    drift: float = 0.0
    subjects: int = 0
    delay: int = 0
    missing: tuple[float, float] = (0.0, 0.0)

    @property
    def true_gain(self) -> float:
        """The gain that counts: of rewards with the default in the place of those that never come."""
        return self.gain * (1.0 - self.missing[0])


SCENARIOS = {
    "better": Scenario(gain=0.3),
    "equal": Scenario(),
    "worse": Scenario(gain=-0.3),
    "drift": Scenario(drift=3.0),
    "subjects": Scenario(subjects=2_000),
    "late": Scenario(delay=300),
    "missing": Scenario(missing=(0.3, 0.1)),
}


@dataclass(frozen=True)
class Looking:
    """What happens before the ladder.

    Attributes:
        gain: what the learner's arm earns more than the others', in deviations of a reward.
        lie: by how much its estimates are off.
        never: the share of contexts in which the old policy never takes the learner's arm.
    """

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


def look_on(scenario: Looking, units: int, seed: int) -> tuple[list[int], int | None]:
    """Steps of one gate in shadow (+1: onto the ladder, by itself), and after how many units it came."""
    rng = np.random.default_rng([seed, 78])
    gate = Gate(SETTINGS)
    gate.look_on("shadow", ["a", "b", "c"], 1)
    x = np.zeros(1)
    for i in range(units):
        wanted, barred = int(rng.integers(3)), rng.random() < scenario.never
        chances = [0.0 if barred and a == wanted else 1.0 for a in range(3)]
        chances = [chance / sum(chances) for chance in chances]
        arm = int(rng.choice(3, p=chances))
        event = Decisions(
            contexts=x[None],
            arms=["abc"[arm]],
            recommended=["abc"[wanted]],
            estimates=[scenario.gain + scenario.lie],
            widths=[0.0],
            propensities=[chances[arm]],
            routes=["old_policy"],
            asked=[False],
            query_probabilities=[0.0],
            version=0,
            mode="shadow",
            share=0.0,
            answers=[Answer("abc"[arm], tuple(chances))],
        )
        assert gate.shadow is not None
        gate.shadow.decided(i, event, 0)
        gate.settled(i, 0, float(scenario.gain * (arm == wanted) + rng.standard_normal()), "abc"[arm], x)
        step = gate.proposal()
        if step is not None and gate.automatic(step):
            return [1], i + 1
    return [], None


def run(scenario: Scenario, units: int, seed: int) -> tuple[list[int], int | None]:
    """The steps of one ladder (+1 up, −1 down), and after how many units of the first rung the first promotion came."""
    rng = np.random.default_rng([seed, 77])
    gate = Gate(SETTINGS, rung=0)
    effects = rng.standard_normal(max(scenario.subjects, 1))
    late: list[tuple[int, float]] = []
    steps: list[int] = []
    first: int | None = None
    draws: dict[tuple[str, int], float] = {}
    for i in range(units):
        subject = int(rng.integers(scenario.subjects)) if scenario.subjects else None
        # one draw a subject and rung, as a hash with the rung's salt gives
        draw = rng.random() if subject is None else draws.setdefault((gate.salt, subject), float(rng.random()))
        share = gate.share
        treated = bool(draw < share)
        gate.decided(i, 0, treated, share, None if subject is None else str(subject))
        level = scenario.drift * i / units + (0.0 if subject is None else 0.7 * float(effects[subject]))
        reward = level + scenario.gain * treated + rng.standard_normal() * (1.0 if subject is None else 0.7)
        if rng.random() < scenario.missing[0 if treated else 1]:
            reward = 0.0
        late.append((i, reward))
        while late and late[0][0] <= i - scenario.delay:
            number, value = late.pop(0)
            gate.settled(number, 0, value)
        step = gate.proposal()
        if step is not None:
            steps.append(1 if step.after > step.before else -1)
            first = i + 1 if first is None and steps[-1] > 0 else first
            gate.enter(step.after)
            if gate.rung < 0:
                break
    return steps, first


def fixed_sample(gain: float, share: float, alpha: float) -> float:
    """Units that a one-sided fixed-sample test of size ``alpha`` and power 90 % needs, told the gain."""
    variance = 1.0 / share + 1.0 / (1.0 - share)
    return float(variance * (norm.ppf(1.0 - alpha) + norm.ppf(0.9)) ** 2 / gain**2)


def interval(hits: int, runs: int) -> tuple[float, float]:
    """Clopper and Pearson's 95 % interval of a frequency."""
    low = 0.0 if hits == 0 else float(beta.ppf(0.025, hits, runs - hits + 1))
    high = 1.0 if hits == runs else float(beta.ppf(0.975, hits + 1, runs - hits))
    return low, high


def main(arguments: list[str] | None = None) -> int:
    """The command line."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.gate", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--runs", type=int, default=1_000)
    parser.add_argument("--units", type=int, default=4_000)
    parser.add_argument("--only", nargs="+", default=[*SCENARIOS, *SHADOW], choices=[*SCENARIOS, *SHADOW])
    given = parser.parse_args(arguments)
    print(f"{given.runs} runs of {given.units:,} units, error rate {SETTINGS.error_rate:.0%}")
    print("| scenario | falsely promoted | falsely demoted | promoted | demoted | units to the first promotion |")
    print("|---|---|---|---|---|---|")
    for name in given.only:
        started = time.perf_counter()
        scenario: Scenario | Looking = SHADOW[name] if name in SHADOW else SCENARIOS[name]
        results = [
            run(scenario, given.units, seed) if isinstance(scenario, Scenario) else look_on(scenario, given.units, seed)
            for seed in range(given.runs)
        ]
        up, down = sum(1 in steps for steps, _ in results), sum(-1 in steps for steps, _ in results)
        texts = []
        for hits, false in ((up, scenario.true_gain <= 0), (down, scenario.true_gain >= 0)):
            low, high = interval(hits, given.runs)
            texts.append(f"{hits / given.runs:.3f} ({low:.3f} to {high:.3f})" if false else "–")
        times = [first for _, first in results if first is not None]
        to_first = "–"
        if times and isinstance(scenario, Looking):
            to_first = f"{np.mean(times):,.0f}"
        elif times and scenario.true_gain > 0:
            needed = fixed_sample(scenario.gain, SETTINGS.ladder[0], SETTINGS.error_rate / len(SETTINGS.ladder))
            to_first = f"{np.mean(times):,.0f}, {np.mean(times) / max(needed, 1_100):.2f} of a fixed sample"
        shares = f"{up / given.runs:.3f} | {down / given.runs:.3f}"
        print(f"| {name} | {texts[0]} | {texts[1]} | {shares} | {to_first} |", flush=True)
        print(f"{name}: {time.perf_counter() - started:.0f} s", file=sys.stderr)
    return 0


if __name__ == "__main__":
    sys.exit(main())
