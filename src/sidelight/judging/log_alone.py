"""Stage 1, the log alone: every fixed arm, the policy that the log suggests, and functions of recorded columns."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from sidelight.errors import InputError, InvalidRowsError
from sidelight.judging.extrapolation import Untried, extrapolated
from sidelight.judging.lines import Line, Overlap, Simpler, line_of_log, line_unknown
from sidelight.judging.log_rows import LogRows, Valued
from sidelight.judging.policies import BEST, OLD, Requested, requested
from sidelight.judging.population import Population
from sidelight.judging.row_sums import Residuals, Sample
from sidelight.judging.scarcity import NORMAL, kurtosis_of_rates
from sidelight.judging.sensitivity import level_of_each
from sidelight.judging.valuing import Estimate, combined, of_fixed
from sidelight.judging.verdict import Verdict
from sidelight.labels import Label, counted
from sidelight.logs.diagnosis.diagnosis import skipped_warning
from sidelight.logs.diagnosis.leaks import leak_warning
from sidelight.logs.schema.schema import Schema
from sidelight.logs.summary import LogSummary

__all__ = ["Found", "Settings", "always", "of_rows", "of_summaries"]


@dataclass(frozen=True)
class Settings:
    """Level of the intervals, and the stated upper bounds on the strength of hidden features."""

    level: float
    reward_share: float | None
    choice_share: float | None

    def __post_init__(self) -> None:
        if not 0.5 <= self.level < 1.0:
            raise InputError(f"level={self.level!r} must lie between 0.5 and 1, such as 0.95.")

    @property
    def shares(self) -> tuple[float | None, float | None]:
        """``reward_share`` and ``choice_share``."""
        return self.reward_share, self.choice_share


@dataclass
class Found:
    """The results of stage 1, to which the later stages add theirs.

    Attributes:
        settings: level and stated shares.
        eras: of the log, each with its schema, the largest first.
        residuals: of each era.
        policies: every policy that has a line, by name.
        estimates: policy → its short value, where it has one.
        lines: so far.
        headline, source, reward, simpler, word, assumptions, warnings, picked: see ``Findings``.
    """

    settings: Settings
    eras: list[tuple[Schema, Population]]
    residuals: list[Residuals]
    policies: dict[str, Requested]
    estimates: dict[str, Estimate]
    lines: list[Line]
    headline: str
    source: str
    reward: str
    simpler: Simpler | None
    word: float
    assumptions: list[str]
    warnings: list[str]
    overlaps: list[Overlap] = field(default_factory=list)
    picked: int = 0

    @property
    def arms(self) -> tuple[Label, ...]:
        """The labels of the log's arms."""
        return self.eras[0][1].arms

    def verdict(self) -> Verdict:
        """The results of all stages as a ``Verdict``."""
        rows = sum(population.n_rows for _, population in self.eras)
        return Verdict(
            tuple(self.lines),
            self.headline,
            self.settings.level,
            self.settings.reward_share,
            self.settings.choice_share,
            rows,
            self.source,
            self.reward,
            self.simpler,
            self.word,
            tuple(self.assumptions),
            tuple(self.warnings),
            self.estimates,
            tuple(self.overlaps),
            self.picked,
        )


def always(arm: Label) -> str:
    """The name of a fixed arm as a policy."""
    return f"always {arm}"


def _check(populations: Sequence[Population], reward: str) -> tuple[Label, ...]:
    arms = populations[0].arms
    used = [a for i, a in enumerate(arms) if sum(int(p.counts[i]) for p in populations) > 0]
    if len(used) < 2:
        raise InputError(
            f"the log has one arm only ({used[0]!r}): there is nothing that it could be compared with. A verdict needs "
            "rows of at least two arms."
        )
    largest = max(float(abs(p.factors[:, :, -1]).max()) for p in populations)
    if largest > 1e150 or 0.0 < largest < 1e-140:
        raise InvalidRowsError(
            f"the rewards in {reward!r} are of the size {largest:.0e}: their squares do not fit a number. Give them in "
            "another unit."
        )
    if all(p.reward_variance == 0.0 for p in populations) and len({p.value for p in populations}) == 1:
        raise InvalidRowsError(
            f"the reward column {reward!r} is {populations[0].value:g} in every row: no policy can be told from "
            "another by it. Is it the right column?"
        )
    return arms


def _old_line(populations: Sequence[Population]) -> Line:
    rows = sum(p.n_rows for p in populations)
    value = sum(p.value * p.n_rows for p in populations) / rows
    return Line(OLD, "log", value, 0.0, 0.0, 0.0, None, 0.0, 0.0, rows, role="old policy")


def _arm_estimates(
    residuals: Sequence[Residuals], arms: Sequence[Label], samples: Sequence[Sample | None]
) -> dict[Label, Estimate]:
    parts = list(zip(residuals, samples, strict=True))
    return {arm: combined([of_fixed(r.population, a, r, s) for r, s in parts]) for a, arm in enumerate(arms)}


def _best_arm(estimates: Mapping[Label, Estimate]) -> Label | None:
    known = {arm: estimate.value for arm, estimate in estimates.items() if estimate.problem is None}
    return max(known, key=lambda arm: known[arm]) if known else None


def _arm_lines(estimates: Mapping[Label, Estimate], settings: Settings, named: set[Label]) -> list[Line]:
    """A line for every arm; those that nobody asked for by name are candidates, whose intervals hold together."""
    together = len(estimates)
    return [
        line_of_log(always(arm), "arm", estimate, settings.level, settings.shares, arm, 1 if arm in named else together)
        for arm, estimate in estimates.items()
    ]


def _log_assumes(settings: Settings) -> str:
    hidden = "hidden features are no stronger than stated"
    if settings.shares == (None, None):
        hidden = "the old policy looked at nothing that matters for the reward and is not in the log"
    return (
        f"The log alone: {hidden}; under each arm the reward goes up or down in a straight line with every feature; "
        "those who will be decided about are like those in the log; rows do not depend on each other (where persons "
        "come again, keep one row of each: otherwise intervals are too narrow)."
    )


def _kurtosis(summary: LogSummary, population: Population) -> float:
    """The kurtosis assumed if only sums of residuals are known: that of the rate for 0 and 1 rewards, else normal."""
    return kurtosis_of_rates(population.value) if summary.binary_rewards else NORMAL


def of_summaries(log: Any, policies: Any, settings: Settings) -> Found:
    """Stage 1 from a summary, or from one for each era: fixed arms alone."""
    given = {None: log} if isinstance(log, LogSummary) else dict(log)
    found = {key: (summary, Population.of(summary)) for key, summary in given.items()}
    judged = {key: pair for key, pair in found.items() if pair[1].can_judge} or found
    left_out = {key: population.n_rows for key, (_, population) in found.items() if key not in judged}
    summaries, populations = [pair[0] for pair in judged.values()], [pair[1] for pair in judged.values()]
    reward = summaries[0].schema.reward
    arms = _check(populations, reward)
    if any(population.arms != arms for population in populations):
        raise InputError(
            "these summaries have different arms: summarize_eras gives eras the same arms in the same order."
        )
    residuals = [
        Residuals.constant(population, _kurtosis(summary, population))
        if summary.meat is None or not summary.schema.intercept
        else Residuals.of_meat(population, summary.meat, _kurtosis(summary, population))
        for population, summary in zip(populations, summaries, strict=True)
    ]
    by_arm = _arm_estimates(residuals, arms, [None] * len(residuals))
    asked = requested(policies, arms)
    named = {policy.rule for policy in asked if policy.kind == "arm"}
    lines = [_old_line(populations), *_arm_lines(by_arm, settings, named)]
    rows = sum(population.n_rows for population in populations)
    for policy in asked:
        if policy.kind in ("function", "learner"):
            why = "a summary tells of fixed arms alone; give the rows of the log"
            lines.append(line_unknown(policy.name, "log", "asked", rows, why))
    best = _best_arm(by_arm)
    chosen = next((always(policy.rule) for policy in asked if policy.kind == "arm"), None)
    headline = chosen or (always(best) if best is not None else OLD)
    assumptions = [
        _log_assumes(settings),
        "Overlap: the old policy tried every arm on all kinds of contexts (a summary cannot show it; rows can).",
    ]
    if any(summary.meat is None for summary in summaries):
        assumptions.append("Sampling: the noise of each arm is constant (rows, or sandwich=True, would not need that).")
    skipped = sum(sum(summary.skipped.values()) for summary in summaries)
    source = "a summary" if isinstance(log, LogSummary) else counted(len(summaries), "era")
    estimates = {always(arm): estimate for arm, estimate in by_arm.items()}
    return Found(
        settings,
        [(summary.schema, population) for summary, population in zip(summaries, populations, strict=True)],
        residuals,
        {always(arm): Requested(always(arm), "arm", arm) for arm in arms} | {policy.name: policy for policy in asked},
        estimates,
        lines,
        headline,
        source,
        reward,
        None,
        math.nan,
        assumptions,
        [
            *leak_warning(*summaries),
            *skipped_warning(skipped, rows),
            *_without(left_out, rows),
            *extrapolated(estimates, headline),
        ],
        picked=0 if chosen is not None or best is None else len(arms),
    )


_WORD = "the log at its word"


def of_rows(rows: LogRows, policies: Any, settings: Settings) -> Found:
    """Stage 1 from the rows of a log."""
    populations = [era.whole for era in rows.eras]
    reward = rows.eras[0].summary.schema.reward
    arms = _check(populations, reward)
    asked = requested(policies, arms)
    constant = [Residuals.constant(p) for p in populations]
    best = _best_arm(_arm_estimates(constant, arms, [None] * len(constant)))
    reference = None if best is None else arms.index(best)
    suggests = next((policy for policy in asked if policy.kind == "best"), Requested(BEST, "best"))
    judged = [policy for policy in asked if policy.kind == "function"] + [suggests, Requested(_WORD, "word")]
    valued = rows.second_pass(judged, reference)
    by_arm = _arm_estimates(valued.residuals, arms, valued.samples)
    untried = Untried(valued.samples, [p.n_rows for p in populations], arms, [p.names for p in populations])
    by_arm = {arm: untried.said(one, [a] * len(populations)) for a, (arm, one) in enumerate(by_arm.items())}
    estimates = {always(arm): estimate for arm, estimate in by_arm.items()}
    arms_named = {policy.rule for policy in asked if policy.kind == "arm"}
    lines = [_old_line(populations), *_arm_lines(by_arm, settings, arms_named)]
    n = sum(population.n_rows for population in populations)
    named = {policy.name for policy in asked}
    for policy in (*asked, *(() if suggests.name in named else (suggests,))):
        role = "asked" if policy.name in named else "standard"
        if policy.kind == "learner":
            why = "it looks at all features, and the log lacks some; give complete rows"
            lines.append(line_unknown(policy.name, "log", role, n, why))
        elif policy.kind == "arm":
            if policy.name != always(policy.rule):
                estimates[policy.name] = by_arm[policy.rule]
                own = line_of_log(policy.name, role, by_arm[policy.rule], settings.level, settings.shares, policy.rule)
                lines.append(own)
        else:
            # the choices of "best" in the sample are not kept; those of the regressions on all rows are close to them
            choices = valued.taken(_WORD if policy.kind == "best" else policy.name)
            estimates[policy.name] = untried.said(valued.estimate(policy.name), choices)
            lines.append(line_of_log(policy.name, role, estimates[policy.name], settings.level, settings.shares))
    headline = asked[0].name if asked else suggests.name
    word = valued.estimate(_WORD)
    return Found(
        settings,
        [(era.summary.schema, era.whole) for era in rows.eras],
        valued.residuals,
        {always(arm): Requested(always(arm), "arm", arm) for arm in arms}
        | {policy.name: policy for policy in (*asked, suggests)},
        estimates,
        lines,
        headline,
        rows.name,
        reward,
        _simpler(headline, asked, valued, best, level_of_each(settings.level, len(arms))),
        word.gain,
        [_log_assumes(settings)],
        [
            *leak_warning(*(era.summary for era in rows.eras)),
            *skipped_warning(rows.skipped, n),
            *_without(rows.left_out, n),
            *_warnings(by_arm),
            *extrapolated(estimates, headline),
        ],
    )


def _simpler(
    headline: str, asked: Sequence[Requested], valued: Valued, best: Label | None, level: float
) -> Simpler | None:
    """The comparison of the headline with the fixed arm that looks best; ``level`` allows for that choice."""
    kind = next((policy.kind for policy in asked if policy.name == headline), "best")
    if best is None or kind not in ("best", "function"):
        return None
    against = valued.estimate(headline, against_reference=True)
    if against.problem is not None:
        return None
    half = against.half(level)
    scale = max(population.reward_squares for population, _ in against.parts) ** 0.5
    return Simpler(always(best), "log", against.gain, against.gain - half, against.gain + half, scale)


def _without(left_out: Mapping[Any, int], rows: int) -> list[str]:
    """A warning about eras in which no arm has enough rows; ``rows`` are those of the other eras."""
    if not left_out:
        return []
    without = sum(left_out.values())
    eras = "1 era has" if len(left_out) == 1 else f"{len(left_out)} eras have"
    return [
        f"{eras} too few rows of every arm to be judged by: {without:,} of {rows + without:,} rows are left out, and "
        "what is said holds for contexts like those of the others."
    ]


def _warnings(by_arm: Mapping[Label, Estimate]) -> list[str]:
    unknown = [arm for arm, estimate in by_arm.items() if estimate.problem is not None]
    return [f"{len(unknown)} of {len(by_arm)} arms cannot be judged: {by_arm[unknown[0]].problem}."] if unknown else []
