"""The fused learner: logs as soft evidence beside the online rounds, with everything automatic.  The one to use."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict
from functools import cache
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
from numpy.typing import ArrayLike

from sidelight.arrays import is_number
from sidelight.errors import InputError, UnknownArmError
from sidelight.hidden.protocol import completed
from sidelight.learners.correcting import Receipt
from sidelight.learners.floor import Floor, FloorLedger, floor_of
from sidelight.learners.fused.asking import QueryBudget
from sidelight.learners.fused.choosing import Choosing
from sidelight.learners.fused.fading import Fading
from sidelight.learners.fused.given import bias_of, by_key, check_logs, labels_of
from sidelight.learners.fused.hyperparameters import (
    add_logs,
    likeliest_noise,
    most_noise,
    preferences_of_logs,
    spread_of_logs,
)
from sidelight.learners.fused.log import FusedLog
from sidelight.learners.fused.trust import WEIGHED
from sidelight.learners.hidden_half import check_answer
from sidelight.learners.noise import least_residuals, rounds_likelihood
from sidelight.learners.protocol import Context
from sidelight.learners.rates import BINARY_VARIANCE
from sidelight.learners.ridge_arms import RADIUS_KINDS
from sidelight.learners.settings import Settings
from sidelight.linalg import Array, apply, log_det
from sidelight.linalg import log as natural_log
from sidelight.side.constraint import Reduction, unreduced
from sidelight.side.coordinates import Tally, Units
from sidelight.side.intersection import intersection_shares
from sidelight.side.prior import Prior
from sidelight.side.spread import SpreadLikelihood
from sidelight.side.trust import EFFECTIVE_ROWS
from sidelight.theory import log_error_radius, refresh_confidence

if TYPE_CHECKING:
    from sidelight.logs.schema.schema import Schema

__all__ = ["FusedOFUL"]

#: how many standard deviations off a reward must be to have the logs judged before their time
SURPRISE = 5.0


class FusedOFUL(Choosing):
    """Optimism over what the log, the old policy's answers and the online rounds say together.

    Each log is a prior whose error is accounted for: ``V_a = σ²(Ω⁻¹ + Σ_j M̂_jᵀΛ_jM̂_j) + Σ x xᵀ`` (see
    ``side.evidence``).  As log and answers grow this becomes Algorithm 1; with an empty log it is OFUL.  Prior mean,
    prior variances, noise, ``τ²`` and pooling are learned, on a schedule of growing gaps.

    Args:
        hidden: an estimator of a log's hidden half; or a list or dict of them, one per log or era.
        regularization, noise: ``"auto"`` (default) learns them; numbers fix them.
        prior_mean, alpha, delta, context_bound, weight_bound: see ``Settings``.
        radius: ``"posterior"`` (default; ``√β = σ``, no guarantee) or ``"theory"`` (proven; needs ``regularization``
            and ``noise`` as numbers).
        sandwich: use the heteroskedasticity-robust covariance, both of the log's rows and of the old policy's answers
            (``summarize_log(…, sandwich=True)``): for noise, or hidden features, whose spread depends on recorded ones.
        safety: the share of the learner's own uncertainty that trials in doubt of the log may seem to cost; 0 trusts
            the logs blindly (no trials and no tests).
        query_budget: how often the old policy may be asked: a number of times, or a share of rounds below 1; default
            without end.  ``wants_query`` then says where.
        forgetting: what a round still counts for after one more (1 for a world that stands still); logs fade alike.
        bias_bound: how far the log's predicted rewards may be off on average (root mean square, in reward units): the
            log then never counts for more than ``s²/bias_bound²`` rows of an arm.  Or by feature, a mapping from names
            or one number for each: how far the log's coefficients may be off, in reward units per unit of the feature;
            it may be wrong about those that are named, and is believed about the others.
        floor: how much less than the old policy it may earn: a share of the old policy's reward, or a ``Floor``.  Then
            ``decide`` takes the old policy's arm as ``default``, and ``record_decision`` is called for every decision.
        schema, arms: default those of the first log; further arms may be named that no log knows.
        rng: draws for decisions that are randomised, where ``decide`` is given none.

    Examples:
        >>> import numpy as np, sidelight as sl
        >>> world = sl.worlds.ConfoundedWorld(seed=0)
        >>> log = world.sample_log(5_000, recorded=6, rng=np.random.default_rng(1))
        >>> learner = sl.FusedOFUL(sl.BehaviorQueries(sl.summarize_log(log, world.schema(6))))
        >>> x = world.contexts(1, np.random.default_rng(2))[0]
        >>> decision = learner.decide(x)
        >>> learner.observe(x, decision.arm, reward=0.3)
        >>> learner.observe_behavior(x, arm=4)     # what the old policy would have done
        >>> learner
        FusedOFUL(10 arms, 10 features, 1 observations, 1 log, regularization=auto, radius='posterior')
    """

    radius_names = ("posterior", "theory", "determinant", "printed")
    compiled_scores = True
    refreshes_logs = True

    def __init__(
        self,
        hidden: Any,
        *,
        regularization: float | Literal["auto"] = "auto",
        prior_mean: Any = 0.0,
        noise: float | Literal["auto"] = "auto",
        alpha: float = 1.0,
        delta: float = 0.05,
        context_bound: float = 1.0,
        weight_bound: float = 1.0,
        radius: str = "posterior",
        sandwich: bool = False,
        bias_bound: float | Mapping[str, float] | ArrayLike = 0.0,
        safety: float = 0.1,
        query_budget: float | None = None,
        forgetting: float = 1.0,
        floor: float | Floor | Mapping[str, Any] | None = None,
        schema: Schema | None = None,
        arms: Sequence[Any] | None = None,
        rng: np.random.Generator | None = None,
    ) -> None:
        settings = Settings(
            regularization=regularization,
            prior_mean=prior_mean,
            noise=noise,
            alpha=alpha,
            delta=delta,
            context_bound=context_bound,
            weight_bound=weight_bound,
            radius=radius,
        )
        if settings.noise == 0.0:
            raise InputError(
                "noise=0.0: beside rounds without any noise a log would count for nothing. Give what a reward varies "
                "by, however little, or noise='auto'."
            )
        if not (is_number(safety) and 0 <= safety < math.inf):
            raise InputError(f"safety={safety!r} must be a number of at least 0; 0 trusts the logs blindly.")
        self.fading = Fading(forgetting)
        if radius == "theory" and "auto" in (regularization, noise):
            raise InputError(
                "radius='theory' is proven for a prior and a noise that are fixed beforehand: give regularization=… "
                "and noise=… as numbers, or use radius='posterior'."
            )
        if radius == "theory" and forgetting < 1:
            raise InputError(
                f"radius='theory' is proven for a world that stands still, and forgetting={forgetting!r} is for one "
                "that moves: use radius='posterior'."
            )
        self.sandwich, self.safety = bool(sandwich), float(safety)
        self.floor = floor_of(floor, settings)
        self.asking = QueryBudget(query_budget)
        self.refreshes = 0
        estimators = by_key(hidden, type(self).__name__)
        labels = labels_of(estimators, arms)
        check_logs(estimators, sandwich)
        first = next(iter(estimators.values())).summary
        d = first.n_features
        recorded = np.unique(np.concatenate([estimator.summary.recorded for estimator in estimators.values()]))
        shown = first.schema if schema is None else schema
        self.bias_bound = bias_of(bias_bound, shown.encoded_names, recorded)
        index = {arm: i for i, arm in enumerate(labels)}
        # shrinking toward the pooled regression is a bias that no proof covers
        copies = {
            key: completed(estimator.unpooled() if radius == "theory" else estimator.copy())
            for key, estimator in estimators.items()
        }
        self.logs = [FusedLog(key, estimator, index, radius == "theory") for key, estimator in copies.items()]
        kinds = {log.hidden.needs for log in self.logs} - {None}
        if len(kinds) > 1:
            raise InputError("One log learns from the old policy's actions and another from its probabilities.")
        self.needs = next(iter(kinds), None)
        super().__init__(
            labels,
            unreduced(len(labels), d),
            settings,
            shown,
            rng,
            log=first,
            recorded=recorded,
        )
        if forgetting < 1 and self.automatic is not None:
            # arms that are not played fade at refreshes alone: at least four of them in the time that is remembered
            self.automatic.longest = max(16, math.ceil(0.25 / (1.0 - forgetting)))
        if self.gaps is not None and (self.floor is not None or radius == "theory"):
            raise InputError(
                "A floor and radius='theory' are proven for contexts whose every value was seen, and this schema lets "
                "values be missing: leave them out, or use schema.with_missing('refuse')."
            )
        self.ledger = None if self.floor is None else FloorLedger(self.floor, len(labels), d)
        # τ² comes from the weights, which come from τ²; learned, the prior comes between the two
        self._relearn(passes=3 if regularization == "auto" else 2)

    # ------------------------------------------------------------------------------------ learning

    def observe_behavior(
        self,
        x: Context,
        arm: Any = None,
        *,
        probabilities: ArrayLike | None = None,
        probability: float | None = None,
        log: Any = None,
    ) -> None:
        """What the old policy would do at ``x``: its ``arm``, or its ``probabilities``.

        Args:
            x: the full context.
            arm: the old policy's action, or
            probabilities: its probability of every arm of the log.
            probability: with which this context was asked about: 1 if all are, or independently of the context; default
                ``query_probability(x)`` as it is now.
            log: the key of the log whose policy answered; default all of them.
        """
        context = self._read(x)
        if probability is None:
            probability = self._query_probability(self._context(context))
            if not probability and self.needs is not None:
                raise InputError(
                    "The query budget is spent, so the chance with which this context was asked about is no longer "
                    "known: pass probability=…, query_probability(x) as it was when wants_query said yes."
                )
        self._check_answer(arm, probabilities, probability, log)
        self.asking.asked += 1
        filled, taken, fresh = self._learn_gaps(context), True, False
        if self._guarded and self.automatic is not None:
            taken, fresh = self.automatic.answerable(filled, self._name)
        if not taken:
            return
        for entry in self._answered_logs(arm, log):
            entry.answer(context, arm, probabilities, probability)
        if self.automatic is not None and (self.automatic.due() or fresh):
            self._relearn()

    def _answered_logs(self, arm: Any, log: Any) -> list[FusedLog]:
        """The logs that an answer is about: those that know the arm, or the one that is named."""
        logs = [entry for entry in self.logs if log is None or entry.key == log]
        if not logs:
            raise InputError(f"There is no log {log!r}; the logs are {[entry.key for entry in self.logs]!r}.")
        if arm is not None:
            logs = [entry for entry in logs if arm in entry.labels]
            if not logs:
                raise UnknownArmError(f"The old policy answered {arm!r}, an arm that no log has.")
        return logs

    def _check_answer(self, arm: Any, probabilities: Any, probability: float, log: Any = None) -> None:
        super()._check_answer(arm, probabilities, probability)
        for entry in self._answered_logs(arm, log):
            check_answer(entry.hidden, arm, probabilities, probability)

    @property
    def _guarded(self) -> bool:
        return self.settings.radius != "theory"

    @property
    def _surprise(self) -> float:
        """A reward that the logs did not let expect: they are judged at once, not when the next refresh is due."""
        # a click at a rate of 1 % is far off what was expected, and no surprise
        return SURPRISE if self.safety and self.settings.radius != "theory" and not self.binary else math.inf

    # ------------------------------------------------------------------------------------ asking

    def query_probability(self, x: Context) -> float:
        """The probability with which ``wants_query`` says yes at ``x``; pass it on with the answer."""
        return self._query_probability(self._context(x))

    def _query_probability(self, x: Array) -> float:
        if self.needs is None:
            return 0.0
        if self.asking.unlimited:
            return 1.0
        gain = float(np.mean([log.query_gain(x) for log in self.logs if log.hidden.needs is not None]))
        return self.asking.probability(gain, int(self.counts.sum()))

    def wants_query(self, x: Context) -> bool:
        """Is asking the old policy at ``x`` worth a part of the budget: drawn with ``query_probability(x)``.

        The probability is the expected reduction of the logs' uncertainty by an answer here, relative to the average;
        never below a floor, so that weighting answers by its inverse stays harmless.
        """
        context = self._context(x)
        probability = self._query_probability(context)
        return probability > 0.0 and self._draw_from(context[::-1]) < probability

    def _answer_sums(self, asked: bool) -> Any | None:
        plain = not self.fading.forgets and self.settings.radius != "theory" and self.ledger is None
        if not asked:
            return super()._answer_sums(False) if plain else None
        log = self.logs[0]
        same = (
            plain and self.asking.unlimited and len(self.logs) == 1 and np.array_equal(log.arms, np.arange(self.n_arms))
        )
        sums = log.hidden.sums
        if not same or sums is None or not log.hidden.takes_actions_by_sums:
            return None
        return sums.arrays

    def _room(self) -> tuple[int, int]:
        room, answer_room = super()._room()
        return room, min(answer_room, self.logs[0].hidden.room())

    def _caught_up(self, events: int, taken: int, surprised: bool) -> None:
        if taken:
            self.logs[0].hidden.took(taken)
            self.asking.asked += taken
        super()._caught_up(events, taken, surprised)

    # ------------------------------------------------------------------------------------- refresh

    def _install(self, reduction: Reduction) -> None:
        self.fading.grow(reduction.n_arms)
        super()._install(reduction)

    def _rewards_are_binary(self) -> bool:
        declared = None if self.schema is None else self.schema.binary
        return all(log.hidden.summary.binary_rewards for log in self.logs) if declared is None else declared

    def _first_variance(self, settings: Settings) -> float:
        if settings.noise != "auto":
            return settings.sigma**2
        if self.binary:
            return BINARY_VARIANCE
        return max(float(np.mean([np.mean(log.s2) for log in self.logs])), 1e-300)

    def _noise_guess(self, units: Units) -> float:
        return most_noise(self.logs, self._first_variance(self.settings), units)

    def _set_prior(self) -> None:
        """``V₀ = σ_a²(Ω⁻¹ + Σ_j J_j)`` and ``V₀μ₀ = σ_a²(Ω⁻¹μ + Σ_j h_j)`` for every arm."""
        precision, means = self._prior()
        weights, variances = self._prior_weights()[:, None], np.square(self.noises)[:, None]
        J, h = self._log_sums()
        J *= variances[:, :, None]
        J += weights[:, :, None] * precision
        self.prior_precisions = J
        self.prior_moments = weights * apply(precision, means) + variances * h
        self.prior_log_dets = log_det(J)
        self._set_bounds(precision)

    def _numbers(self) -> Array:
        """For ``"theory"``: the determinant form with ``δ_k = δ/(2KJk(k + 1))`` in refresh ``k``."""
        s = self.settings
        if s.radius != "theory":
            return super()._numbers()
        union = -natural_log(self._refresh_delta())
        kind = RADIUS_KINDS["determinant"]
        return self._with_noises([kind, self.noise, self._prior_term, self._growth, union, s.alpha, self._surprise])

    def _refresh_delta(self) -> float:
        """``δ_k``; what an arm's logs may count for is chosen by the rewards, from ``J`` settings fixed in advance."""
        choices = len(EFFECTIVE_ROWS) ** len(self.logs) if self.safety else 1
        return refresh_confidence(self.settings.delta, self.n_arms, choices, max(self.refreshes, 1))

    def _scores(self, x: Array) -> tuple[Array, Array]:
        estimates, widths = super()._scores(x)
        return estimates, (widths if self.settings.radius != "theory" else widths + self._log_widths(x))

    def _log_widths(self, x: Array) -> Array:
        """``Σ_j γ_jσ²‖Λ_j^{1/2}M̂_jV⁻¹x‖``: what the error of the logs adds to a proven width."""
        s = self.settings
        v = apply(self.covariances, x)
        delta = self._refresh_delta() / len(self.logs)
        out = np.zeros(self.n_arms)
        for log in self.logs:
            gamma = float(log_error_radius(log.L, delta)) if log.L else 0.0
            if np.any(self.bias_bound):
                gamma += 1.0  # ‖Λ^{1/2}β‖ ≤ 1 for every bias β within the bound
            out[log.arms] += gamma * log.norms(v[log.arms])
        return np.asarray(s.alpha * self.noise**2 * out)

    def _log_sums(self) -> tuple[Array, Array]:
        K, d = self.n_arms, self.n_features
        J, h = np.zeros((K, d, d)), np.zeros((K, d))
        for log in self.logs:
            log.add_to(J, h)
        if self.fading.forgets:
            J *= self.fading.left_of_logs()
            h *= self.fading.left_of_logs()
        return J, h

    def _evidence(self, variances: Array) -> tuple[Array, Array]:
        J, h = self._log_sums()
        J += self.grams / variances[:, None, None]
        h += self.moments / variances[:, None]
        return J, h

    def _learn_prior(self, units: Units) -> None:
        """Learn the prior; where rounds seem noisier than the logs allow, noise and prior together.

        A log leaves ``s²_a = σ_a² + τ_a²``, so no arm's noise is above the least ``s²``, unless it differs by arm.
        Residuals of weights that a narrow prior shrinks seem to say so, and at that noise the narrow prior is the most
        likely one: each confirms the other.  So smaller noises compete, each with the prior that is most likely at it.
        """
        assert self.automatic is not None
        automatic, preferences = self.automatic, self._preferences(units)
        most, searching, variances = self._noise_guess(units), automatic.searches(), self._cautious_variances()
        told = cache(lambda: self._spread_of_logs(units))
        learned = automatic.learn(*self._evidence(variances), units, told, preferences)
        if self.settings.noise != "auto" or self.binary or not searching or automatic.variance <= most:
            return
        if (hidden := told()) is None:
            return
        rounds, unit = self._arm_rounds(), units.reward_variance
        squares = units.squares(self.squares, self.moments, self.grams)
        grams, moments = units.evidence(self.grams, self.moments)

        def of_rounds(variances: Array) -> float:
            return rounds_likelihood(rounds, squares / unit, variances / unit)

        def likelihood(variances: Array) -> tuple[float, Callable[[], Prior]]:
            value, make = automatic.best_prior(*self._evidence(variances), units, hidden, preferences)
            return value + of_rounds(variances), make

        found = likeliest_noise(
            likelihood,
            (variances, learned.log_marginal + of_rounds(variances)),
            most,
            (rounds, least_residuals(squares, moments, grams, rounds)),
        )
        if found is not None:
            variances, prior = found
            automatic.variance, automatic.variances = float(variances[0]), variances
            automatic.take(prior)

    def _spread_of_logs(self, units: Units) -> SpreadLikelihood | None:
        # of rewards of 0 and 1 the residual variances follow from the rates, and tell nothing
        if self.binary:
            return None
        assert self.automatic is not None
        return spread_of_logs(self.logs, units, self.reduction.order[self.automatic.blocks[0]])

    def _preferences(self, units: Units) -> Array | None:
        """(K, 2, d)  What the old policy favoured for each arm among recorded and among hidden features."""
        assert self.automatic is not None
        return preferences_of_logs(self.logs, units, self.automatic.blocks[:2], self.n_arms)

    def _tally(self) -> Tally:
        tally = self._tally_of_rounds()
        add_logs(tally, self.logs)
        return tally

    def _relearn(self, passes: int = 1) -> None:
        """Learn ``τ²``, the logs' evidence, noise and prior anew from everything seen, and put them to use."""
        self.refreshes += 1
        if self.fading.forgets:
            for a in range(self.n_arms):
                self._fade(a)
        self._judge()
        for _ in range(passes):
            self._learn_from_logs()
            super()._relearn()
        self._freeze()

    def _learn_from_logs(self) -> None:
        """Learn ``τ²`` and the logs' evidence anew."""
        known = np.ones(self.n_features, dtype=bool)
        if self.automatic is not None and self.settings.regularization == "auto":
            known = Units.of(self._tally(), self.automatic.constant).known
        for log in self.logs:
            # while nothing is known about any hidden feature there are no weights to take τ² from, and without an
            # answer no second moments in the features' own units
            hidden = log.order[log.L :]
            unanswered = log.hidden.sums is not None and not log.hidden.n_answers
            log.fresh = log.fresh or (len(hidden) > 0 and (unanswered or not known[hidden].any()))
            log.refresh(
                self._prior()[1] if log.proven else self.weights,
                np.square(self.noises)[:, None, None] * self.covariances,
                variance=1.0,
                shared=len(self.logs),
                bias_bound=self.bias_bound,
                sandwich=self.sandwich,
                weight_bound=self.settings.weight_bound,
                context_bound=self.settings.context_bound,
                plays=self._arm_rounds() if self.settings.regularization == "auto" and not self.binary else None,
                delta=self._refresh_delta() / len(self.logs),
                rates=self.binary,
            )
            if not self.asking.unlimited:
                log.learn_gain()
        if len(self.logs) > 1 and self.settings.radius != "theory":
            self._intersect()

    def _intersect(self) -> None:
        """Let several logs, whose errors go together in a way that nobody knows, count for as much as they can."""
        variances = self._cautious_variances()[:, None, None]
        known = self._prior()[0] / self.noise**2 + self.grams / variances
        shares = intersection_shares([log.directions(self.n_arms) for log in self.logs], known)
        for j, log in enumerate(self.logs):
            log.count(shares[log.arms, j])

    # --------------------------------------------------------------------------------- forgetting

    def _observe(self, x: Array, index: int, reward: float, weight: float = 1.0) -> None:
        if self.fading.forgets:
            if self.binary:
                self._check_binary(reward)  # a reward that is refused must not have faded anything
            # a round fades all that came before: this arm is brought up to date now, the others at the next refresh
            self.fading.clock += 1
            self._fade(index)
            self.fading.effective[index] += 1.0
        super()._observe(x, index, reward, weight)
        if self.ledger is not None:
            self.ledger.observe(x, index, reward)

    def receipt(self, x: Context, reward: float, arm: Any = None) -> Receipt | None:
        """The weights of a round, and the clock where rounds are forgotten; None where it counts in full for ever."""
        found = super().receipt(x, reward, arm)
        if not self.fading.forgets:
            return found
        return (Receipt() if found is None else found)._replace(clock=self.fading.clock + 1)

    def _correct(self, x: Array, index: int, old: float, new: float | None, receipt: Receipt | None) -> None:
        if self.fading.forgets:
            if receipt is None:
                raise InputError(
                    f"forgetting={self.forgetting!r}: rounds fade, so correct needs to know when this one was: ask "
                    "receipt = learner.receipt(x, reward) before observing it, and pass it on."
                )
            self._fade(index)
        super()._correct(x, index, old, new, receipt)
        if new is None:
            self._compare_lines(x[None], -1.0)
            rounds = self.fading.effective
            rounds[index] = max(rounds[index] - self._standing(index, receipt)[1], 0.0)
        if self.ledger is not None:
            self.ledger.correct(x, index, old, new)

    def _standing(self, index: int, receipt: Receipt | None) -> tuple[float, float]:
        if not self.fading.forgets or receipt is None:
            return super()._standing(index, receipt)
        return receipt.weight, self.fading.left_of(receipt.clock)

    def add_arm(self, label: Any) -> None:
        """Offer one more arm from now on; it starts from the prior that all arms share."""
        before = self.ledger
        if before is not None:
            # whole, and before the new arm can be chosen: threads may decide meanwhile
            self.ledger = before.with_arm()
        try:
            super().add_arm(label)
        except InputError:
            self.ledger = before
            raise

    def _observes_plainly(self) -> bool:
        return self.ledger is None and not self.fading.forgets and type(self)._observe is FusedOFUL._observe

    def _fade(self, index: int) -> None:
        """Discount one arm's sums by the rounds since it was last brought up to date."""
        factor = self.fading.catch_up(index)
        for sums in (self.grams, self.moments, self.squares, *(getattr(self, name) for name in WEIGHED)):
            sums[index] *= factor
        self._refresh_arm(index)

    @property
    def forgetting(self) -> float:
        """What a round still counts for after one more; 1 where nothing is forgotten."""
        return self.fading.rate

    def _arm_rounds(self) -> Array:
        return self.fading.rounds(self.counts)

    # -------------------------------------------------------------------------------------- files

    def options(self) -> dict[str, Any]:
        """Constructor arguments beyond the settings that all learners share."""
        return {
            "sandwich": self.sandwich,
            "bias_bound": self.bias_bound if isinstance(self.bias_bound, float) else self.bias_bound.tolist(),
            "safety": self.safety,
            "query_budget": self.asking.budget,
            "forgetting": self.forgetting,
            **({} if self.floor is None else {"floor": asdict(self.floor)}),
        }

    def estimators(self) -> dict[Any, Any]:
        """The estimators by the key of their log."""
        return {log.key: log.hidden for log in self.logs}

    def state(self) -> dict[str, Any]:
        """Everything that observing changes, the estimators apart."""
        out = super().state()
        for name in ("prior_precisions", "prior_moments", "prior_log_dets"):
            out[name] = getattr(self, name)
        out["effective"], out["faded_at"] = self.fading.effective, self.fading.faded_at
        out.update(self._trust_state())
        out["fused_numbers"] = np.array([self.refreshes, self.fading.clock, self.asking.asked])
        out["fused_bounds"] = np.array([self._prior_term, self._growth])
        for i, log in enumerate(self.logs):
            out.update({f"log{i}_{name}": value for name, value in log.state().items()})
        return out if self.ledger is None else out | self.ledger.state()

    def restore(self, arrays: dict[str, Any]) -> None:
        """The inverse of ``state``."""
        for i, log in enumerate(self.logs):
            prefix = f"log{i}_"
            log.restore({k.removeprefix(prefix): v for k, v in arrays.items() if k.startswith(prefix)})
        self.refreshes, clock, self.asking.asked = (int(v) for v in arrays["fused_numbers"])
        self.fading.restore(arrays["effective"], arrays["faded_at"], clock)
        super().restore(arrays)
        for name in ("prior_precisions", "prior_moments", "prior_log_dets"):
            setattr(self, name, np.array(arrays[name], dtype=np.float64))
        self._restore_trust(arrays)
        self._prior_term, self._growth = (float(v) for v in arrays["fused_bounds"])
        self._restore_settings(arrays)
        if self.ledger is not None:
            self.ledger.restore(arrays)

    def __repr__(self) -> str:
        s, n = self.settings, len(self.logs)
        return (
            f"{type(self).__name__}({self.n_arms} arms, {self.n_features} features, {int(self.counts.sum())} "
            f"observations, {n} log{'s' if n != 1 else ''}, regularization={s.regularization}, radius={s.radius!r})"
        )
