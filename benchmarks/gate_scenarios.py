"""What happens to the simulated services of ``benchmarks.gate``: scenarios, their truth, what is drawn for a run."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from sidelight.linalg import Array
from sidelight.service.core.ladder import GateSettings

SETTINGS = GateSettings(promote="automatic", ladder=(0.1, 0.5, 1.0), error_rate=0.05, holdout=0.05)


@dataclass(frozen=True)
class Scenario:
    """What happens on the ladder, which is entered at its first rung.

    Attributes:
        units: how long.
        gain: what the learner earns more, at the start and at the end, in deviations of a reward.
        later: the gain on rungs after the first; None for the same.
        level: the old policy's mean reward.
        drift: by how much all rewards move over the run.
        rewards: how they vary: ``normal``; ``heavy`` (Student's t with 3 degrees of freedom, scaled to deviation 1);
            ``skewed`` (a lognormal one with skewness 6, centred, deviation 1); ``clicks`` (0 or 1, 1 with a chance of
            ``level`` plus the gain).
        subjects: how many there are; 0 for requests without a subject.
        regulars: some subjects come far more often than others (a share of 1/rank each).
        delay: mean seconds until a reward comes; 0 for at once.
        missing: share of rewards that never come on the new route and on the old one.
        wait: seconds after which the default reward, 0, counts.
        smallest_gain: what was agreed.
        again: a person leaves the ladder and enters its first rung anew after so many units; 0 for never.
    """

    units: int = 4_000
    gain: tuple[float, float] = (0.0, 0.0)
    later: float | None = None
    level: float = 0.0
    drift: float = 0.0
    rewards: str = "normal"
    subjects: int = 0
    regulars: bool = False
    delay: float = 0.0
    missing: tuple[float, float] = (0.0, 0.0)
    wait: float = 300.0
    smallest_gain: float = 0.0
    again: int = 0

    def in_time(self, treated: bool) -> float:
        """The chance that a reward comes before the default one counts."""
        came = 1.0 - self.missing[0 if treated else 1]
        return came * (1.0 - float(np.exp(-self.wait / self.delay))) if self.delay else came

    def gain_at(self, at: int | Array, rung: int) -> float | Array:
        """What a reward of the learner's is larger by at unit ``at``, if it comes."""
        if rung > 0 and self.later is not None:
            return self.later
        return self.gain[0] + (self.gain[1] - self.gain[0]) * at / self.units

    def level_at(self, at: int | Array) -> float | Array:
        """The old policy's mean reward at unit ``at``."""
        return self.level + self.drift * at / self.units

    def true_gain(self, at: int | Array, rung: int) -> float | Array:
        """What the learner earns more at unit ``at``, the default reward in the place of those that do not come."""
        level = self.level_at(at)
        return self.in_time(True) * (level + self.gain_at(at, rung)) - self.in_time(False) * level

    @property
    def steady(self) -> bool:
        """Whether the gain is always the same and worth a promotion, so that a fixed-sample test can be told it."""
        same = self.gain[0] == self.gain[1] and self.later is None and not any(self.missing) and not self.delay
        return same and self.gain[0] > self.smallest_gain


LADDER = {
    "better": Scenario(units=12_000, gain=(0.2, 0.2)),
    "equal": Scenario(),
    "worse": Scenario(gain=(-0.3, -0.3)),
    "better by less than agreed": Scenario(gain=(0.1, 0.1), smallest_gain=0.15),
    "log lying: worse at first, better later": Scenario(units=8_000, gain=(-0.4, 0.4)),
    "rewards delayed": Scenario(delay=150.0, level=1.0),
    "rewards later than a rung lasts": Scenario(units=12_000, delay=1_000.0, wait=4_000.0, level=1.0),
    # fewer rewards come from the learner, larger ones: counted without those that never come it looks better by 0.29
    "rewards missing": Scenario(level=1.0, gain=(0.2 / 0.7, 0.2 / 0.7), missing=(0.3, 0.1)),
    "rewards heavy-tailed": Scenario(rewards="heavy"),
    "rewards skewed": Scenario(units=8_000, rewards="skewed"),
    "clicks of 2 %": Scenario(units=8_000, rewards="clicks", level=0.02),
    "clicks of 0.5 %": Scenario(units=20_000, rewards="clicks", level=0.005),
    "traffic drifting": Scenario(drift=3.0),
    # the share grows while all rewards do: a difference of pooled means would promote it
    "ladder with drift": Scenario(units=8_000, gain=(0.5, 0.5), later=0.0, drift=3.0),
    "2,000 subjects": Scenario(subjects=2_000),
    "few subjects": Scenario(subjects=300),
    "regulars among 8,000 subjects": Scenario(units=20_000, subjects=8_000, regulars=True),
    "entered anew by a person": Scenario(units=9_000, again=1_500),
}


@dataclass(frozen=True)
class Looking:
    """What happens before the ladder.

    Attributes:
        units: how long.
        gain: what the learner's arm earns more than the others', in deviations of a reward.
        rewards: ``normal``, or ``clicks``: 1 with a chance of 2 %, else 0.
        lie: by how much its estimates are off.
        never: the share of contexts in which the old policy never takes the learner's arm.
    """

    units: int = 4_000
    gain: float = 0.0
    rewards: str = "normal"
    lie: float = 0.0
    never: float = 0.0

    @property
    def true_gain(self) -> float:
        """Of the learner over the old policy, which takes the learner's arm in a third of the other contexts."""
        return self.gain * (1.0 - (1.0 - self.never) / 3.0)


SHADOW = {
    "shadow better": Looking(gain=0.3),
    "shadow equal": Looking(),
    "shadow clicks of 2 %": Looking(units=8_000, rewards="clicks"),
    "shadow lying": Looking(lie=2.0),
    "shadow no overlap": Looking(gain=-0.3, lie=2.0, never=0.5),
}
SCENARIOS: dict[str, Scenario | Looking] = {**LADDER, **SHADOW}


class Drawn:
    """What a run of a scenario draws, unit by unit.

    Attributes:
        draws: (n,) of the routes where there are no subjects.
        chances: (n,) whether a reward comes.
        delays: (n,) seconds until it does.
        people: (n,) who it is.
    """

    def __init__(self, scenario: Scenario, seed: int) -> None:
        rng, units = np.random.default_rng([seed, 77]), scenario.units
        self._scenario = scenario
        self._effects = 0.7 * rng.standard_normal(max(scenario.subjects, 1))
        self._noise = _noise(scenario.rewards, units, rng) * (0.7 if scenario.subjects else 1.0)
        self.draws, self.chances = rng.random(units), rng.random(units)
        self.delays = scenario.delay * rng.exponential(size=units)
        shares = 1.0 / np.arange(1, scenario.subjects + 1) if scenario.regulars else np.ones(max(scenario.subjects, 1))
        self.people = rng.choice(len(shares), size=units, p=shares / shares.sum())

    def rewards(self, at: int | Array, rung: int, treated: bool | Array) -> float | Array:
        """The rewards of units, where they come."""
        scenario = self._scenario
        mean = scenario.level_at(at) + scenario.gain_at(at, rung) * treated
        if scenario.rewards == "clicks":
            return np.less(self._noise[at], mean) * 1.0
        return mean + self._noise[at] + (self._effects[self.people[at]] if scenario.subjects else 0.0)


def _noise(kind: str, n: int, rng: np.random.Generator) -> Array:
    """(n,) with mean 0 and variance 1; uniform in [0, 1) for clicks."""
    match kind:
        case "heavy":
            return rng.standard_t(3, size=n) / np.sqrt(3.0)
        case "skewed":
            spread = 1.0  # of the logarithm: skewness (e + 2)√(e − 1) ≈ 6.2
            values = rng.lognormal(0.0, spread, n)
            return (values - np.exp(0.5)) / np.sqrt((np.e - 1.0) * np.e)
        case "clicks":
            return rng.random(n)
    return rng.standard_normal(n)
