"""What an environment must offer: the ``World`` protocol, and the meaning of ``recorded``.

A world has one distribution of contexts, one old policy that wrote the log, and one set of rewards. The same
object draws the confounded log (``sample_log``) and plays the online environment (``contexts``, ``rewards``).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any, Protocol, TypeAlias, runtime_checkable

import numpy as np
from numpy.typing import NDArray

from sidelight.errors import SchemaError

if TYPE_CHECKING:
    import pyarrow as pa

    from sidelight.logs.schema.schema import Schema

Floats: TypeAlias = NDArray[np.float64]
Recorded: TypeAlias = int | Sequence[int] | Sequence[str]
"""Which features the log recorded: the first ``L`` of them, or their indices, or their names."""


@runtime_checkable
class World(Protocol):
    """An environment with an old policy and a log. ``simulate`` needs nothing else.

    Shapes: ``d`` and ``K`` are the numbers of features and arms of the schema, ``X`` is ``(n, d)`` in the schema's
    order. Arms are labels, and every axis of length ``K`` has the order of ``schema(recorded).arms``.

    All randomness comes from the generator that is passed in, and **how much of it a call consumes depends
    on the number of rows alone**, never on the arms: two learners that choose differently in the same
    context, and pass generators in the same state, receive the same noise. That is what makes their
    difference paired.

    Optional, used where present: ``arms`` (else those of the schema), ``cross_moments(recorded)``, without which a run
    has no ``true_cross_moments``, ``weights`` ``(K, d)`` (linear worlds: ``mean_rewards(X) = X weightsᵀ``),
    ``potential_rewards(X, rng)`` ``(n, K)`` (all arms under the same noise, so that column ``a`` equals
    ``rewards(X, a, rng)``), ``context_bound`` (``S_x``), ``weight_bound`` (``S_w``).
    """

    def schema(self, recorded: Recorded) -> Schema:
        """Features, arms and columns of a log that recorded only ``recorded``."""
        ...

    def sample_log(self, n: int, recorded: Recorded, rng: np.random.Generator) -> pa.Table:
        """``n`` logged rows: the recorded features, the old policy's arm, its reward."""
        ...

    def contexts(self, n: int, rng: np.random.Generator) -> Floats:
        """``X`` ``(n, d)``: full contexts, independent and identically distributed."""
        ...

    def behavior_probabilities(self, X: Floats) -> Floats:
        """``π_b(a | x)`` ``(n, K)``: the old policy."""
        ...

    def behavior_actions(self, X: Floats, rng: np.random.Generator) -> NDArray[Any]:
        """What the old policy would do, ``(n,)`` labels: one draw from ``π_b(· | x)`` for each row."""
        ...

    def mean_rewards(self, X: Floats) -> Floats:
        """``E[r | x, a]`` ``(n, K)``."""
        ...

    def rewards(self, X: Floats, arms: Any, rng: np.random.Generator) -> Floats:
        """Rewards ``(n,)`` of ``arms`` (one label, or ``n``); consumes ``rng`` independently of them."""
        ...


class KnownWorld(World, Protocol):
    """A world that also tells its parameters, as those of Sidelight do; experiments and reports need them."""

    @property
    def n_arms(self) -> int:
        """``K``, the number of arms."""
        ...

    @property
    def n_features(self) -> int:
        """``d``, the number of features."""
        ...

    @property
    def arms(self) -> tuple[Any, ...]:
        """The labels of the arms, in the order of every axis of length ``K``."""
        ...

    @property
    def noise(self) -> float:
        """``σ``, the standard deviation (or a sub-Gaussian bound) of the reward's noise."""
        ...

    def cross_moments(self, recorded: Recorded) -> Floats:
        """``R12(a) = E[x_o x_hᵀ | a]`` ``(K, L, m)`` under the old policy; both in the features' order."""
        ...


def recorded_indices(recorded: Recorded, features: Sequence[str]) -> tuple[int, ...]:
    """The recorded features as indices into ``features``, ascending.

    ``recorded`` is a number ``L`` (the first ``L``), or indices, or names. The order in which they are named
    carries no meaning: rows of ``R12`` and columns of a log follow ``features``.
    """
    names = list(features)
    if isinstance(recorded, (int, np.integer)) and not isinstance(recorded, bool):
        if not 0 <= recorded <= len(names):
            raise SchemaError(
                f"recorded={recorded}: there are {len(names)} features, so between 0 and {len(names)} of "
                "them can be recorded. Pass a number in that range, or the indices or names of the features."
            )
        return tuple(range(int(recorded)))
    if isinstance(recorded, (str, bytes, bool)) or not isinstance(recorded, Iterable):
        raise SchemaError(
            f"recorded={recorded!r} is a single value, neither a number of features nor a list of them. "
            f"Pass a number or a list, for example recorded={[names[0]] if names else []}."
        )
    indices: list[int] = []
    for entry in recorded:
        if isinstance(entry, str):
            if entry not in names:
                raise SchemaError(
                    f"recorded names the feature {entry!r}, which this world does not have. "
                    f"Its features are {', '.join(names)}."
                )
            indices.append(names.index(entry))
        else:
            if isinstance(entry, bool) or int(entry) != entry or not 0 <= entry < len(names):
                raise SchemaError(
                    f"recorded holds the index {entry!r}; indices of the {len(names)} features run from 0 to "
                    f"{len(names) - 1}."
                )
            indices.append(int(entry))
    repeated = sorted({names[i] for i in indices if indices.count(i) > 1})
    if repeated:
        raise SchemaError(
            f"recorded lists {', '.join(repeated)} more than once; a log has each column once. Remove the repeats."
        )
    return tuple(sorted(indices))
