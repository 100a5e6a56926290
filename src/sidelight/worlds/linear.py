"""``LinearWorld``: everything a world does once its contexts, weights and old policy are given.

The environments of this package whose rewards are linear derive from it and supply two functions:
``contexts`` and ``behavior_logits``.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from sidelight.errors import ContextError, InputError, UnknownArmError
from sidelight.labels import show_labels
from sidelight.logs.schema.schema import Schema
from sidelight.worlds.log_batches import log_batch
from sidelight.worlds.protocol import Floats, Recorded, recorded_indices

CHUNK_ROWS = 1 << 15
"""Rows drawn at a time: bounds the memory of a log of any length. Changing it changes the logs."""

MOMENT_ROWS = 1 << 20
"""Contexts in the Monte-Carlo sample behind ``second_moments``."""

MOMENT_SEED = 20_210_727
"""The seed of that sample, fixed so that two copies of one world agree on their moments to the bit."""


class LinearWorld(ABC):
    """A world with ``r = x·w_a + η``, ``η ~ N(0, σ²)``, and the old policy ``π_b = softmax(logits)``.

    Args:
        weights: ``w_a``, shape ``(K, d)``.
        noise: ``σ``.
        schema: Names, categories, intercept and arms; ``X`` is encoded as it encodes. Left out: features
            ``x0..x{d−1}``, arms ``0..K−1``. Which of its features it calls recorded does not matter here.

    ``recorded`` counts, indexes or names the schema's features: a category's columns are recorded or hidden
    together, and an intercept is always recorded, beside them.
    """

    def __init__(self, weights: Floats, noise: float, *, schema: Schema | None = None) -> None:
        weights = np.array(weights, dtype=np.float64)
        if weights.ndim != 2 or 0 in weights.shape or not np.isfinite(weights).all():
            raise InputError(
                f"weights has shape {weights.shape}; a linear world needs finite weights (K, d) with at "
                "least one arm and one feature."
            )
        if not (np.isfinite(noise) and noise >= 0):
            raise InputError(f"noise={noise}: a standard deviation is finite and not negative.")
        n_arms, n_features = weights.shape
        if schema is None:
            schema = Schema.for_arrays(n_features, n_features, n_arms)
        if schema.arms is None or (len(schema.arms), schema.n_features) != weights.shape:
            raise InputError(
                f"weights (K, d) = {weights.shape} do not fit the schema, which has "
                f"{len(schema.arms or ())} arms and {schema.n_features} encoded features."
            )
        self.weights = weights
        self.weights.flags.writeable = False
        self.noise = float(noise)
        self.n_arms: int = n_arms
        self.n_features: int = n_features
        self.arms: tuple[Any, ...] = schema.arms
        self.features: tuple[str, ...] = tuple(feature.name for feature in schema.features)
        self._schema = schema
        self._plain_labels = self.arms == tuple(range(n_arms))
        self._moments: tuple[Floats, Floats] | None = None

    # What a subclass supplies.

    @abstractmethod
    def contexts(self, n: int, rng: np.random.Generator) -> Floats:
        """``X`` ``(n, d)``: full contexts, independent and identically distributed."""

    @abstractmethod
    def behavior_logits(self, X: Floats) -> Floats:
        """``(n, K)``: the old policy is their softmax."""

    # What follows from that.

    @property
    def weight_bound(self) -> float:
        """``S_w = max_a ‖w_a‖``."""
        return float(np.sqrt((self.weights**2).sum(axis=1)).max())

    def recorded_indices(self, recorded: Recorded) -> tuple[int, ...]:
        """``recorded`` as ascending indices of the schema's features."""
        return recorded_indices(recorded, self.features)

    def schema(self, recorded: Recorded) -> Schema:
        """Features, arms and columns of a log that recorded only ``recorded``."""
        return self._schema.with_recorded([self.features[j] for j in self.recorded_indices(recorded)])

    def behavior_probabilities(self, X: Floats) -> Floats:
        """``π_b(a | x)`` ``(n, K)``."""
        return softmax(self.behavior_logits(self._check(X)))

    def behavior_actions(self, X: Floats, rng: np.random.Generator) -> NDArray[Any]:
        """One draw from ``π_b(· | x)`` for each row, ``(n,)`` labels."""
        indices = draw_indices(self.behavior_probabilities(X), rng)
        return indices if self._plain_labels else label_array(self.arms)[indices]

    def mean_rewards(self, X: Floats) -> Floats:
        """``x·w_a`` ``(n, K)``."""
        means: Floats = self._check(X) @ self.weights.T
        return means

    def rewards(self, X: Floats, arms: Any, rng: np.random.Generator) -> Floats:
        """``x·w_a + η`` ``(n,)`` for ``arms`` (one label, or ``n``). ``η`` does not depend on ``arms``."""
        X = self._check(X)
        indices = np.broadcast_to(self.arm_indices(arms), (len(X),))
        means: Floats = np.einsum("nd,nd->n", X, self.weights[indices])
        return means + self._noise(len(X), rng)

    def potential_rewards(self, X: Floats, rng: np.random.Generator) -> Floats:
        """``(n, K)``: column ``a`` is what ``rewards(X, a, rng)`` gives from the same state of ``rng``."""
        return self.mean_rewards(X) + self._noise(len(X), rng)[:, np.newaxis]

    def sample_log(self, n: int, recorded: Recorded, rng: np.random.Generator) -> pa.Table:
        """``n`` rows: the recorded features, ``arm``, ``reward``; drawn in chunks of ``CHUNK_ROWS``."""
        schema = self.schema(recorded)
        chunks = [min(CHUNK_ROWS, n - start) for start in range(0, n, CHUNK_ROWS)] or [0]
        return pa.Table.from_batches([log_batch(schema, *self._logged(rows, rng)) for rows in chunks])

    def second_moments(self) -> tuple[Floats, Floats]:
        """``P(a)`` ``(K,)`` and ``E[x xᵀ | a]`` ``(K, d, d)`` under the old policy.

        ``E[π_b(a|x) x xᵀ] / E[π_b(a|x)]`` over ``MOMENT_ROWS`` contexts of a fixed seed, computed once. Every
        context informs every arm, so an entry's standard error is about ``c·sd(x_i x_j | a)/1024``, where
        ``c² = E[π²]/E[π]²`` is 1 for an indifferent policy and at most ``1/P(a)`` for a deterministic one: in
        the paper's world (d = K = 30) about 2·10⁻⁵, where the entries are about 0.03.
        """
        if self._moments is None:
            self._moments = weighted_moments(self.contexts, self.behavior_probabilities, self.n_arms, self.n_features)
        return self._moments

    def cross_moments(self, recorded: Recorded) -> Floats:
        """``R12(a) = E[x_o x_hᵀ | a]`` ``(K, L, m)``; accuracy as ``second_moments``."""
        schema = self.schema(recorded)
        return self.second_moments()[1][:, schema.recorded_index][:, :, schema.hidden_index]

    def arm_indices(self, arms: Any) -> NDArray[np.intp]:
        """Labels (one, or an array of them) as indices ``0..K−1``."""
        return label_indices(arms, self.arms, self._plain_labels)

    def __repr__(self) -> str:
        return (
            f"{type(self).__name__}({self.n_arms} arms, {self.n_features} features, noise={self.noise:g}, "
            f"arms: {show_labels(self.arms)})"
        )

    def _logged(self, n: int, rng: np.random.Generator) -> tuple[Floats, NDArray[np.intp], Floats]:
        """Contexts ``(n, d)``, indices of the old policy's arms ``(n,)``, rewards ``(n,)``."""
        X = self.contexts(n, rng)
        indices = draw_indices(self.behavior_probabilities(X), rng)
        rewards = np.einsum("nd,nd->n", X, self.weights[indices]) + self._noise(n, rng)
        return X, indices, rewards

    def _noise(self, n: int, rng: np.random.Generator) -> Floats:
        noise: Floats = self.noise * rng.standard_normal(n)
        return noise

    def _check(self, X: Floats) -> Floats:
        X = np.asarray(X, dtype=np.float64)
        if X.ndim != 2 or X.shape[1] != self.n_features:
            raise ContextError(
                f"contexts of shape {X.shape} given to a world of {self.n_features} features; pass an array "
                f"(n, {self.n_features}), for one context x[None, :]."
            )
        return X


def softmax(logits: Floats) -> Floats:
    """``exp(logits)`` scaled to sum to 1 in each row, ``(n, K)``."""
    # column after column: along rows of a few arms NumPy takes five times as long for the same maximum
    largest = np.maximum.reduce(np.ascontiguousarray(logits.T), axis=0)
    probabilities: Floats = np.exp(logits - largest[:, np.newaxis])
    probabilities /= probabilities.sum(axis=1, keepdims=True)
    return probabilities


def draw_indices(probabilities: Floats, rng: np.random.Generator) -> NDArray[np.intp]:
    """One index for each row of ``probabilities`` ``(n, K)``, by inverting its cumulative sum."""
    n, n_arms = probabilities.shape
    uniforms: Floats = rng.random((n, 1))
    cumulative = np.cumsum(probabilities, axis=1)
    # scaled by the last sum, which may differ from 1 by rounding, so that the index stays below K
    below = uniforms * cumulative[:, -1:] >= cumulative
    indices: NDArray[np.intp] = np.minimum(below.sum(axis=1), n_arms - 1)
    return indices


def weighted_moments(contexts: Any, probabilities: Any, n_arms: int, n_features: int) -> tuple[Floats, Floats]:
    """``P(a)`` (K,) and ``E[x xᵀ | a]`` (K, d, d), from ``MOMENT_ROWS`` contexts weighted by ``π_b(a | x)``."""
    rng = np.random.default_rng(MOMENT_SEED)
    first, second = np.triu_indices(n_features)
    starts = np.concatenate([[0], np.cumsum(np.arange(n_features, 0, -1))])
    mass = np.zeros(n_arms)
    sums = np.zeros((len(first), n_arms))
    chunk = 1 << 12  # so few that the products of one chunk stay in or near the cache
    products = np.empty((len(first), chunk))
    for start in range(0, MOMENT_ROWS, chunk):
        n = min(chunk, MOMENT_ROWS - start)
        X = contexts(n, rng)
        weight = probabilities(X)
        columns = np.ascontiguousarray(X.T)
        for j in range(n_features):
            np.multiply(columns[j], columns[j:], out=products[starts[j] : starts[j + 1], :n])
        mass += weight.sum(axis=0)
        sums += products[:, :n] @ weight
    moments = np.zeros((n_arms, n_features, n_features))
    moments[:, first, second] = sums.T / np.maximum(mass, np.finfo(float).tiny)[:, None]
    moments[:, second, first] = moments[:, first, second]
    return mass / MOMENT_ROWS, moments


def label_indices(arms: Any, labels: Sequence[Any], plain: bool) -> NDArray[np.intp]:
    """``arms`` (one label, or an array) as indices of ``labels``; ``plain`` if those are ``0..K−1``."""
    values = np.asarray(arms)
    if plain and values.dtype.kind in "iu":
        if values.size and not (values.min() >= 0 and values.max() < len(labels)):
            wrong = values[(values < 0) | (values >= len(labels))].ravel()[0]
            raise UnknownArmError(f"arm {wrong} is not one of the arms 0 to {len(labels) - 1}.")
        return values.astype(np.intp, copy=False)
    lookup = {label: index for index, label in enumerate(labels)}
    flat = values.ravel().tolist()
    unknown = [value for value in flat if value not in lookup]
    if unknown:
        raise UnknownArmError(f"arm {unknown[0]!r} is not one of the arms {', '.join(map(repr, labels))}.")
    return np.array([lookup[value] for value in flat], dtype=np.intp).reshape(values.shape)


def label_array(labels: Sequence[Any]) -> NDArray[Any]:
    """Labels as an array that gives them back unchanged (object unless all are integers or all strings)."""
    if all(isinstance(label, (int, np.integer)) and not isinstance(label, bool) for label in labels):
        return np.array(labels, dtype=np.int64)
    if all(isinstance(label, str) for label in labels):
        return np.array(labels)
    array = np.empty(len(labels), dtype=object)
    array[:] = labels
    return array
