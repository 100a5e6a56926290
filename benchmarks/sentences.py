"""The ten sentences of ``docs/evidence.md``: each claim's figures in words, from the rows that were measured."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Mapping
from typing import Any

Row = dict[str, Any]
FIRST = " where it plays every arm once first"
TEXT = " as the paper's text has it, which hardly tries its arms"


def _one(rows: list[Row], **wanted: Any) -> Row:
    """The row that has these entries."""
    return next(row for row in rows if all(row[key] == value for key, value in wanted.items()))


def _rivals(rows: list[Row]) -> str:
    means = " and ".join(
        f"{row['mean ratio']:.2f}"
        + ("" if row["low"] is None else f" ({row['low']:.2f} to {row['high']:.2f})")
        + f" over {row['cells']} {row['where']}"
        for row in rows
    )
    names = ("cells", "within 1.05", "mean at most 1.05", "surely above 1")
    cells, within, near, lost = (sum(row[name] for row in rows) for name in names)
    return (
        "The default learner's regret is, in the geometric mean over cells, so many times that of the best of eight "
        f"rivals of each cell, all tuned on other seeds: {means}; a cell's mean is at most 1.05 in {near} of {cells}, "
        f"surely above 1 in {lost}, and surely at most 1.05 in {within} (the aim is nine of ten; "
        f"the seeds of a cell are {min(row['seeds'] for row in rows)} or more, and few decide little about one cell)."
    )


def _deconfounding(rows: list[Row]) -> str:
    false = _one(rows, learner="B = 0")
    return (
        "In a world made to show it, whose old policy follows what the log hides, Algorithm 1 that pretends that "
        f"nothing is hidden has {false['times R12 known']:.2g} times the regret of Algorithm 1 told R12 "
        f"({false['minus R12 known']:.0f} more; {false['from']:.0f} to {false['to']:.0f})."
    )


def _recorded_features(rows: list[Row]) -> str:
    cold = [row for row in rows if row["L"] == 0]
    known, asked = _one(rows, L=25, learner="R12 known"), _one(rows, L=25, learner="every round")
    without = " and ".join(
        f"{row['regret']:.1f} ({row['low']:.1f} to {row['high']:.1f})"
        + (FIRST if row["learner"].endswith("first") else TEXT)
        for row in cold
    )
    return (
        f"In the paper's world, with 25 of 30 features recorded, its algorithm has a regret of {known['regret']:.1f} "
        f"({known['low']:.1f} to {known['high']:.1f}) told R12 and {asked['regret']:.1f} ({asked['low']:.1f} to "
        f"{asked['high']:.1f}) estimating it; OFUL without a log has {without}."
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


def _log_memory(rows: list[Row]) -> str:
    return (
        f"{rows[0]['rows']:,} rows are summarized in {rows[0]['peak MB']:.0f} MB of memory, at "
        f"{rows[0]['million rows per second']:.1f} million rows a second (one run)."
    )


SENTENCES: Mapping[str, Callable[[list[Row]], str]] = {
    "rivals": _rivals,
    "deconfounding": _deconfounding,
    "recorded_features": _recorded_features,
    "finite_logs": _finite_logs,
    "calibration": _calibration,
    "coverage": _coverage,
    "verdict_answers": _verdict_answers,
    "verdict_sequences": _verdict_sequences,
    "log_pass": _log_pass,
    "log_memory": _log_memory,
}
