"""The ten sentences of ``docs/evidence.md``: each claim's figures in words, from the rows that were measured."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Mapping
from typing import Any

Row = dict[str, Any]


def _one(rows: list[Row], **wanted: Any) -> Row:
    """The row that has these entries."""
    return next(row for row in rows if all(row[key] == value for key, value in wanted.items()))


def _rivals(rows: list[Row]) -> str:
    zoo, data = _one(rows, where="zoo"), _one(rows, where="data sets")
    return (
        f"Against the best of eight rivals, each tuned on other seeds, the default learner's regret is "
        f"{zoo['mean ratio']:.2f} times theirs in the mean over {zoo['cells']} simulated worlds and "
        f"{data['mean ratio']:.2f} times over {data['cells']} public data sets; the upper end of the 95 % interval "
        "is at "
        f"most 1.05 in {zoo['within 1.05'] + data['within 1.05']} of {zoo['cells'] + data['cells']} (the aim is "
        "nine of "
        f"ten; {zoo['seeds']} to {data['seeds']} seeds make wide intervals)."
    )


def _zoo(rows: list[Row]) -> str:
    all_of = rows[0]
    return (
        f"On honest logs its regret is {all_of['to cold']:.2f} times that of the same learner without the log, in the "
        f"mean over {all_of['cells']} worlds ({all_of['low']:.2f} to {all_of['high']:.2f} over worlds and seeds), and "
        f"{all_of['to best']:.2f} times that of the best of three simple ways to use the log."
    )


def _deconfounding(rows: list[Row]) -> str:
    false = _one(rows, learner="B = 0")
    return (
        f"Pretending that nothing is hidden costs {false['times R12 known']:.2g} times the regret of knowing what is "
        f"({false['minus R12 known']:.0f} more; {false['from']:.0f} to {false['to']:.0f})."
    )


def _recorded_features(rows: list[Row]) -> str:
    cold = min((row for row in rows if row["L"] == 0), key=lambda row: row["regret"])
    known, asked = _one(rows, L=25, learner="R12 known"), _one(rows, L=25, learner="every round")
    return (
        f"In the paper's world, with 25 of 30 features recorded, its algorithm has a regret of {known['regret']:.1f} "
        f"({known['low']:.1f} to {known['high']:.1f}) told R12 and {asked['regret']:.1f} ({asked['low']:.1f} to "
        f"{asked['high']:.1f}) estimating it; the better of two cold starts, one of which plays every arm once first, "
        f"has {cold['regret']:.1f} ({cold['low']:.1f} to {cold['high']:.1f})."
    )


def _finite_logs(rows: list[Row]) -> str:
    short = {"log rows": 10_000}
    hard, soft = (_one(rows, learner=name, **short) for name in ("R12 known", "FusedOFUL"))
    return (
        f"A log of 10,000 rows does harm as the paper's hard constraint (regret {hard['minus OFUL']:+,.0f} against no "
        f"log at all; {hard['from']:+,.0f} to {hard['to']:+,.0f}) and helps as evidence with an error "
        f"({soft['minus OFUL']:+,.0f}; {soft['from']:+,.0f} to {soft['to']:+,.0f})."
    )


def _calibration(rows: list[Row]) -> str:
    one = _one(rows, case="one log, 50,000 rows")
    return (
        f"The squared error that a fused learner makes about a log is {one['mean']:.2f} times the one it claims "
        f"({one['low']:.2f} to {one['high']:.2f}; 1 is right)."
    )


def _coverage(rows: list[Row]) -> str:
    row = max((r for r in rows if r["radius"] == "determinant" and r["δ"] == 0.05), key=lambda r: r["missed"])
    return (
        f"Confidence sets with the default radius of the paper's learners fail in {row['missed']:.1%} of runs "
        f"({row['low']:.1%} to {row['high']:.1%}) where 5 % are allowed."
    )


def _verdict_answers(rows: list[Row]) -> str:
    least = {stage: min(row[stage] for row in rows) for stage in ("stage 1", "stage 2")}
    return (
        f"The verdict's 95 % intervals hold the truth in at least {least['stage 1']:.1%} of logs from the log "
        "alone, told "
        f"how strong hidden features are, and {least['stage 2']:.1%} from answers, in every one of {len(rows)} cells."
    )


def _verdict_sequences(rows: list[Row]) -> str:
    worst = max(rows, key=lambda row: row["false verdicts"])
    return (
        f"A comparison without a difference, looked at after every unit, gives a false verdict in at most "
        f"{worst['false verdicts']:.1%} of runs in {len(rows)} cells (5 % allowed)."
    )


def _log_pass(rows: list[Row]) -> str:
    ours = _one(rows, what="Sidelight")
    others = [r["times Sidelight"] for r in rows if r["what"].startswith(("pandas", "scikit", "DuckDB"))]
    return (
        f"Summarizing a log takes {ours['times reading']:.1f} times as long as reading its columns; pandas, "
        "scikit-learn "
        f"and DuckDB take {min(others):.1f} to {max(others):.1f} times as long as Sidelight (best of five, median "
        f"{statistics.median(others):.1f})."
    )


SENTENCES: Mapping[str, Callable[[list[Row]], str]] = {
    "rivals": _rivals,
    "zoo": _zoo,
    "deconfounding": _deconfounding,
    "recorded_features": _recorded_features,
    "finite_logs": _finite_logs,
    "calibration": _calibration,
    "coverage": _coverage,
    "verdict_answers": _verdict_answers,
    "verdict_sequences": _verdict_sequences,
    "log_pass": _log_pass,
}
