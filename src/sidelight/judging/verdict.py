"""The verdict: what every policy would be worth, stage by stage, as a table, a sentence, a card and a picture."""

from __future__ import annotations

import datetime as dt
import math
from pathlib import Path
from typing import TYPE_CHECKING, Any

from sidelight.drawing.notebook import card
from sidelight.drawing.stages import Picture
from sidelight.files import write_atomically
from sidelight.judging.decision_page import decision_page, picture_of
from sidelight.judging.lines import Findings
from sidelight.judging.wording import cells_of, percent, sentence_of
from sidelight.labels import counted

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = ["Verdict"]


class Verdict(Findings):
    """What policies would be worth, and how sure that is; made by :func:`sidelight.judge`.

    Its attributes are those of :class:`~sidelight.judging.lines.Findings`.

    Examples:
        >>> import numpy as np, sidelight as sl
        >>> rng = np.random.default_rng(0)
        >>> arm = rng.integers(0, 2, 2_000)
        >>> verdict = sl.judge({"x": rng.normal(size=2_000), "arm": arm, "reward": arm + rng.normal(size=2_000)},
        ...                    sl.Schema(["x"], recorded=["x"]))
        >>> verdict.table.column_names[:7]
        ['policy', 'stage', 'value', 'gain', 'low', 'high', 'robustness']
        >>> verdict.line("always 1").sign
        1
    """

    @property
    def table(self) -> pa.Table:
        """Arrow table, a row for each line: ``policy, stage, value, gain, low, high, robustness``, then the rest of it.

        ``together`` is how many intervals hold together: the fixed arms that nobody asked for are candidates, and the
        best of them may be picked.
        """
        import pyarrow as pa

        names = ("policy", "stage", "value", "gain", "low", "high", "robustness", "error", "hidden")
        text = {"policy", "stage"}
        columns = {
            name: pa.array(
                [getattr(line, name) for line in self.lines],
                pa.string() if name in text else pa.float64(),
                from_pandas=True,
            )
            for name in names
        }
        columns["rows"] = pa.array([line.rows for line in self.lines], pa.int64())
        columns["note"] = pa.array([line.note for line in self.lines], pa.string())
        columns["role"] = pa.array([line.role for line in self.lines], pa.string())
        columns["together"] = pa.array([line.together for line in self.lines], pa.int64())
        return pa.table(columns)

    @property
    def benchmarks(self) -> pa.Table:
        """Recorded features as yardsticks for the headline: ``feature, reward_share, choice_share, times``."""
        import pyarrow as pa

        found = self.yardsticks
        return pa.table(
            {
                "feature": pa.array([b.feature for b in found], pa.string()),
                "reward_share": pa.array([b.reward_share for b in found], pa.float64()),
                "choice_share": pa.array([b.choice_share for b in found], pa.float64()),
                "times": pa.array([b.times for b in found], pa.float64()),
            }
        )

    @property
    def sentence(self) -> str:
        """One sentence: the best policy's gain, its interval, and what would overturn it."""
        return sentence_of(self)

    def to_dict(self) -> dict[str, Any]:
        """Everything in plain JSON values; infinite and missing numbers are ``None``."""
        simpler = self.simpler
        return {
            "sentence": self.sentence,
            "headline": self.headline,
            "picked": self.picked,
            "level": self.level,
            "reward_share": self.reward_share,
            "choice_share": self.choice_share,
            "rows": self.rows,
            "source": self.source,
            "reward": self.reward,
            "lines": [line.to_dict() for line in self.lines],
            "benchmarks": [
                {
                    "feature": b.feature,
                    "reward_share": b.reward_share,
                    "choice_share": b.choice_share,
                    "times": b.times if math.isfinite(b.times) else None,
                }
                for b in self.yardsticks
            ],
            "simpler": None
            if simpler is None
            else {
                "policy": simpler.policy,
                "stage": simpler.stage,
                "difference": simpler.difference,
                "low": simpler.low,
                "high": simpler.high,
                "as_good": simpler.as_good,
            },
            "overlap": [overlap.to_dict() for overlap in self.overlaps],
            "at_its_word": self.word if math.isfinite(self.word) else None,
            "assumptions": list(self.assumptions),
            "warnings": list(self.warnings),
        }

    def plot(self, kind: str = "stages", policy: str | None = None) -> Picture:
        """A picture as SVG, drawn without the extra ``figures``.

        Args:
            kind: ``"stages"``: the interval of the gain stage by stage, what hidden features may do as a band around
                it; ``"contour"``: which strengths of hidden features would overturn what the log says.
            policy: the headline if ``None``.
        """
        return picture_of(self, kind, policy)

    def to_html(
        self, path: str | Path | None = None, command: str = "", unit: str | None = None, date: dt.date | None = None
    ) -> str:
        """One page for whoever decides; also written to ``path`` if one is given.

        Args:
            path: where to write it.
            command: how to make the page again, for its foot.
            unit: of the reward; its column's name if ``None``.
            date: today if ``None``.
        """
        page = decision_page(self, command, unit, date)
        if path is not None:
            write_atomically(path, page.encode())
        return page

    def _repr_html_(self) -> str:
        header = ("policy", "stage", "value", "gain", f"{percent(self.level)} interval", "robustness", "")
        rows = [cells_of(line) for line in self.lines]
        facts = [("log", f"{self.source}, {counted(self.rows, 'row')}"), ("holds if", " ".join(self.assumptions))]
        return card(self.sentence, facts, "What each policy would be worth", header, rows, self.warnings)

    def __repr__(self) -> str:
        return f"Verdict({self.sentence})"
