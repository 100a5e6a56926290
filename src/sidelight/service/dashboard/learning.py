"""What the learner knows: estimates and widths per arm, what each log still counts for, what asking has cost."""

from __future__ import annotations

import contextlib
import math
from collections.abc import Sequence
from typing import Any, NamedTuple

from markupsafe import Markup

from sidelight.drawing.intervals import number
from sidelight.drawing.live import share_bar, spark, strip
from sidelight.labels import Label
from sidelight.service.core.fold import State
from sidelight.service.core.teaching import LEARNER_ERRORS
from sidelight.service.dashboard.pieces import count, drawn, give_or_take, percent, piece, table
from sidelight.service.dashboard.rolling import Rolling
from sidelight.service.dashboard.traffic import WORDS, window_of

__all__ = ["ArmRow", "arm_rows", "arms_table", "queries", "trust"]

#: arms in a table unless the reader asks for all
SHOWN = 10
#: words for a log that is not doubted, by the reason why it counts for less; None: it counts in full
VERDICTS = {
    None: "trusted",
    "curved": "rewards are curved",
    "moving": "the present moves",
    "undecided": "not decided yet",
}


class ArmRow(NamedTuple):
    """What is known about an arm.

    Attributes:
        taken: how often it was to be taken in the span.
        share: of all decisions in the span.
        over_time: how often in each slot of the span.
        rewards, mean: number and mean of its rewards since the log began.
        estimate, width: of its mean reward over the last contexts; NaN where the learner has none.
    """

    arm: Label
    taken: int
    share: float
    over_time: Sequence[int]
    rewards: int
    mean: float
    estimate: float
    width: float


def arm_rows(state: State, rolling: Rolling, span: str, now: float) -> list[ArmRow]:
    """All arms, the most taken first."""
    learner, window = state.learner, window_of(rolling, span)
    estimates = widths = [math.nan] * len(learner.arms)
    found = rolling.mean_context()
    if found is not None:
        # where the learner fails, the table has dashes; failures are counted and logged where decisions are made
        with contextlib.suppress(*LEARNER_ERRORS):
            estimates, widths = learner.scores(found[0])
            estimates = learner.shown(estimates)
    rows = window.arms(now)
    everything = window.total("decisions", now)
    out = []
    for i, arm in enumerate(learner.arms):
        place = rolling.arms.get(arm)
        over_time = [0] * len(rows) if place is None else [row[place] for row in rows]
        taken = sum(over_time)
        _, rewards, mean = state.arm_totals(arm)
        mean = math.nan if mean is None else mean
        share = taken / everything if everything else 0.0
        out.append(ArmRow(arm, taken, share, over_time, rewards, mean, float(estimates[i]), float(widths[i])))
    order = sorted(range(len(out)), key=lambda i: (-out[i].taken, -out[i].rewards, i))
    return [out[i] for i in order]


def arms_table(rows: Sequence[ArmRow], span: str, contexts: int, every: bool = False) -> Markup:
    """The arms as a table; the first few unless ``every``."""
    shown = rows if every else rows[:SHOWN]
    ends = [
        end
        for row in shown
        for end in (row.estimate - row.width, row.estimate, row.estimate + row.width)
        if math.isfinite(end)
    ]
    bounds = (min(ends), max(ends)) if ends else (0.0, 1.0)
    highest = max((max(row.over_time) for row in shown), default=1) or 1
    body = []
    for row in shown:
        known = math.isfinite(row.estimate)
        body.append(
            [
                str(row.arm),
                piece("noted", count(row.taken), percent(row.share)),
                drawn(spark(row.over_time, highest=highest)),
                piece("noted", number(row.mean), f"of {count(row.rewards)}"),
                give_or_take(row.estimate, row.width) if known else "–",
                drawn(strip(row.estimate, row.estimate - row.width, row.estimate + row.width, bounds)) if known else "",
            ]
        )
    caption = f"Taken in {WORDS[span]}; mean reward of all time; estimate of each arm's mean reward" + (
        f" over the last {contexts} contexts" if contexts else ", after the next decision"
    )
    if ends:
        caption += f", drawn from {number(bounds[0])} to {number(bounds[1])}"
    header = ["Arm", "Taken", "Over time*~", "Mean reward*", "Estimate", "Interval~"]
    made = table(caption, header, body, "arms")
    if len(shown) < len(rows):
        made += piece("note", f"The {len(shown)} most taken of {len(rows)} arms.")
    return made


# ------------------------------------------------------------------------------------------- logs


def trust(state: State, first: Sequence[Label]) -> Markup:
    """The weight of each log by arm, at most ``SHOWN`` each: doubted arms first, then reduced ones, then ``first``."""
    entries: list[dict[str, Any]] = state.learner.log_trust()
    if not entries:
        return piece(
            "empty",
            "This learner does not weigh a log against what it sees: either it has none, or it holds to it exactly.",
        )
    logs: dict[Any, list[dict[str, Any]]] = {}
    for entry in entries:
        logs.setdefault(entry["log"], []).append(entry)
    place = {arm: i for i, arm in enumerate(first)}
    told = [entry["says"] for entry in state.learner.assumptions() if not entry["holds"]]
    notes = [piece("note", words) for words in told]
    return Markup("").join([*notes, *(_one_log(name, arms, place) for name, arms in logs.items())])


def _one_log(name: Any, entries: list[dict[str, Any]], place: dict[Label, int]) -> Markup:
    doubted = [entry for entry in entries if entry["doubted"]]
    reduced = [entry for entry in entries if entry["reduced"]]
    shares = [float(entry["share"]) for entry in entries if math.isfinite(entry["share"])]
    title = "The log" if name is None else f"Log {name}"
    mean = sum(shares) / len(shares) if shares else math.nan
    words = f"{percent(mean)} of what is known about an arm rests on it, on average over {len(entries)} arms. "
    if doubted and doubted[0]["feature"] is not None:
        words += f"What it says about {doubted[0]['feature']} is doubted; the rest is believed."
    elif doubted and doubted[0]["whole_log"]:
        words += "It is doubted as a whole: what is seen online contradicts it."
    elif doubted:
        words += f"It is doubted for {len(doubted)} arm{'s' if len(doubted) > 1 else ''}."
    elif any(entry["cause"] == "undecided" for entry in reduced):
        words += "It counts for less because rewards do not fit it: it is wrong, or rewards are not linear."
    elif reduced:
        why = "rewards are not linear" if reduced[0]["cause"] == "curved" else "the present moves"
        words += f"It counts for less because {why}, not because it is wrong."
    else:
        words += "Nothing seen so far contradicts it."
    order = sorted(
        entries, key=lambda entry: (not entry["doubted"], not entry["reduced"], place.get(entry["arm"], len(place)))
    )
    rows = [
        [
            str(entry["arm"]),
            drawn(share_bar(float(entry["share"]), "alarm" if entry["doubted"] else "")),
            percent(float(entry["share"])) if math.isfinite(entry["share"]) else "–",
            count(entry["effective_rows"]) if math.isfinite(entry.get("effective_rows", math.nan)) else "all",
            piece("alarm", "doubted") if entry["doubted"] else VERDICTS[entry["cause"]],
        ]
        for entry in order[:SHOWN]
    ]
    caption = "Share of what is known about each arm that rests on the log"
    if len(entries) > SHOWN:
        caption += f"; {SHOWN} of {len(entries)} arms, doubted ones first"
    look = "alarm" if doubted else ""
    header = ["Arm", "Rests on the log*~", "Share", "Counts as rows", "Verdict"]
    return piece("one_log", title, words, look, table(caption, header, rows, "trust"))


# ----------------------------------------------------------------------------------------- asking


def queries(state: State, rolling: Rolling, now: float) -> Markup:
    """How often the old policy was asked and answered, against the budget."""
    learner = state.learner
    if learner.needs is None:
        return piece("empty", "This learner asks the old policy nothing.")
    hour = rolling.hour
    asked, answers, decisions = (hour.total(name, now) for name in ("asked", "answers", "decisions"))
    asking = getattr(learner, "asking", None)
    budget = None if asking is None else asking.budget
    spent_so_far: int = state.counts["answers"] if asking is None else asking.asked
    facts = [
        ("Answers so far", count(spent_so_far)),
        ("Asked in an hour", f"{count(asked)} of {count(decisions)} decisions"),
        ("Answered in an hour", count(answers)),
    ]
    bar = ""
    if budget is None:
        facts.insert(0, ("Budget", "no limit: every decision asks"))
    elif budget >= 1:
        used = spent_so_far / budget
        facts.insert(0, ("Budget", f"{count(budget)} answers, {percent(min(used, 1.0))} spent"))
        bar = share_bar(used)
    else:
        rounds = int(learner.counts.sum())
        spent = spent_so_far / rounds if rounds else 0.0
        facts.insert(0, ("Budget", f"{percent(budget)} of rewarded decisions, {percent(spent)} spent"))
        bar = share_bar(spent / budget if budget else 0.0)
    return piece("facts", facts, drawn(bar))
