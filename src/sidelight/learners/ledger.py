"""The account of a floor under what a learner may earn less than the old policy, with a joint bound.

Conservative exploration after Kazerouni, Ghavamzadeh, Abbasi-Yadkori, Van Roy (2017) and Garcelon, Ghavamzadeh,
Lazaric, Pirotta (2020), whose baseline is here the old policy's own arm, round by round. With
``z_a = Σ_s x_s (1{played = a} − (1 − f) 1{old = a})``, the present round included, the learner's arm is played where

    Σ_a z_a·ŵ_a − ρ √(Σ_a ‖z_a‖²_{V_a⁻¹})  ≥  −c·t,

and the old policy's otherwise; ``V_a = λI + Σ x xᵀ`` and ``ŵ_a = V_a⁻¹ Σ r x`` are of online rounds alone. With
probability ``1 − δ``, for all rounds at once, the left side is at most the expected reward earned minus ``1 − f`` times
the old policy's, whatever the log says and however late rewards come: they count **in the order of decisions**, each
once those of all decisions before it are in (``learners.awaiting``).

**Proof.** Noise is σ-sub-Gaussian given all that was known when its round was decided and the noise of the rounds that
were decided before, so for every ``v`` that these determine
``E exp{((r − x·w)² − (r − x·v)²)/2σ²} ≤ 1``: it is ``E exp(qη − q²σ²/2)`` with ``q = x·(v − w)/σ²``. The same holds for
mixtures over ``v``, and products over rounds, in the order of decisions, are supermartingales, so that one with
expectation 1 at the start exceeds ``1/δ`` after any number of rounds with probability at most ``δ`` (Ville). How many
rounds are counted by now may depend on their rewards and on when these came, since the bound holds for every number at
once; which ones they are may not, and does not: they are always the first. Two mixtures have weight ½ each:

- ``v_a ~ N(0, (σ²/λ) I)``, once for all rounds: ``T₀ = Σ_a (R_a + σ² log det(V_a/λ))`` with
  ``R_a = Σ r² − ŵ_a·Σ r x`` is ``−2σ²`` times the logarithm of its part that does not depend on ``w``;
- ``x·v ~ N(m, s²)`` anew in every round, where ``m`` and ``s`` are what the learner, log included, expected of the
  reward **when the round was decided**: ``T_g = Σ {(r − m)²/(1 + s²/σ²) + σ² log(1 + s²/σ²)}``. What it expects when
  the reward comes would not do: where clicks come at once and their absence after a wait, a learner that has seen
  clicks alone expects clicks.

Hence ``Σ (r − x·w)² ≤ Θ = −2σ² log{½ exp(−T₀/2σ²) + ½ exp(−T_g/2σ²)} + 2σ² log(1/δ)`` at all times. A log that is right
makes ``T_g`` small; one that lies costs ``2σ² log 2``, and nothing is ever believed because the log says it. With
``‖w_a‖ ≤ S``,

    Σ_a ‖w_a − ŵ_a‖²_{V_a} = Σ (r − x·w)² + Σ_a (λ‖w_a‖² − R_a)  ≤  ρ² = Θ − Σ_a (R_a − λS²),

and Cauchy and Schwarz for all arms together give the bound. Arms that were neither played nor the old policy's have no
part in it. ``ρ²`` counts as at least ``2σ² log(1/δ)``: it is that for every constant ``v`` within the bound, and less
only where the rounds move away from any linear model.

That bound adds up ``Σ (r − x·w)² ≤ Θ`` and ``λ‖w_a‖² ≤ λS²`` and then takes the least ``Σ z_a·w_a``, so that an arm of
which little is known may seem longer than ``S``. Where it permits nothing, the least under all of these conditions at
once is looked at. By weak duality every ``μ > 0`` and ``λ_a ≥ 0`` give a bound of it from below,

    min_w Σ_a z_a·w_a + μ(Σ (r − x·w)² − Θ) + Σ_a λ_a(‖w_a‖² − S²)
        =  μ(Σ r² − Θ) − Σ_a {¼ q_aᵀ(μG_a + λ_aI)⁻¹q_a + λ_aS²},      q_a = z_a − 2μ Σ r x,   G_a = Σ x xᵀ,

and the best of them is the least itself, which is found by a search for ``μ`` (``kernels.floor.least``). ``Θ`` counts
there as at least ``Σ R_a + 2σ² log(1/δ)``, and only where every ``‖ŵ_a‖ ≤ S``: rounds that no weights explain, because
rewards are not linear or ``S`` is wrong, would otherwise permit anything.
"""

from __future__ import annotations

import copy
import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sidelight.arrays import Array
from sidelight.kernels import floor as kernels
from sidelight.learners.awaiting import NOTHING, Awaiting, Guess, Key
from sidelight.learners.correcting import Sums
from sidelight.learners.floor import Floor
from sidelight.linalg import apply, exp, inverse, log, log1p, log_det, product, square, symmetric_eigen

__all__ = ["FloorLedger"]

#: rounds of an arm after which its inverse is computed from its sums again, so that rounding does not add up
_REFRESH = 512


class FloorLedger:
    """What a floor keeps: the difference of what was played and what it promised, and online sums of each arm.

    Arms are positions. ``permits`` changes nothing. Once a decision is taken, ``record`` counts what it risks and
    ``expect`` waits for its reward, which may come much later (``observe``, or ``settle`` where decisions have keys).

    Args:
        floor: the promise.
        n_arms, n_features: sizes.
    """

    def __init__(self, floor: Floor, n_arms: int, n_features: int) -> None:
        self.floor = floor
        #: 2σ² log(1/δ)
        self._margin = -2.0 * square(floor.noise) * float(log(floor.delta))
        #: λ
        self.ridge = floor.regularization or n_features * square(floor.noise) / square(floor.weight_bound)
        self.rounds = 0
        #: z_a (K, d)
        self.differences = np.zeros((n_arms, n_features))
        self.grams = np.zeros((n_arms, n_features, n_features))
        self.moments = np.zeros((n_arms, n_features))
        #: Σr² (K,)
        self.squares = np.zeros(n_arms)
        self.counts = np.zeros(n_arms, dtype=np.int64)
        #: T_g
        self.guessed = 0.0
        #: decisions that are not counted in the sums yet
        self.awaiting = Awaiting()
        self._inverses = np.tile(np.eye(n_features) / self.ridge, (n_arms, 1, 1))
        self._log_dets = np.zeros(n_arms)
        self._derive()

    def _derive(self) -> None:
        """Recompute everything that is derived from the sums and the differences."""
        arms = list(range(self.n_arms))
        #: (2, K)  ``z_a·ŵ_a`` and ``‖z_a‖²_{V_a⁻¹}``
        self._projected = self._project(arms, self.differences)
        #: (K,)  ``ŵ_a·Σ r x``
        self._fits = self._project(arms, self.moments)[1]
        self._excess = self._excess_now()
        #: how often the sums of each arm changed, and the eigenvectors that were computed after how many changes
        self._versions = [0] * self.n_arms
        self._spectra = [(-1, np.empty(0), np.empty(0))] * self.n_arms

    @property
    def n_arms(self) -> int:
        """``K``, the number of arms."""
        return len(self.counts)

    @property
    def total(self) -> float:
        """A lower bound of expected reward minus what was promised, over all recorded decisions."""
        found = self._lower(self._projected, self._met())
        tight = self._least(self.differences, self._projected, found, math.inf)
        return max(found, tight) + self.floor.allowance * self.rounds

    def permits(self, x: Array, arm: int, default: int) -> bool:
        """Whether ``arm`` may be taken at ``x`` where the old policy takes ``default``."""
        if arm == default:
            return True
        pair = [arm, default]
        projected, met = self._projected.copy(), self._met()
        changed = self._with(x, arm, default)
        projected[:, pair], met[pair] = self._project(pair, changed), True
        found, needed = self._lower(projected, met), -self.floor.allowance * (self.rounds + 1)
        if found >= needed:
            return True
        differences = self.differences.copy()
        differences[pair] = changed
        return self._least(differences, projected, found, needed) >= needed

    def _met(self) -> NDArray[np.bool_]:
        """(K,)  Which arms were observed, played or the old policy's."""
        return np.asarray(self.differences.any(axis=1) | (self.counts > 0))

    def _with(self, x: Array, arm: int, default: int) -> Array:
        """(2, d)  ``z`` of both arms with one more decision."""
        kept = 1.0 - self.floor.share
        return np.array([self.differences[arm] + x, self.differences[default] - kept * x])

    def record(self, x: Array, arm: int, default: int) -> None:
        """``arm`` was taken at ``x`` where the old policy would have taken ``default``."""
        self.rounds += 1
        if arm == default:
            pair = [arm]
            self.differences[arm] += self.floor.share * x
        else:
            pair = [arm, default]
            self.differences[pair] = self._with(x, arm, default)
        self._projected[:, pair] = self._project(pair, self.differences[pair])

    def ahead(self) -> FloorLedger:
        """A copy in which decisions may be recorded that are under way; it shares what rewards alone change."""
        copied = copy.copy(self)
        copied.differences, copied._projected = self.differences.copy(), self._projected.copy()
        return copied

    def expect(self, x: Array, arm: int | None, guess: Guess, key: Key | None = None) -> None:
        """A decision for ``arm`` was taken at ``x``, whose reward counts in its turn.

        Args:
            x: (d,)  its context.
            arm: the arm; None where nobody knows yet which is taken.
            guess: ``m`` and ``s²``, what is expected of the mean reward there now, and the variance of that.
            key: its name, for ``settle``; without one ``observe`` finds it by its context.
        """
        self.awaiting.enter(x, -1 if arm is None else arm, NOTHING if arm is None else guess, key)

    def observe(self, x: Array, arm: int, reward: float) -> None:
        """A reward of ``arm`` at ``x`` arrived, of a decision that has no key."""
        self.awaiting.came(x, arm, reward)
        self._count()

    def settle(self, key: Key, arm: int, reward: float) -> None:
        """The reward of ``arm``, taken at the decision ``key``, arrived, or the wait for it is over."""
        self.awaiting.settle(key, arm, reward)
        self._count()

    def drop(self, key: Key) -> None:
        """Count nothing for the decision ``key`` if it is not counted yet, and keep nothing of its context."""
        self.awaiting.drop(key)
        self._count()

    def abandon(self) -> None:
        """Wait no more for the rewards of decisions that have keys and none yet; they count for nothing."""
        self.awaiting.abandon()
        self._count()

    def _count(self) -> None:
        """Add to the sums the decisions at the front of the queue whose rewards are all in."""
        for one in self.awaiting.counted():
            assert one.reward is not None
            self._add(one.x, one.taken, one.reward, one.expected)

    def _add(self, x: Array, arm: int, reward: float, guess: Guess) -> None:
        room = np.empty(len(x))
        kernels.add_round(arm, x, float(reward), self.grams, self.moments, self._inverses, self._log_dets, room)
        self.counts[arm] += 1
        self.squares[arm] += reward * reward
        self.guessed += self._surprise(x, reward, guess)
        if self.counts[arm] % _REFRESH == 0:
            self._refresh(arm)
        self._update(arm)

    def correct(self, x: Array, arm: int, old: float, new: float | None) -> None:
        """Correct the reward of a round; None takes the round out.

        A round that is counted already: its right reward counts as one of which nothing was expected. What the wrong
        one added to ``T_g`` stays there: it is at least 0, so the bound is lower for it and holds. Where decisions have
        keys a reward is what was known when its wait was over, and nothing is corrected.
        """
        if self.awaiting.keyed:
            return
        if self.awaiting.replace(x, arm, old, new):
            self._count()
            return
        if self.awaiting.left_out[1]:
            return  # it may be a round that was left out
        square = self.squares[arm] - old * old + (0.0 if new is None else new * new)
        Sums(self.grams, self.moments, np.zeros(self.n_arms), self.counts).change(arm, x, old, new)
        self.squares[arm] = square
        if new is not None:
            self.guessed += self._surprise(x, new, NOTHING)
        self._refresh(arm)
        self._update(arm)

    def with_arm(self) -> FloorLedger:
        """A copy with one more arm, at the end, of which nothing is known."""
        made, d = copy.copy(self), self.differences.shape[1]
        made.differences = np.concatenate([self.differences, np.zeros((1, d))])
        made.grams = np.concatenate([self.grams, np.zeros((1, d, d))])
        made.moments = np.concatenate([self.moments, np.zeros((1, d))])
        made.squares = np.append(self.squares, 0.0)
        made.counts = np.append(self.counts, 0)
        made._inverses = np.concatenate([self._inverses, np.eye(d)[None] / self.ridge])
        made._log_dets = np.append(self._log_dets, 0.0)
        made._derive()
        return made

    def _surprise(self, x: Array, reward: float, guess: Guess) -> float:
        """What a reward adds to ``T_g``.

        guess: ``m`` and ``s²``; means that ``S_w`` or a share rule out count as the nearest
        """
        mean, variance = guess
        most = self.floor.weight_bound * math.sqrt(float(product(x, x)))
        least = 0.0 if self.floor.share else -most
        mean = min(max(mean, least), most) if math.isfinite(mean) else 0.0
        variance = min(max(variance, 0.0), most * most) if math.isfinite(variance) else most * most
        noise = square(self.floor.noise)
        return square(reward - mean) / (1.0 + variance / noise) + noise * float(log1p(variance / noise))

    def _excess_now(self) -> float:
        """``Θ − Σ_a R_a``."""
        noise = square(self.floor.noise)
        spread = math.fsum(self._log_dets)
        # (T₀ − T_g)/2σ²: how much likelier the guesses make the rewards
        ahead = (math.fsum(self.squares - self._fits) - self.guessed) / (2.0 * noise) + 0.5 * spread
        # log(½ + ½ exp(ahead)), which must not overflow
        gained = max(ahead, 0.0) + float(log1p(exp(-abs(ahead)))) - float(log(2.0))
        return noise * (spread - 2.0 * gained - 2.0 * float(log(self.floor.delta)))

    def _update(self, a: int) -> None:
        """Recompute what is derived from the sums of an arm, after they have changed."""
        self._projected[:, [a]] = self._project([a], self.differences[[a]])
        self._fits[a] = self._project([a], self.moments[[a]])[1, 0]
        self._excess = self._excess_now()
        self._versions[a] += 1

    def _project(self, arms: list[int], Z: Array) -> Array:
        """(2, n)  ``z·ŵ_a`` and ``‖z‖²_{V_a⁻¹}`` for one ``z`` (a row of ``Z``, (n, d)) of each of ``arms``."""
        out = np.empty((2, len(Z)))
        kernels.project(np.array(arms), Z, self._inverses, self.moments, out)
        return out

    def _lower(self, projected: Array, met: NDArray[np.bool_]) -> float:
        """``Σ_a z_a·ŵ_a − ρ √(Σ_a ‖z_a‖²_{V_a⁻¹})``.

        projected: (2, K)  both terms of every arm   met: (K,)  which arms have a part in it
        """
        squared = self._excess + self.ridge * square(self.floor.weight_bound) * int(met.sum())
        return math.fsum(projected[0]) - math.sqrt(max(squared, self._margin) * math.fsum(projected[1]))

    def _least(self, Z: Array, projected: Array, found: float, enough: float) -> float:
        """The least ``Σ_a z_a·w_a`` that rewards and ``‖w_a‖ ≤ S`` leave possible, to about four digits from below.

        Z: (K, d)  ``z_a``   projected: (2, K)  as for ``_lower``, which gave ``found``
        enough: the search stops once the bound is at least that
        """
        # what the looser bound takes off, ρ‖z‖; its own μ is ‖z‖/2ρ
        taken = math.fsum(projected[0]) - found
        if not taken > 0.0:
            return found
        first = 0.5 * math.fsum(projected[1]) / taken
        spectra, rotated, moments = np.empty((3, *Z.shape))
        for a in range(self.n_arms):
            spectra[a], vectors = self._spectrum(a)
            rotated[a], moments[a] = apply(vectors.T, Z[a]), apply(vectors.T, self.moments[a])
        fitted = moments / (spectra + self.ridge)
        if math.sqrt(float(np.max(product(fitted[:, None, :], fitted[:, :, None])))) > self.floor.weight_bound:
            return found  # the rounds contradict S_w: if no weights satisfy all conditions, anything would follow
        # Σr² − Θ; Θ counts as at least 2σ² log(1/δ) above the fit's own
        slack = math.fsum(self._fits) - max(self._excess, self._margin)
        return float(kernels.least(spectra, rotated, moments, slack, self.floor.weight_bound, first, enough))

    def _spectrum(self, a: int) -> tuple[Array, Array]:
        """Eigenvalues and eigenvectors of ``G_a``, kept until a reward changes it."""
        version, values, vectors = self._spectra[a]
        if version != self._versions[a]:
            version = self._versions[a]
            values, vectors = symmetric_eigen(self.grams[a])
            self._spectra[a] = version, values, vectors
        return values, vectors

    def _refresh(self, a: int) -> None:
        """The inverse and the determinant of one arm from its sums."""
        V = self.ridge * np.eye(self.differences.shape[1]) + self.grams[a]
        self._inverses[a] = inverse(V)
        self._log_dets[a] = float(log_det(V / self.ridge))

    def state(self) -> dict[str, Any]:
        """Everything that recording and observing change, so that a copy continues bit for bit."""
        return {
            "floor_differences": self.differences,
            "floor_grams": self.grams,
            "floor_moments": self.moments,
            "floor_squares": self.squares,
            "floor_counts": self.counts,
            "floor_guessed": np.array([self.guessed]),
            "floor_inverses": self._inverses,
            "floor_log_dets": self._log_dets,
            "floor_rounds": np.array([self.rounds]),
            **self.awaiting.state(),
        }

    def restore(self, arrays: dict[str, Any]) -> None:
        """The inverse of ``state``."""
        self.differences = np.array(arrays["floor_differences"], dtype=np.float64)
        self.grams = np.array(arrays["floor_grams"], dtype=np.float64)
        self.moments = np.array(arrays["floor_moments"], dtype=np.float64)
        self.counts = np.array(arrays["floor_counts"], dtype=np.int64)
        self._inverses = np.array(arrays["floor_inverses"], dtype=np.float64)
        self._log_dets = np.array(arrays["floor_log_dets"], dtype=np.float64)
        # files of earlier versions have a second number there, which was never counted
        self.rounds = int(arrays["floor_rounds"][0])
        if "floor_guessed" in arrays:
            self.squares = np.array(arrays["floor_squares"], dtype=np.float64)
            self.guessed = float(arrays["floor_guessed"][0])
        else:
            # Files of earlier versions have no guesses. Those of rounds before now are then the other mixture's, so
            # that T_g = T₀, and of the squares, which they lack too, only differences matter.
            self.squares = self._project(list(range(self.n_arms)), self.moments)[1]
            self.guessed = square(self.floor.noise) * math.fsum(self._log_dets)
        self.awaiting = Awaiting.restored(arrays)
        self._derive()
