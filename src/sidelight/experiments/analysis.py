"""What a figure shows, computed from its results, and whether the paper's claim holds in them."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from sidelight.drawing.intervals import Interval, number, span, student
from sidelight.experiments.figure_settings import Figure

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = ["ClaimVerdict", "Findings", "analyse", "finals"]

Key = tuple[str, str]
"""Series and x."""


@dataclass(frozen=True)
class ClaimVerdict:
    """Whether a claim holds: ``"holds"``, ``"does not hold"``, ``"holds in part"`` or ``"cannot be told"``."""

    word: str
    why: str

    @property
    def sentence(self) -> str:
        """The verdict and its reason, as a sentence after the claim."""
        if self.word == "cannot be told":
            return f"Whether it holds cannot be told here: {self.why}."
        return f"Here it {self.word}: {self.why}."


@dataclass(frozen=True)
class Findings:
    """What a figure's results say.

    Attributes:
        words: sentences on what is seen.
        verdict: on the paper's claim, where the figure tests one.
        final: for each series and x the regret at the end, mean over seeds with its interval.
        against: the same for the difference to the baseline, seed by seed.
    """

    words: tuple[str, ...]
    verdict: ClaimVerdict | None
    final: dict[Key, Interval]
    against: dict[Key, Interval]


def finals(table: pa.Table) -> dict[Key, NDArray[np.float64]]:
    """The regret at the end for each series and x, ``(seeds,)`` in the order of the seeds."""
    rounds, horizon = table["round"].to_numpy(), table["horizon"].to_numpy()
    last = table.filter(rounds == horizon)
    out: dict[Key, list[tuple[int, float]]] = {}
    columns = (last[name].to_pylist() for name in ("series", "x", "seed", "regret"))
    for series, x, seed, regret in zip(*columns, strict=True):
        out.setdefault((series, x), []).append((seed, regret))
    return {key: np.array([regret for _, regret in sorted(values)]) for key, values in out.items()}


def analyse(figure: Figure, table: pa.Table) -> Findings:
    """The findings of a figure from its tidy table."""
    values = finals(table)
    baseline = {x: v for (series, x), v in values.items() if series == figure.baseline}
    against = {
        (series, x): student(v - baseline[x if x in baseline else ""])
        for (series, x), v in values.items()
        if series != figure.baseline and (x in baseline or "" in baseline)
    }
    final = {key: student(v) for key, v in values.items()}
    words, verdict = _QUESTIONS[figure.question](figure, values, final, against)
    refused = json.loads((table.schema.metadata or {}).get(b"refused", b"{}"))
    if refused:
        words.append(
            f"Without an answer, because an arm had fewer rows than recorded features: {'; '.join(sorted(refused))}."
        )
    return Findings(tuple(words), verdict, final, against)


def _difference(interval: Interval) -> str:
    return f"{number(interval.mean, sign=True)} ({span(interval, sign=True)})"


# ---------------------------------------------------------------------------------------- the paper's


def _recorded(
    figure: Figure, values: dict[Key, Any], final: dict[Key, Interval], against: dict[Key, Interval]
) -> tuple[list[str], ClaimVerdict]:
    lines = [s for s, _ in values if s.endswith((", known", ", estimated"))]
    # a learner that cannot start from a small log leaves no line
    complete = [s.removesuffix(", known") for s in lines if s.replace("known", "estimated") in lines and "known" in s]
    if not complete:
        return ["No number of recorded features could be run with R12 known and estimated."], ClaimVerdict(
            "cannot be told", "no learner could start from its log"
        )
    most = max(int(s.removeprefix("L = ")) for s in complete)
    last = (f"L = {most}, known", f"L = {most}, estimated")
    words = []
    for baseline, name in _baselines(figure):
        differences = {s: student(values[s, ""] - values[baseline, ""]) for s in lines}
        worse = [s for s in lines if differences[s].certain > 0]
        better = [s for s in lines if differences[s].certain < 0]
        words.append(
            f"{name} the regret without a log is {number(final[baseline, ''].mean)}. With {most} recorded features it "
            f"is {number(final[last[0], ''].mean)} where R12 is known, a difference of "
            f"{_difference(differences[last[0]])}, and {number(final[last[1], ''].mean)} where it is estimated, a "
            f"difference of {_difference(differences[last[1]])}. {len(better)} of the {len(lines)} lines end surely "
            f"below, {len(worse)} surely above" + (f" ({'; '.join(worse)})." if worse else ".")
        )
    # the last baseline is the one that tries its arms, where there are two
    against_what = "no log" if not figure.fair_baseline else "a learner without a log that has tried every arm once"
    if len(better) == len(lines):
        verdict = ClaimVerdict("holds", f"every L does better than {against_what}, estimated or not")
    elif all(differences[s].certain < 0 for s in last):
        gains, harms = (
            ", ".join(s.split(",")[0].removeprefix("L = ") for s in found if s.endswith("estimated"))
            for found in (better, worse)
        )
        verdict = ClaimVerdict(
            "holds in part",
            f"against {against_what}, an estimated log surely helps with L = {gains}"
            + (f" and surely does harm with L = {harms}" if harms else ", and not surely with every L"),
        )
    elif differences[last[1]].certain > 0:
        verdict = ClaimVerdict("does not hold", f"even with L = {most} the estimated log costs more than it gives")
    else:
        verdict = ClaimVerdict("cannot be told", f"the intervals at L = {most} include no difference")
    return words, verdict


def _without_a_log(figure: Figure, final: dict[Key, Interval]) -> str:
    """The regret of every line without a log, in words."""
    first, *rest = [f"{number(final[line, ''].mean)}" for line, _ in _baselines(figure)]
    return f"Without a log it is {first}" + "".join(f", and {r} if every arm is played once first" for r in rest) + "."


def _baselines(figure: Figure) -> list[tuple[str, str]]:
    """The lines without a log, each with the words that say whose it is."""
    if not figure.fair_baseline:
        return [(figure.baseline, "As it is run here")]
    return [
        (figure.baseline, "As the text has it, without first plays,"),
        (figure.fair_baseline, "As the authors' code has it, every arm played once first,"),
    ]


def _optimism(
    figure: Figure, values: dict[Key, Any], final: dict[Key, Interval], against: dict[Key, Interval]
) -> tuple[list[str], ClaimVerdict]:
    lines = [s for s, _ in values if s.startswith("α = ")]
    if len(lines) < 2:
        return ["Too few values of α could be run."], ClaimVerdict("cannot be told", "fewer than two values of α ran")
    best = min(lines, key=lambda s: final[s, ""].mean)
    smallest, largest = lines[0], lines[-1]
    gap = student(values[largest, ""] - values[smallest, ""])
    words = [
        f"Lowest at {best} ({number(final[best, ''].mean)}). From {smallest} to {largest} the regret changes by "
        f"{_difference(gap)}, from {number(final[smallest, ''].mean)} to {number(final[largest, ''].mean)}. "
        + _without_a_log(figure, final)
    ]
    alpha = float(best.removeprefix("α = "))
    surely = [s for s in lines if s != best and student(values[s, ""] - values[best, ""]).certain > 0]
    if alpha <= 0.05 and largest in surely:
        verdict = ClaimVerdict("holds", f"{best} does best, and {largest} surely worse")
    elif alpha > 0.05 and smallest in surely:
        verdict = ClaimVerdict("does not hold", f"{best} does best, and {smallest} surely worse")
    else:
        verdict = ClaimVerdict("cannot be told", "small and large α do not differ by more than chance")
    return words, verdict


def _log_size(
    figure: Figure, values: dict[Key, Any], final: dict[Key, Interval], against: dict[Key, Interval]
) -> tuple[list[str], ClaimVerdict]:
    lines = [s for s, _ in values if s.endswith("estimated")]
    if len(lines) < 2:
        return ["Too few log sizes could be run."], ClaimVerdict("cannot be told", "fewer than two log sizes ran")
    small, large = lines[0], lines[-1]
    ratio = final[small, ""].mean / final[large, ""].mean
    gap = student(values[small, ""] - values[large, ""])
    words = [
        f"With {small.removesuffix(', estimated')} the regret is {number(final[small, ''].mean)}, with "
        f"{large.removesuffix(', estimated')} {number(final[large, ''].mean)} (R12 estimated): {ratio:.2f} times as "
        f"much, a difference of {_difference(gap)}. " + _without_a_log(figure, final)
    ]
    # where there are two lines without a log, against the one that tries every arm
    cold = values[figure.fair_baseline or figure.baseline, ""]
    with_log = [s for s, _ in values if s.endswith((" rows, known", " rows, estimated"))]
    loses = [s for s in with_log if student(values[s, ""] - cold).certain > 0]
    if loses:
        words.append(f"Surely worse than no log at all: {'; '.join(loses)}.")
        verdict = ClaimVerdict("does not hold", "with the smaller log the learner does worse than without any")
    elif gap.certain > 0 and ratio > 1.25:
        verdict = ClaimVerdict("does not hold", f"the smaller log costs {ratio:.2f} times the regret of the larger")
    elif gap.certain == 0:
        verdict = ClaimVerdict("cannot be told", "the sizes do not differ by more than chance")
    else:
        verdict = ClaimVerdict(
            "holds", f"the smaller log costs only {ratio:.2f} times the regret, and none is surely worse than no log"
        )
    return words, verdict


# ------------------------------------------------------------------------------------------------ ours


def _begins_to_pay(
    figure: Figure, values: dict[Key, Any], final: dict[Key, Interval], against: dict[Key, Interval]
) -> tuple[list[str], None]:
    cold = next(i for (s, _), i in final.items() if s == figure.baseline)
    words = [f"Without a log the regret is {number(cold.mean)} ({span(cold)})."]
    for series in dict.fromkeys(s for s, _ in against):
        mine = [(float(x), d) for (s, x), d in against.items() if s == series]
        pays = [x for x, d in sorted(mine) if d.certain < 0]
        harms = [x for x, d in sorted(mine) if d.certain > 0]
        text = f"{series}: {_where(sorted(x for x, _ in mine), pays)}"
        if harms:
            text += f", and surely does harm at {', '.join(f'{x:,.0f}' for x in harms)}"
        best = min(mine, key=lambda pair: pair[1].mean)
        words.append(f"{text}; at best {_difference(best[1])} at {best[0]:,.0f} rows.")
    return words, None


def _where(sizes: list[float], pays: list[float]) -> str:
    """The log sizes at which the interval of the gain lies above zero, in words."""
    if not pays:
        return "pays at no size tried"
    if pays == sizes[-len(pays) :]:
        return f"surely pays from {pays[0]:,.0f} rows on"
    return f"surely pays at {', '.join(f'{x:,.0f}' for x in pays)} rows"


def _confounding(
    figure: Figure, values: dict[Key, Any], final: dict[Key, Interval], against: dict[Key, Interval]
) -> tuple[list[str], None]:
    points = list(dict.fromkeys(x for _, x in final))
    low, high = points[0], points[-1]
    words = []
    for series in dict.fromkeys(s for s, _ in against):
        if (series, low) in against and (series, high) in against:
            words.append(
                f"{series}: {_difference(against[series, low])} against no log where the old policy was random, "
                f"{_difference(against[series, high])} at strength {float(high):g}."
            )
    return words, None


def _queries(
    figure: Figure, values: dict[Key, Any], final: dict[Key, Interval], against: dict[Key, Interval]
) -> tuple[list[str], None]:
    points = list(dict.fromkeys(x for _, x in final))
    words = []
    for series in ("fused", "hard, R12 estimated"):
        sure = [x for x in points if against.get((series, x), Interval(0, 0, 0)).certain < 0]
        ends = against.get((series, points[-1]))
        begins = against.get((series, points[0]))
        if ends is None or begins is None:
            continue
        words.append(
            f"{series}: {_difference(begins)} against no log with {points[0]} answers, {_difference(ends)} with "
            f"{points[-1]}; "
            + (f"surely better than no log with {', '.join(sure)}." if sure else "never surely better than no log.")
        )
    return words, None


def _lies(
    figure: Figure, values: dict[Key, Any], final: dict[Key, Interval], against: dict[Key, Interval]
) -> tuple[list[str], None]:
    words = []
    for series in dict.fromkeys(s for s, _ in against):
        mine = {x: d for (s, x), d in against.items() if s == series}
        worst = max(mine, key=lambda x: mine[x].mean)
        harms = [x for x, d in mine.items() if d.certain > 0]
        words.append(
            f"{series}: {_difference(mine['honest'])} against no log where the log is honest; at worst "
            f"{_difference(mine[worst])} ({worst}); surely worse than no log with: {', '.join(harms) or 'none'}."
        )
    return words, None


_QUESTIONS: dict[str, Callable[..., tuple[list[str], Any]]] = {
    "recorded": _recorded,
    "optimism": _optimism,
    "log size": _log_size,
    "begins to pay": _begins_to_pay,
    "confounding": _confounding,
    "queries": _queries,
    "lies": _lies,
}
