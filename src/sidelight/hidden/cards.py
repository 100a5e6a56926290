"""How estimators of the hidden half show themselves in a notebook."""

from __future__ import annotations

from typing import Any

from sidelight.drawing.notebook import card
from sidelight.linalg import Array
from sidelight.logs.summary import LogSummary

__all__ = ["estimator_card"]


def estimator_card(estimator: Any, summary: LogSummary, answers: Array | None = None) -> str:
    """The estimator in a sentence, what is hidden, and for each arm rows of the log beside answers.

    Args:
        estimator: whose ``repr`` is the sentence.
        summary: its log.
        answers: (K,)  the weight of the answers about each arm; None where none are needed.
    """
    names = [feature.name for feature in summary.schema.features if feature.name not in summary.schema.recorded]
    rows = [
        [str(arm), f"{int(count):,}", *([] if answers is None else [f"{answers[a]:,.0f}"])]
        for a, (arm, count) in enumerate(zip(summary.arms, summary.counts, strict=True))
    ]
    header = ["arm", "rows of the log", *([] if answers is None else ["answers"])]
    return card(repr(estimator), [("hidden", ", ".join(names) or "nothing")], "The arms", header, rows)
