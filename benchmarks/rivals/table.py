"""The table of ``python -m benchmarks.rivals``: in the terminal, and as a page of the docs."""

from __future__ import annotations

import math
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from scipy.stats import t as student

from benchmarks.evidence import machine
from benchmarks.paired import Ratio, ratio
from benchmarks.rivals.data import UNSEEN_DATA, DataCell
from benchmarks.rivals.packages import PACKAGES
from benchmarks.rivals.ridge import in_standard_units
from benchmarks.rivals.runs import EARLY, OURS, RIVALS, AnyCell, Plan, collected, seeds_of
from benchmarks.synthetic import Cell

Array = Any
ROOT = Path(__file__).parents[2]
PAGES = ROOT / "docs" / "measurements"
FEW = 8
"""Seeds below which the page warns of its own intervals."""

UNSEEN = "public data sets that were chosen before anything was run on them"

BAR, WORST = 1.05, 1.10
"""Upper end of the ratio to the best rival: in nine cells of ten, and in all."""


@dataclass(frozen=True)
class Row:
    """A cell: mean regret by name at round 200 and at the end, and the ratio to the best rival of that moment."""

    cell: AnyCell
    seeds: int
    early: dict[str, float]
    end: dict[str, float]
    early_best: str
    best: str
    early_against: Ratio
    against: Ratio
    pairs: Array
    """Regret at the end of the default learner and of the best rival, seed by seed.  (2, seeds)"""

    @property
    def shares(self) -> dict[str, float]:
        """What of the loss against the best rival is the price of what: 1 is all of it."""
        loss = self.end["fused"] - self.end[self.best]
        prices = {"trials and tests against a lying log": "safety off", "having to ask": "R12 known"}
        if loss <= 0.0:
            return {}
        return {what: (self.end["fused"] - self.end[name]) / loss for what, name in prices.items() if name in self.end}


def told(against: Ratio, theirs: float) -> str:
    """A ratio with its interval: none with one seed, and no ratio to a regret of nothing."""
    if theirs <= 0.0:
        return "no ratio: the rival has no regret"
    if not math.isfinite(against.half):
        return f"{against.value:.2f}"
    return f"{against.value:.2f} ({max(against.low, 0.0):.2f} to {against.high:.2f})"


def rows(cells: list[AnyCell], rounds: int, seeds: range | None, state: str) -> list[Row]:
    """A row for each cell that has results, of these seeds or of all (None)."""
    out = []
    for cell in cells:
        records = collected(cell, rounds, seeds_of(cell, rounds, state) if seeds is None else seeds, state)
        if not records:
            continue
        names = [name for name in (*OURS, "floor", *RIVALS, *PACKAGES) if all(name in record for record in records)]
        rivals = [name for name in names if name in RIVALS or name in PACKAGES]
        of = {mark: {n: np.array([r[n][mark] for r in records]) for n in names} for mark in ("early", "end")}
        best = {mark: min(rivals, key=lambda name, mark=mark: of[mark][name].mean()) for mark in of}
        out.append(
            Row(
                cell,
                len(records),
                *({n: float(of[mark][n].mean()) for n in names} for mark in ("early", "end")),
                best["early"],
                best["end"],
                *(ratio(of[mark]["fused"], of[mark][best[mark]]) for mark in ("early", "end")),
                np.array([of["end"]["fused"], of["end"][best["end"]]]),
            )
        )
    return out


def distinct(found: list[Row]) -> list[Row]:
    """Rows that have a ratio, of worlds that differ in units alone (which rivals are told) the one with the largest."""
    out: dict[str, Row] = {}
    for row in found:
        if row.end[row.best] > 0.0:
            key = row.cell.name if isinstance(row.cell, DataCell) else in_standard_units(row.cell).digest
            out[key] = max(out.get(key, row), row, key=lambda row: row.against.value)
    return list(out.values())


def groups(found: list[Row]) -> dict[str, list[Row]]:
    """Distinct rows that have a ratio, by where they come from."""
    out: dict[str, list[Row]] = {"simulated worlds": [], "public data sets": [], UNSEEN: []}
    for row in distinct(found):
        unseen = row.cell.name in UNSEEN_DATA
        where = UNSEEN if unseen else "public data sets" if isinstance(row.cell, DataCell) else "simulated worlds"
        out[where].append(row)
    return {where: rows for where, rows in out.items() if rows}


def geometric_mean(found: list[Row]) -> tuple[float, float, float]:
    """Of the cells' ratios, with the ends of its 95 % interval: a jackknife over seeds, which cells share, and with
    them worlds and noise, so that cells are no independent sample. A cell in which one of the two has regret in a
    single seed only has no ratio without that seed, and enters the mean but not the interval. The ends are NaN with a
    single seed."""
    n = min(row.seeds for row in found)
    mean = float(np.mean([math.log(row.against.value) for row in found]))
    if n < 2:
        return math.exp(mean), math.nan, math.nan
    left_out = np.array(
        [[row.pairs[:, np.delete(np.arange(n), seed)].mean(axis=1) for seed in range(n)] for row in found]
    )  # (cells, seeds, 2)
    left_out = left_out[(left_out > 0.0).all(axis=(1, 2))]
    if not len(left_out):
        return math.exp(mean), math.nan, math.nan
    means = np.log(left_out[..., 0] / left_out[..., 1]).sum(axis=0) / len(found)
    half = float(student.ppf(0.975, n - 1) * math.sqrt((n - 1) / n * np.sum((means - means.mean()) ** 2)))
    return math.exp(mean), math.exp(mean - half), math.exp(mean + half)


def against_each(found: list[Row], name: str) -> float:
    """The geometric mean over cells of the default learner's regret over that of one rival, the same in all of them."""
    pairs = [(row.end["fused"], row.end[name]) for row in found if row.end.get(name, 0.0) > 0.0 < row.end["fused"]]
    return math.exp(float(np.mean([math.log(mine / theirs) for mine, theirs in pairs]))) if pairs else math.nan


def shown_mean(mean: float) -> str:
    """Two digits, or a dash where nothing was run."""
    return f"{mean:.2f}" if math.isfinite(mean) else "–"


def closest_rival(found: list[Row]) -> tuple[str, float]:
    """The rival that does best if it is the same in all cells, and ``against_each`` of it."""
    rivals = [name for name in (*RIVALS, *PACKAGES) if all(name in row.end for row in found)]
    return max(((name, against_each(found, name)) for name in rivals), key=lambda pair: pair[1])


def verdict(found: list[Row]) -> str:
    """How many cells meet the bar, worlds and data apart, and what of it rests on few seeds."""
    if not found:
        return "Nothing has been measured at this state of `src/` yet."
    zero = [row.cell.name for row in found if row.end[row.best] <= 0.0]
    said = []
    for where, rows in groups(found).items():
        means, highs = [row.against.value for row in rows], [row.against.high for row in rows]
        mean, low, high = geometric_mean(rows)
        seeds = sorted({row.seeds for row in rows})
        closest, single = closest_rival(rows)
        said.append(
            f"**{len(rows)} {where}**, {' or '.join(map(str, seeds))} seed{'s' * (seeds[-1] > 1)} each: geometric "
            f"mean of the ratios to the best rival's regret {mean:.2f}"
            + (f" ({low:.2f} to {high:.2f}), " if math.isfinite(low) else " (no interval), ")
            + f"to that of the best single rival for all of them ({closest}) {single:.2f}; "
            f"a cell's mean is at most 1 in {sum(m <= 1.0 for m in means)}, at most {BAR} in "
            f"{sum(m <= BAR for m in means)}, at most {WORST:.2f} in {sum(m <= WORST for m in means)}; the upper "
            f"end of its 95 % interval is at most {BAR} in {sum(h <= BAR for h in highs)}, at most {WORST:.2f} in "
            f"{sum(h <= WORST for h in highs)}, and its lower end above 1, a sure loss, in "
            f"{sum(row.against.low > 1.0 for row in rows)}."
        )
    if sum(isinstance(row.cell, Cell) for row in found) > sum(isinstance(row.cell, Cell) for row in distinct(found)):
        said.append(
            "Worlds that differ in units alone are one world to the rivals, which are told them, and count once."
        )
    if zero:
        said.append(f"Left out, since the best rival has no regret at all there: {', '.join(zero)}.")
    if min(row.seeds for row in found) < FEW:
        said.append(
            "**Few seeds decide little about a single cell**: its interval is wide, or missing with one seed; read the "
            "means over cells. The best rival of a cell is the best of all *on these seeds*, which favours the "
            "rivals."
        )
    return "\n\n".join(said)


def text(found: list[Row]) -> str:
    """The table for a terminal."""
    shown = [n for n in ("fused", *RIVALS, *PACKAGES, "floor") if any(n in row.end for row in found)]
    lines = [f"{'cell':42} " + " ".join(f"{name[:10]:>10}" for name in shown) + " |  to the best"]
    for row in found:
        for mark, values, best, against in (
            (f"round {EARLY}", row.early, row.early_best, row.early_against),
            (f"end, {row.seeds} seeds", row.end, row.best, row.against),
        ):
            numbers = " ".join(f"{values.get(name, math.nan):10.4g}" for name in shown)
            shown_ratio = str(against) if values[best] > 0.0 else "no ratio"
            lines.append(f"{row.cell.name:42} {numbers} | {shown_ratio:>12} {best}   ({mark})")
        for what, share in row.shares.items():
            lines.append(f"{'':42} of the loss, the price of {what}: {share:.0%}")
    return "\n".join([*lines, "", verdict(found)])


def write(found: list[Row], name: str, plan: Plan) -> None:
    """The page of the docs that has this name."""
    shown = [n for n in (*RIVALS, *PACKAGES) if any(n in row.end for row in found)]
    variants = [n for n in OURS if n != "fused"]
    cells = " ".join(f'"{row.cell.name}"' if " " in row.cell.name else row.cell.name for row in found)
    command = f"python -m benchmarks.rivals --write {name} {plan.chosen} --cells "
    command += "worlds data fetched unseen" if name == "rivals" else cells
    lost = [row for row in found if row.against.value > 1.0 or BAR < row.against.high < math.inf]
    parts = [
        f"# Against every rival{'' if name == 'rivals' else f': {name}'}\n",
        f"Written by `{command}`, never by hand; "
        f"`src/` at `{plan.state}`, {time.strftime('%Y-%m-%d', time.gmtime())}, {machine()}. {plan.rounds:,} rounds. "
        "`FusedOFUL` has its default arguments; a rival has the settings that were best for it in the same cell on "
        f"other seeds, {plan.tuning} or more, and is told the worlds' units. *Regret* is what "
        "a learner loses over all rounds against always taking the arm "
        "with the largest mean reward. *Lower bound*: a learner that knows the prior of the weights, how the hidden "
        "features go with the recorded ones, and after each round the rewards of **all** arms (for data sets, "
        "whose rewards are not linear in the features, a reference and no bound, which others may and do beat: "
        "`benchmarks/rivals/floor.py`). What each rival is and what was chosen where its paper leaves a choice: "
        "[rivals](../explanation/rivals.md).\n",
        verdict(found) + "\n",
        f"| cell | seeds | fused | best rival | ratio (95 % interval) | at round {EARLY} | lower bound or reference |",
        "|---|---|---|---|---|---|---|",
    ]
    for row in found:
        ends = told(row.against, row.end[row.best])
        early = f"{row.early_against.value:.2f} ({row.early_best})" if row.early[row.early_best] > 0.0 else "no ratio"
        parts.append(
            f"| {row.cell.name} | {row.seeds} | {row.end['fused']:.4g} | {row.end[row.best]:.4g} ({row.best}) "
            f"| {ends} | {early} | {row.end.get('floor', math.nan):.4g} |"
        )
    parts += [
        "",
        "## Against one rival everywhere\n",
        "The best rival of a cell is known in hindsight only. The geometric mean over cells of the default learner's "
        "regret over that of *one* rival, tuned in every cell; a package's is over the cells that it was run in:\n",
        f"| {' | '.join(['', *shown])} |",
        "|---" * (len(shown) + 1) + "|",
        *(
            f"| {where} | {' | '.join(shown_mean(against_each(rows, name)) for name in shown)} |"
            for where, rows in groups(found).items()
        ),
        "",
        f"## Where the upper end is above {BAR}\n",
    ]
    if lost:
        parts += [
            "With few seeds an interval is wide, so many of these are no losses at all; with one seed there is none, "
            "and a cell is listed if its mean is above 1. A dash is what was not run (`--explain`). The "
            "columns between are the same learner with one thing "
            "changed: *safety off*, no trials and no tests against a log that lies; *R12 known*, told how the hidden "
            "features go with the recorded ones instead of asking; *100 rows*, *10 rows*, the log counts for at most "
            "as many rows of an arm (`bias_bound`); *prior given*, `regularization=1.0` in place of a learned prior; "
            "*no log*, `OFUL` with the same automatic settings; *no log, ridge 10*, with a ridge parameter that pulls "
            "an arm's mean reward to 0 where it was not played, and a tenth of the "
            "width.\n",
            f"| cell | ratio (95 % interval) | fused | {' | '.join(variants)} | best rival |",
            "|---" * (len(variants) + 4) + "|",
        ]
        for row in sorted(lost, key=lambda row: -row.against.value):
            extra = " | ".join(f"{row.end[n]:.4g}" if n in row.end else "–" for n in variants)
            parts.append(
                f"| {row.cell.name} | {told(row.against, row.end[row.best])} | {row.end['fused']:.4g} "
                f"| {extra} | {row.end[row.best]:.4g} ({row.best}) |"
            )
    else:
        parts.append("Nowhere.")
    parts += ["", "## Every rival's regret at the end\n", "| cell | " + " | ".join(shown) + " |"]
    parts.append("|---" * (len(shown) + 1) + "|")
    for row in found:
        values = " | ".join(f"{row.end[n]:.4g}" if n in row.end else "–" for n in shown)
        parts.append(f"| {row.cell.name} | {values} |")
    PAGES.mkdir(exist_ok=True)
    (PAGES / f"{name}.md").write_text("\n".join(parts) + "\n", encoding="utf-8")
