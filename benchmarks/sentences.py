"""The ten sentences of ``docs/evidence.md``: each claim's figures in words, from the rows that were measured."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Mapping
from typing import Any

Row = dict[str, Any]


def _one(rows: list[Row], **wanted: Any) -> Row:
    """The row that has these entries.

    Raises:
        LookupError: there is none.
    """
    found = [row for row in rows if all(row[key] == value for key, value in wanted.items())]
    if not found:
        raise LookupError(f"no row has {wanted}")
    return found[0]


def _rivals(rows: list[Row]) -> str:
    means = ", ".join(
        f"{row['mean ratio']:.2f}"
        + ("" if row["low"] is None else f" ({row['low']:.2f} to {row['high']:.2f})")
        + f" over {row['cells']} {row['where']}"
        for row in rows
    )
    single = ", ".join(f"{row['mean ratio to it']:.2f} ({row['best single rival']})" for row in rows)
    names = ("cells", "within 1.05", "mean at most 1.05", "surely above 1")
    cells, within, near, lost = (sum(row[name] for row in rows) for name in names)
    return (
        "The default learner's regret over that of the best of at least eight rivals, which is picked for each cell "
        f"in hindsight and tuned there on other seeds, is in the geometric mean {means}; over that of the one rival "
        f"that does best if it must be the same in all cells of a kind, {single}. A cell's mean is at most 1.05 in "
        f"{near} of {cells}, surely above 1 in {lost}, and surely at most 1.05 in {within} (the aim is nine of ten; at "
        f"least {min(row['seeds'] for row in rows)} seeds a cell)."
    )


def _deconfounding(rows: list[Row]) -> str:
    false, cold = _one(rows, learner="B = 0"), _one(rows, learner="OFUL")
    return (
        "In a world made to show it, whose old policy follows what the log hides, Algorithm 1 that pretends that "
        f"nothing is hidden has {false['times R12 known']:.2g} times the regret of Algorithm 1 told R12 "
        f"({false['minus R12 known']:.0f} more; {false['from']:.0f} to {false['to']:.0f}), and "
        f"{false['regret'] / cold['regret']:.2g} times that of OFUL without a log."
    )


def _recorded_features(rows: list[Row]) -> str:
    cold, tried = (_one(rows, L=0, learner=name) for name in ("no log", "no log, each arm first"))
    known, asked = _one(rows, L=25, learner="R12 known"), _one(rows, L=25, learner="every round")
    gains, harms = (
        [str(row["L"]) for row in rows if row["learner"] == "every round" and surely(row)]
        for surely in (lambda row: row["high"] < tried["low"], lambda row: row["low"] > tried["high"])
    )
    return (
        f"In the paper's world, with 25 of 30 features recorded, its algorithm has a regret of {_regret(known)} after "
        f"100,000 rounds told R12 and {_regret(asked)} estimating it; OFUL without a log has {_regret(cold)} as the "
        f"paper's text has it, which hardly tries its arms, and {_regret(tried)} if it plays every arm once first, as "
        f"the paper's code does. Against the latter the estimated log surely helps with "
        f"{' or '.join(gains) or 'no number of'} recorded features"
        + (f" and surely does harm with {' or '.join(harms)}." if harms else ", and surely harms with none.")
    )


def _regret(row: Row) -> str:
    """A mean regret with its interval."""
    return f"{row['regret']:,.0f} ({row['low']:,.0f} to {row['high']:,.0f})"


def _finite_logs(rows: list[Row]) -> str:
    hard = _one(rows, learner="R12 known", **{"log rows": 10_000})
    short, long = (_one(rows, learner="FusedOFUL", **{"log rows": size}) for size in (10_000, 1_000_000))

    def gain(row: Row) -> str:
        return f"{row['minus automatic']:+,.0f} ({row['of it from']:+,.0f} to {row['of it to']:+,.0f})"

    return (
        f"A log of 10,000 rows does harm as the paper's hard constraint: regret {hard['minus OFUL']:+,.0f} "
        f"({hard['from']:+,.0f} to {hard['to']:+,.0f}) against the paper's OFUL without a log, of {_cold(rows)}; as "
        f"evidence with an error it changes the regret by {gain(short)} against OFUL with the same automatic prior, "
        f"and a million rows by {gain(long)}."
    )


def _cold(rows: list[Row]) -> str:
    return f"{_one(rows, learner='OFUL')['regret']:,.0f}"


def _calibration(rows: list[Row]) -> str:
    low, high = min(rows, key=lambda row: row["mean"]), max(rows, key=lambda row: row["mean"])
    return (
        f"The squared error that a fused learner makes about a log is, in the mean over {rows[0]['worlds']} worlds "
        f"with normal features, {low['mean']:.2f} ({low['case']}; {low['low']:.2f} to {low['high']:.2f}) to "
        f"{high['mean']:.2f} ({high['case']}; {high['low']:.2f} to {high['high']:.2f}) times the one it claims, in "
        f"{len(rows)} cases; 1 is right and less is cautious. For a single arm it can be "
        f"{max(row['largest'] for row in rows):.0f} times."
    )


def _coverage(rows: list[Row]) -> str:
    row = max((r for r in rows if r["radius"] == "determinant" and r["δ"] == 0.05), key=lambda r: r["missed"])
    return (
        f"Confidence sets with the default radius of the paper's learners fail in at most {row['missed']:.1%} of runs "
        f"({row['low']:.1%} to {row['high']:.1%}; the worse of two worlds) where 5 % are allowed; those of the fused "
        "learner's default have no such guarantee."
    )


def _verdict_answers(rows: list[Row]) -> str:
    least = {stage: min(row[stage] for row in rows) for stage in ("stage 1", "stage 2")}
    return (
        f"The verdict's 95 % intervals hold the truth in at least {least['stage 1']:.1%} of logs from the log "
        f"alone, told how strong hidden features are, and {least['stage 2']:.1%} from answers, in every one of "
        f"{len(rows)} cells; they are wide, and decide the sign in "
        f"{statistics.median(row['decided'] for row in rows):.0%} of logs in the median cell."
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
        f"scikit-learn and DuckDB take {min(others):.1f} to {max(others):.1f} times as long as Sidelight (each the "
        "best of five runs)."
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
