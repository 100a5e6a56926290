"""The parts of a report about the learners themselves: assumptions they tested, their estimates, and their widths."""

from __future__ import annotations

from typing import Any

import numpy as np

from sidelight.drawing import interactive
from sidelight.drawing import markup as html
from sidelight.drawing.charts import Chart, Control
from sidelight.drawing.intervals import Interval, number, significant, span
from sidelight.drawing.series import Series
from sidelight.report.parts import Part, numbers_of, series_of
from sidelight.report.study import Study
from sidelight.side.misfit import ERROR_RATE
from sidelight.side.trust import HONEST_DOUBTED

__all__ = ["estimates_part", "findings_part", "widths_part"]

#: ``Finding.holds`` → its word
_RESULTS = {True: "Nothing speaks against it", False: "Does not hold", None: "Not decided yet"}


def findings_part(study: Study) -> Part:
    """The learners' tests, in the first seed's run, of the log, of linear rewards and of rewards constant over time."""
    told = [
        html.facts(
            (
                f"{name}: {finding.tested}",
                f"{_RESULTS[finding.holds]}. {finding.says}",
            )
            for finding in findings
        )
        for name, findings in study.findings.items()
    ]
    words = html.paragraph(
        "A learner that reads a log tests what it rests on while it learns, at every refresh. An honest log is ever "
        f"called wrong in at most {HONEST_DOUBTED:.0%} of runs, linear rewards called curved and a present that stands "
        f"still called moving in at most {ERROR_RATE:.0%} each. A log that fits badly because rewards are curved or "
        "the present moves counts for less, and is not called wrong. At the end of the first seed's run:"
    )
    return Part("Do the assumptions hold?", "findings-part", [words, *told], {})


def estimates_part(study: Study) -> Part:
    """Estimated against true rewards of arms in contexts that were not played, at the start and at the end."""
    assert study.probes is not None
    held = study.probes.to_pydict()
    names, rounds = np.array(held["learner"]), np.array(held["round"])
    truth, estimate, width = (np.array(held[c]) for c in ("truth", "estimate", "width"))
    stages = {"before the first round": 0, "at the end": int(rounds.max())}
    pairs = np.random.default_rng(7).permutation(len(truth[(names == study.best) & (rounds == 0)]))[:70]
    rows: list[dict[str, Any]] = []
    body: list[list[str]] = []
    covered: list[str] = []
    for name in study.probed:
        for stage, t in stages.items():
            mine = (names == name) & (rounds == t)
            inside = float((np.abs(estimate[mine] - truth[mine]) <= width[mine]).mean())
            error = float(np.sqrt(((estimate[mine] - truth[mine]) ** 2).mean()))
            body.append([name, stage, number(error), number(float(width[mine].mean())), f"{inside:.0%}"])
            if name == study.best and t:
                covered.append(f"{inside:.0%} of {study.best}'s intervals hold the truth at the end")
            contexts, arms = np.array(held["context"])[mine][pairs], np.array(held["arm"])[mine][pairs]
            for x, y, w, c, a in zip(
                truth[mine][pairs], estimate[mine][pairs], width[mine][pairs], contexts, arms, strict=True
            ):
                rows.append(
                    {
                        "series": "arm in a context",
                        "x": significant(float(x)),
                        "y": significant(float(y)),
                        "low": significant(float(y - w)),
                        "high": significant(float(y + w)),
                        "learner": name,
                        "stage": stage,
                        "context": int(c),
                        "arm": str(a),
                    }
                )
    chart = Chart(
        "points",
        rows,
        [Series("arm in a context", 4)],
        "True mean reward",
        "Estimate",
        diagonal=True,
        controls=(
            Control("learner", "Learner", tuple(study.probed), study.best),
            Control("stage", "When", tuple(stages), "at the end"),
        ),
    )
    numbers = html.table(
        "Over all probed contexts and arms of the first seed",
        ["learner", "when", "root mean square error", "mean width", "intervals that hold the truth"],
        body,
    )
    listed = [r for r in rows if r["learner"] == study.best and r["stage"] == "at the end"]
    numbers += html.table(
        f"The points of the picture: {study.best} at the end",
        ["context", "arm", "truth", "estimate", "interval"],
        [
            [str(r["context"]), r["arm"], number(r["x"]), number(r["y"]), span(Interval(r["y"], r["low"], r["high"]))]
            for r in listed
        ],
    )
    picture, specification = interactive.figure(
        "estimates",
        chart,
        describes="Estimated against true mean rewards, for the chosen learner and time. Numbers in the table.",
        words=[
            f"Each point is one arm in one context that was not played; on the dashed line it would be right. The bar "
            "is the width the learner adds when it decides, not a proven interval unless its radius is one. "
            f"{'. '.join(covered)}."
        ],
        numbers=numbers,
    )
    return Part("Estimates against the truth", "estimates-part", [picture], {"estimates": specification})


def widths_part(study: Study) -> Part:
    """The mean width over arms and contexts, round by round."""
    assert study.probes is not None
    grouped = study.probes.group_by(["learner", "round"], use_threads=False).aggregate([("width", "mean")]).to_pylist()
    rows = [
        {"series": g["learner"], "x": max(int(g["round"]), 1), "y": float(g["width_mean"])}
        for g in sorted(grouped, key=lambda g: (g["learner"], g["round"]))
        if g["width_mean"] > 0
    ]
    known = {row["series"] for row in rows}
    series = [s for s in series_of(study) if s.name in known]
    chart = Chart("lines", rows, series, "Round", "Mean width", x_scale="log", y_scale="log", markers=True)
    tabled = [{**row, "low": row["y"], "high": row["y"]} for row in rows]
    picture, specification = interactive.figure(
        "widths",
        chart,
        describes="The mean width of each learner over rounds, both axes logarithmic. Numbers in the table.",
        words=[
            "How unsure each learner is, on average over arms and contexts; round 1 stands for the start. Learners "
            "that read the log begin narrower. Widths of different radii are not comparable in size, their fall is."
        ],
        numbers=numbers_of("Mean width", "Round", tabled, [s.name for s in series]),
    )
    return Part("How the widths shrink", "widths-part", [picture], {"widths": specification})
