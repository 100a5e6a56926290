"""Algorithm 1 with ``M̂`` re-estimated in every round: what the paper's experiments ran."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Unpack

import numpy as np

from sidelight.errors import InputError
from sidelight.hidden.protocol import HiddenEstimator
from sidelight.kernels.ridge_choice import score_parts
from sidelight.kernels.running import Running
from sidelight.learners.automatic import Automatic, feature_blocks
from sidelight.learners.base import BaseLearner
from sidelight.learners.correcting import Receipt, Sums
from sidelight.learners.hidden_half import Answer, learn_answer, single_estimator
from sidelight.learners.log_facts import NOISE_FLOOR, add_answers, add_log, constraint_evidence, log_variance
from sidelight.learners.noise import residual_noise, residuals
from sidelight.learners.protocol import Context
from sidelight.learners.ridge_arms import RADIUS_KINDS
from sidelight.learners.settings import ProjectedArguments, Settings, lists_settings
from sidelight.learners.wild import Ranges
from sidelight.linalg import (
    Array,
    apply,
    eigenvalues,
    inverse,
    log,
    log_det,
    orthonormal_kernel_of_structured,
    product,
    square,
    symmetrize,
)
from sidelight.side.coordinates import Tally

if TYPE_CHECKING:
    from sidelight.logs.schema.schema import Schema

from sidelight.theory import arm_radii, projected_estimate

__all__ = ["RunningOFUL"]


class RunningOFUL(BaseLearner):
    """Algorithm 1 on ``M̂_a = [I, B̂_a]``, all of ``V`` and ``Y`` kept while ``B̂`` moves.

    The paper's figures come from this variant with ``BehaviorQueries(summary, estimator="ipw")``.  It has no
    proof: the coordinates change in every round, so the elliptical potential argument does not apply.

    Args:
        hidden: an estimator of the hidden half; it carries its log and is copied.
        regularization, prior_mean, noise, alpha, delta, context_bound, weight_bound, radius: see ``Settings``.
        projected_context_bound, projected_weight_bound: bounds on ``‖P_a x‖``, ``‖P_a w_a‖``; default the plain ones.
        schema, arms: default those of the log.
        rng: unused; every learner takes one.

    Examples:
        >>> import numpy as np, sidelight as sl
        >>> world = sl.worlds.ConfoundedWorld(seed=0)
        >>> log = world.sample_log(5_000, recorded=6, rng=np.random.default_rng(1))
        >>> learner = sl.RunningOFUL(sl.BehaviorQueries(sl.summarize_log(log, world.schema(6)), estimator="ipw"))
        >>> x = world.contexts(1, np.random.default_rng(2))[0]
        >>> learner.observe_behavior(x, arm=4)
        >>> learner.observe(x, learner.decide(x).arm, reward=0.3)
        >>> learner
        RunningOFUL(10 arms, 10 features, 1 observations, regularization=1.0, radius='determinant')
    """

    compiled_scores = True

    @lists_settings(ProjectedArguments)
    def __init__(
        self,
        hidden: HiddenEstimator,
        *,
        schema: Schema | None = None,
        arms: Sequence[Any] | None = None,
        rng: np.random.Generator | None = None,
        **given: Unpack[ProjectedArguments],
    ) -> None:
        hidden = single_estimator(hidden, type(self).__name__)
        summary = hidden.summary
        settings = Settings.of(given, ProjectedArguments)
        if settings.radius not in RADIUS_KINDS:
            raise InputError(f"radius={settings.radius!r} belongs to the fused learners.")
        labels = summary.arms if arms is None else list(arms)
        super().__init__(labels, summary.n_features, settings, summary.schema if schema is None else schema, rng)
        if self.gaps is not None:
            self.gaps.start_from(summary)
        K, d, L = summary.n_arms, summary.n_features, summary.n_recorded
        if len(self.arms) != K:
            raise InputError(f"{len(self.arms)} arm labels for {K} arms.")
        self.hidden = hidden
        self.needs = hidden.needs
        self.order = np.concatenate([summary.recorded, summary.hidden]).astype(np.int64)
        self.anchors = np.zeros((K, d))
        self.anchors[:, :L] = summary.coefficients
        self.means = settings.prior_means(K, d)[:, self.order]
        self.V = np.zeros((K, d, d))
        self.Y = np.zeros((K, d))
        self.squares = np.zeros(K)
        self._inverses: Array | None = None
        #: how often the sums have changed, and what was derived from them at which of these counts
        self._version = 0
        self._derived: tuple[int, tuple[Array, Array, Array, Array, Array]] | None = None
        self.automatic: Automatic | None = None
        if "auto" in (settings.regularization, settings.noise):
            summary.require_units()
            level = summary.level
            constant = None if level is None else int(np.flatnonzero(self.order == level)[0])
            variance = (log_variance(summary) or 1.0) if settings.noise == "auto" else square(settings.sigma)
            self.automatic = Automatic.begin(feature_blocks(d, range(L), constant)[0], d, variance, constant)
            self.automatic.eager = settings.regularization == "auto"
            self._relearn()

    def _observe(self, x: Array, index: int, reward: float) -> None:
        fresh = False
        if self.automatic is not None:
            x, reward, fresh = self.automatic.admit(x, reward, self._name)
        y = x[self.order]
        self.V[index] += np.outer(y, y)
        self.Y[index] += y * reward
        self.squares[index] += reward * reward
        self.counts[index] += 1
        self._version += 1
        self._tick()
        if fresh:
            self._relearn()

    def receipt(self, x: Context, reward: float, arm: Any = None) -> Receipt | None:
        """What a round with a wild value or gaps counts for, 0 if it teaches nothing; None where it counts in full."""
        read = self._read(x)
        context = None if self.gaps is None else self.gaps.complete(read)
        weight = 1.0
        if self.automatic is not None:
            weight = self.automatic.weight_of(read if context is None else context.x, self._reward(reward))
        if context is None or not context.filled:
            return None if weight == 1.0 else Receipt(weight)
        return Receipt(weight, noise=float(context.known), filled=context.filled)

    def ranges(self) -> Ranges | None:
        """What log, answers and rounds have seen of every feature, as of the last refresh."""
        return None if self.automatic is None else self.automatic.ranges

    def _corrects_in_place(self, x: Array, reward: float) -> bool:
        return self.automatic is None or self.automatic.usual(x, reward)

    def _correct(self, x: Array, index: int, old: float, new: float | None, receipt: Receipt | None) -> None:
        weight = 1.0 if receipt is None else receipt.weight
        held = Sums(self.V, self.Y, self.squares, self.counts)
        held.change(index, weight * x[self.order], weight * old, None if new is None else weight * new)
        self._version += 1
        if new is not None:
            self._tick()

    # ------------------------------------------------------------------------- automatic settings

    def _tick(self) -> None:
        if self.automatic is not None and self.automatic.due():
            self._relearn()

    def _relearn(self) -> None:
        """Learn noise and prior anew from everything seen."""
        auto, summary = self.automatic, self.hidden.summary
        assert auto is not None
        B, U, weights, covariances, _ = self._derive()
        K, L, _ = B.shape
        n = float(self.counts.sum())
        units = auto.renew(self._tally(), self.order)
        if self.settings.noise == "auto":
            # degrees of freedom are used in the m open dimensions alone
            spread = product(U, product(covariances, np.swapaxes(U, 1, 2)))
            guess = log_variance(summary) or units.reward_variance
            variance = residual_noise(guess, *residuals(self.squares, self.Y, self.V, weights, spread), n)
            auto.variance = max(variance, NOISE_FLOOR * units.reward_square)
        if self.settings.regularization == "auto":
            exact = np.zeros_like(self.V), np.zeros_like(self.Y)
            for a in range(K):
                M = np.concatenate([np.eye(L), B[a]], axis=1)
                exact[0][a], exact[1][a] = constraint_evidence(M, self.anchors[a], units, of_log=True)
            auto.learn(self.V / auto.variance, self.Y / auto.variance, units, exact=exact)
        auto.refreshed = auto.events
        self._version += 1

    def _tally(self) -> Tally:
        """What log, answers and rounds have seen of every feature, and log and rounds of the rewards."""
        assert self.automatic is not None
        d, k = self.n_features, self.automatic.constant
        # with an intercept a row with a wild value counts for its weight in numbers too, so that means can be shifted
        n = float(self.counts.sum()) if k is None else float(self.V[:, k, k].sum())
        tally = Tally.empty(d)
        sums = np.zeros(d) if k is None else self.V[:, k].sum(axis=0)
        tally.add(slice(None), n, sums, np.einsum("aii->ai", self.V).sum(axis=0))
        tally.add_rewards(n, 0.0 if k is None else float(self.Y[:, k].sum()), float(self.squares.sum()))
        add_log(tally, self.hidden.summary, np.arange(self.hidden.summary.n_recorded))
        add_answers(tally, self.hidden.sums, np.arange(d))
        return tally

    def _prior(self) -> tuple[Array, Array, float]:
        """``V₀`` (d, d), ``μ`` (K, d) and ``σ``."""
        s = self.settings
        sigma = s.sigma if self.automatic is None else math.sqrt(self.automatic.variance)
        if s.regularization == "auto":
            assert self.automatic is not None
            return square(sigma) * self.automatic.precision, np.broadcast_to(self.automatic.mean, self.Y.shape), sigma
        return float(s.regularization) * np.eye(self.n_features), self.means, sigma

    def _learn_answer(self, x: Array, answer: Answer) -> None:
        taken, fresh = learn_answer(self, x, answer)
        if not taken:
            return
        self._version += 1
        self._tick()
        if fresh:
            self._relearn()

    def _derive(self) -> tuple[Array, Array, Array, Array, Array]:
        """``B̂``, ``U``, ``ŵ``, ``(UᵀVU)⁻¹`` and ``α√β`` from the sums: a pure function of them, so readers may race.

        What a reader derived while the writer wrote carries the older version, and nobody uses it afterwards.
        """
        version, known = self._version, self._derived
        if known is not None and known[0] == version:
            return known[1]
        s = self.settings
        precision, means, sigma = self._prior()
        B = self.hidden.regression()
        K, _, m = B.shape
        V = self.V + precision
        Y = self.Y + product(means, precision)
        # orthonormal, since early estimates of B may be so large that [−B; I] would cost half of the digits; in the
        # features' own units, so that nothing depends on the user's
        scales = np.ones(self.n_features) if self.automatic is None else self.automatic.units.scales
        U = orthonormal_kernel_of_structured(scales[: B.shape[1], None] * B / scales[B.shape[1] :]) / scales[:, None]
        Ut = np.swapaxes(U, 1, 2)
        A = symmetrize(product(product(Ut, V), U))
        covariances = inverse(A)
        weights = projected_estimate(V, Y, self.anchors, U, covariances)
        grown = log_det(A) - log_det(symmetrize(product(product(Ut, precision), U)))
        prior_term, growth = self._radius_terms(precision)
        radii = arm_radii(
            RADIUS_KINDS[s.radius],
            counts=self.counts,
            log_dets=np.maximum(grown, 0.0),
            dimensions=m,
            noises=sigma,
            prior_term=prior_term,
            growth=growth,
            union=log(K / s.delta),
        )
        derived = (B, U, weights, np.ascontiguousarray(covariances), s.alpha * radii)
        self._derived = (version, derived)
        return derived

    def _scores(self, x: Array) -> tuple[Array, Array]:
        _, U, weights, covariances, radii = self._derive()
        out = np.empty((2, self.n_arms))
        score_parts(x[self.order], -np.ascontiguousarray(np.swapaxes(U, 1, 2)), weights, covariances, radii, out)
        return out[0], out[1]

    def _running(self) -> Running:
        """What the kernel of many rounds starts from; it computes the coefficients ``P``, ``q`` and ``P0`` itself."""
        s, summary = self.settings, self.hidden.summary
        sums = self.hidden.sums
        assert sums is not None
        precision, means, sigma = self._prior()
        n, _, m = sums.S12.shape
        if self._inverses is None:
            self._inverses = inverse(summary.second_moments)
        V = self.V + precision
        R = self.Y + product(means, precision) - apply(V, self.anchors)
        K = np.ascontiguousarray(np.swapaxes(product(self._inverses, sums.S12), 1, 2))
        prior_term, growth = self._radius_terms(precision)
        return Running(
            order=self.order,
            shares=np.asarray(summary.shares),
            anchors=self.anchors,
            inverses=self._inverses,
            kind=RADIUS_KINDS[s.radius],
            noise=float(sigma),
            prior_term=float(prior_term),
            growth=float(growth),
            union=float(log(n / s.delta)),
            alpha=float(s.alpha),
            prior=precision,
            least=float(eigenvalues(precision)[0]),
            V=V,
            Y=self.Y,
            R=R,
            squares=self.squares,
            counts=self.counts,
            K=K,
            P=np.empty((n, 3, m, m)),
            q=np.empty((n, 2, m)),
            P0=np.empty((n, 3, m, m)),
        )

    def _took(self, state: Running, events: int, taken: int) -> None:
        """Take over what the kernel did to ``state``."""
        self.V = state.V - self._prior()[0]
        self.hidden.took(taken)
        self._version += 1
        if self.automatic is not None:
            self.automatic.events += events
            if self.automatic.room() <= 0:
                self._relearn()

    def _radius_terms(self, precision: Array) -> tuple[float, float]:
        """``λS_w²`` and ``S_x²/λ`` of the radii."""
        known = None if self.automatic is None else self.automatic.units.known
        return self.settings.radius_terms(precision, known)

    def weights_of(self, arm: Any) -> Array:
        """``ŵ`` of one arm, in the context's order.  (d,)"""
        out = np.empty(self.n_features)
        out[self.order] = self._derive()[2][self._arm(arm)]
        return out

    def estimators(self) -> dict[Any, Any]:
        """Its one estimator of the hidden half, under the key None."""
        return {None: self.hidden}

    def state(self) -> dict[str, Any]:
        """Everything that observing changes, the estimator apart."""
        out = {"V": self.V, "Y": self.Y, "squares": self.squares, "counts": self.counts}
        return out if self.automatic is None else {**out, **self.automatic.state()}

    def restore(self, arrays: dict[str, Any]) -> None:
        """The inverse of ``state``."""
        self.V = np.array(arrays["V"], dtype=np.float64)
        self.Y = np.array(arrays["Y"], dtype=np.float64)
        self.squares = np.array(arrays["squares"], dtype=np.float64)
        self.counts = np.array(arrays["counts"], dtype=np.int64)
        if self.automatic is not None:
            self.automatic.restore(arrays)
        self._version += 1
