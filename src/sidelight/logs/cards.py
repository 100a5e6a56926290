"""Summaries and eras as a table to compute with, and as an HTML card in a notebook."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from sidelight.drawing.notebook import card
from sidelight.labels import counted
from sidelight.logs.regressions import ArmRegressions

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = ["eras_card", "label_column", "summary_card", "summary_table"]


def summary_table(summary: ArmRegressions) -> pa.Table:
    """One row for each arm: its label, rows, share and residual variance, then ``b_a``, a column for each feature."""
    import pyarrow as pa

    b = summary.least_squares(np.arange(summary.n_arms))
    # missing, not zero, for an arm whose rows do not determine b_a: zeros would look like estimates
    b[~summary.determined] = np.nan
    columns: dict[str, Any] = {
        "arm": label_column(summary.arms),
        "rows": summary.counts,
        "share": summary.shares,
        "residual_variance": summary.residual_variances,
    }
    columns |= {f"b[{name}]": b[:, j] for j, name in enumerate(summary.schema.recorded_names)}
    return pa.table(columns)


def label_column(labels: Iterable[Any]) -> pa.Array:
    """Labels as an Arrow column; as text where they have no type in common."""
    import pyarrow as pa

    known = list(labels)
    try:
        return pa.array(known)
    except (pa.ArrowInvalid, pa.ArrowTypeError):
        return pa.array([str(label) for label in known])


def summary_card(summary: ArmRegressions) -> str:
    """The HTML card that a notebook shows for a summary: features, skipped rows, and a line for each arm."""
    names = summary.schema.encoded_names
    hidden = [names[j] for j in summary.hidden]
    pairs = [
        ("recorded", ", ".join(summary.schema.recorded_names) or "nothing"),
        ("hidden", ", ".join(hidden) or "nothing"),
    ]
    pairs += [("skipped", f"{count:,}: {reason}") for reason, count in summary.skipped.items()]
    rows = [
        (str(arm), f"{n:,}", f"{share:.1%}", f"{variance:.4g}")
        for arm, n, share, variance in zip(
            summary.arms, summary.counts, summary.shares, summary.residual_variances, strict=True
        )
    ]
    return card(repr(summary), pairs, "Arms", ("arm", "rows", "share", "residual variance"), rows)


def eras_card(eras: Mapping[Any, ArmRegressions]) -> str:
    """The HTML card that a notebook shows for several eras: one row for each of them."""
    rows = [
        (
            ", ".join(map(str, key)) if isinstance(key, tuple) else str(key),
            f"{era.n_rows:,}",
            f"{era.n_recorded} of {era.n_features}",
        )
        for key, era in eras.items()
    ]
    return card(
        f"{counted(len(eras), 'era')} of one log", (), "The largest first", ("era", "rows", "columns recorded"), rows
    )
