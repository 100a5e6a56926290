"""The parts of a report: each a heading, words, a picture with its numbers. Everything is computed from the study."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from sidelight.drawing import interactive
from sidelight.drawing import markup as html
from sidelight.drawing.charts import Chart, Control
from sidelight.drawing.curves import curves
from sidelight.drawing.intervals import LEVEL, Interval, number, span, student
from sidelight.drawing.series import Series
from sidelight.labels import counted
from sidelight.report.head_start import HeadStart, head_start
from sidelight.report.insight_part import estimates_part, findings_part, widths_part
from sidelight.report.log_part import hidden_part, log_part
from sidelight.report.parts import Part, banded, interval_rows, numbers_of, series_of
from sidelight.report.study import Study
from sidelight.report.verdict_part import verdict_of, verdict_part

__all__ = ["headline", "parts", "simpler_sentences", "worth_of"]

OLD = "the old policy"

BLOCKS = 20
"""Number of parts of a run, over each of which rewards are averaged."""


def parts(study: Study) -> list[Part]:
    """Every part that this study has the numbers for, in the order of the page."""
    verdict = None if study.log is None else verdict_of(study.log)
    made = [
        log_part(study.diagnosis) if study.diagnosis is not None else None,
        hidden_part(study.diagnosis) if study.diagnosis is not None else None,
        verdict_part(verdict) if verdict is not None else None,
        _regret(study) if study.knows_truth else _standing(study),
        _reward(study),
        _worth(study),
        _arms(study),
        findings_part(study) if study.findings else None,
        estimates_part(study) if study.probes is not None and "truth" in study.probes.column_names else None,
        widths_part(study) if study.probes is not None else None,
    ]
    return [part for part in made if part is not None]


# ---------------------------------------------------------------------------------------- what they did


def _regret(study: Study) -> Part:
    held = curves(study.table)
    rows: list[dict[str, Any]] = []
    for name, (rounds, values) in held.items():
        rows += interval_rows(name, rounds, [student(values[:, i]) for i in range(len(rounds))])
    for row in rows:
        row["low"] = max(row["low"], 0.0)
    series, names = series_of(study), list(study.learners)
    if study.old_policy is not None and study.best_possible is not None:
        lost = study.best_possible - study.old_policy.mean
        rounds = held[study.baseline][0]
        rows += interval_rows(OLD, rounds, [Interval(lost * t, float("nan"), float("nan")) for t in rounds])
        series, names = [*series, Series(OLD, 0, (2, 3))], [*names, OLD]
    compared = (study.baseline, study.best)
    chart = Chart("lines", banded(rows, compared), series, "Round", "Cumulative regret")
    picture, specification = interactive.figure(
        "regret",
        chart,
        describes="Cumulative regret of each learner over rounds, with intervals. All numbers are in the table below.",
        words=["Lower is better: regret is what was lost against the best arm of every round. " + _bands(study)],
        numbers=numbers_of("Cumulative regret, mean over seeds", "Round", rows, names),
    )
    cold = held[study.baseline][1][:, -1]
    body = []
    for name, (_, values) in held.items():
        final, paired = student(values[:, -1]), student(values[:, -1] - cold)
        difference = ["–", "–"] if name == study.baseline else [number(paired.mean, True), span(paired, True)]
        body.append([name, number(final.mean), span(final), *difference])
    header = ["learner", "regret", f"{LEVEL:.0%}", f"minus {study.baseline}", f"{LEVEL:.0%}"]
    table = html.table(
        f"Regret at the end: mean over {counted(study.seeds, 'seed')}, differences on the same seeds", header, body
    )
    meanings = html.facts((name, study.meanings[name]) for name in study.learners if name in study.meanings)
    return Part("What each learner did", "learners", [table, meanings, picture], {"regret": specification})


def _standing(study: Study) -> Part:
    body = []
    for name in study.learners:
        mean = study.means.get(name)
        paired = study.differences.get(name)
        cells = ["–", "–"] if mean is None else [number(mean.mean), span(mean)]
        cells += ["–", "–"] if paired is None else [number(paired.mean, True), span(paired, True)]
        body.append([name, *cells])
    if study.old_policy is not None:
        body.append([OLD, number(study.old_policy.mean), span(study.old_policy), "–", "–"])
    header = ["learner", "reward per round", f"{LEVEL:.0%}", f"minus {study.baseline}", f"{LEVEL:.0%}"]
    pieces = [
        html.table(f"Mean reward in {_rounds_of(study)}, bootstrap intervals ({LEVEL:.0%})", header, body),
        html.facts((name, study.meanings[name]) for name in study.learners if name in study.meanings),
        html.paragraph(
            "Regret is left out: a trial knows the reward of the arm that was tried and of no other, so what the best "
            "arm would have given is not known."
        ),
    ]
    return Part("What each learner did", "learners", pieces, {})


def _reward(study: Study) -> Part | None:
    """Reward per round in blocks of the run: exact where the truth is known, else the mean of what was earned."""
    rows: list[dict[str, Any]] = []
    if study.knows_truth and study.best_possible is not None:
        for name, (rounds, values) in curves(study.table).items():
            ends = np.unique(np.linspace(0, len(rounds), BLOCKS + 1).astype(int))[1:] - 1
            lost = np.diff(np.concatenate([np.zeros((len(values), 1)), values[:, ends]], axis=1), axis=1)
            width = np.diff(np.concatenate([[0], rounds[ends]]))
            rewards = study.best_possible - lost / width
            rows += interval_rows(name, rounds[ends], [student(rewards[:, i]) for i in range(len(ends))])
        what = "Expected reward of the arms that were chosen, by the truth"
    else:
        shortest = _shortest(study)
        ends = np.unique(np.linspace(0, shortest, BLOCKS + 1).astype(int))[1:]
        starts = np.concatenate([[0], ends[:-1]])
        for name, runs in _rewards(study).items():
            grid = np.array([[run[s:e].mean() for s, e in zip(starts, ends, strict=True)] for run in runs])
            rows += interval_rows(name, ends, [student(grid[:, i]) for i in range(len(ends))])
        what = f"Mean reward of the {_rounds_of(study)}"
    levels = dict(study.levels)
    if study.old_policy is not None:
        levels[OLD] = study.old_policy.mean
    if study.knows_truth and study.best_possible is not None:
        levels["best possible"] = study.best_possible
    chart = Chart(
        "lines",
        banded(rows, (study.baseline, study.best)),
        series_of(study),
        _round_title(study),
        "Reward per round",
        levels=levels,
        from_zero=False,
        markers=False,
    )
    picture, specification = interactive.figure(
        "reward",
        chart,
        describes="Reward per round of each learner over the run, and the old policy's. Numbers in the table.",
        words=[f"{what}, in {BLOCKS} parts of the run. {_bands(study)} {_against_old_policy(study, rows)}"],
        numbers=numbers_of("Reward per round in the part of the run that ends here", "Round", rows, study.learners),
    )
    return Part("Reward against the old policy", "rewards", [picture], {"reward": specification})


def _bands(study: Study) -> str:
    return (
        f"Bands, of “{study.baseline}” and “{study.best}”: {LEVEL:.0%} intervals of the mean over "
        f"{counted(study.seeds, 'seed')}; those of the others are in the table."
    )


def _rounds_of(study: Study) -> str:
    return "accepted rounds" if study.accepts else "rounds"


def _round_title(study: Study) -> str:
    return "Accepted round" if study.accepts else "Round"


def _against_old_policy(study: Study, rows: list[dict[str, Any]]) -> str:
    if study.old_policy is None:
        return ""
    old = study.old_policy.mean
    mine = [row for row in rows if row["series"] == study.best]
    above = [row["x"] for row in mine if row["low"] > old]
    words = f"The old policy earns {number(old)} per round. "
    if not above:
        return words + f"{study.best} is in no part of the run surely above it."
    # twenty intervals are twenty tests: a single one above says little, so the sentence says how many there are
    return words + (
        f"The whole interval of {study.best} is above it in {len(above)} of {len(mine)} parts, first in the one that "
        f"ends with round {above[0]:,}."
    )


def _rewards(study: Study) -> dict[str, list[NDArray[np.float64]]]:
    """Learner → the rewards of each seed's run, in the order of the rounds."""
    names = np.array(study.table["learner"].to_pylist())
    rounds, seeds, rewards = (study.table[c].to_numpy() for c in ("round", "seed", "reward"))
    out: dict[str, list[NDArray[np.float64]]] = {}
    for name in study.learners:
        for seed in np.unique(seeds):
            mine = (names == name) & (seeds == seed)
            out.setdefault(name, []).append(rewards[mine][np.argsort(rounds[mine])])
    return out


def _shortest(study: Study) -> int:
    return min(len(run) for runs in _rewards(study).values() for run in runs)


# -------------------------------------------------------------------------------------- what it was worth


def worth_of(study: Study) -> tuple[str, HeadStart | None]:
    """One sentence on what the log was worth in regret or reward, and the head start in rounds."""
    if study.knows_truth:
        held = curves(study.table)
        rounds, cold = held[study.baseline]
        warm = held[study.best][1]
        start = head_start(rounds, cold, warm)
        difference = student(warm[:, -1] - cold[:, -1])
        lost, against = number(warm[:, -1].mean()), number(cold[:, -1].mean())
        unit = f"of regret in {int(rounds[-1]):,} rounds"
        sure = -difference.certain
        amount, interval = number(abs(difference.mean)), Interval(-difference.mean, -difference.high, -difference.low)
        compare = f"{study.best} lost {lost}, the learner without the log ({study.baseline}) {against}"
    else:
        runs = _rewards(study)
        shortest = _shortest(study)
        # losses are cumulative negative rewards, at no more than 200 rounds: single rewards are mostly noise
        every = np.unique(np.linspace(1, shortest, min(200, shortest)).astype(int))
        cold, warm = (
            np.array([-np.cumsum(run[:shortest])[every - 1] for run in runs[n]]) for n in (study.baseline, study.best)
        )
        start = head_start(every, cold, warm)
        difference = study.differences.get(study.best) or student((cold[:, -1] - warm[:, -1]) / shortest)
        unit = f"of reward per round, over about {shortest:,} rounds"
        sure, amount, interval = difference.certain, number(abs(difference.mean)), difference
        means = {n: study.means[n].mean if n in study.means else float("nan") for n in (study.best, study.baseline)}
        compare = (
            f"{study.best} earned {number(means[study.best])} per round, the learner without the log "
            f"({study.baseline}) {number(means[study.baseline])}"
        )
    told = f"{LEVEL:.0%} interval {span(interval, sign=True)}"
    if sure > 0:
        return f"The log was worth {amount} {unit} ({told}): {compare}.", start
    if sure < 0:
        return f"The log did harm: it cost {amount} {unit} ({told}): {compare}.", start
    return (
        f"What the log was worth cannot be told from these runs: {number(interval.mean, True)} {unit} ({told}); "
        f"{compare}.",
        start,
    )


def simpler_sentences(study: Study) -> list[str]:
    """Which simpler rules are as good as the learner that is judged, or better; empty where none is.

    A rule counts as as good unless the whole interval of its paired difference from the learner is on the worse side.
    """
    found = []
    for name in study.simpler:
        if study.knows_truth:
            held = curves(study.table)
            difference = student(held[name][1][:, -1] - held[study.best][1][:, -1])
            better, what = -difference.certain, f"regret after {int(held[name][0][-1]):,} rounds"
        elif name in study.beyond:
            difference, what = study.beyond[name], "reward per round"
            better = difference.certain
        else:
            continue
        if better < 0:
            continue
        verb = "is better than" if better > 0 else "cannot be told from"
        found.append(
            f"Something simpler {'does better' if better > 0 else 'may do'}: {name} {verb} {study.best} (difference in "
            f"{what} {number(difference.mean, True)}, {LEVEL:.0%} interval {span(difference, sign=True)})."
        )
    return found


def headline(study: Study) -> str:
    """What the log was worth, and which simpler rule would do as well."""
    return " ".join([worth_of(study)[0], *simpler_sentences(study)])


def _worth(study: Study) -> Part:
    sentence, start = worth_of(study)
    pieces = [html.paragraph(sentence)]
    if study.simpler:
        told = simpler_sentences(study)
        tried = " and ".join(study.simpler)
        pieces.append(
            html.notes(told, alarming=True)
            if told
            else html.paragraph(f"Nothing simpler does as well: {tried} lose to {study.best} beyond chance.")
        )
    if start is not None:
        pieces.append(html.paragraph(start.sentence))
    if study.diagnosis is not None:
        pieces.append(html.paragraph(f"Before any round, the diagnosis said: {study.diagnosis.sentence}"))
    return Part("What the log was worth", "worth", pieces, {})


# ------------------------------------------------------------------------------------- arms over time


def _arms(study: Study) -> Part:
    names = np.array(study.table["learner"].to_pylist())
    rounds = study.table["round"].to_numpy()
    arms = np.array([str(arm) for arm in study.table["arm"].to_pylist()])
    last = int(rounds.max())
    tenth = np.minimum(((rounds - 1) * 10) // last, 9)
    counts: dict[str, int] = {}
    for arm in arms:
        counts[arm] = counts.get(arm, 0) + 1
    shown = sorted(counts, key=lambda arm: -counts[arm])[:12]
    rest = len(counts) - len(shown)
    rows: list[dict[str, Any]] = []
    body: list[list[str]] = []
    # the last round of each tenth of the run
    labels = [f"{((i + 1) * last + 9) // 10:,}" for i in range(10)]
    for name in study.learners:
        for arm in [*shown, *(["others"] if rest > 0 else [])]:
            cells = [name, arm]
            for i in range(10):
                here = (names == name) & (tenth == i)
                chosen = ~np.isin(arms[here], shown) if arm == "others" else arms[here] == arm
                share = float(chosen.mean()) if here.any() else 0.0
                rows.append({"series": "share", "x": labels[i], "row": arm, "y": round(share, 4), "learner": name})
                cells.append(f"{share:.0%}")
            body.append(cells)
    order = (*shown, *(("others",) if rest > 0 else ()))
    chart = Chart(
        "grid",
        rows,
        [Series("share", 4)],
        f"{_round_title(study)}, up to",
        "Share of rounds",
        controls=(Control("learner", "Learner", tuple(study.learners), study.best),),
        x_order=tuple(labels),
        row_order=order,
    )
    picture, specification = interactive.figure(
        "arms",
        chart,
        describes="How often each arm was chosen in each tenth of the run. Numbers in the table.",
        words=[
            f"The stronger the colour, the more often; the strongest cell is {max(row['y'] for row in rows):.0%} of "
            "the rounds. Arms are in the order of how often all learners together chose them."
        ],
        numbers=html.table(
            "Share of rounds in each tenth of the run", ["learner", "arm", *(f"to {label}" for label in labels)], body
        ),
        height=70 + 26 * len(order),
    )
    return Part("Arms chosen over time", "chosen", [picture], {"arms": specification})
