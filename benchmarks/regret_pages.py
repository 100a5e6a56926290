"""The result file of ``python -m benchmarks.regret`` and the two pages written from it: a short one and the lab book.

``docs/measurements/regret.csv`` has a row for every comparison, ``regret-early.csv`` beside it where not knowing R12
costs. ``python -m benchmarks.regret_pages`` writes the pages anew from them.
"""

from __future__ import annotations

import csv
from collections.abc import Iterable, Sequence
from pathlib import Path

ROOT = Path(__file__).parents[1]
FOLDER = ROOT / "docs" / "measurements"
FIGURES, EARLY_FIGURES = FOLDER / "regret.csv", FOLDER / "regret-early.csv"
BOOK, PAGE = FOLDER / "regret.md", ROOT / "docs" / "regret.md"
COLUMNS = (
    "group",
    "cell",
    "method",
    "against",
    "ratio",
    "low",
    "high",
    "bar",
    "met",
    "regret",
    "regret_against",
    "seeds",
    "source",
)
EARLY_COLUMNS = ("rounds", "known", "probabilities", "probabilities_half", "arms", "arms_half", "seeds")
Row = dict[str, str]

TITLES = {
    "paper_text": "The paper's setting, as its text has it",
    "authors_code": "The paper's setting, as its authors ran it",
    "confounded": "Where the hidden features drive the old policy",
    "zero_filled": "Against filling the log with zeros",
    "lies": "When the log lies",
    "frontier": "What safety costs and saves",
    "grid": "Over a grid of worlds",
    "automatic": "The automatic prior against fixed ones",
}
NOTES = {
    "paper_text": """"Told its prior" is what this learner does when told the noise, and the mean and variance of the
weights it will meet, and pays no price for the case that the log lies.
""",
    "confounded": """"Algorithm 1" is told what "fused" has to ask for. On equal terms ("fused, R12 known") the soft
constraint is compared with the hard one alone; what asking costs is the row below, and where it arises is the last
table of this page.
""",
    "zero_filled": """The baseline has the best of its four widths in hindsight; the fused learner has its default.
""",
    "grid": """"fused, R12 known" is on equal terms with Algorithm 1. With two arms regrets are thousandths of a reward
a round; where they are smallest, what the fused learner pays for trials in doubt of the log shows (rows "safety off").
With σ = 1 arms differ by about a hundredth of the noise, so that 8,000 rounds tell next to nothing: who is ahead varies
from seed to seed, and so does the best of the four.
""",
}
TERMS = """Each seed draws its own world, log, contexts, noise and answers, which all methods share. `FusedOFUL` has
default arguments; the method it is compared with has the best of its settings in hindsight. *Regret* is what a method
loses over all rounds against always taking the arm with the largest mean reward. *R12* is how the hidden features go
with the recorded ones among the rows of an arm (`E[x_o x_hᵀ | a]`), which the log lacks. A bar is met when the upper
end of the 95 % interval of the ratio is below it; *unclear* means that the seeds run so far do not decide.
"""


def read(path: Path) -> list[Row]:
    """A result file; empty if there is none."""
    if not path.exists():
        return []
    with path.open(encoding="utf-8", newline="") as stream:
        return list(csv.DictReader(stream))


def write(path: Path, columns: Sequence[str], rows: Iterable[Row]) -> None:
    """A result file."""
    path.parent.mkdir(exist_ok=True)
    with path.open("w", encoding="utf-8", newline="") as stream:
        writer = csv.DictWriter(stream, columns, lineterminator="\n")
        writer.writeheader()
        writer.writerows(rows)


def keep(group: str, rows: list[Row]) -> None:
    """The rows of one group in place of its earlier ones, in the order of ``TITLES``."""
    others = [row for row in read(FIGURES) if row["group"] != group]
    write(FIGURES, COLUMNS, sorted([*others, *rows], key=lambda row: list(TITLES).index(row["group"])))


def counts(rows: list[Row]) -> tuple[int, int, int]:
    """Bars met, not met, and not decided."""
    met, missed, unclear = (sum(row["met"] == word for row in rows) for word in ("yes", "no", "unclear"))
    return met, missed, unclear


def sources(rows: list[Row]) -> str:
    """The states of ``src/`` that rows of the fused learner were measured at."""
    return ", ".join(f"`{state}`" for state in sorted({s for row in rows for s in row["source"].split()}))


def interval(row: Row) -> str:
    """A ratio with its interval."""
    return f"{row['ratio']} ({row['low']} to {row['high']})"


def book(rows: list[Row], early: list[Row]) -> str:
    """The lab book: every comparison."""
    parts = [
        "# Regret: the lab book\n",
        "Written by `python -m benchmarks.regret --write` from [regret.csv](regret.csv), never by hand; the summary is "
        "[regret, measured](../regret.md).\n",
        TERMS,
        'In the tables "safety off" is `FusedOFUL(…, safety=0)`. "Algorithm 1" is told the true `R12`, which "fused" '
        'has to ask for; "every round" asks too.\n',
    ]
    for group, title in TITLES.items():
        mine = [row for row in rows if row["group"] == group]
        if not mine:
            continue
        met, missed, unclear = counts(mine)
        parts.append(f"## {title}\n")
        if group in NOTES:
            parts.append(NOTES[group])
        parts.append(f"The fused learner's rows: `src/` at {sources(mine)}.\n")
        if met + missed + unclear:
            parts.append(f"{met} bars met, {missed} not, {unclear} not decided by these seeds.\n")
        parts += [
            "| cell | method | against (best in hindsight) | ratio (95 % interval) | bar | met | regret | seeds |",
            "|---|---|---|---|---|---|---|---|",
        ]
        for row in mine:
            if row["against"]:
                met_as = "**no**" if row["met"] == "no" else row["met"]
                middle = f"{row['against']} | {interval(row)} | {row['bar']} | {met_as}"
                regret = f"{row['regret']} / {row['regret_against']}"
            else:
                middle, regret = "– | – | – | –", row["regret"]
            parts.append(f"| {row['cell']} | {row['method']} | {middle} | {regret} | {row['seeds']} |")
        parts.append("")
    if early:
        parts += [
            "## Where not knowing R12 costs\n",
            f"`ConfoundedWorld`, 100,000 rows, {early[0]['seeds']} seeds: regret of the learner that knows `R12`, and "
            "how much more (95 % interval) those have that learn it from the old policy's probabilities, and from its "
            "arms.\n",
            "| rounds | R12 known | by probabilities | by arms |",
            "|---|---|---|---|",
        ]
        for row in early:
            more = [f"+{row[name]} (±{row[f'{name}_half']})" for name in ("probabilities", "arms")]
            parts.append(f"| {int(row['rounds']):,} | {row['known']} | {' | '.join(more)} |")
        parts.append("")
    return "\n".join(parts)


def page(rows: list[Row], early: list[Row]) -> str:
    """The short page: what each group comes to, and every bar that was not met."""
    parts = [
        "# Regret, measured\n",
        "What the default learner loses, against every other way to use the same log, in simulated worlds whose truth "
        "is known. Written by `python -m benchmarks.regret --write`, never by hand. Every comparison is in [the lab "
        "book](measurements/regret.md), as a file in [regret.csv](measurements/regret.csv). The last column of the "
        "table "
        "says at which state of `src/` it was measured; `python -m benchmarks.evidence --hash` gives the present "
        "one.\n",
        TERMS,
        "| setting | bars met | not met | not decided | ratios | seeds | `src/` at |",
        "|---|---|---|---|---|---|---|",
    ]
    for group, title in TITLES.items():
        mine = [row for row in rows if row["group"] == group]
        barred = [row for row in mine if row["against"]]
        if not mine:
            continue
        seeds = sorted({int(row["seeds"]) for row in mine})
        many = f"{seeds[0]}" if len(seeds) == 1 else f"{seeds[0]} to {seeds[-1]}"
        ratios = [float(row["ratio"]) for row in barred]
        span = f"{min(ratios):.2f} to {max(ratios):.2f}" if ratios else "–"
        told = " | ".join(str(n) for n in counts(mine)) if barred else "– | – | –"
        parts.append(f"| {title} | {told} | {span} | {many} | {sources(mine)} |")
    missed = [row for row in rows if row["met"] == "no"]
    parts += [
        "",
        "No method gains from every honest log and never loses to a false one: `safety` buys trials and tests against "
        "lies, and *when the log lies* and *what safety costs and saves* in the lab book print both sides.\n",
        "## Every bar that was not met\n",
    ]
    if missed:
        parts += ["| cell | method | against | ratio (95 % interval) | bar | seeds |", "|---|---|---|---|---|---|"]
        parts += [
            f"| {row['cell']} | {row['method']} | {row['against']} | {interval(row)} | {row['bar']} | {row['seeds']} |"
            for row in missed
        ]
        if early and all("R12 known" not in row["method"] for row in missed):
            extra = {int(row["rounds"]): float(row["arms"]) for row in early}
            parts.append(
                "\nIn all of them a learner that asks is compared with one that is *told* R12. Of what asking costs in "
                f"`ConfoundedWorld` with 100,000 rows, {extra[100] / extra[max(extra)]:.0%} arises in the first "
                "hundred "
                f"of {max(extra):,} rounds."
            )
    else:
        parts.append("None.")
    parts += [
        "",
        "Newer questions have pages of their own: [the zoo](zoo.md) asks whether the default is ever the wrong choice "
        "on an honest log, [against every rival](measurements/rivals.md) whether somebody else's method is better.",
        "",
    ]
    return "\n".join(parts)


def write_pages() -> None:
    """Both pages, from the result files."""
    rows, early = read(FIGURES), read(EARLY_FIGURES)
    BOOK.write_text(book(rows, early), encoding="utf-8")
    PAGE.write_text(page(rows, early), encoding="utf-8")


if __name__ == "__main__":
    write_pages()
