"""How a fused learner decides: by the highest index, with trials in doubt of the logs, and under a floor."""

from __future__ import annotations

import hashlib
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sidelight.errors import InputError
from sidelight.learners.arguments import permitted
from sidelight.learners.awaiting import NOTHING, Guess, Key
from sidelight.learners.base import BaseLearner
from sidelight.learners.fused.trust import Trusting
from sidelight.learners.ledger import FloorLedger
from sidelight.learners.protocol import Allowed, Context, Decision, DecisionColumns
from sidelight.linalg import Array, apply, product, square

__all__ = ["Choosing"]


class Choosing(Trusting):
    """The part of ``FusedOFUL`` that decides.

    Attributes:
        safety: the share of the learner's own uncertainty that trials in doubt of the logs may seem to cost.
        ledger: the account of the floor; None where there is none.
    """

    ledger: FloorLedger | None

    def decide(
        self, x: Context, allowed: Allowed = None, rng: np.random.Generator | None = None, default: Any = None
    ) -> Decision:
        """The arm of highest index; now and then, where it seems to cost little, an arm that few rounds have tested.

        An arm that the log wrongly makes look bad would otherwise never be tried, and the error never detected. Such a
        trial is considered where ``(1 + rounds of the arm)^{3/2} · (seeming cost here)`` is at most ``safety/K`` of the
        widths paid so far: an arm's n-th trial seems to cost at most ``safety/(K n^{3/2})`` of the learner's own
        uncertainty. Rounds count as far as they could have told a lie of the log from the truth (``FusedLog.tested``),
        which many do not where hidden weights are open; at most ``safety/(K n^{1/2})`` is paid for such a trial.
        The first trial of an arm may cost more: the arms that were never played share the budget of all
        (``fused.trust.first_trials``).
        Of a log that was wrong about one arm the others are tried more readily; arms no log speaks about are not.

        Args:
            x: the full context, in the schema's order or by feature name.
            allowed: labels of the arms that may be taken here.
            rng: tosses the coin of such a round; default the learner's own.  Without either the context itself does, so
                a repeated question has the same answer.
            default: the old policy's arm here, which is taken where the floor permits no other; needed under a floor,
                ignored without one.
        """
        if self.ledger is not None:
            still = self._still()
            wanted, arm, propensity = still.decide_under(still.ledger, x, default, allowed, rng)
            if arm == wanted.arm:
                return wanted._replace(propensity=propensity)
            estimates, widths = still.scores(x)
            a = still._arm(arm)
            return Decision(arm, self._shown(float(estimates[a])), float(widths[a]), propensity)
        source = self.rng if rng is None else rng
        return self._decide_freely(self._read(x), permitted(allowed), source)[0]

    def _decide_freely(
        self, context: Array, allowed: list[Any] | None, rng: np.random.Generator | None
    ) -> tuple[Decision, list[int]]:
        """The decision without a floor, and the positions among which a fair coin chose (one where it did not).

        context: (d,)  NaN where it has gaps
        """
        whole = self.gaps is None or not np.isnan(context).any()
        plain = allowed is None and whole and self.compiled_scores and self.settings.radius != "theory"
        # a consistent view: other threads may add an arm meanwhile
        held, still = self._held, self if plain else self._still()
        if plain:
            a, estimate, width, doubted = self._choose_or_doubt(held, context)
        else:
            mask = still._mask(allowed)
            a, estimate, width, doubted = still._choose_among(context, mask)
        if self._doubt > 0.0 and rng is not None:
            draw = float(rng.random())  # one per decision, so that a run depends on nothing but its seed
        trial = doubted >= 0 and (self._draw_from(context) if rng is None else draw) < 0.5
        if doubted < 0:
            return Decision(self.arms[a], self._shown(estimate), width, 1.0), [a]
        if not trial:
            return Decision(self.arms[a], self._shown(estimate), width, 0.5), [a, doubted]
        estimates, widths = self._scores_by(held, context) if plain else still.scores(context)
        shown = self._shown(float(estimates[doubted]))
        return Decision(self.arms[doubted], shown, float(widths[doubted]), 0.5), [a, doubted]

    def propensities(self, x: Context, allowed: Allowed = None) -> Array:
        """(K,)  The chance with which ``decide`` takes each arm at ``x`` where no floor holds it back."""
        still = self._still()
        candidates = still._decide_freely(self._read(x), permitted(allowed), None)[1]
        out = np.zeros(still.n_arms)
        out[candidates] = 1.0 / len(candidates)
        return out

    # ------------------------------------------------------------------------------------- the floor

    def _default(self, default: Any, allowed: list[Any] | None) -> int:
        if default is None:
            raise InputError("Under a floor decide needs the old policy's arm at this context: decide(x, default=arm).")
        if allowed is not None and default not in allowed:
            raise InputError(
                f"The old policy's arm {default!r} is not among the allowed arms, so the floor could not fall back to "
                "it: allow it here, or decide without this learner."
            )
        return self._arm(default)

    def decide_under(
        self,
        ledger: FloorLedger | None,
        x: Context,
        default: Any = None,
        allowed: Allowed = None,
        rng: np.random.Generator | None = None,
    ) -> tuple[Decision, Any, float]:
        """A decision by another account of the floor than the learner's own, or by none.

        For a service, in which decisions are under way that the learner has not been told of yet.

        Args:
            ledger: the account (see :meth:`FloorLedger.ahead`); None decides freely.
            x: the full context.
            default: the old policy's arm here, needed with a ledger.
            allowed: labels of the arms that may be taken here.
            rng: tosses coins; see :meth:`decide`.

        Returns:
            What the learner would do freely; the arm to take, which is the old policy's where the floor does not permit
            that; and the chance of that arm.
        """
        context, labels = self._read(x), permitted(allowed)
        old = None if ledger is None else self._default(default, labels)
        wanted, candidates = self._decide_freely(context, labels, self.rng if rng is None else rng)
        if ledger is None or old is None:
            return wanted, wanted.arm, wanted.propensity
        taken = [a if ledger.permits(context, a, old) else old for a in candidates]
        chosen = taken[candidates.index(self._arm(wanted.arm))]
        return wanted, self.arms[chosen], taken.count(chosen) / len(taken)

    def record_decision(self, x: Context, arm: Any, default: Any = None, *, decision: Key | None = None) -> None:
        """Under a floor: ``arm`` was taken at ``x``, where the old policy would have taken ``default``.

        Decisions whose rewards are still under way must count, so a decision is recorded when it is taken, apart from
        its reward; and rewards count for the floor in the order in which decisions were recorded, each once all before
        it are in. Without a floor this does nothing.

        Args:
            x: the full context; ``observe`` finds the decision by it.
            arm: the arm to take; None where that is not known yet, and ``default`` is None.
            default: the old policy's arm; None for a round that the learner did not decide, which risks nothing and
                whose reward tells about its arm.
            decision: a name of two whole numbers by which :meth:`settle_decision` finds it instead.
        """
        if self.ledger is None:
            return
        context, index = self._context(x), None if arm is None else self._arm(arm)
        if default is not None:
            self.ledger.record(context, self._arm(arm), self._arm(default))
        guess = NOTHING if index is None else self._expected(context, index)
        self.ledger.expect(context, index, guess, decision)

    def settle_decision(self, decision: Key, arm: Any, reward: float) -> None:
        """Under a floor: a decision that was recorded with a name took ``arm`` and brought ``reward``.

        For the floor alone; ``observe`` teaches the learner.
        """
        if self.ledger is not None:
            self.ledger.settle(decision, self._arm(arm), reward)

    def _expected(self, x: Array, index: int) -> Guess:
        """``x·ŵ`` of an arm and its variance ``σ²‖x‖²_{V⁻¹}``: what a floor may expect of a reward before it comes."""
        y = x[self.reduction.order]
        spread = float(product(y, apply(self.covariances[index], y)))
        return float(product(self.weights[index], y)), square(float(self.noises[index])) * spread

    @property
    def _doubt(self) -> float:
        """The largest estimated cost of one arm's trials, as a share of ``spent``."""
        return self.safety / self.n_arms

    def _decide_rows(self, X: Array, rng: np.random.Generator | None) -> DecisionColumns:
        if self.ledger is not None:
            raise InputError(
                "Under a floor every decision depends on those before it and needs the old policy's arm: decide one by "
                "one, decide(x, default=arm), and record each with record_decision."
            )
        if not self.compiled_scores or self.settings.radius == "theory":
            return BaseLearner._decide_rows(self, X, rng)
        rng = self.rng if rng is None else rng
        still = self._still()
        (chosen, doubted), scores = still._choose_rows(X, still._doubt * float(still.spent[0]))
        propensities = np.where(doubted >= 0, 0.5, 1.0)
        draws = rng.random(len(X)) if rng is not None and self._doubt > 0.0 else None
        for t in np.flatnonzero(doubted >= 0):
            if (self._draw_from(X[t]) if draws is None else draws[t]) < 0.5:
                a = chosen[t] = doubted[t]
                scores[:, t] = [values[a] for values in still._scores(X[t])]
        return still._columns(chosen, scores, propensities.tolist())

    def _reluctance(self) -> Array:
        """How readily each arm is tried: as the log it rests on has deserved; never where it rests on none."""
        readiness = np.zeros(self.n_arms)
        for log in self.logs:
            readiness[log.arms] = np.maximum(readiness[log.arms], log.readiness())
        with np.errstate(divide="ignore"):
            return np.asarray(1.0 / (readiness * self.untested))

    def _choose_among(self, x: Array, mask: NDArray[np.bool_]) -> tuple[int, float, float, int]:
        """``choose_among`` restricted to some arms."""
        estimates, widths = self.scores(x)
        index = np.where(mask, estimates + widths, -np.inf)
        a = int(index.argmax())
        reluctance = self._reluctance()
        possible = mask & np.isfinite(reluctance)
        often = (1.0 + self.counts) * np.sqrt(1.0 + self.counts) * np.where(possible, reluctance, 1.0)
        cost = np.where(possible, (index[a] - estimates) * often, np.inf)
        cost[a] = np.inf
        doubted = int(cost.size - 1 - cost[::-1].argmin())
        limit = self._doubt * float(self.spent[0])
        if not (limit > 0.0 and cost[doubted] <= limit):
            doubted = -1
        return a, float(estimates[a]), float(widths[a]), doubted

    def _draw_from(self, x: Array) -> float:
        """A number in [0, 1) that depends on the context and the rounds so far alone."""
        # mantissas alone: a unit that is a power of two times another tosses the same coin
        digest = hashlib.blake2b(np.frexp(x)[0].tobytes() + self.counts.sum().tobytes(), digest_size=8).digest()
        return int.from_bytes(digest, "little") / 2.0**64

    def _draws(self, n: int, rng: np.random.Generator) -> Array:
        return rng.random(n) if self._doubt > 0.0 else super()._draws(n, rng)
