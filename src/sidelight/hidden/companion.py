"""The hidden half from a companion log: fewer rows of the same old policy, with every column."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal

import numpy as np
from numpy.typing import ArrayLike

from sidelight.errors import InputError
from sidelight.hidden.answers import AnswerEstimator, EstimatorName
from sidelight.hidden.protocol import Needs
from sidelight.logs.summarize import summarize_log
from sidelight.logs.summary import LogSummary

if TYPE_CHECKING:
    from sidelight.linalg import Array

__all__ = ["CompanionLog"]


class CompanionLog(AnswerEstimator):
    """Learns ``B_a`` from a fully recorded log of the same policy; nothing needs to be asked online.

    Every row of the companion is an answer: at this full context, the old policy took that arm.  Its rewards
    are evidence of their own, which the fused learners use as if they had been observed online.

    Args:
        summary: the large log whose hidden half is learned.
        source: the companion, anything ``summarize_log`` reads, with all features of the schema; or its summary.
        estimator: ``"regression"`` (default), ``"ipw"`` or ``"control_variate"``.
        pooling: pull of each arm's regression toward the pooled one, in answers, or ``"auto"``.

    Attributes:
        rows: the summary of the companion, all features recorded.

    Examples:
        >>> import numpy as np, sidelight as sl
        >>> world = sl.worlds.ConfoundedWorld(seed=0)
        >>> rng = np.random.default_rng(1)
        >>> log = sl.summarize_log(world.sample_log(5_000, recorded=6, rng=rng), world.schema(6))
        >>> sl.CompanionLog(log, world.sample_log(300, recorded=10, rng=rng))
        CompanionLog(regression, 300 answers, 4 of 10 features hidden)
    """

    needs: Needs = None

    def __init__(
        self,
        summary: LogSummary,
        source: Any,
        estimator: EstimatorName = "regression",
        pooling: float | Literal["auto"] = "auto",
    ) -> None:
        super().__init__(summary, estimator, pooling)
        if isinstance(source, LogSummary):
            rows = source
        else:
            schema = summary.schema
            full = schema.with_recorded([feature.name for feature in schema.features]).with_arms(summary.arms)
            rows = summarize_log(source, full)
        self._take(rows)

    def _take(self, rows: LogSummary) -> None:
        summary = self.summary
        if rows.n_recorded != rows.n_features or rows.n_features != summary.n_features:
            raise InputError(
                f"The companion log records {rows.n_recorded} of {rows.n_features} features; it must record all "
                f"{summary.n_features} of them."
            )
        if tuple(rows.arms) != tuple(summary.arms):
            raise InputError(f"The companion log has the arms {rows.arms!r} and the log {summary.arms!r}.")
        self.rows = self.companion = rows
        # rows.recorded lists the features in its own order: bring them to recorded-first of the large log
        position = np.empty(rows.n_features, dtype=np.int64)
        position[rows.recorded] = np.arange(rows.n_features)
        take = position[self.sums.order]
        S = rows.grams[:, take][:, :, take]
        L = self.sums.L
        self.sums.S = np.ascontiguousarray(S)
        self.sums.S_squared = np.ascontiguousarray(S[:, :L, :L])
        self.sums.sums = (rows.means * rows.counts[:, None])[:, take]
        self.sums.counts = rows.counts.astype(np.float64)
        self.sums.heaviest = np.ones(len(self.sums.counts))
        self.sums.n_answers = int(rows.n_rows)
        self.sums.total_weight = float(rows.n_rows)
        self._answered()

    def observe(self, x: ArrayLike, answer: Any, probability: float = 1.0) -> None:
        """Ignored: the companion log's rows are all that this estimator learns from."""

    def state(self) -> tuple[dict[str, Any], dict[str, Array]]:
        """The sums, and the companion itself."""
        meta, arrays = super().state()
        return meta, {**arrays, "companion": np.frombuffer(self.rows.to_bytes(), dtype=np.uint8)}

    def restore(self, meta: dict[str, Any], arrays: dict[str, Array]) -> None:
        """The inverse of ``state``."""
        self.rows = self.companion = LogSummary.from_bytes(np.asarray(arrays["companion"], dtype=np.uint8).tobytes())
        super().restore(meta, arrays)
