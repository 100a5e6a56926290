"""The fused learner: logs as soft evidence beside the online rounds, with everything automatic.  The one to use."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING, Any, Unpack

import numpy as np
from numpy.typing import ArrayLike

from sidelight.errors import InputError
from sidelight.hidden.protocol import completed
from sidelight.learners.floor import Floor, floor_of
from sidelight.learners.fused.answering import Answering
from sidelight.learners.fused.asking import QueryBudget
from sidelight.learners.fused.fading import Fading
from sidelight.learners.fused.given import bias_of, by_key, check_logs, check_settings, labels_of
from sidelight.learners.fused.log import FusedLog
from sidelight.learners.ledger import FloorLedger
from sidelight.learners.settings import SettingArguments, Settings, lists_settings
from sidelight.side.constraint import unreduced

if TYPE_CHECKING:
    from sidelight.logs.schema.schema import Schema

__all__ = ["FusedOFUL"]

#: settings whose default differs from that of the other learners
FUSED: SettingArguments = {"regularization": "auto", "noise": "auto", "radius": "posterior"}


class FusedOFUL(Answering):
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
        rng: draws for decisions that are randomised, where ``decide`` is given none; such a decision moves it on.
            Default: the context itself decides, see ``decide``.

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

    @lists_settings(defaults=FUSED)
    def __init__(
        self,
        hidden: Any,
        *,
        sandwich: bool = False,
        bias_bound: float | Mapping[str, float] | ArrayLike = 0.0,
        safety: float = 0.1,
        query_budget: float | None = None,
        forgetting: float = 1.0,
        floor: float | Floor | Mapping[str, Any] | None = None,
        schema: Schema | None = None,
        arms: Sequence[Any] | None = None,
        rng: np.random.Generator | None = None,
        **given: Unpack[SettingArguments],
    ) -> None:
        settings = Settings.of(given, defaults=FUSED)
        theory = settings.radius == "theory"
        self.fading = Fading(forgetting)
        check_settings(settings, safety, forgetting)
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
            key: completed(estimator.unpooled() if theory else estimator.copy())
            for key, estimator in estimators.items()
        }
        self.logs = [FusedLog(key, estimator, index, theory) for key, estimator in copies.items()]
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
        if self.gaps is not None and (self.floor is not None or theory):
            raise InputError(
                "A floor and radius='theory' are proven for contexts whose every value was seen, and this schema lets "
                "values be missing: leave them out, or use schema.with_missing('refuse')."
            )
        self.ledger = None if self.floor is None else FloorLedger(self.floor, len(labels), d)
        # τ² comes from the weights, which come from τ²; learned, the prior comes between the two
        self._relearn(passes=3 if settings.regularization == "auto" else 2)

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
