"""What the user gives a fused learner: estimators by log, their arms, the biases that logs may have; checked."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sidelight.arrays import is_number
from sidelight.errors import InputError
from sidelight.hidden.protocol import CompleteEstimator, HiddenEstimator, completed
from sidelight.learners.settings import Settings
from sidelight.linalg import Array

__all__ = ["bias_directions", "bias_of", "by_key", "check_logs", "check_settings", "labels_of"]


def by_key(hidden: Any, learner: str) -> dict[Any, CompleteEstimator]:
    """The estimators by the name of their log: one alone, a list or a dictionary of them."""
    if isinstance(hidden, Mapping):
        estimators = dict(hidden)
    elif isinstance(hidden, list | tuple):
        estimators = dict(enumerate(hidden))
    else:
        estimators = {None: hidden}
    if not estimators:
        raise InputError(f"{learner} needs at least one log; without any, use OFUL.")
    for key, estimator in estimators.items():
        if not isinstance(estimator, HiddenEstimator):
            where = "" if key is None else f" for the log {key!r}"
            raise InputError(
                f"{learner} takes an estimator of how hidden features go with recorded ones{where} (BehaviorQueries, "
                f"BehaviorProbabilities, CompanionLog, KnownCrossMoments, or your own), got "
                f"{type(estimator).__name__}. A LogSummary goes inside one: BehaviorQueries(summary)."
            )
    return {key: completed(estimator) for key, estimator in estimators.items()}


def labels_of(estimators: Mapping[Any, CompleteEstimator], arms: Sequence[Any] | None) -> list[Any]:
    """The learner's arms: those that the user names, then those of the logs that are not among them."""
    labels: list[Any] = [] if arms is None else list(arms)
    for estimator in estimators.values():
        labels += [arm for arm in estimator.summary.arms if arm not in labels]
    return labels


def check_logs(estimators: Mapping[Any, CompleteEstimator], sandwich: bool) -> None:
    """Refuse logs of different features, and, for a ``sandwich``, logs without squared residuals."""
    d = next(iter(estimators.values())).summary.n_features
    for key, estimator in estimators.items():
        if estimator.summary.n_features != d:
            raise InputError(
                f"The log {key!r} has {estimator.summary.n_features} features and the first {d}: all logs must "
                "share one schema of features, of which each recorded its own."
            )
        if sandwich and estimator.summary.meat is None:
            raise InputError(
                f"sandwich=True needs the squared residuals of the log{'' if key is None else f' {key!r}'}, which "
                "take a second pass: summarize_log(source, schema, sandwich=True)."
            )


def bias_of(bound: Any, names: Sequence[str], recorded: NDArray[np.int64]) -> float | Array:
    """A ``bias_bound`` as a number, or as (d,) numbers, one for each feature.

    Args:
        bound: a number, a mapping from features to numbers, or a number for each feature.
        names: (d,)  of the features.
        recorded: positions of those that some log records.
    """
    if isinstance(bound, Mapping):
        unknown = [name for name in bound if name not in {names[j] for j in recorded}]
        if unknown:
            raise InputError(
                f"bias_bound names {', '.join(map(repr, unknown))}, which no log records; the recorded features are "
                f"{', '.join(repr(names[j]) for j in recorded)}."
            )
        bound = [bound.get(name, 0.0) for name in names]
    try:
        values = np.array(bound, dtype=np.float64)
    except (TypeError, ValueError):
        values = np.full(1, np.nan)
    if values.ndim == 0 and values >= 0.0 and np.isfinite(values):
        return float(values)
    if values.shape != (len(names),) or not (np.isfinite(values) & (values >= 0.0)).all():
        raise InputError(
            f"bias_bound={bound!r} must be a number of at least 0, a mapping from recorded features to such numbers, "
            f"or {len(names)} of them, one for each feature."
        )
    idle = np.setdiff1d(np.flatnonzero(values), recorded)
    if len(idle):
        raise InputError(f"bias_bound has a number for {names[idle[0]]!r}, which no log records.")
    return values


def bias_directions(bounds: Array) -> Array:
    """(L, p)  ``√p·Δ_je_j`` of the ``p`` features that are named; ``D = p·diag(Δ_j²)``.  bounds: (L,)"""
    named = np.flatnonzero(bounds > 0.0)
    out = np.zeros((len(bounds), len(named)))
    out[named, np.arange(len(named))] = np.sqrt(float(len(named))) * bounds[named]
    return out


def check_settings(settings: Settings, safety: float, forgetting: float) -> None:
    """Refuse settings that a fused learner cannot use, alone or together."""
    if settings.noise == 0.0:
        raise InputError(
            "noise=0.0: beside rounds without any noise a log would count for nothing. Give what a reward varies "
            "by, however little, or noise='auto'."
        )
    if not (is_number(safety) and 0 <= safety < math.inf):
        raise InputError(f"safety={safety!r} must be a number of at least 0; 0 trusts the logs blindly.")
    if settings.radius == "theory" and "auto" in (settings.regularization, settings.noise):
        raise InputError(
            "radius='theory' is proven for a prior and a noise that are fixed beforehand: give regularization=… "
            "and noise=… as numbers, or use radius='posterior'."
        )
    if settings.radius == "theory" and forgetting < 1:
        raise InputError(
            f"radius='theory' is proven for a world that stands still, and forgetting={forgetting!r} is for one "
            "that moves: use radius='posterior'."
        )
