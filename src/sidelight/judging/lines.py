"""The estimate of one policy at one stage (a line), and all lines together (the findings)."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from functools import cached_property
from typing import Any

import numpy as np

from sidelight.errors import InputError
from sidelight.judging.policies import OLD
from sidelight.judging.sensitivity import bias_bound, contour, level_of_each, robustness_value
from sidelight.judging.valuing import Estimate
from sidelight.judging.yardsticks import Benchmark, benchmarks_of
from sidelight.labels import Label, label_to_json, show_labels

__all__ = ["STAGES", "Findings", "Line", "Overlap", "Simpler", "line_of_log", "line_unknown", "stated_strength"]

#: the stages that value a policy before it runs, in the order of the data they need
STAGES = ("log", "answers", "complete")


@dataclass(frozen=True)
class Line:
    """What one stage says about one policy.

    Attributes:
        policy: its name.
        stage: ``"log"``, ``"answers"`` or ``"complete"``.
        value: mean reward for each decision; NaN where it cannot be told.
        gain: ``value`` minus the old policy's.
        low, high: the interval of the gain: sampling, and what hidden features may do at this stage.
        robustness: the share of the unexplained reward and of the choice that hidden features need to overturn the
            sign of the gain (stage ``"log"``); ``None`` elsewhere.
        error: the standard error of the gain.
        hidden: the part of the interval's half-width that is allowed for hidden features.
        rows: the rows behind it.
        note: why it cannot be told, or on what it is conditional; empty otherwise.
        role: ``"old policy"``, ``"arm"``, ``"asked"`` or ``"standard"``.
        arm: the label of a fixed arm.
        size: ``√(E ε² · E α_s²)``.
        together: how many lines the interval holds together with, itself among them: the fixed arms that nobody asked
            for by name are candidates among which the best may be picked; 1 for a policy that was asked for.
    """

    policy: str
    stage: str
    value: float
    gain: float
    low: float
    high: float
    robustness: float | None
    error: float
    hidden: float
    rows: int
    note: str = ""
    role: str = "asked"
    arm: Label | None = None
    size: float = math.nan
    together: int = 1

    @property
    def known(self) -> bool:
        """Whether the policy's gain could be estimated from this stage's data."""
        return math.isfinite(self.gain)

    @property
    def sign(self) -> int:
        """1 if the whole interval lies above zero, −1 if below, 0 if it cannot be told."""
        return 1 if self.low > 0 else -1 if self.high < 0 else 0

    def to_dict(self) -> dict[str, Any]:
        """All attributes but ``size`` in plain JSON values; ``None`` where a number is missing or infinite."""
        numbers = ("value", "gain", "low", "high", "robustness", "error", "hidden")
        found = {name: getattr(self, name) for name in numbers}
        return {
            "policy": self.policy,
            "stage": self.stage,
            **{name: None if v is None or not math.isfinite(v) else v for name, v in found.items()},
            "rows": self.rows,
            "note": self.note,
            "role": self.role,
            "arm": None if self.arm is None else label_to_json(self.arm),
            "together": self.together,
        }


@dataclass(frozen=True)
class Overlap:
    """How far complete rows show what a policy wants to do.

    Attributes:
        policy: its name.
        rows: complete rows.
        matched: those in which the policy would have done what was done.
        effective: how many rows of equal weight those are worth, ``(Σw)²/Σw²``.
        smallest: the smallest chance of the policy's arm, as far as it is known.
        problem: why the rows cannot tell, or empty.
    """

    policy: str
    rows: int
    matched: int
    effective: float
    smallest: float
    problem: str = ""

    def to_dict(self) -> dict[str, Any]:
        """All attributes in plain JSON values."""
        return asdict(self)


@dataclass(frozen=True)
class Simpler:
    """The best fixed arm beside the policy that was asked about.

    Attributes:
        policy: its name   stage: where they are compared.
        difference: what the policy gains over it   low, high: the interval of that, without hidden features.
        scale: the size of a reward; differences below 1e-9 of it are rounding.
    """

    policy: str
    stage: str
    difference: float
    low: float
    high: float
    scale: float = 0.0

    @property
    def as_good(self) -> bool:
        """Whether the policy is not shown to be better than the fixed arm."""
        return not self.low > 0.0

    @property
    def same(self) -> bool:
        """Whether the policy takes that arm everywhere, so that they differ by rounding only."""
        return max(abs(self.low), abs(self.high)) <= 1e-9 * self.scale

    @property
    def better(self) -> bool:
        """Whether the fixed arm is shown to be better than the policy."""
        return self.high < 0.0


def line_of_log(
    name: str,
    role: str,
    estimate: Estimate,
    level: float,
    shares: tuple[float | None, float | None],
    arm: Any = None,
    together: int = 1,
) -> Line:
    """Stage 1 for one policy.

    Args:
        name: what the verdict calls it.
        role: see ``Line``.
        estimate: its short value.
        level: of the interval.
        shares: ``reward_share`` and ``choice_share``, ``None`` where nothing is stated.
        arm: the label of a fixed arm.
        together: see ``Line``.
    """
    if estimate.problem is not None:
        return line_unknown(name, "log", role, estimate.rows, estimate.problem, arm, together)
    level = level_of_each(level, together)
    half = estimate.half(level)
    strength = stated_strength(shares)
    hidden = strength * estimate.size if strength else 0.0
    gain, (low, high) = estimate.gain, estimate.bounds(level, strength)
    robustness = robustness_value(max(0.0, abs(gain) - half), estimate.size)
    return Line(
        name,
        "log",
        estimate.value,
        gain,
        low,
        high,
        robustness,
        estimate.error,
        hidden,
        estimate.rows,
        role=role,
        arm=arm,
        size=estimate.size,
        together=together,
    )


def stated_strength(shares: tuple[float | None, float | None]) -> float:
    """``C_Y C_D`` of stated shares: 0 if none is stated; without a limit on the choice there is no bound."""
    reward, choice = shares
    if reward is None and choice is None:
        return 0.0
    return bias_bound(1.0, 1.0 if reward is None else reward, 1.0 if choice is None else choice)


def line_unknown(name: str, stage: str, role: str, rows: int, why: str, arm: Any = None, together: int = 1) -> Line:
    """The line of a policy whose value a stage cannot estimate; ``why`` becomes its note."""
    nan = math.nan
    why = why.removesuffix(".")
    note = why if "cannot tell" in why else f"cannot be told: {why}"
    return Line(name, stage, nan, nan, -math.inf, math.inf, None, nan, nan, rows, note, role, arm, together=together)


@dataclass(frozen=True)
class Findings:
    """What was found about every policy at every stage.

    Attributes:
        lines: one for each policy and stage.
        headline: the policy that the sentence is about.
        level: of the intervals.
        reward_share, choice_share: the strength of hidden features that was stated, or ``None``.
        rows: of the log.
        source: what the log was read from.
        reward: the name of the reward column.
        simpler: the best fixed arm beside the headline, where the log's rows could be compared.
        word: gain of the arm that the log's regressions favour in each context, not cross-fitted; NaN if unknown.
        assumptions: what must hold, stage by stage.
        warnings: what should not be overlooked.
        estimates: policy → its short value.
        overlaps: how far complete rows show what each policy wants to do.
        picked: among how many fixed arms the headline was picked because it looks best; 0 if it was asked for.
    """

    lines: tuple[Line, ...]
    headline: str
    level: float
    reward_share: float | None
    choice_share: float | None
    rows: int
    source: str
    reward: str
    simpler: Simpler | None = None
    word: float = math.nan
    assumptions: tuple[str, ...] = ()
    warnings: tuple[str, ...] = ()
    estimates: Mapping[str, Estimate] = field(default_factory=dict, repr=False)
    overlaps: tuple[Overlap, ...] = ()
    picked: int = 0

    @cached_property
    def yardsticks(self) -> tuple[Benchmark, ...]:
        """The benchmarks of the headline, the most dangerous first."""
        return self.benchmarks_of(self.headline)

    def benchmarks_of(self, policy: str) -> tuple[Benchmark, ...]:
        """Every recorded feature as a yardstick for one policy of the stage ``"log"``."""
        line = self.line(policy, "log")
        if policy not in self.estimates:
            return ()
        estimate = self.estimates[policy]
        margin = abs(line.gain) - self.half_of(policy) if line.known else 0.0
        return benchmarks_of(estimate, max(0.0, margin))

    def half_of(self, policy: str) -> float:
        """Half the width of the sampling interval of a policy that has a short value."""
        return self.estimates[policy].half(level_of_each(self.level, self.line(policy, "log").together))

    def line(self, policy: str, stage: str | None = None) -> Line:
        """What a stage says about a policy; by default the last stage that does.

        Raises:
            InputError: there is no such policy or stage in this verdict.
        """
        found = [line for line in self.lines if line.policy == policy and stage in (None, line.stage)]
        if not found:
            names = list(dict.fromkeys(line.policy for line in self.lines))
            raise InputError(
                f"there is nothing about {policy!r} at stage {stage!r}; there are {show_labels(names, 20)}."
            )
        return max(found, key=lambda line: (line.known, STAGES.index(line.stage)))

    def stages_of(self, policy: str) -> list[Line]:
        """The lines of a policy in the order of the stages."""
        return sorted((line for line in self.lines if line.policy == policy), key=lambda li: STAGES.index(li.stage))

    def contour(self, policy: str | None = None, steps: int = 50) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """How far from zero the gain stays over a grid of ``reward_share`` and ``choice_share``.

        Args:
            policy: the headline if ``None``.
            steps: points along each axis.

        Returns:
            The reward shares (steps,), the choice shares (steps,), and (steps, steps) the bound of ``|gain|``: negative
            where hidden features of that strength overturn the sign.
        """
        name = self.headline if policy is None else policy
        line = self.line(name, "log")
        if not line.known or name not in self.estimates:
            raise InputError(f"there is no contour of {name!r}: {line.note or 'the old policy is the reference'}.")
        estimate = self.estimates[name]
        return contour(estimate.gain, self.half_of(name), estimate.size, steps)

    @property
    def old(self) -> Line:
        """The old policy's line."""
        return self.line(OLD, "log")
