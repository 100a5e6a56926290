"""What a log is worth and what is wrong with it, in numbers and in sentences."""

from __future__ import annotations

import os
from dataclasses import asdict, dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from sidelight.errors import InputError
from sidelight.files import write_atomically
from sidelight.labels import counted, label_to_json, show_labels
from sidelight.logs.diagnosis.diagnosis_page import html_page, notebook_card, terminal_page
from sidelight.logs.diagnosis.findings import ArmReport, Difference, Findings
from sidelight.logs.diagnosis.leaks import leak_warning
from sidelight.logs.diagnosis.worth import hidden_share, worth_in_rounds
from sidelight.logs.reduce.moments import triangular_factor
from sidelight.logs.regressions import ArmRegressions

if TYPE_CHECKING:
    from rich.console import RenderableType

__all__ = ["ArmReport", "Diagnosis", "Difference", "skipped_warning"]

# Condition number above which the last digits of a coefficient are noise; it gives a warning, not an error.
_ILL_CONDITIONED = 1e7


@dataclass(frozen=True, repr=False)
class Diagnosis(Findings):
    """What a log is worth and what is wrong with it; prints as a page.

    Attributes:
        rows_read: rows in the source.
        rows_used: rows the summary is made of.
        skipped: reason → rows.
        arms: a report for each arm.
        n_features: ``d``.
        n_recorded: ``L``.
        recorded: names of the recorded columns.
        hidden: names of the hidden columns.
        to_drop: a smallest set of columns to leave out so that every arm with enough rows is determined.
        residual_variance: ``s²`` over all arms.
        difference: how strongly the arms' regressions differ, ``None`` where fewer than two can be compared.
        queries: after how many answers of the old policy more add little, because the log itself is then the larger
            source of error: least and most; equal where the hidden features' share of the residual variance is told
            or measured.
        worth: between how many and how many online rounds this log is worth, and what that assumes.
        effective_rows: (K,) rows that the logged propensities leave of each arm, ``(Σ1/p)²/Σ1/p²``, or ``None``.
        warnings: sentences about what is wrong.

    Examples:
        >>> import numpy as np, sidelight as sl
        >>> world = sl.worlds.ConfoundedWorld(seed=0)
        >>> log = world.sample_log(5_000, recorded=6, rng=np.random.default_rng(0))
        >>> diagnosis = sl.summarize_log(log, world.schema(6)).diagnose()
        >>> diagnosis.rows_used, diagnosis.n_recorded, len(diagnosis.hidden)
        (5000, 6, 4)
    """

    @classmethod
    def of(
        cls, summary: ArmRegressions, noise: float | None = None, complete: ArmRegressions | None = None
    ) -> Diagnosis:
        """Diagnose a summary.

        Args:
            summary: the log.
            noise: the standard deviation ``σ`` of a reward given the full context, if it is known.
            complete: a summary of rows that have every feature, hidden ones too: what is hidden is then measured.
        """
        if noise is not None and not (np.isfinite(noise) and noise > 0):
            raise InputError(f"noise={noise} must be a positive standard deviation.")
        names = summary.schema.encoded_names
        skipped_rows = sum(summary.skipped.values())
        reports = tuple(
            ArmReport(
                label,
                int(summary.counts[a]),
                float(summary.shares[a]),
                bool(summary.determined[a]),
                float(summary.conditions[a]),
                float(summary.residual_variances[a]),
                summary.collinear_features(label) if summary.counts[a] >= summary.n_recorded else (),
            )
            for a, label in enumerate(summary.arms)
        )
        to_drop = summary.columns_to_drop()
        worth, leak = worth_in_rounds(summary, noise, complete=complete), leak_warning(summary)
        if leak:  # the reward itself is among the columns: no number that rests on them means anything
            worth = replace(worth, known=False, assumption=leak[0])
        effective = None
        if summary.propensities is not None:
            sums = summary.propensities
            effective = tuple((sums[:, 1] ** 2 / np.maximum(sums[:, 2], 1e-300)).tolist())
        return cls(
            summary.n_rows + skipped_rows,
            summary.n_rows,
            dict(summary.skipped),
            reports,
            summary.n_features,
            summary.n_recorded,
            summary.schema.recorded_names,
            tuple(names[i] for i in summary.hidden),
            to_drop,
            summary.pooled_residual_variance,
            difference_of_regressions(summary),
            queries_needed(summary, noise, complete),
            worth,
            effective,
            (*leak, *_warnings(summary, to_drop)),
        )

    def to_dict(self) -> dict[str, Any]:
        """Everything as plain values for JSON; an infinite condition number is ``None``."""
        described = asdict(self)
        described["arms"] = [
            {
                **asdict(report),
                "arm": label_to_json(report.arm),
                "condition": report.condition if np.isfinite(report.condition) else None,
                "collinear": list(report.collinear),
            }
            for report in self.arms
        ]
        for name in ("recorded", "hidden", "to_drop", "warnings", "effective_rows"):
            if described[name] is not None:
                described[name] = list(described[name])
        described["queries"] = list(self.queries)
        described["worth"]["hidden_share"] = list(self.worth.hidden_share)
        if not self.worth.known:
            described["worth"] |= {"low": None, "high": None}
        described["smallest_arm"] = label_to_json(self.smallest.arm)
        described["sentence"] = self.sentence
        return described

    def to_html(self, path: str | os.PathLike[str] | None = None) -> str:
        """The page as HTML, also written to ``path`` if there is one."""
        text = html_page(self)
        if path is not None:
            write_atomically(path, text.encode())
        return text

    def __rich__(self) -> RenderableType:
        return terminal_page(self)

    def __str__(self) -> str:
        from rich.console import Console

        console = Console(width=100, no_color=True, highlight=False, force_terminal=False)
        with console.capture() as captured:
            console.print(self)
        return captured.get()

    def __repr__(self) -> str:
        return f"Diagnosis({counted(self.rows_used, 'row')}, {counted(len(self.arms), 'arm')}: {self.sentence!r})"

    def _repr_html_(self) -> str:
        return notebook_card(self)


def difference_of_regressions(summary: ArmRegressions) -> Difference | None:
    """How strongly the arms' regressions differ.

    ``Q`` is the sum of squares by which one common regression fits worse than the arms' own: with ``[R_a | z_a]`` the
    first ``L`` rows of the factors, the squared residual of the least-squares problem ``R_a b ≈ z_a`` of all arms, each
    divided by ``s_a``.
    """
    from scipy.special import chdtrc  # imported here: it takes a third of a second to load

    L = summary.n_recorded
    arms = np.flatnonzero(summary.determined & (summary.residual_variances > 0))
    if len(arms) < 2 or L == 0:
        return None
    deviations = np.sqrt(summary.residual_variances[arms])
    stacked = np.concatenate(
        [summary.factors[arm, :L, :] / deviation for arm, deviation in zip(arms, deviations, strict=True)]
    )
    statistic = float(triangular_factor(stacked)[L, L] ** 2)
    degrees = (len(arms) - 1) * L
    beyond = max(0.0, 1.0 - degrees / statistic) if statistic > 0 else 0.0
    return Difference(statistic, degrees, beyond, float(chdtrc(degrees, statistic)), len(arms))


def queries_needed(
    summary: ArmRegressions, noise: float | None = None, complete: ArmRegressions | None = None
) -> tuple[int, int]:
    """Answers of the old policy after which ``B̂`` adds as much error to ``b − M̂w`` as the log itself, least and most.

    ``τ²A⁻¹ = s²G⁻¹`` when the Gram matrix of the answers is ``A = (τ²/s²) G``; answers fall on the arms as the log's
    rows do, so that takes ``(τ²/s²)`` times the log's rows. After that, more rows would help more than more answers.
    """
    least, most = hidden_share(summary, noise, complete)[0]
    return int(np.ceil(least * summary.n_rows)), int(np.ceil(most * summary.n_rows))


def _has_constant(summary: ArmRegressions) -> bool:
    """Whether a linear combination of the recorded columns is constant: regressing 1 on them leaves no residual.

    ``1 − E[x]ᵀE[xxᵀ]⁺E[x]`` is the mean squared residual of that regression.
    """
    n = summary.n_rows
    if n == 0 or summary.n_recorded == 0:
        return n == 0
    mean = summary.counts @ summary.means / n
    moments = summary.grams.sum(axis=0) / n
    scale = np.sqrt(np.where(np.diag(moments) > 0, np.diag(moments), 1.0))
    inverse = np.linalg.pinv(moments / np.outer(scale, scale), rcond=1e-10, hermitian=True)
    return bool(1.0 - mean / scale @ inverse @ (mean / scale) < 1e-6)


def _warnings(summary: ArmRegressions, to_drop: tuple[str, ...]) -> list[str]:
    L = summary.n_recorded
    warnings = []
    absent = [label for label, n in zip(summary.arms, summary.counts, strict=True) if n == 0]
    few = [label for label, n in zip(summary.arms, summary.counts, strict=True) if 0 < n < L]
    thin = [label for label, n in zip(summary.arms, summary.counts, strict=True) if L <= n < 10 * L]
    if absent:
        warnings.append(f"No rows for {show_labels(absent)}: the log says nothing about what it never tried.")
    if few:
        warnings.append(
            f"Fewer rows than the {L} recorded columns for {show_labels(few)}: no unique coefficients there. Fused "
            "learners use what there is; the hard constraint cannot."
        )
    if thin:
        warnings.append(
            f"Fewer than ten rows per recorded column for {show_labels(thin)}: a hard constraint would keep their "
            "error forever; use a fused learner."
        )
    if not _has_constant(summary):
        warnings.append(
            "There is no constant feature, so a reward is taken to be 0 where all features are. Unless that is meant, "
            "add one: intercept=True, or --intercept."
        )
    if to_drop:
        warnings.append(
            f"In some arm recorded columns repeat others, or are constant. Without {show_labels(to_drop)} every arm's "
            "coefficients are unique; fused learners can keep them."
        )
    bad = summary.determined & (summary.conditions > _ILL_CONDITIONED)
    if bad.any():
        labels = [label for label, is_bad in zip(summary.arms, bad, strict=True) if is_bad]
        warnings.append(
            f"Nearly collinear columns for {show_labels(labels)} (condition {summary.conditions[bad].max():.0e}): "
            "single coefficients there mean little, their sum does."
        )
    warnings += skipped_warning(sum(summary.skipped.values()), summary.n_rows)
    if summary.n_recorded == summary.n_features:
        warnings.append("Every feature is recorded: nothing is hidden, and the log alone fixes each arm.")
    return warnings


def skipped_warning(skipped: int, used: int) -> list[str]:
    """One sentence about skipped rows, in a list; an empty list if none were skipped."""
    if not skipped:
        return []
    return [
        f"{skipped / (skipped + used):.1%} of the rows were skipped. If whether a value is missing depends on the arm "
        "or the reward, the remaining rows are a biased sample of the log."
    ]
