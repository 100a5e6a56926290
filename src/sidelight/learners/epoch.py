"""Algorithm 2: doubling episodes, each of them Algorithm 1 on the ``M̂`` known when it starts."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Unpack

import numpy as np

from sidelight.arrays import whole_number
from sidelight.errors import InputError
from sidelight.hidden.protocol import HiddenEstimator
from sidelight.kernels.ridge import DETERMINANT, PRINTED
from sidelight.learners.base import BaseLearner
from sidelight.learners.correcting import Receipt, Sums
from sidelight.learners.hidden_half import Answer, learn_answer, single_estimator
from sidelight.learners.log_facts import add_answers
from sidelight.learners.protocol import Context
from sidelight.learners.reduced import ReducedLearner
from sidelight.learners.ridge_arms import RADIUS_KINDS
from sidelight.learners.settings import ProjectedArguments, Settings, lists_settings
from sidelight.linalg import (
    Array,
    kernel_of_structured,
    log,
    orthonormal_kernel_of_structured,
    product,
    solve,
    structured_pseudo_inverse,
    triangle,
)
from sidelight.side.constraint import Reduction, SideInformation, unreduced
from sidelight.side.coordinates import Tally
from sidelight.theory import anchor_error, arm_radii, bias_factor, episode_count, epoch_radius, inflated_noise

if TYPE_CHECKING:
    from sidelight.logs.schema.schema import Schema

__all__ = ["EpochOFUL"]


class EpochOFUL(ReducedLearner):
    """OFUL with a partially observed log (Algorithm 2).

    One initial round, then episodes of 1, 2, 4, … observations, the last cut at the horizon.  At the start of
    an episode ``M̂_a = [I, B̂_a]`` is taken from the answers so far and then held fixed; ``V`` and ``Y`` start
    anew, or are kept (``keep_data``; valid if noise is independent of later contexts and queries).

    The index is an upper bound of ``x·w``: ``√β`` carries ``S_w ΔM_a σ_max(Ṽ^{−1/2}Ûᵀ(V − λI)M̂†)``, computed and
    not bounded (as printed it is ``S_xS_wΔM√t`` times a further ``√(m log)``), and the width ``S_xS_wΔM_a`` for
    the error of the anchor.  Until the first answer it is plain OFUL.

    Args:
        hidden: an estimator of the hidden half with a ``bound``; it carries its log and is copied.
        horizon: ``T``, the number of observations the learner is made for.
        keep_data: keep ``V`` and ``Y`` from one episode to the next.
        regularization, prior_mean, noise, alpha, delta, context_bound, weight_bound, radius: see ``Settings``.
        projected_context_bound, projected_weight_bound: bounds on ``‖P_a x‖``, ``‖P_a w_a‖``; default the plain ones.
        schema, arms: default those of the log.
        rng: unused; every learner takes one.

    Examples:
        >>> import numpy as np, sidelight as sl
        >>> world = sl.worlds.ConfoundedWorld(seed=0)
        >>> log = world.sample_log(5_000, recorded=6, rng=np.random.default_rng(1))
        >>> queries = sl.BehaviorQueries(sl.summarize_log(log, world.schema(6)), estimator="ipw")
        >>> learner = sl.EpochOFUL(queries, horizon=1_000, noise=0.3)
        >>> x = world.contexts(1, np.random.default_rng(2))[0]
        >>> learner.observe_behavior(x, arm=4)
        >>> learner.observe(x, learner.decide(x).arm, reward=0.3)
        >>> learner.rounds, learner.reduction.size   # the first episode has begun, with 4 dimensions left to learn
        (1, 4)
    """

    @lists_settings(ProjectedArguments)
    def __init__(
        self,
        hidden: HiddenEstimator,
        horizon: int,
        *,
        keep_data: bool = False,
        schema: Schema | None = None,
        arms: Sequence[Any] | None = None,
        rng: np.random.Generator | None = None,
        **given: Unpack[ProjectedArguments],
    ) -> None:
        horizon = whole_number(horizon, "horizon", 1)
        hidden = single_estimator(hidden, type(self).__name__)
        settings = Settings.of(given, ProjectedArguments)
        summary = hidden.summary
        summary.require_determined()
        # what has no bound is refused here, and not in the round in which an episode begins
        hidden.bound(settings.delta, horizon, settings.context_bound)
        self.hidden = hidden
        self.needs = hidden.needs
        self.horizon = horizon
        self.keep_data = bool(keep_data)
        self.episodes = episode_count(self.horizon)
        #: observations so far, and the number of them at which the next episode starts
        self.rounds = 0
        self.next_start = 1
        K, d = summary.n_arms, summary.n_features
        self._order = np.concatenate([summary.recorded, summary.hidden]).astype(np.int64)
        self._V = np.zeros((K, d, d)) if keep_data else np.zeros((0, 0, 0))
        self._Y = np.zeros((K, d)) if keep_data else np.zeros((0, 0))
        self._played = np.zeros(K, dtype=np.int64)
        self._kept_squares = np.zeros(K)
        self.error = np.zeros(K)
        self._visits = np.zeros((K, d, 0))
        self._inverse = np.zeros((K, d, 0))
        #: (d,)  units in which the basis of this episode is orthonormal   (K, L, m)  ``B̂`` of it
        self._basis_scales = np.ones(d)
        self._B = np.zeros((K, 0, 0))
        super().__init__(
            summary.arms if arms is None else list(arms),
            unreduced(K, d, self._order),
            settings,
            summary.schema if schema is None else schema,
            rng,
            log=summary,
        )
        self._learn_from_log()

    # ------------------------------------------------------------------------------------ episodes

    def _start_episode(self) -> None:
        summary = self.hidden.summary
        K, d = self.n_arms, self.n_features
        error = self.hidden.bound(self.settings.delta, self.horizon, self.settings.context_bound)
        known = bool(np.isfinite(error).all())
        # the last episode's error and visits must not enter the new radii
        self.error = np.zeros(K)
        if known:
            side = SideInformation.structured(summary, self.hidden.regression())
            B = side.reduction.loadings
            # orthonormal in the features' own units, so that nothing depends on the user's
            if self.automatic is not None:
                self._basis_scales = np.array(self.automatic.units.scales)
            self._B = B
            s, L = self._basis_scales, B.shape[1]
            U = orthonormal_kernel_of_structured(s[:L, None] * B / s[L:]) / s[:, None]
            self._install(replace(side.reduction, loadings=-U, shifted=False))
            self.error = np.asarray(error, dtype=np.float64)
            # contiguous, as a file gives it back: another layout is another order of summation
            self._inverse = np.ascontiguousarray(np.stack([structured_pseudo_inverse(B_a) for B_a in B]))
        else:
            self._install(unreduced(K, d, self._order))
            self._inverse = np.zeros((K, d, 0))
        self._visits = np.zeros((K, self.reduction.size, self._inverse.shape[2]))
        if self.keep_data:
            for a in range(K):
                N, anchor = self.reduction.basis(a), self.reduction.anchors[a]
                self.grams[a] = product(product(N.T, self._V[a]), N)
                self.moments[a] = product(N.T, self._Y[a] - product(self._V[a], anchor))
                fitted = product(self._V[a], anchor)
                self.squares[a] = self._kept_squares[a] - product(anchor, 2.0 * self._Y[a] - fitted)
                self._visits[a] = product(product(N.T, self._V[a]), self._inverse[a])
            self.counts[:] = self._played
        self.refresh()

    def _regression_of_basis(self) -> Array:
        """``B̂`` as the basis of its kernel has it, for files that do not keep it."""
        K, L, m = self.n_arms, self.hidden.summary.n_recorded, self.reduction.size
        if not self.reduction.loadings.shape[1]:
            return np.zeros((K, 0, 0))
        scales = self._basis_scales
        U = -self.reduction.loadings * scales[:, None]
        out = np.empty((K, L, m))
        for a in range(K):
            # [−B; I] in the features' own units is a multiple of U
            out[a] = -solve(product(U[a, L:], U[a, L:].T), product(U[a, L:], U[a, :L].T)).T
        return np.asarray(out / scales[:L, None] * scales[L:])

    def _tally(self) -> Tally:
        tally = super()._tally()
        add_answers(tally, self.hidden.sums, np.arange(self.n_features))
        return tally

    def _evidence(self, variances: Array) -> tuple[Array, Array]:
        """What rounds say, which is about the weights of hidden features alone where there is a constraint.

        ``w_h = N_hθ``, and ``N_h⁻¹ = TS`` with ``T`` the triangle of ``[−B; I] = UT`` in the features' own units ``S``.
        Stated like this it is the same wherever the features' centres are.
        """
        if not self.reduction.loadings.shape[1]:
            return super()._evidence(variances)
        (K, L, m), scales = self._B.shape, self._basis_scales
        J, h = np.zeros((K, L + m, L + m)), np.zeros((K, L + m))
        T = triangle(kernel_of_structured(scales[:L, None] * self._B / scales[L:])) * scales[L:]
        for a in range(K):
            J[a, L:, L:] = product(product(T[a].T, self.grams[a] / variances[a]), T[a])
            h[a, L:] = product(T[a].T, self.moments[a] / variances[a])
        return J, h

    def _constraint_rows(self, a: int) -> Array:
        return np.concatenate([np.eye(self._B.shape[1]), self._B[a]], axis=1)

    def _take(self, x: Array, index: int, reward: float, weight: float = 1.0) -> None:
        y = x[self._order]
        # what the round counts for in the arms' sums, where rewards of 0 and 1 are weighted by their rate
        share = weight * self._noise_weight(x, 1.0, index)
        if self.keep_data:
            self._V[index] += share * np.outer(y, y)
            self._Y[index] += share * y * reward
            self._kept_squares[index] += share * reward * reward
            self._played[index] += 1
        # ÛᵀΣxxᵀM̂† in the coordinates of N, before the radius is computed from it
        z = product(self.reduction.basis(index).T, y)
        self._visits[index] += share * np.outer(z, product(y, self._inverse[index]))
        super()._take(x, index, reward, weight)
        self.radii[index] = self.settings.alpha * self._radius(index)
        self.rounds += 1
        if self.rounds >= self.next_start and self.rounds < self.horizon:
            self.next_start = 2 * self.rounds
            self._start_episode()

    # ----------------------------------------------------------------------------------- correcting

    def receipt(self, x: Context, reward: float, arm: Any = None) -> Receipt | None:
        """The weights of a round, and its number, since data may be dropped when an episode begins."""
        found = super().receipt(x, reward, arm)
        if self.keep_data:
            return found
        return (Receipt() if found is None else found)._replace(clock=self.rounds + 1)

    def _correct(self, x: Array, index: int, old: float, new: float | None, receipt: Receipt | None) -> None:
        if not self.keep_data and receipt is None:
            raise InputError(
                "EpochOFUL drops its rounds when an episode begins, so correct needs to know when the round was: ask "
                "receipt = learner.receipt(x, reward) before observing it, and pass it on."
            )
        weight = 1.0 if receipt is None else receipt.weight
        share = self._noise_weight(x, weight, index) if receipt is None else receipt.noise
        y = weight * x[self._order]
        if not self.keep_data and receipt is not None and receipt.clock <= self.next_start // 2:
            # of an episode before this one: the arms' sums have dropped it
            self._correct_shared(y, weight * old, None if new is None else weight * new)
            return
        if self.keep_data:
            kept = Sums(self._V, self._Y, self._kept_squares, self._played)
            kept.change(index, y, weight * old, None if new is None else weight * new, share)
        if new is None:
            z = product(self.reduction.basis(index).T, y)
            self._visits[index] -= share * np.outer(z, product(y, self._inverse[index]))
        super()._correct(x, index, old, new, receipt)
        self.radii[index] = self.settings.alpha * self._radius(index)

    # --------------------------------------------------------------------------------------- radius

    def refresh(self) -> None:
        """Recompute every cache from the sums, and every radius from them."""
        super().refresh()
        self.radii = [self.settings.alpha * self._radius(a) for a in range(self.n_arms)]

    def _radius(self, a: int) -> float:
        """``√β_a`` with the union over episodes and the error of ``M̂``."""
        s = self.settings
        kind = RADIUS_KINDS[s.radius]
        union = log(2.0 * self.episodes * self.n_arms / s.delta)
        noise = float(self.noises[a])
        if kind == PRINTED:
            # as printed, the error of M̂ inflates the noise (with the arm's own count for t)
            noise = float(
                inflated_noise(noise, self.counts[a], s.context_bound, self._longest_weights(), self.error[a])
            )
        base = float(
            arm_radii(
                kind,
                counts=self.counts[a],
                log_dets=self.log_dets[a],
                dimensions=self.reduction.dimensions[a],
                noises=noise,
                prior_term=self._prior_term,
                growth=self._growth,
                union=union,
            )
        )
        if kind == DETERMINANT and self.error[a] > 0:
            factor = bias_factor(self._visits[a], self.covariances[a]) if self._visits[a].any() else 0.0
            base = float(epoch_radius(base, factor, self._longest_weights(), self.error[a]))
        return base

    def _longest_weights(self) -> float:
        """A bound on ``‖w_a‖``: ``weight_bound`` is one on ``‖w_a − μ‖``."""
        means = self._prior()[1]
        return self.settings.weight_bound + float(np.max(np.linalg.norm(means, axis=1)))

    def _scores(self, x: Array) -> tuple[Array, Array]:
        estimates, widths = super()._scores(x)
        s = self.settings
        if s.radius == "posterior":  # claims nothing, so it pays for no error either
            return estimates, widths
        return estimates, widths + s.alpha * anchor_error(s.context_bound, self._longest_weights(), self.error)

    def add_arm(self, label: Any) -> None:
        """Refused: before the first answer there is no constraint yet, and later there is."""
        BaseLearner.add_arm(self, label)

    def _learn_answer(self, x: Array, answer: Answer) -> None:
        taken, fresh = learn_answer(self, x, answer)
        if taken and fresh:
            self._relearn()

    # ---------------------------------------------------------------------------------------- files

    def estimators(self) -> dict[Any, Any]:
        """Its one estimator of the hidden half, under the key None."""
        return {None: self.hidden}

    def options(self) -> dict[str, Any]:
        """Horizon and whether data are kept."""
        return {"horizon": self.horizon, "keep_data": self.keep_data}

    def state(self) -> dict[str, Any]:
        """Everything that observing changes, the estimator apart."""
        r = self.reduction
        return {
            **super().state(),
            "kept_V": self._V,
            "kept_Y": self._Y,
            "kept_counts": self._played,
            "kept_squares": self._kept_squares,
            "error": self.error,
            "visits": self._visits,
            "inverse": self._inverse,
            "clock": np.array([self.rounds, self.next_start]),
            "loadings": r.loadings,
            "anchors": r.anchors,
            "dimensions": r.dimensions,
            "basis_scales": self._basis_scales,
            "B": self._B,
        }

    def restore(self, arrays: dict[str, Any]) -> None:
        """The inverse of ``state``."""
        self._install(
            Reduction(
                order=self._order,
                loadings=np.array(arrays["loadings"]),
                # without side information z is x itself, else −loadingsᵀx
                shifted=arrays["loadings"].shape[1] == 0,
                anchors=np.array(arrays["anchors"]),
                dimensions=np.array(arrays["dimensions"]),
            )
        )
        self._basis_scales = np.array(arrays.get("basis_scales", self._basis_scales), dtype=np.float64)
        self._B = np.array(arrays["B"], dtype=np.float64) if "B" in arrays else self._regression_of_basis()
        super().restore(arrays)
        self._kept_squares = np.array(arrays["kept_squares"])
        self._V, self._Y = np.array(arrays["kept_V"]), np.array(arrays["kept_Y"])
        self._played = np.array(arrays["kept_counts"], dtype=np.int64)
        self.error = np.array(arrays["error"])
        self._visits, self._inverse = np.array(arrays["visits"]), np.array(arrays["inverse"])
        self.rounds, self.next_start = (int(v) for v in arrays["clock"])
