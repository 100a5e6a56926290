"""What callers and operators do in a run, and what they were told."""

from __future__ import annotations

from typing import Any

import numpy as np

from sidelight.service.core.deciding import Ask
from sidelight.service.core.engine import Engine, Noted
from sidelight.service.log.decision_id import DecisionId
from sidelight.service.log.events import Answer, Configuration
from sidelight.service.problems import Problem
from tests.simulation.world import Ack, Decided, World

#: beyond the bounds of every service that is simulated
WILD = 1000.0


class Run(World):
    """One run, with all that happens in it."""

    # --------------------------------------------------------------------------------- decisions

    def _context(self) -> tuple[np.ndarray, float]:
        marker = float(next(self._marks))
        x = np.array([1.0, marker / 1000, self.rng.normal(), 0.0, 0.0, self.rng.normal(), self.rng.normal()])
        self.contexts[marker] = x
        return x, marker

    async def do_decide(self, draw: float) -> None:
        n = 1 if draw < 0.7 else 3
        made = [self._context() for _ in range(n)]
        if draw * 100 % 1 < 0.1:
            made[-1][0][2] = WILD
        X = np.array([x for x, _ in made])
        subject = f"s{int(draw * 1000) % 3}" if draw > 0.4 else None
        answer = Answer("mid") if draw * 10 % 1 < 0.3 else None
        asks = None if subject is None and answer is None else [Ask(subject=subject, answer=answer)] * n
        key = f"once:k{made[0][1]}"
        history: list[int] = []

        async def decide(engine: Engine) -> Any:
            fold = engine.committer._fold if engine.committer is not None else None
            number, event, new = await engine.decide(X, asks, key, key)
            history.append(len(self.losses))
            return number, event, fold if new else None

        found = await self.good("decide", decide)
        if isinstance(found, Problem):
            # where the log has lost the decision, whoever misuses keys may have been faster than the retry
            if found.kind != "key-reused" or not self.losses:
                self.complaints.append(f"decide: {found.kind}: {found.detail}")
        elif found is not None:
            number, event, fold = found
            for i, (_, marker) in enumerate(made):
                id = DecisionId(number, i, event.epoch)
                self.acks.append(Ack("decision", number, id, history[-1], (marker, key, event.arms[i]), fold))
                self.decided.append(Decided(id, marker, key, event.routes[i], history[-1]))
                if event.quarantine is not None and event.quarantine[i] is not None:
                    self.kept.append((id, history[-1]))

    async def decide_at_last(self, engine: Engine) -> None:
        x, marker = self._context()
        number, event, _ = await engine.decide(x[None], None, f"once:k{marker}", "last")
        id = DecisionId(number, 0, event.epoch)
        value = (marker, f"once:k{marker}", event.arms[0])
        self.acks.append(Ack("decision", number, id, len(self.losses), value))

    def _some(self, draw: float) -> Decided | None:
        return self.decided[int(draw * len(self.decided))] if self.decided else None

    # ------------------------------------------------------------------------ what is told about them

    async def _refer(self, what: str, made: Decided, call: Any, value: Any) -> None:
        history: list[int] = []

        async def send(engine: Engine) -> Noted:
            found = await call(engine)
            history.append(len(self.losses))
            return found

        found = await self.good(what, send)
        if isinstance(found, Problem):
            if found.kind == "unknown-decision" and self.losses:
                return
            if found.kind == "conflict" and (what != "reward" or made.rewarded is not None):
                return
            self.complaints.append(f"{what} of {made.id}: {found.kind}: {found.detail}")
        elif found is not None:
            self.acks.append(Ack(what, found.number, made.id, history[-1], value))
            if found.quarantine is not None:
                self.kept.append((DecisionId(found.number, 0, made.id.epoch), history[-1]))

    async def _reward(self, made: Decided, base: float) -> None:
        if made.rewarded is None:
            made.rewarded = base + next(self._marks) / 1_000_000
            self.intended[made.rewarded] = made
        value = made.rewarded
        await self._refer("reward", made, lambda e: e.reward(made.id, value, "low", None), value)

    async def do_reward(self, draw: float) -> None:
        made = self._some(draw)
        if made is not None:
            # In some runs the learner earns more than the old policy, in others less: gates go up and down.
            gain = 0.4 * np.sin(self.plan.seed)
            await self._reward(made, 0.5 + (gain if made.route == "learner" else -gain))

    async def do_wild(self, draw: float) -> None:
        """A slip of a keyboard."""
        made = self._some(draw)
        if made is not None:
            await self._reward(made, WILD)

    async def do_late(self, draw: float) -> None:
        """The reward of a decision that the log has lost since."""
        old = [made for made in self.decided if made.history < len(self.losses)]
        if old:
            await self._reward(old[int(draw * len(old))], 0.5)

    async def do_again(self, draw: float) -> None:
        """A reward that was given before, given once more."""
        rewarded = [made for made in self.decided if made.rewarded is not None]
        if rewarded:
            made = rewarded[int(draw * len(rewarded))]
            await self._refer("reward", made, lambda e: e.reward(made.id, made.rewarded, "low", None), made.rewarded)

    async def do_answer(self, draw: float) -> None:
        made = self._some(draw)
        if made is not None:
            await self._refer("answer", made, lambda e: e.behavior(made.id, Answer("mid")), None)

    async def do_action(self, draw: float) -> None:
        made = self._some(draw)
        if made is not None:
            await self._refer("action", made, lambda e: e.action(made.id, "low", "person"), None)

    async def do_answer_at(self, draw: float) -> None:
        x, marker = self._context()
        if draw < 0.2:
            x[2] = WILD
        key = f"once:k{marker}"
        found = await self.good("answer_at", lambda e: e.behavior_at(x, Answer("high"), key, key))
        if isinstance(found, Problem):
            self.complaints.append(f"answer_at: {found.kind}: {found.detail}")

    async def do_misuse(self, draw: float) -> None:
        """A caller that uses keys of other requests, and asks for what makes a proposal fail."""
        made = self._some(draw)
        x, marker = self._context()
        key = "first" if made is None else made.key
        if draw < 0.4:
            call = lambda e: e.behavior_at(x, Answer("high"), key, "other")  # noqa: E731
        elif draw < 0.7:
            call = lambda e: e.decide(x[None], None, key, "other")  # noqa: E731
        else:
            call = lambda e: e.decide(x[None], [Ask(subject="\ud800")], f"once:bad{marker}", "x")  # noqa: E731
        try:
            found = await self.call(call, tries=2)
        except Problem as problem:
            if problem.kind not in ("key-reused", "storage"):
                self.complaints.append(f"misuse: {problem.kind}")
        except Exception as error:
            if not isinstance(error, UnicodeError):
                self.complaints.append(f"misuse: {error!r}")
        else:
            if found is not None and draw >= 0.4 and self._lives(made):
                self.complaints.append("misuse: a key that stands for another request was taken")

    def _lives(self, made: Decided | None) -> bool:
        """Whether the log surely has the decision, and what tells a retry from another request."""
        return made is not None and not self.losses and not self.forgotten

    # ------------------------------------------------------------------------------------- operators

    async def _decree(self, what: str, call: Any, value: Any, allowed: tuple[str, ...]) -> None:
        """What a person decides: acknowledged, or refused for a reason of its own."""
        history: list[int] = []

        async def send(engine: Engine) -> Noted:
            found = await call(engine)
            history.append(len(self.losses))
            return found

        found = await self.good(what, send)
        if isinstance(found, Problem):
            if found.kind not in allowed and not (found.kind.startswith("unknown") and self.losses):
                self.complaints.append(f"{what}: {found.kind}: {found.detail}")
        elif found is not None:
            self.acks.append(Ack(what, found.number, None, history[-1], value))

    async def do_review(self, draw: float) -> None:
        """A person looks at what is in quarantine."""
        if self.kept:
            id, _ = self.kept[int(draw * len(self.kept))]
            release = draw * 100 % 1 < 0.6
            what = "release" if release else "retraction"
            await self._decree(
                what, lambda e: e.reviews.decide_doubt(id, release, "somebody", None), id[:2], ("conflict",)
            )

    async def do_retract(self, draw: float) -> None:
        """A person takes back what the learner was taught."""
        told = [made for made in self.decided if made.rewarded is not None]
        if told:
            made = told[int(draw * len(told))]
            what = "reward" if draw * 100 % 1 < 0.7 else "action"
            await self._decree(
                "retraction", lambda e: e.reviews.retract(made.id, "somebody", None, what), None, ("conflict",)
            )

    async def do_rung(self, draw: float) -> None:
        """A person moves the gate, holds it or lets it go."""
        after = None if draw < 0.3 else int(draw * 10) % 3 - 1
        held = None if draw * 100 % 1 < 0.5 else draw * 100 % 1 < 0.7
        await self._decree("gate", lambda e: e.reviews.step(after, held, "somebody"), None, ("conflict",))

    async def _configure(self, event: Configuration) -> None:
        found = await self.good("configure", lambda e: e.configure(event))
        if isinstance(found, Problem):
            self.complaints.append(f"configure: {found.kind}: {found.detail}")

    async def do_kill(self, draw: float) -> None:
        await self._configure(Configuration(killed=draw < 0.6, by="somebody"))

    async def do_share(self, draw: float) -> None:
        share = 0.0 if draw < 0.3 else 0.5 if draw < 0.5 else 1.0
        await self._configure(Configuration(share=share, by="somebody"))

    async def do_mode(self, draw: float) -> None:
        mode = "shadow" if draw < 0.2 else "assist" if draw < 0.4 else "act"
        explore = 0.2 if draw * 100 % 1 < 0.3 else None
        await self._configure(Configuration(mode=mode, explore=explore, by="somebody"))
