"""A floor under what a learner may earn less than the old policy: conservative exploration, with a joint bound.

After Kazerouni, Ghavamzadeh, Abbasi-Yadkori, Van Roy (2017) and Garcelon, Ghavamzadeh, Lazaric, Pirotta (2020), whose
baseline is here the old policy's own arm, round by round. With ``z_a = Σ_s x_s (1{played = a} − (1 − f) 1{old = a})``,
the present round included, the learner's arm is played where

    Σ_a ( z_a·ŵ_a − √β_a ‖z_a‖_{V_a⁻¹} )  ≥  −c·t,

and the old policy's otherwise. ``ŵ``, ``V`` and the radius ``√β`` (:func:`sidelight.theory.determinant_radius` at
``δ/K``) come from online rounds alone, so a log that lies cannot break the floor. While all confidence sets hold, which
has probability ``1 − δ`` for all rounds at once, the left side is at most the expected reward earned minus ``1 − f``
times the old policy's.
"""

from __future__ import annotations

import copy
import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from sidelight.arrays import Array
from sidelight.errors import InputError
from sidelight.kernels import floor as kernels
from sidelight.learners.correcting import Sums
from sidelight.learners.settings import Settings
from sidelight.linalg import inverse, log_det
from sidelight.theory import determinant_radius

__all__ = ["Floor", "FloorLedger", "floor_of"]

#: rounds of an arm after which its inverse is computed from its sums again, so that rounding does not add up
_REFRESH = 512


@dataclass(frozen=True)
class Floor:
    """What a learner promises: its expected total reward stays above the old policy's, but for what is agreed here.

    Give ``share`` where the old policy's expected reward is never negative, else ``allowance``. The promise is about
    expected rewards given the contexts, at all times at once, with probability ``1 − delta``, for rewards that are
    linear in the features.

    Args:
        share: the part of the old policy's reward that may be lost, for example 0.05.
        allowance: what may be lost a round, in the reward's unit.
        noise: σ: the noise is σ-sub-Gaussian (for rewards within an interval, half its length).
        weight_bound: S_w ≥ ``‖w_a‖`` of every arm.
        regularization: λ of the floor's own regressions.
        delta: probability with which the promise may fail.

    Examples:
        >>> import sidelight as sl
        >>> sl.Floor(0.05, noise=0.5, weight_bound=2.0)
        Floor(share=0.05, allowance=0.0, noise=0.5, weight_bound=2.0, regularization=1.0, delta=0.05)
    """

    share: float = 0.0
    allowance: float = 0.0
    noise: float = 1.0
    weight_bound: float = 1.0
    regularization: float = 1.0
    delta: float = 0.05

    def __post_init__(self) -> None:
        if not 0.0 <= self.share < 1.0:
            raise InputError(f"floor: share={self.share!r} must lie in [0, 1): 0.05 keeps 95 % of the old reward.")
        if not 0.0 <= self.allowance < math.inf:
            raise InputError(f"floor: allowance={self.allowance!r} must be a number of at least 0.")
        if (self.share > 0.0) == (self.allowance > 0.0):
            raise InputError(
                f"floor: share={self.share!r} and allowance={self.allowance!r}: give exactly one of them above 0 (a "
                "share where the old policy's mean reward is never negative, else an allowance in the reward's unit)."
            )
        for name in ("noise", "weight_bound", "regularization"):
            value = getattr(self, name)
            if not 0.0 < value < math.inf:
                raise InputError(f"floor: {name}={value!r} must be a positive number.")
        if not 0.0 < self.delta < 1.0:
            raise InputError(f"floor: delta={self.delta!r} must lie in (0, 1).")


def floor_of(floor: float | Floor | Mapping[str, float] | None, settings: Settings) -> Floor | None:
    """What a learner's argument ``floor`` says: a share with the learner's own noise and bounds, or a ``Floor``.

    Raises:
        InputError: a share, and the noise is learned: then nothing could be promised.
    """
    if floor is None or isinstance(floor, Floor):
        return floor
    if isinstance(floor, Mapping):
        return Floor(**floor)
    if settings.noise == "auto":
        raise InputError(
            f"floor={floor!r} is a promise, which needs a bound on the noise that is known beforehand: give "
            f"noise=… and weight_bound=… as numbers, or floor=sl.Floor({floor!r}, noise=…, weight_bound=…)."
        )
    return Floor(float(floor), noise=settings.sigma, weight_bound=settings.weight_bound, delta=settings.delta)


class FloorLedger:
    """What a floor keeps: the difference of what was played and what it promised, and online sums of each arm.

    Arms are positions. ``permits`` changes nothing; ``record`` is called once a decision is taken, ``observe`` when its
    reward arrives, which may be much later: a decision counts from the moment it is taken.

    Args:
        floor: the promise.
        n_arms, n_features: sizes.
    """

    def __init__(self, floor: Floor, n_arms: int, n_features: int) -> None:
        self.floor = floor
        self.rounds = 0
        #: z_a (K, d)
        self.differences = np.zeros((n_arms, n_features))
        self.grams = np.zeros((n_arms, n_features, n_features))
        self.moments = np.zeros((n_arms, n_features))
        self.counts = np.zeros(n_arms, dtype=np.int64)
        self._inverses = np.tile(np.eye(n_features) / floor.regularization, (n_arms, 1, 1))
        self._log_dets = np.zeros(n_arms)
        self._radii = self._radius(self._log_dets)
        self._bounds = np.zeros(n_arms)

    @property
    def n_arms(self) -> int:
        """``K``, the number of arms."""
        return len(self.counts)

    @property
    def total(self) -> float:
        """A lower bound of expected reward minus what was promised, over all recorded decisions."""
        return math.fsum(self._bounds) + self.floor.allowance * self.rounds

    def permits(self, x: Array, arm: int, default: int) -> bool:
        """Whether ``arm`` may be taken at ``x`` where the old policy takes ``default``."""
        if arm == default:
            return True
        pair = [arm, default]
        changed = math.fsum(np.delete(self._bounds, pair)) + math.fsum(self._lower(pair, self._with(x, arm, default)))
        return changed + self.floor.allowance * (self.rounds + 1) >= 0.0

    def _with(self, x: Array, arm: int, default: int) -> Array:
        """(2, d)  ``z`` of both arms with one more decision."""
        kept = 1.0 - self.floor.share
        return np.array([self.differences[arm] + x, self.differences[default] - kept * x])

    def record(self, x: Array, arm: int, default: int) -> None:
        """``arm`` was taken at ``x`` where the old policy would have taken ``default``."""
        self.rounds += 1
        if arm == default:
            self.differences[arm] += self.floor.share * x
            self._bounds[arm] = self._lower([arm], self.differences[[arm]])[0]
            return
        pair = [arm, default]
        self.differences[pair] = self._with(x, arm, default)
        self._bounds[pair] = self._lower(pair, self.differences[pair])

    def ahead(self) -> FloorLedger:
        """A copy in which decisions may be recorded that are under way; it shares what rewards alone change."""
        copied = copy.copy(self)
        copied.differences, copied._bounds = self.differences.copy(), self._bounds.copy()
        return copied

    def observe(self, x: Array, arm: int, reward: float) -> None:
        """A reward of ``arm`` at ``x`` arrived."""
        x = np.ascontiguousarray(x, dtype=np.float64)
        room = np.empty(len(x))
        kernels.add_round(arm, x, float(reward), self.grams, self.moments, self._inverses, self._log_dets, room)
        self.counts[arm] += 1
        if self.counts[arm] % _REFRESH == 0:
            self._refresh(arm)
        self._update(arm)

    def correct(self, x: Array, arm: int, old: float, new: float | None) -> None:
        """The reward of a round was another one; None: the round was another arm's."""
        Sums(self.grams, self.moments, np.zeros(self.n_arms), self.counts).change(arm, x, old, new)
        self._refresh(arm)
        self._update(arm)

    def add_arm(self) -> None:
        """One more arm, at the end, of which nothing is known."""
        d = self.differences.shape[1]
        self.differences = np.concatenate([self.differences, np.zeros((1, d))])
        self.grams = np.concatenate([self.grams, np.zeros((1, d, d))])
        self.moments = np.concatenate([self.moments, np.zeros((1, d))])
        self.counts = np.append(self.counts, 0)
        self._inverses = np.concatenate([self._inverses, np.eye(d)[None] / self.floor.regularization])
        self._log_dets = np.append(self._log_dets, 0.0)
        self._radii = self._radius(self._log_dets)
        self._bounds = self._lower(list(range(self.n_arms)), self.differences)

    def _update(self, a: int) -> None:
        """The radius and the bound of an arm, after its sums have changed."""
        self._radii[a] = self._radius(self._log_dets[a])
        self._bounds[a] = self._lower([a], self.differences[[a]])[0]

    def _radius(self, log_dets: Array | float) -> Array:
        """``√β`` of arms whose online rounds have this ``log det(V/λ)``, at the floor's ``δ/K``."""
        floor = self.floor
        return np.asarray(
            determinant_radius(
                log_dets, floor.noise, floor.delta / self.n_arms, floor.regularization * floor.weight_bound**2
            )
        )

    def _lower(self, arms: list[int], Z: Array) -> Array:
        """(n,)  ``z·ŵ_a − √β_a ‖z‖_{V_a⁻¹}``: at most ``z·w_a`` while the confidence set of the arm holds.

        Z: (n, d), one ``z`` for each of ``arms``
        """
        out = np.empty(len(Z))
        kernels.lower_bounds(np.array(arms), Z, self._inverses, self.moments, self._radii, out)
        return out

    def _refresh(self, a: int) -> None:
        """The inverse and the determinant of one arm from its sums."""
        d = self.differences.shape[1]
        V = self.floor.regularization * np.eye(d) + self.grams[a]
        self._inverses[a] = inverse(V)
        self._log_dets[a] = float(log_det(V / self.floor.regularization))

    def state(self) -> dict[str, Any]:
        """Everything that recording and observing change, so that a copy continues bit for bit."""
        return {
            "floor_differences": self.differences,
            "floor_grams": self.grams,
            "floor_moments": self.moments,
            "floor_counts": self.counts,
            "floor_inverses": self._inverses,
            "floor_log_dets": self._log_dets,
            "floor_bounds": self._bounds,
            "floor_rounds": np.array([self.rounds]),
        }

    def restore(self, arrays: dict[str, Any]) -> None:
        """The inverse of ``state``."""
        self.differences = np.array(arrays["floor_differences"], dtype=np.float64)
        self.grams = np.array(arrays["floor_grams"], dtype=np.float64)
        self.moments = np.array(arrays["floor_moments"], dtype=np.float64)
        self.counts = np.array(arrays["floor_counts"], dtype=np.int64)
        self._inverses = np.array(arrays["floor_inverses"], dtype=np.float64)
        self._log_dets = np.array(arrays["floor_log_dets"], dtype=np.float64)
        self._bounds = np.array(arrays["floor_bounds"], dtype=np.float64)
        self._radii = self._radius(self._log_dets)
        # files of earlier versions have a second number there, which was never counted
        self.rounds = int(arrays["floor_rounds"][0])
