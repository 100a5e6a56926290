"""One ridge regression per arm in reduced coordinates: prior, estimates, widths, and how they are saved."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from sidelight.errors import InputError
from sidelight.kernels import ridge_choice, ridge_updates
from sidelight.kernels.ridge import DETERMINANT, POSTERIOR, PRINTED
from sidelight.kernels.state import Numbers, state_of
from sidelight.learners.automatic import Automatic, feature_blocks
from sidelight.learners.base import BaseLearner
from sidelight.learners.log_facts import add_log, log_variance
from sidelight.learners.rates import BINARY_VARIANCE, least_rate
from sidelight.learners.ridge_state import KEPT, RATE_AT, Held, Part, hold, sums_of_older_file
from sidelight.learners.settings import Settings
from sidelight.linalg import Array, log, product, square
from sidelight.side.constraint import Reduction
from sidelight.side.coordinates import Tally

if TYPE_CHECKING:
    from sidelight.logs.schema.schema import Schema
    from sidelight.logs.summary import LogSummary

__all__ = ["RADIUS_KINDS", "RidgeArms"]

RADIUS_KINDS = {
    "determinant": DETERMINANT,
    "printed": PRINTED,
    "posterior": POSTERIOR,
}


class RidgeArms(BaseLearner):
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
        self._held = hold(reduction)
        super().__init__(arms, reduction.n_features, settings, schema, rng)
        self._summary = log
        if self.gaps is not None and log is not None:
            self.gaps.start_from(log)
        #: whether rewards are 0 or 1, so that their noise has the variance ``p(1 − p)`` and rounds are weighted by it
        self.binary = settings.noise == "auto" and self._rewards_are_binary()
        if settings.radius not in self.radius_names:
            raise InputError(
                f"radius={settings.radius!r} belongs to the fused learners; {type(self).__name__} takes "
                f"{', '.join(RADIUS_KINDS)}."
            )
        self.automatic: Automatic | None = None
        self.n_contexts = 0
        if self.refreshes_logs or "auto" in (settings.regularization, settings.noise):
            if log is not None:
                log.require_units()
            d = self.n_features
            if recorded is None:
                recorded = np.arange(d) if log is None else log.recorded
            known = np.flatnonzero(np.isin(reduction.order, recorded))
            level = self._level_feature(schema, log)
            constant = None if level is None else int(np.flatnonzero(reduction.order == level)[0])
            derived = [] if schema is None else np.flatnonzero(np.isin(reduction.order, schema.derived_index)).tolist()
            blocks, bent = feature_blocks(d, known.tolist(), constant, derived)
            self.automatic = Automatic.begin(blocks, d, self._first_variance(settings), constant, bent)
            self.automatic.eager = settings.regularization == "auto"
        self._install(reduction)

    def _level_feature(self, schema: Schema | None, log: LogSummary | None) -> int | None:
        """Position of the intercept in a context, or of a recorded feature that was 1 in every row of the log."""
        if schema is not None and schema.intercept:
            return 0
        return None if log is None else log.level

    def _install(self, reduction: Reduction) -> None:
        """Start from nothing observed in the coordinates of ``reduction``; what all arms share is kept."""
        sums, spent = self.context_sums, self.spent
        self._held = hold(reduction)
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
        """``λS_w²`` and ``S_x²/λ`` of the radii."""
        known = None if self.automatic is None else self.automatic.units.known
        self._prior_term, self._growth = self.settings.radius_terms(precision, known)

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
        return np.maximum(np.square(self.noises), square(self.noise))

    def _prior_weights(self) -> Array:
        """(K,)  ``σ_a²/σ²``, where the prior is one of weights and not of weights in units of the noise; else 1."""
        if self.settings.regularization != "auto":
            return np.ones(self.n_arms)
        return np.square(self.noises) / square(self.noise)

    def _rewards_are_binary(self) -> bool:
        """Whether rewards are 0 or 1: as the schema says, else as the log has them."""
        declared = None if self.schema is None else self.schema.binary
        return self._summary is not None and self._summary.binary_rewards if declared is None else declared

    def _first_variance(self, settings: Settings) -> float:
        """``σ²`` before any round: as given, or what the log left unexplained, or one."""
        if settings.noise != "auto":
            return square(settings.sigma)
        if self.binary:
            return BINARY_VARIANCE
        found = log_variance(self._summary)
        return 1.0 if found is None else found

    def _least_rate(self) -> float:
        """What keeps the rate of a reward of 0 or 1 from 0 and 1 where rounds are weighted by it; 0: they are not."""
        if not self.binary:
            return 0.0
        return least_rate(*(float(v) for v in self._tally().rewards[:2]))

    def _tally(self) -> Tally:
        """What log and rounds have seen of every feature and of the rewards."""
        tally = self._tally_of_rounds()
        if self._summary is not None:
            add_log(tally, self._summary, np.argsort(self.reduction.order)[self._summary.recorded])
        return tally

    def _tally_of_rounds(self) -> Tally:
        d, sums, rows = self.n_features, self.context_sums, self._weight_of_rounds()
        tally = Tally.empty(d)
        tally.add(slice(None), rows, sums[d : 2 * d], sums[:d])
        tally.add_rewards(rows, float(sums[-2]), float(sums[-1]))
        return tally

    def _intercept(self) -> int | None:
        """Position of the intercept in internal order; None where there is none, or nothing is learned."""
        return None if self.automatic is None else self.automatic.constant

    def _weight_of_rounds(self) -> float:
        """For how many rounds those so far count in ``context_sums``: all of them, but for wild rows.

        A wild row is multiplied by a weight ``w``, the intercept too, so it stands in the sums of squares with ``w²``.
        With an intercept it does so in all sums, and counts for ``w²`` rounds: then a shift of features or rewards
        shifts their means, and nothing else.
        """
        k = self._intercept()
        return float(self.n_contexts) if k is None else float(self.context_sums[k])

    # ---------------------------------------------------------------------------------- refresh

    def refresh(self) -> None:
        """Recompute every cache from the sums: in a copy, which takes the place of the state in one assignment."""
        arena, sizes, _ = self._held
        arena, sizes = arena.copy(), sizes.copy()
        state = state_of(arena, sizes)
        self._put_settings(state)
        ridge_updates.refresh(arena, sizes, 0, self.n_arms)
        self._silence(state.covariances)
        self._publish(arena, sizes)

    def _silence(self, covariances: Array) -> None:
        """Leave features that never varied out of widths: they have no unit, and must not decide between equal arms."""
        if self.automatic is None or self.settings.regularization != "auto" or self.reduction.loadings.shape[1]:
            return
        silent = ~self.automatic.units.known
        if silent.any():
            covariances[:, silent], covariances[:, :, silent] = 0.0, 0.0

    def _publish(self, arena: Array, sizes: NDArray[np.int64]) -> None:
        """Replace the learner's state by these two vectors."""
        self._held = (arena, sizes, state_of(arena, sizes))

    def _refresh_arm(self, a: int) -> None:
        """Recompute one arm's caches from its sums, in place."""
        arena, sizes, state = self._held
        self._put_settings(state)
        ridge_updates.refresh(arena, sizes, a, a + 1)
        self._silence(state.covariances[a : a + 1])

    def _put_settings(self, state: Any) -> None:
        """Write what the kernels read of the settings."""
        state.numbers[:], state.noises[:] = self._numbers(), self.noises
        state.doubts[0] = self._doubt
        state.reluctance[:] = self._reluctance()

    def _numbers(self) -> Numbers:
        """The scalars that the kernels read."""
        kind, union = self._kind_of_radius()
        return Numbers(
            kind=kind,
            noise=self.noise,
            prior_term=self._prior_term,
            growth=self._growth,
            union=union,
            alpha=self.settings.alpha,
            surprise=self._surprise,
            least_rate=self._least_rate(),
        )

    def _kind_of_radius(self) -> tuple[int, float]:
        """Which radius the kernels compute, and the ``log 1/δ_a`` in it."""
        return RADIUS_KINDS[self.settings.radius], float(log(self.n_arms / self.settings.delta))

    def _reluctance(self) -> Array:
        """(K,)  Factor on the estimated cost of a trial of each arm."""
        return np.ones(self.n_arms)

    @property
    def _doubt(self) -> float:
        """The largest estimated cost of one arm's trials, as a share of ``spent``: 0 where there is no log to doubt."""
        return 0.0

    @property
    def _surprise(self) -> float:
        """How many standard deviations off a reward must be to call for a refresh before its time."""
        return math.inf

    # ------------------------------------------------------------------------------------ index

    def _scores(self, x: Array) -> tuple[Array, Array]:
        return self._scores_by(self._held, x)

    @staticmethod
    def _scores_by(held: Held, x: Array) -> tuple[Array, Array]:
        """Every arm's estimate and width at ``x`` (d,) by a state that was published: (K,) each."""
        arena, sizes, state = held
        out = np.empty((2, len(state.counts)))
        ridge_choice.score(arena, sizes, x, out)
        return out[0], out[1]

    def _choose(self, x: Array) -> tuple[int, float, float]:
        if not self.compiled_scores:
            return super()._choose(x)
        arena, sizes, _ = self._held
        a, estimate, width, _ = ridge_choice.choose(arena, sizes, x, 0.0)
        return a, estimate, width

    @staticmethod
    def _choose_or_doubt(held: Held, x: Array) -> tuple[int, float, float, int]:
        """``ridge_choice.choose`` by a state that was published, with the budget for trials that it holds."""
        arena, sizes, state = held
        limit = float(state.doubts[0] * state.spent[0])
        return ridge_choice.choose(arena, sizes, x, limit)  # type: ignore[no-any-return]

    def weights_of(self, arm: Any) -> Array:
        """``ŵ`` of one arm, in the context's order.  (d,)"""
        out = np.empty(self.n_features)
        out[self.reduction.order] = self.weights[self._arm(arm)]
        return out

    # ------------------------------------------------------------------------------------ files

    def __getstate__(self) -> dict[str, Any]:
        """The attributes without the views of the state's parts, which share its memory."""
        arena, sizes, _ = self._held
        return {**self.__dict__, "_held": (arena.copy(), sizes.copy())}

    def __setstate__(self, values: dict[str, Any]) -> None:
        arena, sizes = values["_held"]
        self.__dict__.update(values)
        self._publish(arena, sizes)

    def state(self) -> dict[str, Any]:
        """Everything that observing changes, caches included, so that a copy continues bit for bit."""
        out = {name: getattr(self, name) for name in KEPT}
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
            reduced = self.automatic is None or self.reduction.loadings.shape[1] > 0
            constant = None if reduced or self.automatic is None else self.automatic.constant
            arrays = {**arrays, "context_sums": sums_of_older_file(arrays, self.n_features, constant)}
        for name in KEPT:
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
