"""Many rounds at once for learners that keep one ridge regression per arm: batches, simulated runs, further arms."""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Sequence
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sidelight.errors import InputError
from sidelight.labels import plain_label
from sidelight.learners.base import BaseLearner
from sidelight.learners.protocol import Decision
from sidelight.learners.ridge import FOREVER, RidgeLearner
from sidelight.linalg import Array
from sidelight.side.constraint import unreduced

__all__ = ["ReducedLearner"]

#: products in a batch from which on threads pay for being started
WORTH_THREADS = 5_000_000
#: decisions from which on products of matrices across them pay
FEW_ROWS = 16
#: an arm's rows go in together where there are so many of them, and a third of its dimensions: the refresh from the
#: sums that follows then costs less than what it saves
TOGETHER = 32
_NO_ANSWERS = (
    np.zeros(0, dtype=np.int64),
    np.zeros((0, 0, 0)),
    np.zeros((0, 0, 0)),
    np.zeros((0, 0)),
    np.zeros(0),
)


class ReducedLearner(RidgeLearner):
    """What ``OFUL``, ``ProjectedOFUL`` and the others share: see ``RidgeLearner`` for the state."""

    def _decide_rows(self, X: Array, rng: np.random.Generator | None) -> list[Decision]:
        """All rows inside the kernel, for learners that decide by the index and nothing else."""
        cls = type(self)
        if cls.decide is not BaseLearner.decide or cls._choose is not RidgeLearner._choose:
            return super()._decide_rows(X, rng)
        chosen, estimates, widths, _ = self._choose_rows(X, 0.0)
        return self._decisions(chosen, estimates, widths, [1.0] * len(X))

    def _choose_rows(self, X: Array, limit: float) -> tuple[NDArray[np.int64], Array, Array, NDArray[np.int64]]:
        """``_choose_or_doubt`` for every row, by products of matrices; large batches on as many cores as there are."""
        n = len(X)
        choose = self._batch_kernel(n)
        chosen, estimates, widths, doubted = (
            np.empty(n, dtype=np.int64),
            np.empty(n),
            np.empty(n),
            np.empty(n, np.int64),
        )
        r = self.reduction
        arrays = (
            r.order,
            self._loadings,
            r.shifted,
            self._centre,
            self._spreads,
            self.weights,
            self.covariances,
            self.radii,
            self.bounds,
            self._packed,
            self.counts,
            self._reluctance(),
        )

        def rows(start: int, stop: int) -> None:
            part = slice(start, stop)
            choose(X[part], *arrays, limit, chosen[part], estimates[part], widths[part], doubted[part])

        _, m, R = self._loadings.shape
        # most of what could be multiplied is left out, or shared between rows
        products = n * self.n_arms * (m * (m + R) + self.n_features) // 6
        over_cores(rows, n, products)
        return chosen, estimates, widths, doubted

    def _batch_kernel(self, n: int) -> Any:
        """The kernel for ``n`` decisions; all give the same."""
        _, m, _ = self._loadings.shape
        if len(self._packed) or n < FEW_ROWS or min(self.n_arms, m) < 4:
            from sidelight.kernels.rounds import choose_rows

            return choose_rows
        from sidelight.kernels.choosing import choose_together

        return choose_together

    def _decisions(
        self, chosen: NDArray[np.int64], estimates: Array, widths: Array, propensities: list[float]
    ) -> list[Decision]:
        rows = zip(chosen.tolist(), estimates.tolist(), widths.tolist(), propensities, strict=True)
        new, arms = tuple.__new__, self.arms  # a named tuple without the detour through keyword arguments
        return [new(Decision, (arms[a], estimate, width, q)) for a, estimate, width, q in rows]

    def _observe_rows(self, X: Array, indices: NDArray[np.int64], rewards: Array) -> None:
        """All rows inside the kernel, in pieces that end where something is due.

        Large pieces go arm by arm, where no row matters to another arm's; small ones with the same bits as one by one.
        """
        if not self._observes_plainly():
            return super()._observe_rows(X, indices, rewards)
        from sidelight.kernels.rounds import observe_rows

        in_order = self._doubt > 0.0 or math.isfinite(self._surprise)
        t, n = 0, len(X)
        while t < n:
            start, stop = t, n if self.automatic is None else min(n, t + self.automatic.room())
            stop = self._usual_until(X, rewards, start, stop)
            if stop == start:
                self._observe(X[t], int(indices[t]), float(rewards[t]))
                t += 1
                continue
            due = surprised = False
            if not in_order and self._observe_by_arm(X[start:stop], indices[start:stop], rewards[start:stop]):
                t = stop
            else:
                t, due, surprised = observe_rows(start, stop, self._calm(), X, indices, rewards, *self._observing())
            if due:
                RidgeLearner._refresh_arm(self, int(indices[t - 1]))
            self.n_contexts += t - start
            ReducedLearner._caught_up(self, t - start, 0, surprised)
        return None

    def _observe_by_arm(self, X: Array, indices: NDArray[np.int64], rewards: Array) -> bool:
        """Arms with many rows take them in as one block, all arms spread over the cores; False where that does not pay.

        The sums are those of one by one to the bit, and so is all else of arms with few rows; what an arm with many
        derives from its sums is computed once, at the end.
        """
        _, m, R = self._loadings.shape
        sizes = np.bincount(indices, minlength=self.n_arms)
        together = max(TOGETHER, m // 3)
        cores = cores_for(len(X) * m * (m + R))
        if cores == 1 and sizes.max() < together:
            return False
        from sidelight.kernels.blocks import add_sums, observe_arms

        # NumPy sorts short integers by counting
        short = indices.astype(np.int16) if self.n_arms <= np.iinfo(np.int16).max else indices
        rows = np.argsort(short, kind="stable")
        starts = np.concatenate([[0], np.cumsum(sizes)])
        add_sums(X, rewards, self.reduction.order, self.context_sums)
        priors = (self.prior_precisions, self.prior_moments, self.prior_log_dets)
        state = self._observing()

        def observe(arms: NDArray[np.int64]) -> None:
            # the sums over all arms are not for two threads to add to
            alone = (*state[:9], np.zeros_like(self.context_sums), np.zeros(1), *state[11:])
            observe_arms(arms, starts, rows, together, X, rewards, alone, priors)

        # the arms with most rows first, so that no core is left with them at the end
        order = np.argsort(-sizes, kind="stable")[: np.count_nonzero(sizes)]
        pieces = min(len(order), 4 * cores if cores > 1 else 1)
        share_out(observe, [order[i::pieces] for i in range(pieces)], cores)
        return True

    def _observes_plainly(self) -> bool:
        """Whether one observation is ``take_in`` and what is due after it, and nothing else."""
        return type(self)._observe is RidgeLearner._observe and type(self)._take is RidgeLearner._take

    def _usual_until(self, X: Array, rewards: Array, start: int, stop: int) -> int:
        """The first row from ``start`` on with a wild or new value, or ``stop``.  rewards: (n,) or (n, K)"""
        if not self._guarded:
            return stop
        assert self.automatic is not None
        assert self.automatic.ranges is not None or self.automatic.refreshed == 0
        ranges = self.automatic.ranges
        return stop if ranges is None else start + ranges.first_unusual(X[start:stop], rewards[start:stop])

    def play(
        self,
        X: Array,
        table: Array,
        answers: NDArray[np.int64] | None,
        probabilities: Array | None,
        rng: np.random.Generator,
    ) -> NDArray[np.int64] | None:
        """Many rounds at once, inside the kernel; the same as deciding and observing one by one.

        Args:
            X: (n, d) contexts.
            table: (n, K) each arm's reward.
            answers: (n,) positions of the old policy's arms.
            probabilities: of the old policy, where they are needed (then this returns None: go round by round).
            rng: for draws, one per decision that makes one.

        Returns:
            (n,) positions of the arms played, or None where this learner has no such path.
        """
        from sidelight.kernels.rounds import play_rounds

        sums = self._answer_sums(answers)
        if sums is None or probabilities is not None:
            return None
        n = len(X)
        draws, doubt = self._draws(n, rng)
        played = np.empty(n, dtype=np.int64)
        named = np.zeros(0, dtype=np.int64) if answers is None else answers
        t, phase = 0, 0
        while t < n:
            room, answer_room = self._room()
            stop = self._usual_until(X, table, t, min(n, t + room))
            if stop == t:
                self._careful_round(t, phase, X, table, answers, draws, doubt, played)
                t, phase = t + 1, 0
                continue
            t, phase, events, taken, surprised = play_rounds(
                X[:stop],
                table[:stop],
                named,
                draws,
                doubt,
                self._reluctance(),
                t,
                phase,
                room,
                answer_room,
                self._calm(),
                played,
                *sums,
                *self._arrays(),
            )
            self.n_contexts += events - taken
            self._caught_up(events, taken, surprised)
        self._cached = None
        return played

    def _careful_round(
        self,
        t: int,
        phase: int,
        X: Array,
        table: Array,
        answers: NDArray[np.int64] | None,
        draws: Array,
        doubt: float,
        played: NDArray[np.int64],
    ) -> None:
        """One round of ``play`` by the methods that a user calls, for rows with a wild or new value."""
        if phase == 0 and answers is not None:
            self.observe_behavior(X[t], self.arms[answers[t]])
        a, _, _, doubted = self._choose_or_doubt(X[t], doubt * float(self.spent[0]))
        if doubted >= 0 and draws[t] < 0.5:
            a = doubted
        played[t] = a
        self._observe(X[t], a, float(table[t, a]))

    # what a learner with answers or draws of its own changes about ``play``

    def _answer_sums(self, answers: NDArray[np.int64] | None) -> tuple[Any, ...] | None:
        """The arrays that answers go to: empty here, where nobody asks."""
        return _NO_ANSWERS if answers is None else None

    def _draws(self, n: int, rng: np.random.Generator) -> tuple[Array, float]:
        """One draw per round for learners that randomise, and the share of ``spent`` an arm's trials may cost."""
        return np.zeros(0), self._doubt

    def _room(self) -> tuple[int, int]:
        """How many events, and how many answers, may be taken in before something is due."""
        return (FOREVER if self.automatic is None else self.automatic.room()), FOREVER

    def _caught_up(self, events: int, taken: int, surprised: bool) -> None:
        """Do what is due after ``events`` observations and answers, the last of them perhaps a surprise."""
        if self.automatic is not None:
            self.automatic.events += events
            if surprised or self.automatic.room() <= 0:
                self._relearn()

    # the state as the kernels take it

    def _observing(self) -> tuple[Any, ...]:
        """The state in the order that ``observe_rows`` takes it."""
        r = self.reduction
        return (
            r.order,
            self._loadings,
            r.shifted,
            r.anchors,
            r.dimensions,
            self._numbers(),
            self.grams,
            self.moments,
            self.squares,
            self.context_sums,
            self._spending(),
            self.counts,
            self.updates,
            self.covariances,
            self.weights,
            self.log_dets,
            self.radii,
            self.bounds,
            self._packed,
        )

    def _arrays(self) -> tuple[Any, ...]:
        """The state in the order that ``play_rounds`` takes it: what deciding and a refresh need is put between."""
        order, loadings, shifted, anchors, *observing = self._observing()
        priors = (self.prior_precisions, self.prior_moments, self.prior_log_dets)
        return (order, loadings, shifted, self._centre, self._spreads, anchors, *priors, *observing)

    # -------------------------------------------------------------------------------- further arms

    def add_arm(self, label: Any) -> None:
        """Offer one more arm from now on; it starts from the prior that all arms share."""
        r = self.reduction
        if r.loadings.shape[1]:
            return super().add_arm(label)
        label = plain_label(label)
        if label in self._index:
            raise InputError(f"{label!r} is already an arm.")
        K = self.n_arms
        self.settings.prior_means(K + 1, self.n_features)  # a prior mean for every arm has none for this one
        kept = {name: getattr(self, name) for name in ("grams", "moments", "squares", "counts", "updates")}
        self.arms = (*self.arms, label)
        self._index[label] = K
        self._install(unreduced(K + 1, self.n_features, r.order))
        for name, value in kept.items():
            getattr(self, name)[:K] = value
        if self.automatic is not None:
            self.automatic.search_at = 0  # one more arm says more about how much arms differ
        self.refresh()
        return None


def cores_for(products: int) -> int:
    """How many cores so many products are worth."""
    return (os.cpu_count() or 1) if products >= WORTH_THREADS else 1


def over_cores(rows: Callable[[int, int], None], n: int, products: int) -> None:
    """``rows(start, stop)``, which lets go of the GIL, for parts of ``range(n)``; at once where they are large."""
    cores = max(1, min(n, cores_for(products)))
    parts = list(pairwise(n * i // cores for i in range(cores + 1)))
    share_out(lambda part: rows(*part), parts, cores)


def share_out(work: Callable[[Any], None], pieces: Sequence[Any], cores: int) -> None:
    """``work(piece)``, which lets go of the GIL, for every piece, on so many cores."""
    if cores <= 1:
        for piece in pieces:
            work(piece)
        return
    from concurrent.futures import ThreadPoolExecutor

    with ThreadPoolExecutor(cores) as pool:
        list(pool.map(work, pieces))
