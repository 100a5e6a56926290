"""The gate: more traffic for the learner, one rung of a ladder at a time, on anytime-valid evidence.

A part of the fold: every method is a deterministic function of what came before, so a replay has the same verdicts to
the bit. What a rung estimates is the *average over its units* of what the learner, as it then was, earns more than the
old policy; the score of a unit and its confidence sequence are ``judging.shared_traffic``.

- A **unit** is what is randomised: a subject, who enters a rung once with the first decision about them, or a request
  without a subject. Each rung draws routes with a salt of its own.
- Units enter the evidence **in the order of their decisions, once their wait is over**: a reward came, or the wait for
  it ended and the default reward counts. Later corrections reach the learner, not the evidence.
- Every rung has a fresh sequence. Ladders that follow each other share the error rate (``mostly_first``), promotions
  share a ladder's part evenly over its rungs, and the visits to one rung share its part (``mostly_first`` again); the
  j-th rung that is ever entered may spend ``6α/(π²j²)`` on a false demotion. So any number of steps up and down, by the
  gate or by persons, on any number of ladders, spends ``α`` on each side (the largest that was ever set).
- Below the ladder, while the old policy acts or a person decides, the rows of the old policy are the evidence
  (``shadowing``). With chances that the old policy told it may prove enough for the first rung; with estimated ones it
  may suggest, never promote; where the rows cannot tell, it asks for the first randomised share.
- At the top a **holdout** stays with the old policy, or nothing could be tested there.
- Evidence is kept with ``promote = "off"`` too, and at shares that are on no rung; then no step follows from it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from sidelight.arrays import Array
from sidelight.errors import InputError
from sidelight.judging.sequences import LARGEST_SCORE, AsymptoticSequence, mostly_first, spent
from sidelight.judging.shared_traffic import Comparison, SampleRatio
from sidelight.service.core.entering import InOrder
from sidelight.service.core.ladder import GateSettings, Step
from sidelight.service.core.shadowing import Shadow
from sidelight.service.core.trail import Trail

__all__ = ["Gate", "Unit"]

#: the chance of ever calling the routes' shares wrong where they are right
RATIO_ERROR = 0.001


@dataclass
class Unit:
    """One unit that waits for its reward.

    Attributes:
        number, position: of its decision.
        treated: whether the learner decided.
        share: the chance of that.
        reward: what came; None while it waits.
    """

    number: int
    position: int
    treated: bool
    share: float
    reward: float | None = None

    @property
    def settled(self) -> bool:
        """Whether a reward came, or the wait for it is over."""
        return self.reward is not None


class Gate:
    """The ladder, the learner's rung on it, and the evidence gathered there.

    Args:
        settings: the rules of the ladder.
        rung: where it starts; −1 is below the ladder.
        tests: how many rungs were ever entered, this one included.
        share: the learner's share of traffic where that is on no rung.
    """

    def __init__(self, settings: GateSettings, rung: int = -1, tests: int = 0, share: float = 0.0) -> None:
        self.settings = settings
        self.held = False
        self.tests = tests
        #: how many ladders there were, this one included; those without evidence do not count
        self._ladders = 1
        #: how often evidence was begun on each rung (−1: from the old policy's rows, or at a share on no rung), and how
        #: often the learner was tested for being worse; what had no unit does not count
        self._visits: Counter[int] = Counter()
        self.rung = rung
        self._demotions = 0
        self.units = 0
        self.promotion: Comparison | None = None
        self.demotion: Comparison | None = None
        self.waiting = InOrder[Unit]()
        self.enter(rung, share)

    @classmethod
    def at_share(cls, settings: GateSettings, share: float) -> Gate:
        """A gate on the rung that has this share of traffic; outside the ladder where none has."""
        return cls(settings, settings.rung_of(share), share=share)

    def follow(self, share: float, mode: str) -> None:
        """Continue from the rung of a share that was set, with fresh evidence if share or mode have changed."""
        if share != self.share or (self.shadow is not None and self.shadow.mode != mode):
            self.enter(self.settings.rung_of(share), share)

    def configure(self, settings: GateSettings, share: float) -> None:
        """Other settings, and perhaps another share of traffic.

        Evidence goes on where its error rate, the shares and the draws of subjects stay as they were; what was spent of
        the error rate, and a hold, stay in any case: another ladder has a smaller part of it to spend.
        """
        before, self.settings = self.settings, settings
        same = all(getattr(before, name) == getattr(settings, name) for name in ("ladder", "error_rate", "holdout"))
        if same and before.on == settings.on and share == self.share:
            return
        self._leave()
        if not same and any(self._visits.values()):
            self._ladders += 1
            self._visits.clear()
        self.enter(settings.rung_of(share), share)

    def enter(self, rung: int, share: float = 0.0) -> None:
        """Go on from a rung, with evidence of its own.

        ``share`` is the learner's share of traffic outside the ladder, where ``rung`` is −1.
        """
        if not -1 <= rung < len(self.settings.ladder):
            raise InputError(f"there is no rung {rung} on a ladder of {len(self.settings.ladder)}.")
        self._leave()
        self.rung = rung
        self.share = self.settings.share_of(rung) if rung >= 0 else share
        self.units = 0
        #: units whose reward is too large for any evidence; a single one ends the verdicts of this rung
        self.unusable = 0
        # without a ladder all shares use the same salt, so a subject that entered again would get the same draw
        self.waiting = InOrder(subjects=None if self.settings.on else self.waiting.subjects)
        self.ratio: SampleRatio | None = None
        self.shadow: Shadow | None = None
        self.trail = Trail()
        if 0.0 < self.share < 1.0:
            self.tests += 1
            self.promotion = Comparison(AsymptoticSequence(self._visit(rung)))
            self._demotions += 1
            self.demotion = Comparison(AsymptoticSequence(spent(self.settings.error_rate, self._demotions)))
            self.ratio = SampleRatio(self.share)

    def _leave(self) -> None:
        """End the evidence of this rung: a visit without units has spent nothing."""
        if self.promotion is not None and not self.units:
            self._visits[self.rung] -= 1
            self._demotions -= 1
        self.promotion = self.demotion = None

    def _visit(self, rung: int) -> float:
        """The error probability that one more visit to a rung may spend on a false promotion."""
        self._visits[rung] += 1
        of_ladder = mostly_first(self.settings.error_rate, self._ladders)
        return mostly_first(of_ladder / len(self.settings.ladder), self._visits[rung])

    def look_on(self, mode: str, arms: Sequence[Any], n_features: int) -> None:
        """The old policy acts (``shadow``), or a person decides (``assist``): gather evidence from their rows.

        The last rung has no promotion to spend its part of the error rate on, so the first one may have it here.
        """
        if self.shadow is None or self.shadow.mode != mode:
            self.shadow = Shadow(mode, arms, n_features, self._visit(-1))

    @property
    def salt(self) -> str:
        """The salt of the subjects' draws: another one for every rung that is entered.

        Empty without a ladder, so that a person who raises the share by hand keeps everybody who was on the new route.
        """
        return f"rung {self.tests}" if self.settings.on else ""

    # ------------------------------------------------------------------------------------- what happens

    def decided(self, number: int, position: int, treated: bool, share: float, subject: str | None = None) -> bool:
        """Enter a decision whose route was drawn with probability ``share``; returns whether it became a unit."""
        if self.promotion is None or not 0.0 < share < 1.0 or not self.waiting.admits(subject):
            return False
        self.waiting.enter(Unit(number, position, treated, share), subject)
        self.units += 1
        if self.ratio is not None and share == self.ratio.share:
            self.ratio.observe(treated)
        return True

    def settled(self, number: int, position: int, reward: float, arm: Any = None, x: Array | None = None) -> None:
        """The reward of a decision came, or the wait for it ended with the default reward; the first of them counts.

        ``arm`` is the one that was taken and ``x`` (d,) the context; None where nobody knows.
        """
        if self.shadow is not None:
            self.shadow.settled(number, position, reward, arm, x)
        unit = self.waiting.find(number, position)
        if unit is None or unit.settled:
            return
        unit.reward = reward
        for done in self.waiting.leave():
            assert self.promotion is not None
            assert self.demotion is not None
            assert done.reward is not None
            score: float | None = None
            if self.promotion.begun:
                score = self.promotion.score(done.treated, done.share, done.reward)
            if not abs(done.reward if score is None else score) < LARGEST_SCORE:
                self.unusable += 1
                continue
            # both have seen the same units, so the score is the same
            self.promotion.add(score, done.treated, done.share, done.reward)
            self.demotion.add(score, done.treated, done.share, done.reward)
            if self.promotion.ready:
                self.trail.add(self.promotion.sequence, self.demotion.sequence)

    def abandon(self) -> None:
        """Drop all units that wait, because their waits never end: only later decisions get a default reward.

        All of them, rewarded or not: which units are left out must not depend on their rewards.
        """
        self.units -= len(self.waiting)
        self.waiting.abandon()
        if self.shadow is not None:
            self.shadow.abandon()

    def forget(self, decisions: Collection[tuple[int, int]]) -> None:
        """Delete the subjects of these decisions (number, position); a subject that comes back enters again."""
        self.waiting.forget(decisions)
        if self.shadow is not None:
            self.shadow.forget(decisions)

    def hold(self, held: bool) -> None:
        """Stop promotions, or allow them again."""
        self.held = held

    # ---------------------------------------------------------------------------------------- verdicts

    def evidence(self) -> dict[str, Any]:
        """The evidence on this rung as a JSON object."""
        found: dict[str, Any] = {
            "rung": self.rung,
            "share": self.share,
            "units": self.units,
            "waiting": len(self.waiting),
            "held": self.held,
        }
        if self.shadow is not None:
            return {**found, **self._shadow_evidence(self.shadow)}
        if self.promotion is None or self.demotion is None:
            return {
                **found,
                "says": "no shared traffic",
                "gain": None,
                "low": None,
                "high": None,
                "history": [],
                "problem": None,
            }
        ready = self.ready
        low, high = self.promotion.sequence.lower(), self.demotion.sequence.upper()
        return {
            **found,
            "says": self.says(),
            "gain": self.promotion.sequence.mean if ready else None,
            "low": low if ready else None,
            "high": high if ready else None,
            "learner_units": self.promotion.counts[1],
            "old_policy_units": self.promotion.counts[0],
            "ratio_wrong": self.ratio is not None and self.ratio.wrong(RATIO_ERROR),
            "history": self.trail.points,
            "problem": self._problem(),
        }

    @property
    def ready(self) -> bool:
        """Whether this rung has enough units for a verdict."""
        return self.promotion is not None and self.promotion.ready and not self.unusable

    def _problem(self) -> str | None:
        """What keeps the evidence of this rung from growing, with the remedy; or why there is no verdict yet."""
        if self.unusable:
            return (
                f"{self.unusable} reward(s) are too large for any evidence on this rung: set bounds for rewards, and "
                "enter the rung anew"
            )
        lacks = None if self.promotion is None else self.promotion.lacks()
        return self.waiting.full() or lacks

    def _shadow_evidence(self, shadow: Shadow) -> dict[str, Any]:
        rows, sequence = shadow.rows, shadow.rows.sequence
        said = self.says()
        tells = rows.ready and said != "cannot tell"
        return {
            "units": rows.rows,
            "waiting": len(shadow.waiting),
            "says": said,
            "gain": sequence.mean if tells else None,
            "low": sequence.lower() if tells else None,
            "high": sequence.upper() if tells else None,
            "history": shadow.trail.points,
            "from": "the old policy's rows" if shadow.mode == "shadow" else "what persons did",
            "matched": rows.matched,
            "learned_from": shadow.model.count,
            "propensities": "told" if rows.known else "estimated",
            "problem": rows.problem(shadow.arms) or shadow.waiting.full() or rows.lacks(),
        }

    def says(self) -> Literal["better", "worse", "open", "too early", "no shared traffic", "cannot tell"]:
        """Whether the learner is better by more than the smallest gain, worse than the old policy, or neither yet."""
        if self.shadow is not None:
            return self.shadow.rows.says(self.settings.smallest_gain)
        if self.promotion is None or self.demotion is None:
            return "no shared traffic"
        if not self.ready:
            return "too early"
        if self.demotion.sequence.below(0.0):
            return "worse"
        return "better" if self.promotion.sequence.above(self.settings.smallest_gain) else "open"

    def proposal(self) -> Step | None:
        """The step that the evidence calls for; None where it calls for none, or the routes' shares are wrong."""
        if not self.settings.on or (self.rung < 0 and self.shadow is None):
            return None
        said = self.says()
        if self.shadow is not None:
            return self._first_step(said, self.shadow)
        if said == "worse" and self.settings.demote != "off":
            return self._step(self.rung - 1, "the learner is worse than the old policy on this rung")
        top = len(self.settings.ladder) - 1
        if said == "better" and self.rung < top and not self.held:
            if self.ratio is not None and self.ratio.wrong(RATIO_ERROR):
                return None
            gain = f" by more than {self.settings.smallest_gain:g}" if self.settings.smallest_gain else ""
            return self._step(self.rung + 1, f"the learner is better than the old policy{gain} on this rung")
        return None

    def _first_step(self, said: str, shadow: Shadow) -> Step | None:
        """The step onto the ladder, if the old policy's rows support it, or if only randomised rows could tell."""
        if self.held:
            return None
        if said == "cannot tell":
            why = f"{shadow.rows.problem(shadow.arms)}: only a first share that is drawn at random can"
            return self._step(0, why)
        if said != "better":
            return None
        given = "" if shadow.rows.known else ", if the model of the old policy is right"
        return self._step(0, f"the learner is better than the old policy by the rows of the old policy{given}")

    def automatic(self, step: Step) -> bool:
        """Whether a step is taken without a person; onto the ladder only if the old policy told its propensities."""
        if step.before < 0 and not (self.shadow is not None and self.shadow.rows.known and self.says() == "better"):
            return False
        return (self.settings.promote if step.after > step.before else self.settings.demote) == "automatic"

    def _step(self, after: int, reason: str) -> Step:
        return Step(self.rung, after, self.settings.share_of(after), reason, self.evidence())

    def move(self, after: int, reason: str) -> Step:
        """A step that a person takes; ``InputError`` where there is no such rung."""
        if not self.settings.on:
            raise InputError("there is no ladder: [gate] promote is off in the configuration.")
        if not -1 <= after < len(self.settings.ladder):
            top = len(self.settings.ladder) - 1
            ends = f"the ladder ends with a share of {self.settings.share_of(top):g}, its rung {top}"
            raise InputError(f"there is no rung {after}: {ends if after > 0 else 'the learner is below the ladder'}.")
        return self._step(after, reason)

    # --------------------------------------------------------------------------------------- snapshots

    def to_dict(self) -> dict[str, Any]:
        """The whole state as a JSON object; floats survive to the bit."""
        return {
            "settings": self.settings.to_dict(),
            "rung": self.rung,
            "tests": self.tests,
            "held": self.held,
            "share": self.share,
            "ladders": self._ladders,
            "visits": [[rung, visits] for rung, visits in sorted(self._visits.items())],
            "demotions": self._demotions,
            "units": self.units,
            "unusable": self.unusable,
            "waiting": [[u.number, u.position, u.treated, u.share, u.reward] for u in self.waiting],
            "entered": self.waiting.subjects_to_list(),
            "promotion": None if self.promotion is None else self.promotion.to_dict(),
            "demotion": None if self.demotion is None else self.demotion.to_dict(),
            "ratio": None if self.ratio is None else self.ratio.to_dict(),
            "trail": self.trail.to_dict(),
            **({} if self.shadow is None else {"shadow": self.shadow.to_dict()}),
        }

    @classmethod
    def from_dict(cls, body: Mapping[str, Any]) -> Gate:
        """The inverse of ``to_dict``."""
        gate = cls(GateSettings.from_dict(body["settings"]), body["rung"], share=body.get("share", 0.0))
        gate.tests, gate.held, gate.units = body["tests"], body["held"], body["units"]
        gate._visits, gate.unusable = Counter(dict(body.get("visits", ()))), body.get("unusable", 0)
        gate._ladders = body.get("ladders", 1)
        gate._demotions = body.get("demotions", gate.tests)
        gate.waiting = InOrder([Unit(*values) for values in body["waiting"]], InOrder.subjects_from(body))
        gate.promotion = None if body["promotion"] is None else Comparison.from_dict(body["promotion"])
        gate.demotion = None if body["demotion"] is None else Comparison.from_dict(body["demotion"])
        gate.ratio = None if body["ratio"] is None else SampleRatio.from_dict(body["ratio"])
        gate.trail = Trail.from_dict(body.get("trail") or {})
        gate.shadow = None if body.get("shadow") is None else Shadow.from_dict(body["shadow"])
        return gate
