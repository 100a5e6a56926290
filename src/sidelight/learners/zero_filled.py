"""The baseline that people use today: the log fed to a ridge learner, zeros for what it lacks."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Unpack

import numpy as np

from sidelight.learners.reduced import ReducedLearner
from sidelight.learners.settings import SettingArguments, Settings, lists_settings
from sidelight.logs.summary import LogSummary, one_summary
from sidelight.side.constraint import unreduced

if TYPE_CHECKING:
    from sidelight.logs.schema.schema import Schema

__all__ = ["ZeroFilledOFUL"]


class ZeroFilledOFUL(ReducedLearner):
    """OFUL warm-started as if the hidden features of every logged row had been zero.

    That is wrong wherever the hidden features matter and go with the recorded ones; it is here because it
    is what one would do without Sidelight, and because it is hard to beat where they do not.

    Args:
        summary: the log.
        regularization, prior_mean, noise, alpha, delta, context_bound, weight_bound, radius: see ``Settings``.
        schema, arms: default those of the log.
        rng: unused; every learner takes one.

    Examples:
        >>> import numpy as np, sidelight as sl
        >>> schema = sl.Schema.for_arrays(3, recorded=2, n_arms=2)
        >>> rng = np.random.default_rng(0)
        >>> log = sl.LogSummary.from_arrays(rng.normal(size=(50, 2)), np.arange(50) % 2, rng.normal(size=50), schema)
        >>> sl.ZeroFilledOFUL(log).scores([0.0, 0.0, 1.0])[0].tolist()   # the log never saw the third feature
        [0.0, 0.0]
    """

    @lists_settings()
    def __init__(
        self,
        summary: LogSummary,
        *,
        schema: Schema | None = None,
        arms: Sequence[Any] | None = None,
        rng: np.random.Generator | None = None,
        **given: Unpack[SettingArguments],
    ) -> None:
        one_summary(summary, type(self).__name__)
        settings = Settings.of(given)
        order = np.concatenate([summary.recorded, summary.hidden]).astype(np.int64)
        super().__init__(
            summary.arms if arms is None else list(arms),
            unreduced(summary.n_arms, summary.n_features, order),
            settings,
            summary.schema if schema is None else schema,
            rng,
            log=summary,
        )
        self._learn_from_log()  # the log's units, in which its sums are then read
        L = summary.n_recorded
        self.grams[:, :L, :L] = summary.grams
        self.moments[:, :L] = summary.cross
        self.counts[:] = summary.counts
        self.squares[:] = summary.reward_squares
        self.refresh()
        self._learn_from_log()
