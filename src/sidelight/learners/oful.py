"""OFUL without a log: one ridge regression per arm, and optimism."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Unpack

import numpy as np

from sidelight.arrays import whole_number
from sidelight.learners.reduced import ReducedLearner
from sidelight.learners.settings import SettingArguments, Settings, lists_settings
from sidelight.side.constraint import unreduced

if TYPE_CHECKING:
    from sidelight.logs.schema.schema import Schema

__all__ = ["OFUL"]


class OFUL(ReducedLearner):
    """The linear contextual bandit that knows nothing at the start (Abbasi-Yadkori et al., 2011).

    Args:
        n_arms: K.
        n_features: d.
        regularization, prior_mean, noise, alpha, delta, context_bound, weight_bound, radius: see ``Settings``.
        schema: to take contexts by feature name.
        arms: labels; default ``0 … K−1``.
        rng: unused; every learner takes one.

    Examples:
        >>> import sidelight as sl
        >>> learner = sl.OFUL(2, 3, arms=["low", "high"], noise=0.5)
        >>> learner.observe([1.0, 0.0, 0.0], "high", 2.0)
        >>> learner.decide([1.0, 0.0, 0.0]).arm
        'high'
    """

    @lists_settings()
    def __init__(
        self,
        n_arms: int,
        n_features: int,
        *,
        schema: Schema | None = None,
        arms: Sequence[Any] | None = None,
        rng: np.random.Generator | None = None,
        **given: Unpack[SettingArguments],
    ) -> None:
        n_arms, n_features = whole_number(n_arms, "n_arms", 1), whole_number(n_features, "n_features", 1)
        settings = Settings.of(given)
        labels = range(n_arms) if arms is None else arms
        super().__init__(list(labels), unreduced(n_arms, n_features), settings, schema, rng)
