"""One ridge regression per arm in reduced coordinates: its state, its settings, one round."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from sidelight.errors import InputError
from sidelight.kernels import ridge as kernels
from sidelight.kernels.state import NUMBERS, state_of, vectors_for
from sidelight.learners.automatic import (
    NOISE_FLOOR,
    Automatic,
    add_log,
    constraint_evidence,
    feature_blocks,
    log_variance,
)
from sidelight.learners.base import BaseLearner
from sidelight.learners.correcting import Receipt, Sums
from sidelight.learners.gaps import Completed
from sidelight.learners.noise import arm_noises, own_residuals, rate_noise, residual_noise, residuals
from sidelight.learners.protocol import Context
from sidelight.learners.settings import Settings
from sidelight.learners.wild import Ranges
from sidelight.linalg import Array, apply, eigenvalues, log, product
from sidelight.side.constraint import Reduction
from sidelight.side.coordinates import Tally, Units

if TYPE_CHECKING:
    from sidelight.logs.schema.schema import Schema
    from sidelight.logs.summary import LogSummary

__all__ = ["BINARY_VARIANCE", "FOREVER", "RADIUS_KINDS", "RidgeLearner", "arm_spreads"]

RADIUS_KINDS = {
    "determinant": kernels.DETERMINANT,
    "printed": kernels.PRINTED,
    "posterior": kernels.POSTERIOR,
}
FOREVER = np.iinfo(np.int64).max
#: events up to which the units of contexts are so rough that widths in them are not added up
FEW_EVENTS = 16
BINARY_VARIANCE = kernels.BINARY_VARIANCE
#: rates below this part of the mean rate are taken for it when a round is weighted
LEAST_RATE = 0.5
#: where the least rate stands among the numbers that the kernels read
RATE_AT = NUMBERS - 1
#: an arm's noise has at least this part of the variance of all arms' together
ARM_FLOOR = 1e-3
#: what observing changes
_STATE = (
    "grams",
    "moments",
    "squares",
    "covariances",
    "weights",
    "log_dets",
    "radii",
    "bounds",
    "updates",
    "counts",
    "context_sums",
    "spent",
)


class Part:
    """An array of the learner's state by its name; assigning writes into the state's own memory."""

    def __set_name__(self, owner: type, name: str) -> None:
        self.name = name

    def __get__(self, learner: Any, owner: type | None = None) -> Any:
        return self if learner is None else getattr(learner._held[2], self.name)

    def __set__(self, learner: Any, value: Any) -> None:
        getattr(learner._held[2], self.name)[...] = value


class RidgeLearner(BaseLearner):
    """State: per arm the sums ``Σ z zᵀ`` and ``Σ z(r − x·anchor)``, and the caches derived from them.

    Attributes:
        reduction: ``w = anchor + Nθ``, ``z = Nᵀx`` (see ``side.constraint.Reduction``).
        grams: (K, m, m)   moments: (K, m)   the sums.
        covariances: (K, m, m)  ``(NᵀVN)⁻¹``   weights: (K, d)  ``ŵ``, internal order
        log_dets: (K,)  ``log det NᵀVN/det NᵀV₀N``   radii: (K,)  ``α√β``
        context_sums: (2d + 2,)  ``Σx²`` and ``Σx`` (internal order), ``Σr`` and ``Σr²`` over all rounds.
        automatic: what ``"auto"`` settings know now; None where all are given.
    """

    # kernels.state.State says what each of them is
    counts = Part()
    updates = Part()
    grams = Part()
    moments = Part()
    squares = Part()
    context_sums = Part()
    spent = Part()
    covariances = Part()
    weights = Part()
    log_dets = Part()
    radii = Part()
    bounds = Part()
    prior_precisions = Part()
    prior_moments = Part()
    prior_log_dets = Part()

    compiled_scores = True
    radius_names: tuple[str, ...] = tuple(RADIUS_KINDS)
    #: whether there is something to refresh on a schedule even where all settings are given
    refreshes_logs = False

    def __init__(
        self,
        arms: Sequence[Any],
        reduction: Reduction,
        settings: Settings,
        schema: Schema | None = None,
        rng: np.random.Generator | None = None,
        log: LogSummary | None = None,
        *,
        recorded: ArrayLike | None = None,
    ) -> None:
        if len(arms) != reduction.n_arms:
            raise InputError(f"{len(arms)} arm labels for {reduction.n_arms} arms.")
        self._held = self._hold(reduction)
        super().__init__(arms, reduction.n_features, settings, schema, rng)
        self._summary = log
        if self.gaps is not None and log is not None:
            self.gaps.start_from(log)
        #: whether rewards are 0 or 1, so that their noise has the variance ``p(1 − p)`` and rounds are weighted by it
        self.binary = settings.noise == "auto" and self._rewards_are_binary()
        #: (d,)  in which features' units the columns of a reduction that is not ``shifted`` are orthonormal
        self._basis_scales = np.ones(self.n_features)
        if settings.radius not in self.radius_names:
            raise InputError(
                f"radius={settings.radius!r} belongs to the fused learners; {type(self).__name__} takes "
                f"{', '.join(RADIUS_KINDS)}."
            )
        self.automatic: Automatic | None = None
        self.n_contexts = 0
        if self.refreshes_logs or "auto" in (settings.regularization, settings.noise):
            d = self.n_features
            if recorded is None:
                recorded = np.arange(d) if log is None else log.recorded
            known = np.flatnonzero(np.isin(reduction.order, recorded))
            constant = None
            if schema is not None and schema.intercept:
                constant = int(np.flatnonzero(reduction.order == 0)[0])
            derived = [] if schema is None else np.flatnonzero(np.isin(reduction.order, schema.derived_index)).tolist()
            blocks, bent = feature_blocks(d, known.tolist(), constant, derived)
            self.automatic = Automatic.begin(blocks, d, self._first_variance(settings), constant, bent)
            self.automatic.eager = settings.regularization == "auto"
        self._install(reduction)

    def _learn_from_log(self) -> None:
        """Take the automatic settings from the log, before the first round."""
        if self.automatic is not None:
            self._relearn()

    # ------------------------------------------------------------------------------------ state

    @staticmethod
    def _hold(reduction: Reduction) -> tuple[Array, NDArray[np.int64], Any]:
        """The floats and integers of a state in the coordinates of ``reduction``, and the names of their parts."""
        K, R, m = reduction.loadings.shape
        arena, sizes = vectors_for(K, reduction.n_features, m, R, reduction.shifted)
        state = state_of(arena, sizes)
        state.order[:], state.dimensions[:] = reduction.order, reduction.dimensions
        # (K, m, R) as the kernels read them, the other way round than in a reduction
        state.loadings[:] = np.swapaxes(reduction.loadings, 1, 2)
        state.centre[:], state.spreads[:] = arm_spreads(state.loadings, reduction.shifted)
        state.anchors[:] = reduction.anchors
        return arena, sizes, state

    def _install(self, reduction: Reduction) -> None:
        """Start from nothing observed in the coordinates of ``reduction``; what all arms share is kept."""
        sums, spent = self.context_sums, self.spent
        self._held = self._hold(reduction)
        self.context_sums, self.spent = sums, spent
        self.reduction = reduction
        self._set_prior()
        self.refresh()

    def _set_prior(self) -> None:
        """``NᵀV₀N`` and ``NᵀV₀(μ − anchor)`` of every arm."""
        r = self.reduction
        precision, means = self._prior()
        K, m, weights = r.n_arms, r.size, self._prior_weights()
        for a in range(K):
            N = r.basis(a)
            own = precision if precision.ndim == 2 else precision[a]
            self.prior_precisions[a] = weights[a] * product(product(N.T, own), N)
            # a padded dimension has no column in N; a one on the diagonal keeps the matrix invertible
            padded = np.arange(r.dimensions[a], m)
            self.prior_precisions[a, padded, padded] = 1.0
            self.prior_moments[a] = weights[a] * product(N.T, product(own, means[a] - r.anchors[a]))
        self.prior_log_dets = np.nan  # the next refresh computes them
        self._set_bounds(precision)

    def _set_bounds(self, precision: Array) -> None:
        """``λS_w²`` and ``S_x²/λ`` of the radii; for a prior of several variances, the safe side of each."""
        s = self.settings
        self._prior_term = self._growth = 0.0
        if s.radius == "posterior":
            return  # which needs neither
        known = None if self.automatic is None else self.automatic.units.known
        if known is not None and not known.any():
            values = np.ones(1)  # weights of features that never varied are zero, not unbounded
        elif s.regularization != "auto":  # λI
            values = np.array([s.regularization], dtype=np.float64)
        else:
            values = eigenvalues(precision if known is None else precision[..., known, :][..., known])
        self._prior_term = float(values[..., -1].max()) * s.kernel_weight_bound**2
        self._growth = s.kernel_context_bound**2 / float(values[..., 0].min())

    def _prior(self) -> tuple[Array, Array]:
        """``V₀`` and ``μ`` (K, d), in internal order; ``w_a ~ N(μ_a, σ²V₀⁻¹)``.  ``V₀``: (d, d), or (K, d, d) by arm"""
        s, r = self.settings, self.reduction
        if s.regularization == "auto":
            assert self.automatic is not None
            means, precisions = self.automatic.priors(r.n_arms)
            return self.automatic.variance * precisions, means
        means = s.prior_means(r.n_arms, r.n_features)[:, r.order]
        return float(s.regularization) * np.eye(r.n_features), means

    @property
    def noise(self) -> float:
        """``σ``, as given or as learned."""
        return self.settings.sigma if self.automatic is None else math.sqrt(self.automatic.variance)

    @property
    def noises(self) -> Array:
        """(K,)  ``σ_a``, of each arm, as given or as learned."""
        out = np.full(self.n_arms, self.noise)
        if self.automatic is not None and self.settings.noise == "auto":
            learned = self.automatic.variances
            # an arm that was added since has the noise of all
            out[: len(learned)] = np.sqrt(learned)
        return out

    def _cautious_variances(self) -> Array:
        """(K,)  ``σ_a²``, at least that of all arms together, for what arms say about the prior that they share.

        An arm with next to no noise knows its own weights exactly; how much those of others differ it does not know.
        """
        return np.maximum(np.square(self.noises), self.noise**2)

    def _prior_weights(self) -> Array:
        """(K,)  ``σ_a²/σ²``, where the prior is one of weights and not of weights in units of the noise; else 1."""
        if self.settings.regularization != "auto":
            return np.ones(self.n_arms)
        return np.square(self.noises) / self.noise**2

    # ------------------------------------------------------------------------- automatic settings

    def _rewards_are_binary(self) -> bool:
        """Whether rewards are 0 or 1: as the schema says, else as the log has them."""
        declared = None if self.schema is None else self.schema.binary
        return self._summary is not None and self._summary.binary_rewards if declared is None else declared

    def _least_rate(self) -> float:
        """What keeps the rate of a reward of 0 or 1 from 0 and 1 where rounds are weighted by it; 0: they are not."""
        if not self.binary:
            return 0.0
        n, total, _ = (float(v) for v in self._tally().rewards)
        rate = (total + 0.5) / (n + 1.0)
        return LEAST_RATE * min(rate, 1.0 - rate)

    def _check_binary(self, reward: float) -> None:
        """Look at a reward where all were 0 or 1 so far: once one is neither, all rounds count alike from then on."""
        if reward in (0.0, 1.0):
            return
        if self.schema is not None and self.schema.binary:
            raise InputError(f"The reward {reward!r} is neither 0 nor 1, which the schema says all rewards are.")
        self.binary = False
        self._relearn()

    def _first_variance(self, settings: Settings) -> float:
        """``σ²`` before any round: as given, or what the log left unexplained, or one."""
        if settings.noise != "auto":
            return settings.sigma**2
        if self.binary:
            return BINARY_VARIANCE
        found = log_variance(self._summary)
        return 1.0 if found is None else found

    def _arm_rounds(self) -> Array:
        """(K,)  How many rounds of each arm the sums hold."""
        return np.asarray(self.counts.astype(np.float64))

    def _noise_guess(self, units: Units) -> float:
        """``σ²`` as the log has it; without a log, or where its rewards are all zero, the rewards' own variance."""
        found = log_variance(self._summary)
        return units.reward_variance if found is None else found

    def _evidence(self, variances: Array) -> tuple[Array, Array]:
        """``J`` (K, d, d) and ``h`` (K, d): what each arm's constraint and rounds say about its weights.

        variances: (K,)  ``σ_a²`` of the rounds
        """
        assert self.automatic is not None
        r = self.reduction
        K, d, m = r.n_arms, r.n_features, r.size
        J, h = np.zeros((K, d, d)), np.zeros((K, d))
        for a in range(K):
            variance = variances[a]
            if r.shifted:
                J[a, d - m :, d - m :] = self.grams[a] / variance
                h[a, d - m :] = self.moments[a] / variance
            else:
                # w = anchor + Uθ, where SU is orthonormal, so that θ = UᵀS²(w − anchor)
                U = -r.loadings[a] * np.square(self._basis_scales)[:, None]
                J[a] = product(U, product(self.grams[a] / variance, U.T))
                h[a] = product(U, self.moments[a] / variance) + product(J[a], r.anchors[a])
            if r.loadings.shape[1]:
                J_exact, h_exact = constraint_evidence(
                    self._constraint(a), r.anchors[a], self.automatic.units, self._moments
                )
                J[a] += J_exact
                h[a] += h_exact
        return J, h

    def _constraint(self, a: int) -> Array:
        """``M`` of one arm, or rows that span the same.  (L, d)"""
        r = self.reduction
        if r.shifted:
            return np.concatenate([np.eye(r.loadings.shape[1]), r.loadings[a]], axis=1)
        return np.asarray(np.eye(r.n_features) - product(r.loadings[a], r.loadings[a].T))

    @cached_property
    def _moments(self) -> Array | None:
        """(L, L)  Second moments of the recorded features over the log, if there is one."""
        if self._summary is None:
            return None
        shares, moments = self._summary.shares[:, None, None], self._summary.second_moments
        return np.asarray(np.cumsum(shares * moments, axis=0)[-1])

    def _spread_of_logs(self, units: Units) -> Callable[[float], float] | None:
        """Log likelihood of the hidden weights' variance from the logs' residual variances: none for this learner."""
        return None

    def _preferences(self, units: Units) -> Array | None:
        """(K, q, d)  What the old policy favoured for each arm: None for a learner that has not asked it."""
        return None

    def _tally(self) -> Tally:
        """What log and rounds have seen of every feature and of the rewards."""
        d, sums = self.n_features, self.context_sums
        tally = Tally.empty(d)
        tally.add(slice(None), float(self.n_contexts), sums[d : 2 * d], sums[:d])
        tally.add_rewards(float(self.n_contexts), float(sums[-2]), float(sums[-1]))
        if self._summary is not None:
            add_log(tally, self._summary, np.argsort(self.reduction.order)[self._summary.recorded])
        return tally

    def _relearn(self) -> None:
        """Learn noise and prior anew from everything seen, and put them to use."""
        assert self.automatic is not None
        before, units = self.automatic.units, self.automatic.renew(self._tally(), self.reduction.order)
        if (units.reward_known and not before.reward_known) or self.automatic.events <= FEW_EVENTS:
            self.spent[:] = 0.0  # widths from before rewards and features had units, or rough ones
        if self.settings.noise == "auto":
            theta = apply(self.covariances, self.prior_moments + self.moments)
            left, used = residuals(self.squares, self.moments, self.grams, theta, self.covariances)
            rounds = self._arm_rounds()
            if self.reduction.loadings.shape[1] == 0 and not self.binary:
                # in the features' own units, where a level far from zero costs no digits
                grams, moments = units.evidence(self.grams, self.moments)
                squares = units.squares(self.squares, self.moments, self.grams)
                own_residuals(squares, moments, grams, rounds, left, used)
            floor = NOISE_FLOOR * units.reward_variance
            rounds_in_all = float(rounds.sum())
            if self.binary:
                found = rate_noise(BINARY_VARIANCE, self._least_rate(), left, used, rounds_in_all)
                self.automatic.variance = max(found, floor)
                self.automatic.variances = np.full(self.n_arms, self.automatic.variance)
            else:
                found = residual_noise(self._noise_guess(units), left, used, rounds_in_all)
                self.automatic.variance = max(found, floor)
                noises = arm_noises(self.automatic.variance, left, np.maximum(rounds - used, 0.0))
                # an arm whose rewards are all alike says less about the other arms' weights than its residuals claim
                self.automatic.variances = np.maximum(noises, max(floor, ARM_FLOOR * self.automatic.variance))
        if self.settings.regularization == "auto":
            self._learn_prior(units)
        self.automatic.refreshed = self.automatic.events
        self._set_prior()
        self.refresh()

    def _learn_prior(self, units: Units) -> None:
        """Take the prior that is most likely at the noise as it is estimated now."""
        assert self.automatic is not None
        hidden, preferences = (lambda: self._spread_of_logs(units)), self._preferences(units)
        self.automatic.learn(*self._evidence(self._cautious_variances()), units, hidden, preferences)

    def refresh(self) -> None:
        """Recompute every cache from the sums: in a copy, which takes the place of the state in one assignment."""
        arena, sizes, _ = self._held
        arena, sizes = arena.copy(), sizes.copy()
        state = state_of(arena, sizes)
        self._put_settings(state)
        kernels.refresh(arena, sizes, 0, self.n_arms)
        self._publish(arena, sizes)

    def _publish(self, arena: Array, sizes: NDArray[np.int64]) -> None:
        """Let the two vectors be the learner's state from now on."""
        self._held = (arena, sizes, state_of(arena, sizes))

    def _refresh_arm(self, a: int) -> None:
        """Recompute one arm's caches from its sums, in place."""
        arena, sizes, state = self._held
        self._put_settings(state)
        kernels.refresh(arena, sizes, a, a + 1)

    def _put_settings(self, state: Any) -> None:
        """Write what the kernels read of the settings."""
        state.numbers[:] = self._numbers()
        state.doubts[0] = self._doubt
        state.reluctance[:] = self._reluctance()

    def _numbers(self) -> Array:
        """What the kernels need: kind of radius, noise, ``λS_w²``, ``S_x²/λ``, ``K/δ``, ``α``, what is a surprise."""
        s = self.settings
        kind = RADIUS_KINDS[s.radius]
        union = log(self.n_arms / s.delta)
        return self._with_noises([kind, self.noise, self._prior_term, self._growth, union, s.alpha, self._surprise])

    def _with_noises(self, numbers: list[float]) -> Array:
        """(8 + K,)  ``numbers``, the least rate of rewards of 0 and 1, then ``σ_a`` of every arm."""
        return np.concatenate([numbers, [self._least_rate()], self.noises])

    # --------------------------------------------------------------------------- decide, observe

    def _scores(self, x: Array) -> tuple[Array, Array]:
        arena, sizes, _ = self._held
        out = np.empty((2, self.n_arms))
        kernels.score(arena, sizes, x, out)
        return out[0], out[1]

    def _choose(self, x: Array) -> tuple[int, float, float]:
        if not self.compiled_scores:
            return super()._choose(x)
        arena, sizes, _ = self._held
        a, estimate, width, _ = kernels.choose(arena, sizes, x, 0.0)
        return a, estimate, width

    def _choose_or_doubt(self, x: Array, limit: float) -> tuple[int, float, float, int]:
        arena, sizes, _ = self._held
        return kernels.choose(arena, sizes, x, limit)  # type: ignore[no-any-return]

    def __getstate__(self) -> dict[str, Any]:
        """Without the names of the state's parts, which share its memory."""
        arena, sizes, _ = self._held
        return {**self.__dict__, "_held": (arena.copy(), sizes.copy())}

    def __setstate__(self, values: dict[str, Any]) -> None:
        arena, sizes = values["_held"]
        self.__dict__.update(values)
        self._publish(arena, sizes)

    def _observe(self, x: Array, index: int, reward: float, weight: float = 1.0) -> None:
        fresh = False
        if self.binary:
            self._check_binary(reward)
        if self._guarded:
            assert self.automatic is not None
            x, reward, fresh = self.automatic.admit(x, reward, self._name)
        self._take(x, index, reward, weight)
        if fresh:
            # a first value that differs tells a unit: nothing can be said in it before
            self._relearn()

    def _observe_completed(self, context: Completed, index: int, reward: float) -> None:
        """Learn from a round whose context had gaps, as much as its noise of variance ``σ_a² + wᵀΣw`` lets it count."""
        # of a reward of 0 or 1 the whole variance follows from its rate, gaps or not
        self._observe(context.x, index, reward, 1.0 if self.binary else self._gap_weight(context, index))

    def _gap_weight(self, context: Completed, index: int) -> float:
        """``σ_a²/(σ_a² + E[wᵀΣw])``."""
        variance = float(self.noises[index]) ** 2
        total = variance + self._gap_variance(context, index)
        return variance / total if total > 0.0 else 1.0

    def _gap_variance(self, context: Completed, index: int) -> float:
        """``E[wᵀΣw] = ŵᵀΣŵ + tr(Σ Cov w)`` of one arm: what the gaps of a context add to the noise of its reward."""
        place = np.argsort(self.reduction.order)[context.gaps]
        N = self.reduction.basis(index)[place]
        spread = product(product(N, self.covariances[index]), N.T) * float(self.noises[index]) ** 2
        w = self.weights[index][place]
        return max(float((context.covariance * (w[:, None] * w + spread)).sum()), 0.0)

    def _widened(self, widths: Array, context: Completed) -> Array:
        """``√(width² + (α√β/σ)²wᵀEw)``, where ``E`` is the covariance of the error of ``x̂`` itself."""
        place = np.argsort(self.reduction.order)[context.gaps]
        w = self.weights[:, place]
        error = np.maximum((product(w, context.error) * w).sum(axis=1), 0.0)
        noises = np.maximum(self.noises, 1e-300)
        return np.asarray(np.sqrt(np.square(widths) + np.square(self.radii / noises) * error))

    @property
    def _guarded(self) -> bool:
        """Whether wild values are looked out for: where settings are learned, and nothing is proven."""
        return self.automatic is not None

    def _take(self, x: Array, index: int, reward: float, weight: float = 1.0) -> None:
        """Learn from one row, as it is; its noise has the variance ``σ_a²/weight``."""
        arena, sizes, _ = self._held
        due, surprised = kernels.observe(arena, sizes, x, index, reward, weight)
        if due:
            self._refresh_arm(index)
        self.n_contexts += 1
        if self.automatic is not None and (self.automatic.due() or (surprised and self.automatic.calm() <= 0)):
            self._relearn()

    def receipt(self, x: Context, reward: float, arm: Any = None) -> Receipt | None:
        """The weights of a round with a wild value, gaps or a rate; None where the round counts in full."""
        read = self._read(x)
        context = None if self.gaps is None else self.gaps.complete(read)
        weight = noise = 1.0
        if self._guarded and self.automatic is not None:
            weight = self.automatic.weight_of(read if context is None else context.x, self._reward(reward))
        if arm is not None:
            noise = self._noise_weight(read if context is None else context, weight, self._arm(arm))
        return None if weight == noise == 1.0 else Receipt(weight, 0, noise)

    def _noise_weight(self, context: Array | Completed, weight: float, index: int) -> float:
        """What the noise of a round of one arm lets it count for; 0 if it teaches nothing.

        weight: of a wild value, by which the context is multiplied
        """
        if isinstance(context, Completed):
            if not context.known:
                return 0.0
            if not self.binary:
                return self._gap_weight(context, index)
            context = context.x
        if not self.binary:
            return 1.0
        least = float(self._held[2].numbers[RATE_AT])
        rate = min(max(weight * float(product(context[self.reduction.order], self.weights[index])), least), 1.0 - least)
        return BINARY_VARIANCE / (rate * (1.0 - rate))

    def ranges(self) -> Ranges | None:
        """What log, answers and rounds have seen of every feature, as of the last refresh."""
        return None if self.automatic is None else self.automatic.ranges

    def _corrects_in_place(self, x: Array, reward: float) -> bool:
        if self.binary and reward not in (0.0, 1.0):
            return False
        return not self._guarded or self.automatic is None or self.automatic.usual(x, reward)

    def _correct(self, x: Array, index: int, old: float, new: float | None, receipt: Receipt | None) -> None:
        weight, share = self._standing(index, receipt)
        share *= self._noise_weight(x, weight, index) if receipt is None else receipt.noise
        y = weight * x[self.reduction.order]
        level = float(product(y, self.reduction.anchors[index]))
        z = np.zeros(self.reduction.size)
        N = self.reduction.basis(index)
        z[: N.shape[1]] = product(N.T, y)
        held = Sums(self.grams, self.moments, self.squares, self.counts)
        held.change(index, z, weight * old - level, None if new is None else weight * new - level, share)
        self._correct_shared(y, weight * old, None if new is None else weight * new)
        self._refresh_arm(index)
        if new is not None and self.automatic is not None and self.automatic.due():
            self._relearn()

    def _correct_shared(self, y: Array, old: float, new: float | None) -> None:
        """Exchange a round's reward, or take the round out, in the sums that all arms share."""
        d, sums = self.n_features, self.context_sums
        sums[2 * d] -= old
        sums[2 * d + 1] -= old * old
        if new is None:
            sums[:d] -= y * y
            sums[d : 2 * d] -= y
            self.n_contexts -= 1
        else:
            sums[2 * d] += new
            sums[2 * d + 1] += new * new

    def _standing(self, index: int, receipt: Receipt | None) -> tuple[float, float]:
        """The weight with which a round of an arm was taken in, and what part of it still counts."""
        return (1.0 if receipt is None else receipt.weight), 1.0

    def _reluctance(self) -> Array:
        """(K,) what the seeming cost of a trial of each arm is multiplied by."""
        return np.ones(self.n_arms)

    @property
    def _doubt(self) -> float:
        """The share of ``spent`` that the trials of one arm may seem to cost: none where no log is to be doubted."""
        return 0.0

    @property
    def _surprise(self) -> float:
        """How many standard deviations off a reward must be to call for a refresh before its time."""
        return math.inf

    def _calm(self) -> int:
        """How many events must be taken in before a surprise calls for a refresh."""
        return FOREVER if self.automatic is None else self.automatic.calm()

    def weights_of(self, arm: Any) -> Array:
        """``ŵ`` of one arm, in the context's order.  (d,)"""
        out = np.empty(self.n_features)
        out[self.reduction.order] = self.weights[self._arm(arm)]
        return out

    # ------------------------------------------------------------------------------------- files

    def state(self) -> dict[str, Any]:
        """Everything that observing changes, caches included, so that a copy continues bit for bit."""
        out = {name: getattr(self, name) for name in _STATE}
        if self.automatic is not None:
            out.update(self.automatic.state())
        out["n_contexts"] = np.array(self.n_contexts)
        out["binary"] = np.array(self.binary)
        if self.binary:
            # of the last refresh: rounds since then were weighted by it, and further ones will be
            out["least_rate"] = np.array(self._held[2].numbers[RATE_AT])
        return out

    def restore(self, arrays: dict[str, Any]) -> None:
        """The inverse of ``state``."""
        if "context_sums" not in arrays:
            arrays = {**arrays, "context_sums": self._sums_of_older_file(arrays)}
        for name in _STATE:
            setattr(self, name, np.reshape(arrays[name], getattr(self, name).shape))
        self.n_contexts = int(arrays["n_contexts"])
        # in files from before rounds were weighted they all count alike
        self.binary = bool(arrays.get("binary", False))
        if self.automatic is not None:
            self.automatic.restore(arrays)
            self._set_prior()
        self._restore_settings(arrays)

    def _restore_settings(self, arrays: dict[str, Any]) -> None:
        """Write what the kernels read of the settings; the least rate is that of the learner that was saved."""
        state = self._held[2]
        self._put_settings(state)
        if "least_rate" in arrays:
            state.numbers[RATE_AT] = float(arrays["least_rate"])

    def _sums_of_older_file(self, arrays: dict[str, Any]) -> Array:
        """``context_sums`` of a file that kept ``Σx²`` alone; the other sums only if there is a constant."""
        sums = np.zeros(2 * self.n_features + 2)
        sums[: self.n_features] = arrays["context_squares"]
        sums[-1] = np.sum(arrays["squares"])
        constant = None if self.automatic is None else self.automatic.constant
        rounds_alone = int(np.sum(arrays["counts"])) == int(arrays["n_contexts"])
        if constant is not None and rounds_alone and self.reduction.loadings.shape[1] == 0:
            sums[self.n_features : -2] = np.sum(arrays["grams"], axis=0)[constant]
            sums[-2] = np.sum(arrays["moments"], axis=0)[constant]
        return sums


def arm_spreads(loadings: Array, shifted: bool) -> tuple[Array, Array]:
    """A centre ``B̄`` (1, m, R) of all arms' loadings, and at least ``‖B_a − B̄‖₂`` for each arm (K,).

    A basis of its own for every arm has no useful mean: then the centre is zero.
    """
    K, m, R = loadings.shape
    if R == 0 or m == 0:
        return np.zeros((1, m, R)), np.zeros(K)
    centre = loadings.mean(axis=0, keepdims=True) if shifted else np.zeros((1, m, R))
    spreads = np.empty(K)
    for a in range(K):
        apart = loadings[a] - centre[0]
        spreads[a] = math.sqrt(max(float(eigenvalues(product(apart, apart.T))[-1]), 0.0))
        # what rounding may add to a difference of nearly equal numbers
        spreads[a] += 1e-12 * float(np.sqrt(np.square(loadings[a]).sum()))
    return centre, (1.0 + 1e-9) * spreads
