"""Deciding: turns contexts into ``Decisions`` events, with propensities and queries.  Nothing is written here."""

from __future__ import annotations

import logging
import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any, TypeAlias, TypeVar

import numpy as np

from sidelight.labels import Label
from sidelight.learners.base import BaseLearner
from sidelight.learners.protocol import Decision, DecisionColumns
from sidelight.linalg import Array
from sidelight.service.core.flooring import Account, check_defaults
from sidelight.service.core.fold import State
from sidelight.service.core.old_policy import OldPolicy
from sidelight.service.core.requested import PLAIN, Ask
from sidelight.service.core.teaching import LEARNER_ERRORS
from sidelight.service.log.events import Answer, Decisions
from sidelight.service.metrics import Metrics
from sidelight.service.rails import Rails, subject_draw

__all__ = ["Ask", "Decider"]

logger = logging.getLogger("sidelight.service")

T = TypeVar("T")

#: the fields of ``Decisions`` from ``arms`` to ``query_probabilities``
_Columns: TypeAlias = tuple[
    list[Label | None],
    list[Label],
    list[float | None],
    list[float | None],
    list[float | None],
    list[str],
    list[bool],
    list[float],
]
#: a learner's choice: arm, estimate, width and propensity
_Choice: TypeAlias = tuple[Any, float | None, float | None, float]
#: many of them, column by column
_Choices: TypeAlias = tuple[list[Any], list[Any], list[Any], list[float]]


class Decider:
    """Decides with the learner and the rails of a state that ``Folding`` keeps up to date.

    Args:
        learner: the learner whose decisions these will be.
        metrics: where to count failures.
        old_policy: asked for its arm where the caller does not tell it; None where it cannot be asked here.
        rng: the generator for the learner's, the ramp's and the queries' draws.
        every_chance: record the propensities of all arms where the learner draws.
    """

    def __init__(
        self,
        learner: Any,
        metrics: Metrics,
        old_policy: OldPolicy | None = None,
        rng: np.random.Generator | None = None,
        every_chance: bool = False,
    ) -> None:
        self._every_chance = every_chance
        self._metrics = metrics
        self._old = old_policy
        self._rng = np.random.default_rng() if rng is None else rng
        self.account = Account()
        # A learner whose class has a ``decide_many`` of its own decides one by one, so that all draws come from here.
        self._many = type(learner).decide_many is BaseLearner.decide_many

    def choose(self, state: State, X: Array, asks: Sequence[Ask] | None, fingerprint: str | None = None) -> Decisions:
        """Decide for every row of ``X`` (n, d); nothing is written yet.

        Args:
            state: the learner and the rails as they are.
            X: encoded contexts.
            asks: what came with each; None where nothing did.
            fingerprint: of the request, where it has an idempotency key.
        """
        if state.learner.ledger is not None:
            return self._choose_under_floor(state, X, asks, fingerprint)
        rails, rng = state.rails, self._rng
        n = len(X)
        plain = rails.explore == 0.0 and not self._every_chance
        if n == 1 and asks is None and self._old is None and _learner_acts(rails) and plain:
            one = self._choose_one(state, X, fingerprint)
            if one is not None:
                return one
        salt = state.gate.salt
        recommended, estimates, widths, chances = self._choices(state.learner, X, asks)
        failed = {i for i, estimate in enumerate(estimates) if estimate is None}
        for i in failed:
            allowed = None if asks is None else asks[i].allowed
            recommended[i] = rails.fallback if allowed is None or rails.fallback in allowed else allowed[0]
        routed = not failed and _learner_acts(rails)
        taken, taken_chances = self._explore(state, X, asks, recommended, chances)
        acting: list[Label | None] = [None] * n
        if self._old is not None:
            asks, acting = self._with_old_policy(self._old, X, asks, acts=not routed)
        asked, query_probabilities = self._queries(state.learner, X, asks)
        if self._old is not None:
            asked = [False] * n
        arms: list[Label | None]
        propensities: list[float | None]
        if routed:
            arms, routes, propensities = list(taken), ["learner"] * n, list(taken_chances)
        else:
            arms, routes, propensities = [], [], []
            for i in range(n):
                ask = PLAIN if asks is None else asks[i]
                old_arm, old_propensity = _old_policy(state.learner, ask.answer)
                route = rails.route(
                    taken[i],
                    taken_chances[i],
                    old_arm=old_arm if acting[i] is None else acting[i],
                    old_propensity=old_propensity,
                    allowed=ask.allowed,
                    draw=rng.random() if ask.subject is None else subject_draw(ask.subject, salt),
                    failed=i in failed,
                    chance_of=None if plain else self._chance_of(state, X[i], ask, recommended[i], chances[i]),
                )
                arms.append(route.arm)
                # An arm that the old policy takes now because that of its log is retired is no answer about the log.
                no_news = acting[i] is not None and ask.answer is None
                routes.append("fallback" if no_news and route.by == "old_policy" else route.by)
                propensities.append(route.propensity)
        columns = (arms, recommended, estimates, widths, propensities, routes, asked, query_probabilities)
        chances_of_all = self._all_chances(state, X, asks, chances, failed)
        return _event(state, X, columns, asks, fingerprint, chances_of_all)

    def _explore(
        self, state: State, X: Array, asks: Sequence[Ask] | None, recommended: list[Label], chances: list[float]
    ) -> tuple[list[Label], list[float]]:
        """Arms and propensities of the learner's route, some arms replaced by uniformly drawn ones (``explore``)."""
        if not _explores(state.rails):
            return recommended, chances
        out = []
        for i, (arm, chance) in enumerate(zip(recommended, chances, strict=True)):
            ask = PLAIN if asks is None else asks[i]
            arms = list(state.learner.arms) if ask.allowed is None else ask.allowed
            draw = self._rng.random()
            taken = arms[int(draw / state.rails.explore * len(arms))] if draw < state.rails.explore else arm
            out.append((taken, self._chance_of(state, X[i], ask, arm, chance)(taken)))
        return [arm for arm, _ in out], [chance for _, chance in out]

    @staticmethod
    def _chance_of(state: State, x: Array, ask: Ask, own: Label, certain: float) -> Callable[[Label], float]:
        """A function from an arm to its propensity on the learner's route, which takes ``own`` unless it explores."""
        learner, explore = state.learner, state.rails.explore

        def chance(arm: Label) -> float:
            n = len(learner.arms) if ask.allowed is None else len(ask.allowed)
            if arm == own:
                found = float(certain)
            elif certain >= 1.0:
                found = 0.0
            else:
                found = float(learner.propensities(x, ask.allowed)[learner.arms.index(arm)])
            even = 1.0 / n if ask.allowed is None or arm in ask.allowed else 0.0
            return (1.0 - explore) * found + explore * even

        return chance

    def _all_chances(
        self, state: State, X: Array, asks: Sequence[Ask] | None, chances: list[float], failed: set[int]
    ) -> list[list[float] | None] | None:
        """The learner's own probabilities (K) for each row in which it draws; None if none are to be recorded."""
        wanted = self._every_chance or _explores(state.rails)
        if not wanted or all(chance >= 1.0 for chance in chances):
            return None
        learner = state.learner
        return [
            None
            if chance >= 1.0 or i in failed
            else [float(v) for v in learner.propensities(X[i], None if asks is None else asks[i].allowed)]
            for i, chance in enumerate(chances)
        ]

    def _choose_under_floor(
        self, state: State, X: Array, asks: Sequence[Ask] | None, fingerprint: str | None
    ) -> Decisions:
        """Decide one by one, each entered in the floor's account before the next; no floor unless the learner acts.

        Raises:
            Problem: a request does not tell the old policy's arm, and the learner acts.
        """
        learner, rails, n = state.learner, state.rails, len(X)
        acts = rails.mode == "act" and not rails.killed
        acting: list[Label | None] = [None] * n
        if self._old is not None:
            asks, acting = self._with_old_policy(self._old, X, asks, acts=not acts)
        if acts:
            check_defaults(asks, n)
        asked, query_probabilities = self._queries(learner, X, asks)
        filled = [PLAIN] * n if asks is None else list(asks)
        rows = []
        for x, ask, old in zip(X, filled, acting, strict=True):
            old_arm, old_propensity = _old_policy(learner, ask.answer)
            failed, ledger = False, self.account.now(learner, state.number) if acts else None
            try:
                wanted, arm, chance = learner.decide_under(ledger, x, old_arm, ask.allowed, self._rng)
            except LEARNER_ERRORS as error:
                logger.error("the learner could not decide: %s", type(error).__name__, exc_info=error)
                self._metrics.learner_failures.inc()
                failed, arm, chance = True, rails.fallback, 1.0
                wanted = (arm, None, None, 1.0)
            route = rails.route(
                arm,
                chance,
                old_arm=old_arm if old is None else old,
                old_propensity=old_propensity,
                allowed=ask.allowed,
                draw=self._rng.random() if ask.subject is None else subject_draw(ask.subject, state.gate.salt),
                failed=failed,
            )
            if acts and route.by == "learner":
                self.account.record(learner, x, route.arm, old_arm)
            rows.append((route.arm, *wanted[:3], route.propensity, route.by))
        asked = [False] * n if self._old is not None else asked
        arms, recommended, estimates, widths, propensities, routes = map(list, zip(*rows, strict=True))
        columns = (arms, recommended, estimates, widths, propensities, routes, asked, query_probabilities)
        event = _event(state, X, columns, asks, fingerprint)
        if acts:
            self.account.begin(event)
        return event

    def _choose_one(self, state: State, X: Array, fingerprint: str | None) -> Decisions | None:
        """As ``choose`` for a single context that only the learner decides, in half the time.

        Returns:
            None where the learner cannot decide: then ``choose`` logs it and lets the fallback act.
        """
        try:
            arm, estimate, width, chance = state.learner.decide(X[0], None, self._rng)
        except LEARNER_ERRORS:
            return None
        if not math.isfinite(estimate + width):
            return None
        asked, query_probabilities = self._queries(state.learner, X, None)
        columns = ([arm], [arm], [estimate], [width], [chance], ["learner"], asked, query_probabilities)
        return _event(state, X, columns, None, fingerprint)

    def _with_old_policy(
        self, policy: OldPolicy, X: Array, asks: Sequence[Ask] | None, *, acts: bool
    ) -> tuple[list[Ask], list[Label | None]]:
        """The requests completed with the old policy's answers (asking is free here), and its arms where it ``acts``.

        An answer that the caller gave is not replaced.
        """
        filled = list(asks) if asks is not None else [PLAIN] * len(X)
        acting: list[Label | None] = [None] * len(X)
        for i, ask in enumerate(filled):
            if ask.answer is not None:
                continue
            try:
                arm = policy.answer(X[i], ask.allowed, self._rng)
                acting[i] = policy.act(X[i], ask.allowed, self._rng) if acts else None
            except LEARNER_ERRORS as error:
                logger.error("the old policy could not be asked: %s", type(error).__name__, exc_info=error)
                continue
            if arm is not None:
                filled[i] = replace(ask, answer=Answer(arm))
        return filled, acting

    def _choices(self, learner: Any, X: Array, asks: Sequence[Ask] | None) -> _Choices:
        """What the learner decides for every row of ``X``; estimate and width are None where it could not decide."""
        if asks is None and self._many and len(X) > 1:
            try:
                columns: DecisionColumns = learner.decide_columns(X, self._rng)
                if math.isfinite(sum(columns[1]) + sum(columns[2])):
                    return columns
            except LEARNER_ERRORS:
                pass
        found = [self._choice(learner, x, None if asks is None else asks[i].allowed) for i, x in enumerate(X)]
        arms, estimates, widths, chances = map(list, zip(*found, strict=True))
        return arms, estimates, widths, chances

    def _choice(self, learner: Any, x: Array, allowed: list[Label] | None) -> _Choice:
        try:
            choice: Decision = learner.decide(x, allowed, self._rng)
            if not math.isfinite(choice.estimate + choice.width):
                raise ArithmeticError(f"estimate {choice.estimate}, width {choice.width}")
        except LEARNER_ERRORS as error:
            logger.error("the learner could not decide, the fallback acts: %s", type(error).__name__, exc_info=error)
            self._metrics.learner_failures.inc()
            return None, None, None, 1.0
        return choice

    def _queries(self, learner: Any, X: Array, asks: Sequence[Ask] | None) -> tuple[list[bool], list[float]]:
        """Whether to ask the old policy at each context, and the probability with which it is asked."""
        n = len(X)
        if learner.needs is None:
            return [False] * n, [0.0] * n
        budget = getattr(learner, "asking", None)
        chance_of = getattr(learner, "query_probability", None)
        if budget is not None and budget.unlimited:
            chances, asked = [1.0] * n, [True] * n
        elif chance_of is not None:
            chances = [chance_of(x) for x in X]
            asked = [q >= 1.0 or self._rng.random() < q for q in chances]
        else:
            asked = [bool(learner.wants_query(x)) for x in X]
            chances = [1.0 if wanted else 0.0 for wanted in asked]
        if asks is not None:
            # a request that already contains the old policy's answer is not asked for it
            asked = [wanted and ask.answer is None for wanted, ask in zip(asked, asks, strict=True)]
        return asked, chances


def _event(
    state: State,
    X: Array,
    columns: _Columns,
    asks: Sequence[Ask] | None,
    fingerprint: str | None,
    chances: list[list[float] | None] | None = None,
) -> Decisions:
    """The decisions at ``X`` (n, d), made by the learner and the rails of ``state``.

    Args:
        state: what decided.
        X: encoded contexts.
        columns: what was decided for each, field by field.
        asks: what came with each; None where nothing did.
        fingerprint: of the request, where it has an idempotency key.
        chances: every arm's probability, where they are recorded.
    """
    event = Decisions(X, *columns, state.version, state.rails.mode, state.rails.share)
    if asks is not None:
        event.allowed = _column([ask.allowed for ask in asks])
        event.answers = _column([ask.answer for ask in asks])
        event.subjects = _column([ask.subject for ask in asks])
    event.fingerprint, event.chances = fingerprint, chances
    return event


def _column(values: list[T | None]) -> list[T | None] | None:
    """What came with each request as a column of the event; None where nothing came with any."""
    return None if values.count(None) == len(values) else values


def _explores(rails: Rails) -> bool:
    """Whether the learner's arm may be replaced by a uniformly drawn one (``explore`` > 0, in ``act``, not killed)."""
    return rails.explore > 0.0 and rails.mode == "act" and not rails.killed


def _learner_acts(rails: Rails) -> bool:
    """Whether every decision is the learner's own, as long as it can decide."""
    return rails.mode != "shadow" and not rails.killed and (rails.mode == "assist" or rails.share >= 1)


def _old_policy(learner: Any, answer: Answer | None) -> tuple[Label | None, float | None]:
    if answer is None or answer.arm is None:
        return None, None
    if answer.probabilities is None:
        return answer.arm, None
    return answer.arm, answer.probabilities[learner.arms.index(answer.arm)]
