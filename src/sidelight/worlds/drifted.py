"""``DriftedWorld``: the log comes from another time, and lies about this one."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal, TypeAlias, get_args

import numpy as np
from numpy.typing import NDArray

from sidelight.errors import InputError
from sidelight.logs.schema.features import Category
from sidelight.worlds.linear import LinearWorld, draw_indices, softmax
from sidelight.worlds.protocol import Floats

Lie: TypeAlias = Literal["redrawn", "slandered", "shifted", "swapped", "moved", "policy"]

PROBE_ROWS = 4096
PROBE_SEED = 771


class DriftedWorld(LinearWorld):
    """Another world's online side with a log that lies. Online nothing changes: contexts, rewards, answers of the
    old policy, ``cross_moments`` are the honest world's.

    ===============  ================================================================================================
    lie              in the log
    ===============  ================================================================================================
    ``"redrawn"``    a ``share`` of the arms (at least one) had other weights: each entry that of a random arm
    ``"slandered"``  the arm that is best most often earned ``size`` less
    ``"shifted"``    every reward was higher by ``size``
    ``"swapped"``    the labels of the best arm and of the one that is best least often were exchanged
    ``"moved"``      contexts came from elsewhere: every number moved by ``size`` of its standard deviations (constants
                     and categories stay)
    ``"policy"``     the old policy was another one: the arms had exchanged their rules, in a circle
    ===============  ================================================================================================

    "Best" is by share of contexts. ``"shifted"`` and ``"policy"`` leave the order of arms at any context alone. A
    slandered arm is the hardest to clear: it looks bad, so it is not tried.

    Args:
        world: The honest world.
        lies: One lie or several, which add up.
        size: Of ``"slandered"`` and ``"shifted"`` in standard deviations of ``x·w_a`` over contexts and arms; of
            ``"moved"`` in standard deviations of each feature.
        share: Of the arms that are ``"redrawn"``.
        seed: Draws what a lie leaves open.

    Example:
        >>> from sidelight.worlds.confounded import ConfoundedWorld
        >>> from sidelight.worlds.drifted import DriftedWorld
        >>> world = DriftedWorld(ConfoundedWorld(seed=0), "slandered", size=2.0)
        >>> int((world.reward_offsets != 0).sum())
        1
    """

    def __init__(
        self,
        world: LinearWorld,
        lies: Lie | Sequence[Lie],
        *,
        size: float = 1.0,
        share: float = 0.2,
        seed: int = 0,
    ) -> None:
        super().__init__(world.weights, world.noise, schema=world.schema(len(world.features)))
        self.world = world
        self.lies: tuple[Lie, ...] = (lies,) if isinstance(lies, str) else tuple(lies)
        unknown = [lie for lie in self.lies if lie not in get_args(Lie)]
        if unknown:
            raise InputError(f"lie {unknown[0]!r} is not known; choose among {', '.join(map(repr, get_args(Lie)))}.")
        if not 0 <= share <= 1:
            raise InputError(f"share={share}: the share of redrawn arms lies between 0 and 1.")
        rng = np.random.default_rng(seed)
        X = world.contexts(PROBE_ROWS, np.random.default_rng(PROBE_SEED))
        means = world.mean_rewards(X)
        often_best = np.bincount(means.argmax(axis=1), minlength=self.n_arms)
        best, worst = int(often_best.argmax()), int(often_best[::-1].argmin())
        worst = self.n_arms - 1 - worst  # the last of those that are best least often, so never the best itself

        self.log_weights = self.weights.copy()
        self.reward_offsets = np.zeros(self.n_arms)
        self.written_as = np.arange(self.n_arms)  # arm played → arm written
        self.context_shift = np.zeros(self.n_features)
        self.policy_of = np.arange(self.n_arms)  # arm → arm whose rule it followed
        if "redrawn" in self.lies:
            chosen = rng.permutation(self.n_arms)[: max(1, round(share * self.n_arms))]
            donors = rng.integers(self.n_arms, size=(len(chosen), self.n_features))
            self.log_weights[chosen] = self.weights[donors, np.arange(self.n_features)]
        if "slandered" in self.lies:
            self.reward_offsets[best] -= size * means.std()
        if "shifted" in self.lies:
            self.reward_offsets += size * means.std()
        if "swapped" in self.lies:
            self.written_as[[best, worst]] = worst, best
        if "moved" in self.lies:
            movable = np.ones(self.n_features, dtype=bool)
            for feature in self._schema.features:
                if isinstance(feature, Category):
                    start = self._schema.feature_start(feature.name)
                    movable[start : start + len(feature.column_levels)] = False
            self.context_shift = np.where(movable, size * X.std(axis=0), 0.0)
        if "policy" in self.lies:
            self.policy_of = np.roll(self.policy_of, 1)

    def __repr__(self) -> str:
        return f"DriftedWorld({self.world!r}, its log {' and '.join(self.lies)})"

    def contexts(self, n: int, rng: np.random.Generator) -> Floats:
        """Those of the honest world; online nothing is changed."""
        return self.world.contexts(n, rng)

    def behavior_logits(self, X: Floats) -> Floats:
        """Those of the honest world; online nothing is changed."""
        return self.world.behavior_logits(X)

    def second_moments(self) -> tuple[Floats, Floats]:
        """The honest world's: what answers of the old policy in online contexts would show."""
        return self.world.second_moments()

    def _logged(self, n: int, rng: np.random.Generator) -> tuple[Floats, NDArray[np.intp], Floats]:
        X = self.world.contexts(n, rng) + self.context_shift
        indices = draw_indices(softmax(self.world.behavior_logits(X)[:, self.policy_of]), rng)
        rewards = np.einsum("nd,nd->n", X, self.log_weights[indices]) + self.reward_offsets[indices]
        return X, self.written_as[indices], rewards + self._noise(n, rng)
