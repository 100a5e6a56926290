"""Regret over rounds: means with confidence intervals, and the picture of them.

Everything is computed from the table that ``simulate`` returns, so a picture redraws without rerunning.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

import pyarrow as pa

from sidelight.drawing.colours import FONT, GREY, INK, LINE, PAPER
from sidelight.drawing.curves import curves
from sidelight.drawing.end_labels import places
from sidelight.drawing.intervals import Interval, significant, student
from sidelight.drawing.series import learner_series
from sidelight.drawing.vega_lite import axis_style, title_of
from sidelight.errors import InputError, MissingExtraError, how_to_install

__all__ = ["Standing", "regret_bands", "regret_spec", "standings"]

# ---------------------------------------------------------------------------------------------------- numbers


@dataclass(frozen=True)
class Standing:
    """Where one learner stands at the end: mean over seeds, its interval, and its paired difference.

    Attributes:
        learner: its name in the table.
        seeds: how many runs.
        mean, low, high: of the final cumulative regret; the interval is Student's, ``nan`` for one seed.
        difference, difference_low, difference_high: of its regret minus the baseline's, seed by seed.
    """

    learner: str
    seeds: int
    mean: float
    low: float
    high: float
    difference: float
    difference_low: float
    difference_high: float

    @property
    def final(self) -> Interval:
        """The final cumulative regret: mean over seeds, and its interval."""
        return Interval(self.mean, self.low, self.high)

    @property
    def paired(self) -> Interval:
        """The regret minus the baseline's, seed by seed: mean, and its interval."""
        return Interval(self.difference, self.difference_low, self.difference_high)

    def to_dict(self) -> dict[str, Any]:
        """All attributes in plain JSON values; ``nan`` becomes None."""
        return {k: None if isinstance(v, float) and math.isnan(v) else v for k, v in asdict(self).items()}


def standings(table: pa.Table, baseline: str) -> list[Standing]:
    """The last round of every learner, in the table's order, each compared with ``baseline`` on the same seeds."""
    held = curves(table)
    if baseline not in held:
        raise InputError(f"The baseline {baseline!r} is not a learner of this table ({', '.join(held)}).")
    reference = held[baseline][1][:, -1]
    out = []
    for learner, (_, regrets) in held.items():
        final = regrets[:, -1]
        out.append(Standing(learner, len(final), *student(final), *student(final - reference)))
    return out


def regret_bands(table: pa.Table) -> list[dict[str, Any]]:
    """One row for each learner and round: ``learner, round, mean, low, high`` over the seeds."""
    rows = []
    for learner, (rounds, regrets) in curves(table).items():
        for t, values in zip(rounds.tolist(), regrets.T, strict=True):
            bounds = {name: significant(bound) for name, bound in student(values).drawn._asdict().items()}
            rows.append({"learner": learner, "round": t, **bounds})
    return rows


# ---------------------------------------------------------------------------------------------------- picture


def regret_spec(
    table: pa.Table,
    *,
    title: str,
    subtitle: str | Sequence[str] = "",
    emphasis: str | None = None,
    baseline: str | None = None,
    theme: str = "light",
    height: int = 400,
) -> dict[str, Any]:
    """A Vega-Lite picture of the mean regret, its intervals as bands, every line labelled at its end.

    Args:
        table: what ``simulate`` returned.
        title: above the picture.
        subtitle: below the title; one line, or several.
        emphasis: the learner whose line is heavier.
        baseline: the learner whose line is grey; the first, if left out.
        theme: ``"light"`` or ``"dark"``.
        height: of the plot in pixels.
    """
    alt = _altair()
    bands = regret_bands(table)
    names = list(dict.fromkeys(row["learner"] for row in bands))
    labels = _end_labels(bands, names, height)
    ink, grey = INK[theme], GREY[theme]
    series = learner_series(names, names[0] if baseline is None else baseline, emphasis)
    inks, dashes = [s.ink(theme) for s in series], [list(s.dash) for s in series]
    weights = [3.6 if s.heavy else 2.0 for s in series]
    colour = alt.Color("learner:N", scale=alt.Scale(domain=names, range=inks), legend=None, sort=names)
    dash = alt.StrokeDash("learner:N", scale=alt.Scale(domain=names, range=dashes), legend=None)
    weight = alt.StrokeWidth("learner:N", scale=alt.Scale(type="ordinal", domain=names, range=weights), legend=None)
    top = max(max(row["high"] for row in bands), max(row["position"] for row in labels))
    x = alt.X("round:Q", title="Round", axis=alt.Axis(grid=False, tickCount=6, format=",d"))
    y = alt.Y(
        "mean:Q", title="Cumulative regret", scale=alt.Scale(domain=[0, top], nice=False), axis=alt.Axis(tickCount=6)
    )
    base = alt.Chart(alt.Data(values=bands))
    band = base.mark_area(opacity=0.12, clip=True).encode(
        x=x, y=alt.Y("low:Q", title="Cumulative regret"), y2="high:Q", color=colour
    )
    line = base.mark_line(interpolate="monotone", strokeCap="butt").encode(
        x=x, y=y, color=colour, strokeDash=dash, strokeWidth=weight
    )
    text = (
        alt.Chart(alt.Data(values=labels))
        .mark_text(align="left", baseline="middle", dx=9, fontSize=12.5, fontWeight=600)
        .encode(x="round:Q", y="position:Q", text="label:N", color=colour)
    )
    near = alt.selection_point(nearest=True, on="pointerover", fields=["round"], empty=False, clear="pointerout")
    rule = (
        base.transform_pivot("learner", value="mean", groupby=["round"])
        .mark_rule(color=grey, strokeWidth=1)
        .encode(
            x="round:Q",
            opacity=alt.condition(near, alt.value(0.8), alt.value(0)),
            tooltip=[
                alt.Tooltip("round:Q", title="Round", format=","),
                *(alt.Tooltip(f"{_escape(n)}:Q", title=n, format=",.1f") for n in names),
            ],
        )
        .add_params(near)
    )
    chart = (
        alt.layer(band, line, text, rule)
        .properties(
            width=620,
            height=height,
            background=PAPER[theme],
            # extra margin on the right: a reader's font may be wider than the one used for measuring the labels
            padding={"left": 14, "top": 14, "right": 44, "bottom": 12},
            title=alt.TitleParams(**title_of(title, [subtitle] if isinstance(subtitle, str) else subtitle, ink, grey)),
        )
        .configure(font=FONT)
        .configure_view(stroke=None)
        .configure_axis(**axis_style(grey, LINE[theme]))
    )
    spec: dict[str, Any] = chart.to_dict()
    return spec


def _end_labels(bands: list[dict[str, Any]], names: list[str], height: int) -> list[dict[str, Any]]:
    """Label of every line as near to its end as it can be without covering another."""
    last = {row["learner"]: row for row in bands}
    top = max(row["high"] for row in bands) or 1.0
    gap = 17.0 * top / height  # a line of text, in units of regret
    ends = sorted(names, key=lambda name: last[name]["mean"])
    foot = 0.35 * gap
    positions = places([last[name]["mean"] for name in ends], gap, foot, max(top, foot + gap * (len(ends) - 1)))
    return [
        {
            "learner": name,
            "round": last[name]["round"],
            "position": position,
            "label": f"{name}  {last[name]['mean']:,.0f}",
        }
        for name, position in zip(ends, positions, strict=True)
    ]


def _escape(name: str) -> str:
    """A field name in Altair's shorthand: what it would read as syntax is escaped."""
    for mark in ("\\", ".", "[", "]", ":"):
        name = name.replace(mark, "\\" + mark)
    return name


def _altair() -> Any:
    try:
        import altair
    except ImportError:
        raise MissingExtraError(f"Pictures need altair, which is not installed: {how_to_install('figures')}.") from None
    return altair
