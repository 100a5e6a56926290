"""Many rounds at once for learners that keep one ridge regression per arm: batches, simulated runs, further arms."""

from __future__ import annotations

import math
import os
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sidelight.errors import InputError
from sidelight.kernels import ridge_choice, ridge_updates
from sidelight.kernels.sums import Answers
from sidelight.labels import Label, plain_label
from sidelight.learners.protocol import DecisionColumns
from sidelight.learners.ridge import FOREVER, RidgeLearner
from sidelight.linalg import Array
from sidelight.side.constraint import unreduced

__all__ = ["ReducedLearner"]

#: products in a batch from which on threads pay for being started
WORTH_THREADS = 5_000_000
#: an arm's rows go into its sums alone where there are so many of them, and a third of its dimensions: the refresh from
#: the sums that follows then costs less than what it saves
TOGETHER = 32
#: what observing adds up for each arm (``kernels.state.State``)
PER_ARM = ("grams", "moments", "squares", "counts", "updates")
#: empty sums, for learners that take no answers
NO_ANSWERS = Answers(
    np.zeros(0, dtype=np.int64), np.zeros((0, 0, 0)), np.zeros((0, 0, 0)), np.zeros((0, 0)), np.zeros(0)
)


class ReducedLearner(RidgeLearner):
    """What ``OFUL``, ``ProjectedOFUL`` and the others share: see ``RidgeArms`` for the state."""

    def _decide_rows(self, X: Array, rng: np.random.Generator | None) -> DecisionColumns:
        """All rows inside the kernel, for learners that decide by the compiled index and nothing else."""
        if not self.compiled_scores:
            return super()._decide_rows(X, rng)
        arms, scores = self._choose_rows(X, 0.0)
        return self._columns(arms[0], scores, [1.0] * len(X))

    def _choose_rows(self, X: Array, limit: float) -> tuple[NDArray[np.int64], Array]:
        """``_choose_or_doubt`` for every row, large batches on as many cores as there are.

        Returns:
            (2, n) positions, and arms to try in doubt or −1; (2, n) estimates and widths.
        """
        n = len(X)
        arms, scores = np.empty((2, n), dtype=np.int64), np.empty((2, n))
        arena, sizes, state = self._held

        def rows(start: int, stop: int) -> None:
            part = slice(start, stop)
            found, values = np.empty((2, stop - start), dtype=np.int64), np.empty((2, stop - start))
            ridge_choice.choose_rows(arena, sizes, X[part], limit, found, values)
            arms[:, part], scores[:, part] = found, values

        K, m, R = state.loadings.shape
        # pruning skips most of the products
        over_cores(rows, n, n * K * (m * (m + R) + self.n_features) // 6)
        return arms, scores

    def _columns(self, chosen: NDArray[np.int64], scores: Array, propensities: list[float]) -> DecisionColumns:
        arms = self.arms
        return [arms[a] for a in chosen.tolist()], self.shown(scores[0]).tolist(), scores[1].tolist(), propensities

    def _observe_rows(self, X: Array, indices: NDArray[np.int64], rewards: Array) -> None:
        """All rows inside the kernel, in pieces that end where something is due.

        Arms with many rows have them added to their sums, which come out with the same bits as one by one, and their
        caches recomputed once; arms with few rows, and learners that a reward may surprise, go row by row.
        """
        if not self._observes_plainly():
            return super()._observe_rows(X, indices, rewards)
        in_order = self._doubt > 0.0 or math.isfinite(self._surprise) or self.binary
        many = max(TOGETHER, self.reduction.size // 3)
        t, n = 0, len(X)
        while t < n:
            start, stop = t, n if self.automatic is None else min(n, t + self.automatic.room())
            stop = self._usual_until(X, rewards, start, stop)
            if stop == start:
                self._observe(X[t], int(indices[t]), float(rewards[t]))
                t += 1
                continue
            together = np.bincount(indices[start:stop], minlength=self.n_arms) >= many
            arena, sizes, _ = self._held
            span = (start, stop, self._calm())
            together &= not in_order
            t, due, surprised = ridge_updates.observe_rows(arena, sizes, X, indices, rewards, together, span)
            for a in np.flatnonzero(together).tolist():
                self._refresh_arm(a)
            if due:
                self._refresh_arm(int(indices[t - 1]))
            self._took_rows(X[start:t], indices[start:t], rewards[start:t])
            self.n_contexts += t - start
            ReducedLearner._caught_up(self, t - start, 0, surprised)
        return None

    def _took_rows(self, X: Array, indices: NDArray[np.int64], rewards: Array) -> None:
        """Hook after compiled code took rows in, for what a learner keeps of them besides the sums of ``RidgeArms``."""

    def _observes_plainly(self) -> bool:
        """Whether one observation is ``ridge_updates.take_in`` and what is due after it, and nothing else."""
        return type(self)._observe is RidgeLearner._observe and type(self)._take is RidgeLearner._take

    def _usual_until(self, X: Array, rewards: Array, start: int, stop: int) -> int:
        """The first row from ``start`` on with a wild or new value, or ``stop``.  rewards: (n,) or (n, K)

        Where rewards are 0 or 1, one that is neither is a new value too.
        """
        if self.binary:
            other = (rewards[start:stop] != 0.0) & (rewards[start:stop] != 1.0)
            odd = np.flatnonzero(other.any(axis=1) if other.ndim == 2 else other)
            stop = start + int(odd[0]) if len(odd) else stop
        if not self._guarded:
            return stop
        assert self.automatic is not None
        assert self.automatic.ranges is not None or self.automatic.refreshed == 0
        ranges = self.automatic.ranges
        return stop if ranges is None else start + ranges.first_unusual(X[start:stop], rewards[start:stop])

    # what a learner with answers or draws of its own changes about compiled rounds (see ``learners.rounds``)

    def _answer_sums(self, asked: bool) -> Any | None:
        """The sums that answers go to (``kernels.sums.Answers``), or None where they must go through Python."""
        return None if asked else NO_ANSWERS

    def _draws(self, n: int, rng: np.random.Generator) -> Array:
        """One draw per round for learners that randomise."""
        return np.zeros(0)

    def _room(self) -> tuple[int, int]:
        """How many events, and how many answers, may be taken in before something is due."""
        return (FOREVER if self.automatic is None else self.automatic.room()), FOREVER

    def _caught_up(self, events: int, taken: int, surprised: bool) -> None:
        """Do what is due after ``events`` observations and answers, the last of them perhaps a surprise."""
        if self.automatic is not None:
            self.automatic.events += events
            if surprised or self.automatic.room() <= 0:
                self._relearn()

    # -------------------------------------------------------------------------------- further arms

    def add_arm(self, label: Any) -> None:
        """Offer one more arm from now on; it starts from the prior that all arms share.  Threads may decide meanwhile.

        The learner with the new arm is made beside this one, and takes its place in one assignment.
        """
        if self.reduction.loadings.shape[1]:
            return super().add_arm(label)
        label = plain_label(label)
        if label in self._index:
            raise InputError(f"{label!r} is already an arm.")
        # a prior mean for every arm has none for this one
        self.settings.prior_means(self.n_arms + 1, self.n_features)
        grown = object.__new__(type(self))
        grown.__dict__ = dict(self.__dict__)
        grown._grow(label)
        self.__dict__ = grown.__dict__
        return None

    def _grow(self, label: Label) -> None:
        """Add an arm by replacing attributes of this object, never in place: other threads may read the old arrays."""
        K, kept = self.n_arms, {name: getattr(self, name) for name in PER_ARM}
        self.arms = (*self.arms, label)
        self._index = {**self._index, label: K}
        self._install(unreduced(K + 1, self.n_features, self.reduction.order))
        for name, value in kept.items():
            getattr(self, name)[:K] = value
        if self.automatic is not None:
            self.automatic.search_at = 0  # one more arm says more about how much arms differ
        self.refresh()


def cores_for(products: int) -> int:
    """How many cores to use for this many products."""
    return (os.cpu_count() or 1) if products >= WORTH_THREADS else 1


def over_cores(rows: Callable[[int, int], None], n: int, products: int) -> None:
    """``rows(start, stop)``, which releases the GIL, for parts of ``range(n)``; on all cores if they are large."""
    cores = max(1, min(n, cores_for(products)))
    parts = list(pairwise(n * i // cores for i in range(cores + 1)))
    if cores == 1:
        rows(0, n)
        return
    with ThreadPoolExecutor(cores) as pool:
        list(pool.map(lambda part: rows(*part), parts))
