"""How a learner shows itself: scores as a table with labels, and a card in a notebook."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from sidelight.drawing.notebook import card
from sidelight.logs.cards import label_column

if TYPE_CHECKING:
    import pyarrow as pa

    from sidelight.learners.protocol import Context

__all__ = ["decisions_table", "learner_card", "score_table"]


def score_table(learner: Any, x: Context) -> pa.Table:
    """One row for each arm at ``x``: ``arm, estimate, width, index, observations``."""
    import pyarrow as pa

    estimates, widths = learner.scores(x)
    return pa.table(
        {
            "arm": label_column(learner.arms),
            "estimate": learner.shown(estimates),
            "width": widths,
            "index": estimates + widths,
            "observations": learner.counts,
        }
    )


def decisions_table(decisions: Any) -> pa.Table:
    """One row for each decision: ``arm, estimate, width, propensity``."""
    import pyarrow as pa

    columns: dict[str, Any] = {"arm": label_column([decision.arm for decision in decisions])}
    for name in ("estimate", "width", "propensity"):
        columns[name] = pa.array([float(getattr(decision, name)) for decision in decisions], pa.float64())
    return pa.table(columns)


def learner_card(learner: Any) -> str:
    """The learner as HTML: its settings, the observations of each arm, and what its logs still count for."""
    s = learner.settings
    pairs = [(name, str(getattr(s, name))) for name in ("regularization", "noise", "alpha", "radius")]
    if learner.needs is not None:
        pairs.append(("learns from", f"the old policy's {learner.needs}"))
    header: tuple[str, ...] = ("arm", "observations")
    rows: list[tuple[str, ...]] = [(str(arm), f"{n:,}") for arm, n in zip(learner.arms, learner.counts, strict=True)]
    trust = {(entry["arm"], entry["log"]): entry for entry in learner.log_trust()}
    for log in dict.fromkeys(log for _, log in trust):
        header += (f"log rows that count{'' if log is None else f', {log}'}",)
        for i, arm in enumerate(learner.arms):
            entry = trust.get((arm, log))
            cell = "–" if entry is None else f"{entry['effective_rows']:,.0f}{' (doubted)' if entry['doubted'] else ''}"
            rows[i] += (cell,)
    return card(repr(learner), pairs, "Arms", header, rows)
