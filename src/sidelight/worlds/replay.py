"""``ReplayWorld``: a table that has all columns becomes a bandit, with a confounded log drawn from a part of it.

Two kinds of table. *Known outcomes*: the reward of every arm is known for every row (classification, a dose with a
known right answer); this is a world like any other. *A randomized trial*: only the arm that was tried has a reward
(:mod:`sidelight.worlds.trial`).
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from sidelight.errors import ContextError, InputError
from sidelight.logs.schema.schema import Schema
from sidelight.worlds.linear import draw_indices, label_indices
from sidelight.worlds.log_batches import log_batch
from sidelight.worlds.protocol import Floats, Recorded
from sidelight.worlds.split import SplitTable
from sidelight.worlds.table_rows import read_rows
from sidelight.worlds.trial import TrialReplayWorld


class ReplayWorld(SplitTable):
    """A complete table as a world; made by :meth:`from_answers`, :meth:`from_outcomes` or :meth:`from_trial`.

    :class:`~sidelight.worlds.split.SplitTable` says how rows are split, how the old policy is made, and how numbers are
    scaled; its settings are those of this class.

    **Regret** is measured against the best arm of each context as the table has it, which no linear rule reaches;
    differences between learners are what counts.
    """

    _groups: _Groups | None = None

    @classmethod
    def from_answers(
        cls, source: Any, schema: Schema, answer: str, *, cuts: Sequence[float] | None = None, **settings: Any
    ) -> ReplayWorld:
        """A world where each row has one right arm: reward 1 for it and 0 for the others.

        Args:
            source: Anything a log can be read from: a path, a frame, an Arrow table.
            schema: Features, which of them are recorded, and the names that ``arm`` and ``reward`` get in the log.
            answer: The column with the right arm; or with a number that ``cuts`` sort into arms.
            cuts: Increasing boundaries. ``(21, 49)`` makes the arms ``"below 21"``, ``"21 to 49"``, ``"above 49"``.
            **settings: Those of :class:`ReplayWorld`.
        """
        if cuts is None:
            rows = read_rows(source, schema, labels=(answer,))
            right, found = rows.labels[answer]
            arms: Sequence[Any] = found if schema.arms is None else schema.arms
            position = {label: i for i, label in enumerate(arms)}
            unknown = [label for label in found if label not in position]
            if unknown:
                raise InputError(
                    f"column {answer!r} has the value {unknown[0]!r}, which is none of the arms "
                    f"{', '.join(map(repr, arms))}."
                )
            right = np.array([position[label] for label in found])[right]
        else:
            rows = read_rows(source, schema, numbers=(answer,))
            bounds = list(cuts)
            if not bounds or sorted(set(bounds)) != bounds:
                raise InputError(f"cuts={tuple(cuts)}: give at least one boundary, in increasing order.")
            middle = [f"{low:g} to {high:g}" for low, high in pairwise(bounds)]
            arms = [f"below {bounds[0]:g}", *middle, f"above {bounds[-1]:g}"]
            if len(bounds) == 1:
                arms[1] = f"{bounds[0]:g} or more"
            # a boundary belongs to the arm above it, the last one to the arm below: 21 and 49 are both "21 to 49"
            right = np.searchsorted(bounds, rows.numbers[answer], side="right")
            if len(bounds) > 1:
                right[rows.numbers[answer] == bounds[-1]] -= 1
        outcomes = np.zeros((len(rows.X), len(arms)))
        outcomes[np.arange(len(outcomes)), right] = 1.0
        return cls(rows, outcomes, arms, **settings)

    @classmethod
    def from_outcomes(
        cls, source: Any, schema: Schema, outcomes: Sequence[str] | dict[Any, str], **settings: Any
    ) -> ReplayWorld:
        """A world where the table has one column of rewards for each arm.

        Args:
            source: Anything a log can be read from.
            schema: Features, and which of them are recorded.
            outcomes: The columns; a mapping from arm to column, or a list whose entries name both.
            **settings: Those of :class:`ReplayWorld`.
        """
        columns = outcomes if isinstance(outcomes, dict) else {name: name for name in outcomes}
        rows = read_rows(source, schema, numbers=tuple(columns.values()))
        matrix = np.column_stack([rows.numbers[column] for column in columns.values()])
        return cls(rows, matrix, list(columns), **settings)

    @classmethod
    def from_trial(cls, source: Any, schema: Schema, **settings: Any) -> TrialReplayWorld:
        """A randomized trial: see :class:`sidelight.worlds.trial.TrialReplayWorld`."""
        return TrialReplayWorld.from_source(source, schema, **settings)

    def sample_log(self, n: int, recorded: Recorded, rng: np.random.Generator) -> pa.Table:
        """``n`` different rows of the log's side, with the arm that the old policy draws and that arm's reward."""
        if n > self.log_size:
            raise InputError(
                f"a log of {n} rows was asked for, but the log's side of the table has {self.log_size}. Ask for "
                "fewer, or give it a larger share (split)."
            )
        chosen = rng.permutation(self._log_rows)[:n]
        indices = draw_indices(self._policy(self._X[chosen]), rng)
        batch = log_batch(self.schema(recorded), self._X[chosen], indices, self._outcomes[chosen, indices])
        return pa.Table.from_batches([batch])

    def mean_rewards(self, X: Floats) -> Floats:
        """``(n, K)``: the mean outcome over the rows of the online side that have this context."""
        groups = self._online_groups()
        return groups.means[groups.find(self._check(X))]

    def potential_rewards(self, X: Floats, rng: np.random.Generator) -> Floats:
        """``(n, K)``: the outcomes of one row among those with this context, drawn at random."""
        groups = self._online_groups()
        return self._outcomes[self._online_rows[groups.draw(self._check(X), rng)]]

    def rewards(self, X: Floats, arms: Any, rng: np.random.Generator) -> Floats:
        """``(n,)``; consumes ``rng`` independently of ``arms``."""
        indices = np.broadcast_to(label_indices(arms, self.arms, self._plain_labels), (len(X),))
        return self.potential_rewards(X, rng)[np.arange(len(X)), indices]

    def _online_groups(self) -> _Groups:
        if self._groups is None:
            self._groups = _Groups(self._X[self._online_rows], self._outcomes[self._online_rows])
        return self._groups


class _Groups:
    """The rows of a table grouped by equal contexts; an outcome of a context is that of any row in its group."""

    def __init__(self, X: Floats, outcomes: Floats) -> None:
        self._index: dict[bytes, int] = {}
        membership = np.empty(len(X), dtype=np.intp)
        for row, x in enumerate(np.ascontiguousarray(X)):
            membership[row] = self._index.setdefault(x.tobytes(), len(self._index))
        self._order = np.argsort(membership, kind="stable")
        self._sizes = np.bincount(membership, minlength=len(self._index))
        self._starts = np.concatenate([[0], np.cumsum(self._sizes)[:-1]])
        sums = np.zeros((len(self._index), outcomes.shape[1]))
        np.add.at(sums, membership, outcomes)
        self.means: Floats = sums / self._sizes[:, None]

    def find(self, X: Floats) -> NDArray[np.intp]:
        """The group of each context, ``(n,)``."""
        try:
            return np.array([self._index[x.tobytes()] for x in X], dtype=np.intp)
        except KeyError:
            raise ContextError(
                "a context is not one of the table's online rows, so its outcomes are not known. Pass contexts that "
                "this world's contexts() gave."
            ) from None

    def draw(self, X: Floats, rng: np.random.Generator) -> NDArray[np.intp]:
        """One row of each context's group, ``(n,)`` positions."""
        groups = self.find(X)
        offsets = np.minimum((rng.random(len(X)) * self._sizes[groups]).astype(np.intp), self._sizes[groups] - 1)
        rows: NDArray[np.intp] = self._order[self._starts[groups] + offsets]
        return rows
