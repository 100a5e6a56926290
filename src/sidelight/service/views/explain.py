"""A decision explained in the user's units: what each arm was expected to bring, how surely, and why."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

import numpy as np

from sidelight.labels import Label, label_to_json
from sidelight.linalg import Array
from sidelight.logs.schema.schema import Schema
from sidelight.logs.schema.units import contributions, values_to_json

__all__ = ["Scored", "explain", "finite", "score"]


class Scored(NamedTuple):
    """A learner's estimates at a context, for all arms in its order, in arrays that further learning does not change.

    Attributes:
        arms: the learner's.
        estimates, widths: (K,)
        weights: (K, d)  the weights ``ŵ`` of each arm; None where the learner has none.
        log_shares: per arm the share of what is known about it here that rests on logs, where the learner weighs one.
        context: (d,)  the context as it was decided on, gaps filled.
    """

    arms: Sequence[Label]
    estimates: Array
    widths: Array
    weights: list[Array] | None
    log_shares: dict[Label, float]
    context: Array


def score(learner: Any, x: Array) -> Scored:
    """The estimates, widths and weights of ``learner`` at a context ``x`` (d,)."""
    estimates, widths = learner.scores(x)
    weights_of = getattr(learner, "weights_of", None)
    weights = None if weights_of is None else [np.array(weights_of(arm)) for arm in learner.arms]
    shown = getattr(learner, "shown", None)
    # only learners that take contexts with gaps fill them
    filled = np.array(learner.filled(x)) if np.isnan(x).any() else x
    return Scored(
        tuple(learner.arms),
        np.array(estimates if shown is None else shown(estimates)),
        np.array(widths),
        weights,
        _log_shares(learner, filled),
        filled,
    )


def explain(scored: Scored, schema: Schema, x: Array, allowed: Iterable[Label] | None) -> list[dict[str, Any]]:
    """One entry per arm, the one with the highest index first.

    Each has the ``estimate`` ``x·ŵ``, the ``width``, their sum the ``index``, whether it was ``allowed``, the log's
    share in what is known about it (where the learner weighs a log), and ``features``: what each contributed to the
    estimate, ``x_i ŵ_i``, in units of the reward, the largest first; the value of a derived feature with several
    columns is a mapping from their names. A number that is not finite is None, and so is the value of a feature that
    was missing: what it contributed is that of the value inferred for it.

    Args:
        scored: what the learner said when it decided.
        schema: of the service, for names and units.
        x: (d,)  the encoded context.
        allowed: the arms that were allowed; None for all.
    """
    values = values_to_json(x, schema)
    permitted = None if allowed is None else set(allowed)
    out: list[dict[str, Any]] = []
    for i, arm in enumerate(scored.arms):
        estimate, width = scored.estimates[i], scored.widths[i]
        entry: dict[str, Any] = {
            "arm": label_to_json(arm),
            "estimate": finite(estimate),
            "width": finite(width),
            "index": finite(estimate + width),
            "allowed": permitted is None or arm in permitted,
        }
        if arm in scored.log_shares:
            entry["log_share"] = finite(scored.log_shares[arm])
        if scored.weights is not None:
            parts = contributions(scored.context, scored.weights[i], schema)
            entry["features"] = [
                {"feature": name, "value": values[name], "contribution": finite(part)}
                for name, part in sorted(parts.items(), key=lambda item: -abs(item[1]))
            ]
        out.append(entry)
    out.sort(key=lambda entry: math.inf if entry["index"] is None else -entry["index"])
    return out


def finite(value: float) -> float | None:
    """The number, or None where it is NaN or infinite, which JSON cannot express."""
    return float(value) if math.isfinite(value) else None


def _log_shares(learner: Any, x: Array) -> dict[Label, float]:
    """Per arm the share of what is known about it here that rests on logs."""
    at_context = getattr(learner, "log_share", None)
    if at_context is not None:
        return {arm: float(share) for arm, share in zip(learner.arms, at_context(x), strict=True)}
    shares: dict[Label, float] = {}
    for entry in learner.log_trust():
        if "share" in entry:
            shares[entry["arm"]] = shares.get(entry["arm"], 0.0) + float(entry["share"])
    return shares
