"""A complete table whose rows are split once: one side can only become log, the other only online rounds.

:class:`SplitTable` holds what tables with known outcomes and randomized trials share: the split, the scaling, the old
policy and the contexts. :mod:`sidelight.worlds.replay` and :mod:`sidelight.worlds.trial` add rewards.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Literal, Self, TypeAlias

import numpy as np
from numpy.typing import NDArray

from sidelight.errors import ContextError, InputError
from sidelight.labels import show_labels
from sidelight.logs.schema.features import Category
from sidelight.logs.schema.schema import Schema
from sidelight.worlds.linear import draw_indices, label_array, softmax
from sidelight.worlds.protocol import Floats, Recorded, recorded_indices
from sidelight.worlds.table_rows import Rows

__all__ = ["Policy", "SplitTable"]

Policy: TypeAlias = Literal["informed", "random"] | Callable[[Floats], Floats]


class SplitTable:
    """Splits, scaling and old policy of a table; knows nothing of the rewards of arms that were not tried.

    **The two sides.** Rows are shuffled by ``seed`` and a share ``split`` of them becomes the log's side.
    ``sample_log`` draws from it without replacement; ``contexts`` draws from the other side with replacement, as
    independent draws from the table's distribution.

    **The old policy** sees the features ``sees`` (those the schema calls hidden, if left out) and nothing else, so a
    log of the recorded features is confounded. ``"informed"``: each arm is preferred where its reward, regressed on
    those features over the log's side, is high; ``"random"``: random preferences. Logits have standard deviation
    ``sharpness``. A function of the encoded contexts ``(n, d)`` that returns probabilities ``(n, K)`` may be given
    instead.

    **Numbers are standardized** (with an intercept also centred) by the log's side, since a table's units are arbitrary
    and the learners' priors are not; ``scales`` and ``centers`` ``(d,)`` tell how.

    Args:
        rows: The table, read.
        outcomes: Rewards ``(n, K)``, NaN where an arm was not tried.
        arms: Their labels.
        policy: ``"informed"``, ``"random"`` or a function.
        sees: Names of the features that the old policy sees.
        sharpness: Standard deviation of its logits.
        split: Share of the rows on the log's side.
        seed: Shuffles the rows and draws a random policy.
        standardize: Whether to scale numbers.
    """

    def __init__(
        self,
        rows: Rows,
        outcomes: Floats,
        arms: Sequence[Any],
        *,
        policy: Policy = "informed",
        sees: Sequence[str] | None = None,
        sharpness: float = 2.0,
        split: float = 0.5,
        seed: int = 0,
        standardize: bool = True,
    ) -> None:
        if not 0 < split < 1:
            raise InputError(f"split={split}: the log's share of the rows lies strictly between 0 and 1.")
        self._settings: dict[str, Any] = {
            "policy": policy,
            "sees": sees,
            "sharpness": sharpness,
            "split": split,
            "standardize": standardize,
        }
        self.rows = rows
        self.seed = seed
        self._schema = rows.schema.with_arms(arms)
        self.arms: tuple[Any, ...] = tuple(arms)
        self.features = tuple(feature.name for feature in self._schema.features)
        self.n_arms: int = len(self.arms)
        self.n_features: int = self._schema.n_features
        self._plain_labels = self.arms == tuple(range(self.n_arms))
        self._outcomes = outcomes
        rng = np.random.default_rng(seed)
        order = rng.permutation(len(rows.X))
        cut = round(split * len(order))
        self._log_rows, self._online_rows = np.sort(order[:cut]), np.sort(order[cut:])
        if not len(self._log_rows) or not len(self._online_rows):
            raise InputError(f"{len(order)} rows are too few to split; both sides need at least one.")
        self.centers, self.scales = self._standardization(standardize)
        self._X = (rows.X - self.centers) / self.scales
        self._policy = self._make_policy(policy, sees, sharpness, rng)
        self.noise = self._residual_deviation()
        self._moments: tuple[Floats, Floats] | None = None

    # What the table is

    @property
    def log_size(self) -> int:
        """Rows on the log's side."""
        return len(self._log_rows)

    @property
    def online_size(self) -> int:
        """Rows on the online side."""
        return len(self._online_rows)

    @property
    def default_recorded(self) -> tuple[str, ...]:
        """Names of the features that the schema calls recorded."""
        return self._schema.recorded

    @property
    def context_bound(self) -> float:
        """``S_x``: the largest norm of a context in the table, after scaling."""
        return float(np.sqrt((self._X**2).sum(axis=1).max()))

    def sides(self) -> tuple[NDArray[np.intp], NDArray[np.intp]]:
        """Positions in the source of the rows of the log's side and of the online side; no row is in both."""
        return self.rows.kept[self._log_rows], self.rows.kept[self._online_rows]

    def reseeded(self, seed: int) -> Self:
        """The same table and settings, split anew."""
        return type(self)(self.rows, self._outcomes, self.arms, seed=seed, **self._settings)

    # The world

    def schema(self, recorded: Recorded) -> Schema:
        """Features, arms and columns of a log that recorded only ``recorded``."""
        return self._schema.with_recorded([self.features[j] for j in recorded_indices(recorded, self.features)])

    def contexts(self, n: int, rng: np.random.Generator) -> Floats:
        """``X`` ``(n, d)``: contexts of the online side, drawn with replacement."""
        return self._X[self._online_rows[rng.integers(self.online_size, size=n)]]

    def behavior_probabilities(self, X: Floats) -> Floats:
        """``π_b(a | x)`` ``(n, K)``."""
        return self._policy(self._check(X))

    def behavior_actions(self, X: Floats, rng: np.random.Generator) -> NDArray[Any]:
        """One draw from ``π_b(· | x)`` for each row, ``(n,)`` labels."""
        indices = draw_indices(self.behavior_probabilities(X), rng)
        return indices if self._plain_labels else label_array(self.arms)[indices]

    def second_moments(self) -> tuple[Floats, Floats]:
        """``P(a)`` ``(K,)`` and ``E[xxᵀ | a]`` ``(K, d, d)`` over the online side: the limit of answers' moments."""
        if self._moments is None:
            X = self._X[self._online_rows]
            P = self._policy(X)
            mass = P.sum(axis=0)
            sums = np.stack([(X * P[:, [a]]).T @ X for a in range(self.n_arms)])
            self._moments = mass / len(X), sums / np.maximum(mass, np.finfo(float).tiny)[:, None, None]
        return self._moments

    def cross_moments(self, recorded: Recorded) -> Floats:
        """``R12(a)`` ``(K, L, m)`` under the old policy, exact for the online side."""
        schema = self.schema(recorded)
        return self.second_moments()[1][:, schema.recorded_index][:, :, schema.hidden_index]

    def __repr__(self) -> str:
        return (
            f"{type(self).__name__}({len(self._log_rows):,} rows for the log, {len(self._online_rows):,} online, "
            f"{self.n_features} features, arms: {show_labels(self.arms)})"
        )

    # How it is made

    def _standardization(self, wanted: bool) -> tuple[Floats, Floats]:
        centers, scales = np.zeros(self.n_features), np.ones(self.n_features)
        if not wanted:
            return centers, scales
        for feature in self._schema.features:
            if isinstance(feature, Category):
                continue
            column = self.rows.X[self._log_rows, self._schema.feature_start(feature.name)]
            center = column.mean() if self._schema.intercept else 0.0
            spread = np.sqrt(((column - center) ** 2).mean())
            index = self._schema.feature_start(feature.name)
            centers[index], scales[index] = center, spread if spread > 0 else 1.0
        return centers, scales

    def _make_policy(
        self, policy: Policy, sees: Sequence[str] | None, sharpness: float, rng: np.random.Generator
    ) -> Callable[[Floats], Floats]:
        if callable(policy):
            return policy
        if policy not in ("informed", "random"):
            raise InputError(f"policy={policy!r}; choose 'informed', 'random' or a function of the contexts.")
        names = [n for n in self.features if n not in self._schema.recorded] if sees is None else list(sees)
        columns = self._schema.with_recorded(names).recorded_index
        X = self._X[self._log_rows]
        varying = columns[X[:, columns].std(axis=0) > 0]
        if not len(varying):
            raise InputError(
                f"the old policy sees {names or 'no feature'}, which leaves it nothing to decide by. Hide a feature "
                "that varies, or name what it sees (sees=[...])."
            )
        directions = np.zeros((self.n_arms, self.n_features))
        directions[:, varying] = rng.standard_normal((self.n_arms, len(varying)))
        if policy == "informed":
            fitted = self._fit(varying)
            if np.ptp(X @ fitted.T) > 1e-9:
                directions = fitted
        logits = X @ directions.T
        centers, spread = logits.mean(axis=0), (logits - logits.mean(axis=0)).std()
        slopes, offsets = sharpness / spread * directions, sharpness / spread * centers
        return lambda contexts: softmax(contexts @ slopes.T - offsets)

    def _fit(self, columns: NDArray[np.intp]) -> Floats:
        """Slopes ``(K, d)`` of each arm's outcome on the given columns, over the log's side."""
        slopes = np.zeros((self.n_arms, self.n_features))
        for arm in range(self.n_arms):
            known = self._log_rows[np.isfinite(self._outcomes[self._log_rows, arm])]
            if len(known) > len(columns) + 1:
                design = np.column_stack([np.ones(len(known)), self._X[np.ix_(known, columns)]])
                gram = design.T @ design + 1e-8 * len(known) * np.eye(design.shape[1])
                slopes[arm, columns] = np.linalg.solve(gram, design.T @ self._outcomes[known, arm])[1:]
        return slopes

    def _residual_deviation(self) -> float:
        """``σ``: the standard deviation of outcomes about each arm's linear fit, over the log's side."""
        total, degrees = 0.0, 0
        for arm in range(self.n_arms):
            known = self._log_rows[np.isfinite(self._outcomes[self._log_rows, arm])]
            if len(known) <= self.n_features + 1:
                continue
            X, y = self._X[known], self._outcomes[known, arm]
            gram = X.T @ X + 1e-8 * len(known) * np.eye(self.n_features)
            residuals = y - X @ np.linalg.solve(gram, X.T @ y)
            total += float(residuals @ residuals)
            degrees += len(known) - self.n_features
        return float(np.sqrt(total / degrees)) if degrees else float(np.nanstd(self._outcomes))

    def _check(self, X: Floats) -> Floats:
        X = np.ascontiguousarray(X, dtype=np.float64)
        if X.ndim != 2 or X.shape[1] != self.n_features:
            raise ContextError(f"contexts of shape {X.shape} given to a world of {self.n_features} encoded features.")
        return X
