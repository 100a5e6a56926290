"""What the dashboard knows about the recent past: counters and short lists, fed by the engine's fold.

Every event costs a few additions, whoever watches. Nothing here is part of the state that is replayed: it is this
server's memory, refilled at start-up from the last events of the log.
"""

from __future__ import annotations

import logging
import time
from array import array
from collections import Counter, OrderedDict, deque
from collections.abc import Iterable, Sequence
from itertools import chain
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from sidelight.errors import StoreError
from sidelight.labels import Label
from sidelight.linalg import Array
from sidelight.service.core.fold import Numbered, numbered
from sidelight.service.dashboard.window import ACTORS, Window, lateness
from sidelight.service.log.decision_id import DecisionId
from sidelight.service.log.events import (
    Action,
    Behavior,
    Configuration,
    Decisions,
    DefaultReward,
    Forgotten,
    GateStep,
    Release,
    Reward,
)
from sidelight.service.log.rows import event_from_row, is_deleted
from sidelight.service.log.store import Store

__all__ = ["Change", "Override", "Rewarded", "Rolling"]

logger = logging.getLogger("sidelight.service")

#: contexts over which estimates are averaged
_CONTEXTS = 256
#: rewards kept for subgroups: at most this many, with at most this many bytes of contexts
_REWARDS, _REWARD_BYTES = 10_000, 8_000_000
_NOBODY = -1
#: decision events whose route is remembered, to attribute rewards that come later
_ROUTES = 1 << 16
#: read at start-up to fill the windows: at most this many events and bytes, this many events per query
_FILL_EVENTS, _FILL_BYTES, _FILL_CHUNK = 5_000, 20_000_000, 100


class Override(NamedTuple):
    """An override: an arm that was taken instead of the one to take."""

    at: float
    decision: str
    arm: Label
    by: str


class Change(NamedTuple):
    """A change of who acts: what was set, and by whom."""

    at: float
    words: str
    by: str


class Rewarded:
    """The last rewards with their contexts, in arrays of a fixed size.

    Args:
        n_features: ``d``
    """

    def __init__(self, n_features: int) -> None:
        self.size = max(100, min(_REWARDS, _REWARD_BYTES // (8 * n_features)))
        self._contexts = np.empty((self.size, n_features))
        self._rewards = np.empty(self.size)
        self._actors = np.full(self.size, _NOBODY, dtype=np.int8)
        self._decisions = np.zeros((self.size, 2), dtype=np.int64)
        self._count = 0

    def add(self, decision: DecisionId, context: Array, reward: float, actor: int) -> None:
        """Append an entry; once the buffer is full the oldest is overwritten."""
        place = self._count % self.size
        self._contexts[place], self._rewards[place], self._actors[place] = context, reward, actor
        self._decisions[place] = decision[:2]
        self._count += 1

    def forget(self, decisions: Iterable[Iterable[int]]) -> None:
        """Drop what is kept about these decisions: their contexts were deleted on request."""
        # one pass over the buffer, however many decisions are forgotten: new decisions wait for it
        wanted = {tuple(place) for place in decisions}
        gone = [tuple(place) in wanted for place in self._decisions.tolist()]
        self._contexts[gone], self._actors[gone] = np.nan, _NOBODY

    def rows(self) -> tuple[Array, Array, NDArray[np.int8]]:
        """Contexts (n, d), rewards (n,) and who chose the arm (n,), as positions in ``ACTORS``."""
        kept = self._actors != _NOBODY
        return self._contexts[kept], self._rewards[kept], self._actors[kept]


class Rolling:
    """The recent past of one service.

    Args:
        arms: the learner's arms.
        n_features: ``d``
    """

    def __init__(self, arms: Iterable[Label], n_features: int) -> None:
        self.arms: dict[Label, int] = {arm: i for i, arm in enumerate(arms)}
        K = len(self.arms)
        self.minute = Window(5.0, 13, K)
        self.hour = Window(60.0, 61, K)
        self.day = Window(900.0, 97, K)
        self._windows = (self.minute, self.hour, self.day)
        self.rewarded = Rewarded(n_features)
        self.overrides: deque[Override] = deque(maxlen=8)
        self.changes: deque[Change] = deque(maxlen=8)
        #: decisions that were counted, and how many they were when all arms, and each of them, were last allowed
        self.decisions = 0
        self._all_allowed = 0
        self._last_allowed: dict[Label, int] = {}
        self._contexts = np.empty((_CONTEXTS, n_features))
        self._seen = 0
        self._forgotten: set[tuple[int, int]] = set()
        self._numbers = array("q", bytes(8 * _ROUTES))
        self._routes = bytearray(_ROUTES)
        self._mixed: OrderedDict[int, bytes] = OrderedDict()

    # --------------------------------------------------------------------------------------- writing

    def take(self, news: Iterable[Numbered]) -> None:
        """Update the rolling counters with events that were folded into the state."""
        # Most transactions bring many events of one decision each; they have one time, so they are counted together.
        together: list[Decisions] = []
        since = 0.0
        for number, at, event, context, _ in news:
            match event:
                case Decisions():
                    if at != since:
                        self._enter(since, together)
                        together, since = [], at
                    together.append(event)
                    self._remember(number, event.routes)
                case Reward():
                    self._reward(at, event, context)
                case Action():
                    self._note(at, answers=event.answer, overrides=event.override)
                    if event.override:
                        self.overrides.append(Override(at, str(event.decision), event.arm, event.by))
                case Release():
                    if isinstance(event.released, Reward):
                        self._worth(at, event.released, context)
                case Behavior():
                    self._note(at, answers=True)
                case Configuration():
                    self._configuration(at, event)
                case GateStep():
                    self._gate_step(at, event)
                case DefaultReward():
                    for window in self._windows:
                        if (slot := window.slot(at)) is not None:
                            window.add(slot, "defaults")
                case Forgotten():
                    self._enter(since, together)
                    together = []
                    self._forget(event)
        self._enter(since, together)

    def _forget(self, event: Forgotten) -> None:
        # a reward that was being written when its decision was forgotten may still carry the context
        self._forgotten.update((number, position) for number, position in event.decisions)
        self.rewarded.forget(event.decisions)
        # the mean context is restarted, since the forgotten ones cannot be taken out of it; new decisions fill it again
        self._contexts.fill(0.0)
        self._seen = 0

    def _index(self, arm: Label) -> int:
        found = self.arms.get(arm)
        if found is None:
            found = self.arms[arm] = len(self.arms)
            for window in self._windows:
                window.grow(len(self.arms))
        return found

    def last_allowed(self, arm: Label) -> int:
        """How many decisions had been counted when an arm was last allowed; 0 where it never was."""
        return max(self._all_allowed, self._last_allowed.get(arm, 0))

    def _enter(self, at: float, together: Sequence[Decisions]) -> None:
        """Count decisions of one moment."""
        if not together:
            return
        routes: Counter[str] = Counter()
        # in shadow the arm to take is None here, unless the request told the old policy's arm
        arms: dict[str, Counter[Label | None]] = {"taken": Counter(), "recommended": Counter()}
        asked = answers = failures = 0
        for event in together:
            self.decisions += len(event.recommended)
            if event.allowed is None or None in event.allowed:
                self._all_allowed = self.decisions
            else:
                for allowed in event.allowed:
                    self._last_allowed.update(dict.fromkeys(allowed or (), self.decisions))
            asked += event.asked.count(True)
            if event.answers is not None:
                answers += len(event.answers) - event.answers.count(None)
            if None in event.estimates:
                # an estimate is also None where the context was deleted: that is not a failure of the learner
                pairs = zip(event.estimates, event.contexts, strict=True)
                failures += sum(estimate is None and not is_deleted(x) for estimate, x in pairs)
        routes.update(chain.from_iterable(event.routes for event in together))
        arms["taken"].update(chain.from_iterable(event.arms for event in together))
        arms["recommended"].update(chain.from_iterable(event.recommended for event in together))
        for window in self._windows:
            slot = window.slot(at)
            if slot is None:
                continue
            window.add(slot, "decisions", routes.total())
            window.add(slot, "asked", asked)
            window.add(slot, "answers", answers)
            window.add(slot, "failures", failures)
            for route, n in routes.items():
                window.add(slot, "decided:" + route, n)
            for kind, counts in arms.items():
                for arm, n in counts.items():
                    if arm is not None:
                        window.add_arm(slot, kind, self._index(arm), n)
        last = np.concatenate([event.contexts for event in together[-_CONTEXTS:]])[-_CONTEXTS:]
        last = last[~np.isnan(last).all(axis=1)]  # without those that were deleted
        self._contexts[(self._seen + np.arange(len(last))) % _CONTEXTS] = last
        self._seen += len(last)

    def _remember(self, number: int, routes: list[str]) -> None:
        place = number % _ROUTES
        self._numbers[place] = number
        self._routes[place] = ACTORS.index(routes[0])
        if len(routes) > 1 and len(set(routes)) > 1:
            self._mixed[number] = bytes(map(ACTORS.index, routes))
            if len(self._mixed) > 1000:
                self._mixed.popitem(last=False)

    def _actor(self, decision: DecisionId, by: str) -> int:
        """Who chose the arm that was taken."""
        if by != "service":
            return ACTORS.index(by)
        mixed = self._mixed.get(decision.number)
        if mixed is not None:
            return mixed[decision.position]
        place = decision.number % _ROUTES
        # a decision older than those remembered is attributed to the learner, which is right but for rare exceptions
        return self._routes[place] if self._numbers[place] == decision.number else 0

    def _reward(self, at: float, event: Reward, context: Array | None) -> None:
        actor = self._actor(event.decision, event.by)
        name, arm = ACTORS[actor], self._index(event.arm)
        for window in self._windows:
            slot = window.slot(at)
            if slot is not None:
                window.add(slot, "rewards:" + name)
                window.add_arm(slot, "rewarded", arm)
                if event.waited_until is not None:
                    window.add(slot, "late:" + lateness(at - event.waited_until))
        if event.override or event.answer:
            self._note(at, answers=event.answer, overrides=event.override)
        if event.override:
            self.overrides.append(Override(at, str(event.decision), event.arm, event.by))
        if event.quarantine is None:
            self._worth(at, event, context)

    def _worth(self, at: float, event: Reward, context: Array | None) -> None:
        """Count a reward in the means; quarantined ones only once released, since one outlier can dominate a mean."""
        actor = self._actor(event.decision, event.by)
        for window in self._windows:
            if (slot := window.slot(at)) is not None:
                window.add(slot, "worth:" + ACTORS[actor])
                window.add(slot, "sums:" + ACTORS[actor], event.reward)
        if context is not None and context[0] == context[0] and event.decision[:2] not in self._forgotten:
            self.rewarded.add(event.decision, context, event.reward, actor)

    def _note(self, at: float, *, answers: bool = False, overrides: bool = False) -> None:
        for window in self._windows:
            slot = window.slot(at)
            if slot is not None:
                window.add(slot, "answers", answers)
                window.add(slot, "overrides", overrides)

    def _configuration(self, at: float, event: Configuration) -> None:
        words = []
        if event.mode is not None:
            words.append(f"mode {event.mode}")
        if event.share is not None:
            words.append(f"ramp {100.0 * event.share:.4g}\u00a0%")
        if event.fallback is not None:
            words.append(f"fallback {event.fallback}")
        if event.killed is not None and (event.killed or event.source != "file"):
            words.append("kill switch on" if event.killed else "kill switch off")
        if words:
            self.changes.append(Change(at, ", ".join(words), event.by or "the configuration file"))

    def _gate_step(self, at: float, event: GateStep) -> None:
        words = []
        if event.before != event.after:
            words += [] if event.mode is None else [f"mode {event.mode}"]
            where = f"rung {event.after + 1}" if event.after >= 0 else "off the ladder"
            words.append(f"ramp {100.0 * event.share:.4g}\u00a0% ({where})")
        if event.held is not None:
            words.append("gate held" if event.held else "gate let go")
        if words:
            self.changes.append(Change(at, ", ".join(words), event.by or "the gate"))

    # --------------------------------------------------------------------------------------- reading

    def rate(self, name: str, now: float) -> float:
        """Decisions or rewards per minute, averaged over the last minute."""
        return 60.0 * self.minute.total(name, now) / self.minute.seconds(now)

    def mean_context(self) -> tuple[Array, int] | None:
        """The mean of the last contexts, and how many they are; None before the first.

        Each feature's mean is over the contexts that have a value; NaN (a gap) where none has.
        """
        n = min(self._seen, _CONTEXTS)
        if n == 0:
            return None
        gone = np.isnan(self._contexts[:n])
        there = (~gone).sum(axis=0)
        sums = np.where(gone, 0.0, self._contexts[:n]).sum(axis=0)
        return np.where(there > 0, sums / np.maximum(there, 1), np.nan), n

    def last_contexts(self) -> Array:
        """(n, d)  The last contexts, at most 256, in no order."""
        return self._contexts[: min(self._seen, _CONTEXTS)]

    # -------------------------------------------------------------------------------------- starting

    def fill(self, store: Store, upto: int, n_features: int, now: float | None = None) -> None:
        """Take in the last events of the log, as many as are cheap to read."""
        oldest = (time.time() if now is None else now) - self.day.step * self.day.slots
        chunks: list[list[Numbered]] = []
        after, read, size = upto, 0, 0
        try:
            while after > 0 and read < _FILL_EVENTS and size < _FILL_BYTES:
                start = max(after - _FILL_CHUNK, 0)
                rows = [row for row in store.read(start, after) if row.at >= oldest]
                if not rows:
                    break
                chunks.append(list(numbered(store, rows, n_features)))
                size += sum(len(row.payload) + len(row.contexts or b"") for row in rows)
                after, read = start, read + len(rows)
            # changes of mode or share are rare, and the last ones are shown however old they are
            for row in store.configurations()[-8:]:
                event = event_from_row(row, n_features)
                if row.number <= after and isinstance(event, Configuration):
                    self._configuration(row.at, event)
        except StoreError as error:
            read = sum(map(len, chunks))
            logger.warning("the dashboard starts with the last %d events only, more cannot be read: %s", read, error)
        for chunk in reversed(chunks):
            self.take(chunk)
