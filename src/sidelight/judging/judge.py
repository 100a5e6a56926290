"""``judge``: what policies would be worth, from a log, answers of the old policy, and complete rows."""

from __future__ import annotations

import math
import os
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from sidelight.errors import InputError, SchemaError, SidelightError
from sidelight.hidden.protocol import HiddenEstimator
from sidelight.judging.answer_rows import Answers
from sidelight.judging.answers import ToldBy, line_of_answers, other_population
from sidelight.judging.complete import line_of_complete
from sidelight.judging.complete_rows import CompleteRows, read_complete
from sidelight.judging.doubly_robust import Doubly, Valuation
from sidelight.judging.lines import Simpler
from sidelight.judging.log_alone import Found, Settings, always, of_rows, of_summaries
from sidelight.judging.log_rows import LogRows
from sidelight.judging.policies import BEST, OLD
from sidelight.judging.sensitivity import level_of_each, quantile
from sidelight.judging.verdict import Verdict
from sidelight.logs.schema.features import Category
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
    pilot: bool = False,
) -> Verdict:
    """What policies would be worth, and how sure that is, before anyone lets a learner act.

    Every fixed arm and the policy that the log suggests are always judged; ``policies`` adds others.

    Args:
        log: rows as for ``summarize_log``; or a :class:`LogSummary` or a mapping of eras to summaries, which are
            enough for fixed arms only. A constant feature is always added.
        schema: which columns are what; a summary has its own.
        answers: an estimator of the hidden half that has seen answers of the old policy; or rows with every feature
            and, as the arm, what the old policy would do there.
        complete: rows with every feature, arm, reward, and propensity if known.
        policies: ``"best"`` (in each context the arm with the largest regression, chosen on one half of the rows and
            valued on the other), an arm, a function of recorded columns that returns arms, several of these, or a
            mapping from name to policy. With complete rows also a learner or a function of all features.
        reward_share: upper bound (0 to 1) on the share of the unexplained reward variance that hidden features explain.
        choice_share: upper bound (0 to 1) on the share of the old policy's choice that they explain.
        level: of the intervals.
        by: ``"missing"`` or a column's name if the log has eras, as for ``summarize_eras``.
        on_invalid: ``"raise"`` or ``"skip"``, as for ``summarize_log``.
        progress: as for ``summarize_log``.
        pilot: the complete rows do not come from the old policy (a pilot with random arms): gains are then measured
            against the mean reward of the log.

    Returns:
        A :class:`Verdict`; for a policy whose value cannot be estimated it says why, and gives no number.

    Raises:
        InputError: shares or level out of range, only one arm, or something that is not a policy.
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
    settings = Settings(level, _share("reward_share", reward_share), _share("choice_share", choice_share))
    if isinstance(log, LogSummary) or (
        isinstance(log, Mapping) and log and all(isinstance(entry, LogSummary) for entry in log.values())
    ):
        found = of_summaries(log, policies, settings)
    else:
        if schema is None:
            raise InputError("judge needs a schema that says what the columns of the log are: judge(log, schema).")
        if not isinstance(schema, Schema):
            raise SchemaError(f"the schema must be a Schema, not {type(schema).__name__}.")
        found = of_rows(LogRows(log, schema, by, on_invalid, progress), policies, settings)
    if answers is not None:
        whole = found.eras[0][0] if schema is None else schema
        _add_answers(found, _answers(answers, whole, found, on_invalid))
    if complete is not None:
        whole = found.eras[0][0] if schema is None else schema
        own = _same_rows(log, complete)
        _add_complete(found, read_complete(complete, whole, found.arms, on_invalid), pilot, own)
    return found.verdict()


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


_ANSWERS_ASSUME = (
    "With answers: under each arm the reward goes up or down in a straight line with every feature, the hidden ones "
    "included; log and answers are about the same people and the same old policy; contexts were asked about with the "
    "stated probability."
)


def _answers(given: Any, schema: Schema, found: Found, on_invalid: str) -> Answers:
    if isinstance(given, HiddenEstimator):
        return Answers.of(given, found.arms)
    try:
        known = _as_in_log(schema, found.eras[0][0])
        return Answers.of_rows(read_complete(given, known, found.arms, on_invalid, rewarded=False))
    except SidelightError as error:
        raise InputError(
            "answers= takes an estimator that has seen answers of the old policy (BehaviorQueries, "
            f"BehaviorProbabilities), or rows with every feature and the arm that it would take. As rows: {error}"
        ) from error


def _as_in_log(schema: Schema, log: Schema) -> Schema:
    """The schema with the kinds, levels and knots that the log has: those found in other rows may differ."""
    features = {
        feature.name: replace(feature, discovered=False) if isinstance(feature, Category) else feature
        for feature in log.features
        if feature.resolved
    }
    terms = {term.label: term for term in log.derived}
    return schema.with_features(
        [features.get(feature.name, feature) for feature in schema.features],
        [terms.get(term.label, term) for term in schema.derived],
    )


def _add_answers(found: Found, answers: Answers) -> None:
    """Add the lines of stage 2 to ``found``, for every policy that has a short value."""
    schemas, kurtosis = {}, {}
    for (schema, population), residuals in zip(found.eras, found.residuals, strict=True):
        for warning in other_population(answers, schema, population):
            found.warnings.append(f"Answers and log may differ: {warning}.")
        schemas[id(population)], kurtosis[id(population)] = schema, residuals.kurtosis
    for estimate in found.estimates.values():
        # the halves of an era share its schema, and have about its residuals
        for i, (population, _) in enumerate(estimate.parts):
            era = i * len(found.eras) // len(estimate.parts)
            schemas.setdefault(id(population), found.eras[era][0])
            kurtosis.setdefault(id(population), found.residuals[era].kurtosis)
    told = ToldBy(answers, schemas, kurtosis, found.settings.level, found.settings.reward_share)
    for base in [line for line in found.lines if line.policy != OLD]:
        if base.policy in found.estimates:
            policy, estimate = found.policies[base.policy], found.estimates[base.policy]
            found.lines.append(line_of_answers(base, policy, estimate, told))
    found.assumptions.append(_ANSWERS_ASSUME)


_COMPLETE_ASSUME = {
    True: "With complete rows: arms were taken with the stated propensities; ",
    False: "With complete rows: the old policy's choice is a softmax of linear functions of the features (a model that "
    "was fitted, and that nothing here can prove); ",
}
_UNSEEN = {
    True: "a learner did not learn from these rows. They are those of the log, so what the log suggests is again "
    "chosen on one half of them and valued on the other.",
    False: "a learner did not learn from these rows, and they are not among the log's.",
}


def _same_rows(log: Any, complete: Any) -> bool:
    """Whether the complete rows are the log's own: the same object or the same files."""

    def files(source: Any) -> list[str] | None:
        parts = source if isinstance(source, list | tuple) else [source]
        paths = [os.path.realpath(part) for part in parts if isinstance(part, str | os.PathLike)]
        return paths if paths and len(paths) == len(parts) else None

    return complete is log or (files(log) is not None and files(log) == files(complete))


def _add_complete(found: Found, rows: CompleteRows, pilot: bool, own: bool) -> None:
    """Add the lines of stage 3 to ``found``, for every policy; ``own``: the rows are the log's."""
    doubly, level = Doubly(rows), found.settings.level
    against = None
    if pilot:
        n = sum(population.n_rows for _, population in found.eras)
        value = sum(population.value * population.n_rows for _, population in found.eras) / n
        squares = sum(population.reward_squares * population.n_rows for _, population in found.eras) / n
        against = (value, (squares - value * value) / n)
    bases = {line.policy: line for line in found.lines}
    policies = [
        policy if policy.name == name else replace(policy, name=name)
        for name, policy in found.policies.items()
        if name in bases and (policy.kind != "best" or name in found.estimates)
    ]
    schema, whole = found.eras[0]
    cross = next((found.estimates[policy.name].parts[:2] for policy in policies if own and policy.kind == "best"), None)
    populations = (whole,) if cross is None else tuple(half for half, _ in cross)
    valued = doubly.value(policies, (schema, populations))
    for policy in policies:
        line, overlap = line_of_complete(bases[policy.name], doubly, valued, level, against)
        found.lines.append(line)
        if overlap is not None:
            found.overlaps.append(overlap)
    found.assumptions.append(_COMPLETE_ASSUME[doubly.known] + _UNSEEN[own])
    _simpler_with(found, valued)


def _simpler_with(found: Found, valued: Valuation) -> None:
    """Compare the headline with the fixed arm that looks best on the same complete rows."""
    told = {line.policy for line in found.lines if line.stage == "complete" and line.known}
    arms = [always(arm) for arm in found.arms if always(arm) in told]
    kind = found.policies[found.headline].kind if found.headline in found.policies else "arm"
    if not arms or found.headline not in told or kind == "arm":
        return
    best = max(arms, key=valued.value)
    mean, variance = valued.gain(found.headline, best)
    level = level_of_each(found.settings.level, len(found.arms))
    half = quantile(level, valued.rows - 1.0) * math.sqrt(variance)
    scale = max(abs(valued.value(best)), math.sqrt(valued.variance(best) * valued.rows))
    found.simpler = Simpler(best, "complete", mean, mean - half, mean + half, scale)
