"""``judge``: what policies would be worth, from a log, answers of the old policy, and complete rows."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from sidelight.errors import InputError, InvalidRowsError, SchemaError
from sidelight.judging.lines import Line, Simpler, line_of_log, line_unknown
from sidelight.judging.log_rows import LogRows, Valued
from sidelight.judging.policies import BEST, OLD, Requested, requested
from sidelight.judging.population import Population
from sidelight.judging.valuing import Estimate, Residuals, combined, of_fixed
from sidelight.judging.verdict import Verdict
from sidelight.labels import Label
from sidelight.logs.schema.schema import Schema
from sidelight.logs.summary import LogSummary

__all__ = ["judge"]


def judge(
    log: Any,
    schema: Schema | None = None,
    answers: Any = None,
    complete: Any = None,
    policies: Any = BEST,
    reward_share: float | None = None,
    choice_share: float | None = None,
    level: float = 0.95,
    *,
    by: str | None = None,
    on_invalid: str = "raise",
    progress: Any = False,
) -> Verdict:
    """What policies would be worth, and how sure that is, before anyone lets a learner act.

    Every fixed arm and the policy that the log suggests are always judged; ``policies`` adds others.

    Args:
        log: rows as for ``summarize_log``; or a :class:`LogSummary` or a mapping of eras to summaries, which tell of
            fixed arms alone. A constant feature is always added.
        schema: which columns are what; a summary has its own.
        answers: an estimator of the hidden half that has seen answers of the old policy.
        complete: rows with every feature, arm, reward, and propensity if known.
        policies: ``"best"`` (in each context the arm with the largest regression, chosen on one half of the rows and
            valued on the other), an arm, a function of recorded columns that returns arms, several of these, or a
            mapping from name to policy. With complete rows also a learner or a function of all features.
        reward_share: the part of what the log leaves unexplained that is the hidden features' doing, at most (0 to 1).
        choice_share: the part of the choice that is theirs, at most (0 to 1).
        level: of the intervals.
        by: ``"missing"`` or a column's name if the log has eras, as for ``summarize_eras``.
        on_invalid: ``"raise"`` or ``"skip"``, as for ``summarize_log``.
        progress: as for ``summarize_log``.

    Returns:
        A :class:`Verdict`; what cannot be told is said, never guessed.

    Raises:
        InputError: shares or level out of range, one arm only, a policy that is none.
        SchemaError: columns that are not there.
        InvalidRowsError: rows that cannot be used, or rewards that are all equal.

    Examples:
        >>> import numpy as np, sidelight as sl
        >>> rng = np.random.default_rng(0)
        >>> age = rng.normal(60, 8, 4_000)
        >>> arm = np.where(rng.random(4_000) < 0.5, "new", "old")
        >>> log = {"age": age, "arm": arm, "reward": 0.3 * (arm == "new") + 0.01 * age + rng.normal(0, 0.3, 4_000)}
        >>> verdict = sl.judge(log, sl.Schema(["age"], recorded=["age"]), policies="new")
        >>> line = verdict.line("always new")
        >>> 0.1 < line.low < 0.15 < line.high < 0.2, line.robustness > 0.2
        (True, True)
    """
    settings = _Settings(level, _share("reward_share", reward_share), _share("choice_share", choice_share))
    if isinstance(log, LogSummary) or (
        isinstance(log, Mapping) and log and all(isinstance(entry, LogSummary) for entry in log.values())
    ):
        found = _of_summaries(log, policies, settings)
    else:
        if schema is None:
            raise InputError("judge needs a schema that says what the columns of the log are: judge(log, schema).")
        if not isinstance(schema, Schema):
            raise SchemaError(f"the schema must be a Schema, not {type(schema).__name__}.")
        found = _of_rows(LogRows(log, schema, by, on_invalid, progress), policies, settings)
    return found.verdict()


@dataclass(frozen=True)
class _Settings:
    level: float
    reward_share: float | None
    choice_share: float | None

    def __post_init__(self) -> None:
        if not 0.5 <= self.level < 1.0:
            raise InputError(f"level={self.level!r} must lie between 0.5 and 1, such as 0.95.")

    @property
    def shares(self) -> tuple[float | None, float | None]:
        return self.reward_share, self.choice_share


def _share(name: str, value: float | None) -> float | None:
    if value is None:
        return None
    try:
        number = float(value)
    except (TypeError, ValueError):
        number = math.nan
    if not 0.0 <= number <= 1.0:
        raise InputError(f"{name}={value!r} must lie between 0 and 1: it is a share of what is unexplained.")
    return number


@dataclass
class _Found:
    """Stage 1, on which the others build."""

    settings: _Settings
    populations: list[Population]
    policies: list[Requested]
    estimates: dict[str, Estimate]
    lines: list[Line]
    headline: str
    source: str
    reward: str
    simpler: Simpler | None
    word: float
    assumptions: list[str]
    warnings: list[str]

    def verdict(self) -> Verdict:
        rows = sum(population.n_rows for population in self.populations)
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


def _arm_estimates(residuals: Sequence[Residuals], arms: Sequence[Label]) -> dict[Label, Estimate]:
    return {arm: combined([of_fixed(r.population, a, r) for r in residuals]) for a, arm in enumerate(arms)}


def _best_arm(estimates: Mapping[Label, Estimate]) -> Label | None:
    known = {arm: estimate.value for arm, estimate in estimates.items() if estimate.problem is None}
    return max(known, key=lambda arm: known[arm]) if known else None


def _arm_lines(estimates: Mapping[Label, Estimate], settings: _Settings) -> list[Line]:
    return [
        line_of_log(always(arm), "arm", estimate, settings.level, settings.shares, arm)
        for arm, estimate in estimates.items()
    ]


_LOG_ASSUMES = (
    "Log: each arm's reward is linear in the recorded and the hidden features; hidden features are no stronger than "
    "stated; those who will be decided about are like those in the log."
)


def _of_summaries(log: Any, policies: Any, settings: _Settings) -> _Found:
    summaries = [log] if isinstance(log, LogSummary) else list(log.values())
    populations = [Population.of(summary) for summary in summaries]
    reward = summaries[0].schema.reward
    arms = _check(populations, reward)
    if any(population.arms != arms for population in populations):
        raise InputError(
            "these summaries have different arms: summarize_eras gives eras the same arms in the same order."
        )
    residuals = [
        Residuals.constant(population)
        if summary.meat is None or not summary.schema.intercept
        else Residuals.of_meat(population, summary.meat)
        for population, summary in zip(populations, summaries, strict=True)
    ]
    by_arm = _arm_estimates(residuals, arms)
    lines = [_old_line(populations), *_arm_lines(by_arm, settings)]
    asked = requested(policies, arms)
    rows = sum(population.n_rows for population in populations)
    for policy in asked:
        if policy.kind in ("function", "learner"):
            why = "a summary tells of fixed arms alone; give the rows of the log"
            lines.append(line_unknown(policy.name, "log", "asked", rows, why))
    best = _best_arm(by_arm)
    chosen = next((always(policy.rule) for policy in asked if policy.kind == "arm"), None)
    headline = chosen or (always(best) if best is not None else OLD)
    assumptions = [_LOG_ASSUMES]
    if any(summary.meat is None for summary in summaries):
        assumptions.append("Sampling: the noise of each arm is constant (rows, or sandwich=True, would not need that).")
    source = "a summary" if isinstance(log, LogSummary) else f"{len(summaries)} eras"
    estimates = {always(arm): estimate for arm, estimate in by_arm.items()}
    return _Found(
        settings, populations, asked, estimates, lines, headline, source, reward, None, math.nan, assumptions, []
    )


_WORD = "the log at its word"


def _of_rows(rows: LogRows, policies: Any, settings: _Settings) -> _Found:
    populations = [era.whole for era in rows.eras]
    reward = rows.eras[0].summary.schema.reward
    arms = _check(populations, reward)
    asked = requested(policies, arms)
    best = _best_arm(_arm_estimates([Residuals.constant(p) for p in populations], arms))
    reference = None if best is None else arms.index(best)
    suggests = next((policy for policy in asked if policy.kind == "best"), Requested(BEST, "best"))
    judged = [policy for policy in asked if policy.kind == "function"] + [suggests, Requested(_WORD, "word")]
    valued = rows.second_pass(judged, reference)
    by_arm = _arm_estimates(valued.residuals, arms)
    estimates = {always(arm): estimate for arm, estimate in by_arm.items()}
    lines = [_old_line(populations), *_arm_lines(by_arm, settings)]
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
            estimates[policy.name] = valued.estimate(policy.name)
            lines.append(line_of_log(policy.name, role, estimates[policy.name], settings.level, settings.shares))
    headline = asked[0].name if asked else suggests.name
    word = valued.estimate(_WORD)
    return _Found(
        settings,
        populations,
        asked,
        estimates,
        lines,
        headline,
        rows.name,
        reward,
        _simpler(headline, asked, valued, best, settings),
        word.gain,
        [_LOG_ASSUMES],
        _warnings(by_arm),
    )


def _simpler(
    headline: str, asked: Sequence[Requested], valued: Valued, best: Label | None, settings: _Settings
) -> Simpler | None:
    kind = next((policy.kind for policy in asked if policy.name == headline), "best")
    if best is None or kind not in ("best", "function"):
        return None
    against = valued.estimate(headline, against_reference=True)
    if against.problem is not None:
        return None
    half = against.half(settings.level)
    return Simpler(always(best), "log", against.gain, against.gain - half, against.gain + half)


def _warnings(by_arm: Mapping[Label, Estimate]) -> list[str]:
    unknown = [arm for arm, estimate in by_arm.items() if estimate.problem is not None]
    return [f"{len(unknown)} of {len(by_arm)} arms cannot be judged: {by_arm[unknown[0]].problem}."] if unknown else []
