"""What a fused learner makes of its logs and of its own assumptions: three questions, three tests, three names.

Does the log lie (``side.trust``)?  Are rewards linear, does the present stand still (``side.misfit``)?  Curved rewards
and a present that moves make an honest log fit badly, so they are looked at first, from rounds alone; a log is called
wrong only for what they do not explain.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from sidelight.hidden.protocol import MANY_ANSWERS
from sidelight.learners.correcting import Receipt
from sidelight.learners.fused.fading import Fading
from sidelight.learners.reduced import ReducedLearner
from sidelight.linalg import Array, apply, log, square
from sidelight.side.constraint import Reduction
from sidelight.side.misfit import ERROR_RATE, Misfit

if TYPE_CHECKING:
    from sidelight.learners.fused.log import FusedLog

__all__ = ["FIRST_JUDGED", "WEIGHED", "Trusting"]

#: rounds before the logs are judged: until then prior and pooling are too rough for odds to mean what they say
FIRST_JUDGED = 50
#: by how many units of log likelihood an arm's rounds must speak against "the log says nothing" to have tested the log
TOLD = 3.0
#: the most trials of an arm that count as no test while they are evidence neither for nor against the log: the n-th may
#: seem to cost ``safety/(K√n)`` of the widths paid, so that those of all arms stay below ``2√SILENT·safety`` of them
SILENT = 20
#: log evidence from which on an assumption counts as broken
BROKEN = float(log(1.0 / ERROR_RATE))
#: … and from which on curved rewards, whose size bounds what they may explain, are taken into account where a log does
#: not fit: an accusation takes more than an excuse
EXCUSE = float(log(3.0))
#: … and from which on a log is expected to fit badly, and no single feature is blamed for it
BADLY = float(log(10.0))
#: log evidence for a bias of a log from which on it is judged as often as at first; of an honest log each kind of bias
#: ever has so much with a chance of at most a twentieth
CONTESTED = float(log(20.0))
#: how many times the variance of the curved part that was found (a cautious figure: squared errors, which the curved
#: part makes larger, are its yardstick) the bias of a straight line through other contexts may have
LEVERAGE = 16.0
#: the rounds' sums as they were at the last refresh
WEIGHED = ("weighed_grams", "weighed_moments", "weighed_squares", "weighed_rounds")
SAYS = {
    "linear": (
        "Rewards are not linear in these features: at least {share:.0%} of what rounds leave unexplained follows "
        "squares or products of them. Derived features (a square, a product, a spline) would help logs and rounds.",
        "Rewards look linear in these features.",
    ),
    "still": (
        "The present moves: what arms pay has changed while rounds were observed. forgetting=0.999 or less follows it.",
        "What arms pay has not changed while rounds were observed.",
    ),
}


def first_trials(never: NDArray[np.bool_]) -> float:
    """By how much more readily an arm is tried for the first time than its equal part of ``safety`` would allow.

    An arm that no round has tested owes all that is known about it to the log, and a log that is honest about the rows
    it has can still be far off for other contexts: where the old policy gave the arm to those whom it suited least, the
    learner may never play it.  Arms that were played need nothing for a first trial, so the ``u`` arms that never were
    share what all ``K`` have: a first trial may seem to cost ``1/(1 + u)`` of the budget instead of ``1/K``, and all of
    them together at most ``Σ_u 1/(1 + u) < log(K + 1)`` of it.

    Args:
        never: (K,)  whether an arm was never played.
    """
    return float(max(len(never) / (1.0 + np.count_nonzero(never)), 1.0))


class Trusting(ReducedLearner):
    """The part of ``FusedOFUL`` that judges its logs.

    Attributes:
        logs: the logs.
        safety: 0 where logs are believed blindly, and nothing is tested.
        untested: (K,)  by how much more readily an arm is tried whose rounds have not tested the log yet (of arms that
            were never played: ``first_trials``).
        weighed_grams, weighed_moments, weighed_squares, weighed_rounds: the rounds' sums at the last refresh.
        misfit: the tests of the assumptions, once units are known   broken: events when each was first found broken.
    """

    logs: list[FusedLog]
    safety: float
    fading: Fading

    def _install(self, reduction: Reduction) -> None:
        K, d = reduction.n_arms, reduction.n_features

        def grown(name: str, shape: tuple[int, ...], value: float) -> Array:
            old = getattr(self, name, np.zeros((0, *shape)))
            return np.concatenate([old, np.full((K - len(old), *shape), value)])

        self.untested = grown("untested", (), 1.0)
        self.weighed_grams, self.weighed_moments = (
            grown("weighed_grams", (d, d), 0.0),
            grown("weighed_moments", (d,), 0.0),
        )
        self.weighed_squares, self.weighed_rounds = grown("weighed_squares", (), 0.0), grown("weighed_rounds", (), 0.0)
        self.misfit: Misfit | None = getattr(self, "misfit", None)
        if self.misfit is not None and len(self.misfit.began) < K:
            self.misfit = self.misfit.grown(K)
        self.broken: dict[str, int] = getattr(self, "broken", {"linear": -1, "still": -1})
        super()._install(reduction)

    # ------------------------------------------------------------------------------------ rounds

    def _take(self, x: Array, index: int, reward: float, weight: float = 1.0) -> None:
        if self.misfit is not None or self.binary:
            self._took_rows(x[None], np.array([index], dtype=np.int64), np.array([reward]))
        super()._take(x, index, reward, weight)

    def _took_rows(self, X: Array, indices: NDArray[np.int64], rewards: Array) -> None:
        if self.misfit is not None and len(X):
            self.misfit.add(self.reduction.order, X, indices, rewards)
        if len(X):
            self._compare_lines(X)

    def _compare_lines(self, X: Array, sign: float = 1.0) -> None:
        """Let logs of rewards of 0 and 1 see contexts (n, d), to learn how far their lines leave that interval."""
        if self.binary:
            for entry in self.logs:
                entry.excess.add(X, sign)

    def _correct(self, x: Array, index: int, old: float, new: float | None, receipt: Receipt | None) -> None:
        held = {name: np.array(getattr(self, name)[index]) for name in ("grams", "moments", "squares")}
        super()._correct(x, index, old, new, receipt)
        if new is not None:
            return
        # what was taken out came before the last refresh, as most that is corrected did, if any round of the arm did:
        # then it is no part of what came since
        left = self._standing(index, receipt)[1]
        if self.weighed_rounds[index] >= left:
            for name, before in held.items():
                getattr(self, f"weighed_{name}")[index] -= before - getattr(self, name)[index]
            self.weighed_rounds[index] -= left
        if self.misfit is not None:
            self.misfit.take_out(index, held["grams"] - self.grams[index])

    # ----------------------------------------------------------------------------------- judging

    def _judge(self) -> None:
        """Take the rounds since the last refresh as evidence, and let each log count accordingly."""
        rounds = float(self.counts.sum())
        if not self.safety or not rounds:
            return
        events = 0 if self.automatic is None else self.automatic.events
        self._test_assumptions(events)
        since = (self.grams - self.weighed_grams, self.moments - self.weighed_moments)
        relative = self._relative()
        weighed = (relative[:, :, None] * since[0], relative * since[1])
        squares, counts = (
            relative[:, 0] * (self.squares - self.weighed_squares),
            self._arm_rounds() - self.weighed_rounds,
        )
        for entry in self.logs:
            entry.weigh(weighed, squares, counts, rounds >= FIRST_JUDGED)
            if rounds < FIRST_JUDGED:
                continue
            # trials count as far as they could have told a lie of the log from the truth, or have taken it back
            plays = self.counts[entry.arms]
            # … and as none at all as long as a handful of them spoke neither for the log nor against it
            silent = (plays < min(3 * self.n_features, SILENT)) & (entry.standing.test.arms[-1] > -TOLD)
            told = np.maximum(
                entry.tested(self.covariances, self.grams),
                entry.overruled(self.covariances, np.square(self.noises)),
            )
            tested = np.where(silent, 0.0, told)
            most, tests = 1.0 + plays, 1.0 + plays * tested
            self.untested[entry.arms] = np.minimum(most / tests * np.sqrt(most / tests), most)
            standing = entry.standing
            standing.suspicion = entry.suspected()
            badly = self._fits_badly()
            lenient = self._arm_rounds()[entry.arms] if badly else None
            found = standing.test.verdict(standing.suspicion, steep=badly, lenient=lenient)
            accused = found.doubted & self._accused(entry) if found.doubted.any() else found.doubted
            if standing.judge(found, accused, events) and self.automatic is not None:
                self.automatic.search_at = 0
        if rounds >= FIRST_JUDGED:
            never = self.counts == 0
            self.untested[never] = first_trials(never)

    def _unsettled(self) -> bool:
        """Whether refreshes come as often as at first: a log may be wrong, the present moves, or answers are few."""
        contested = any(entry.standing.test.strongest() > CONTESTED for entry in self.logs)
        learning = any(entry.hidden.needs is not None and entry.hidden.n_answers < MANY_ANSWERS for entry in self.logs)
        return contested or learning or self.broken["still"] >= 0

    def _relative(self) -> Array:
        """(K, 1)  ``σ²/σ_a²``: rounds of an arm with less noise tell more."""
        return np.asarray((square(self.noise) / np.square(self.noises))[:, None])

    def _freeze(self) -> None:
        """Fix what the next rounds are compared with.

        Learned noise may be too small by luck, which makes the same luck look like a lie; an honest log's own rewards
        say how small it may be.
        """
        if not self.safety:
            return
        precision, means = self._prior()
        J_prior, h_prior = precision / square(self.noise), apply(precision, means) / square(self.noise)
        relative = self._relative()
        rounds = (relative[:, :, None] * self.grams, relative * self.moments)
        self.weighed_grams, self.weighed_moments = self.grams.copy(), self.moments.copy()
        self.weighed_squares, self.weighed_rounds = self.squares.copy(), self._arm_rounds().copy()
        for entry in self.logs:
            variance = max(square(self.noise), entry.noise_variance() if self.settings.noise == "auto" else 0.0)
            J0, h0 = self._add_others(entry, np.broadcast_to(J_prior, self.grams.shape).copy(), h_prior.copy())
            entry.freeze(J0, h0, rounds, variance)

    def _add_others(self, entry: FusedLog, J: Array, h: Array) -> tuple[Array, Array]:
        """``J`` (K, d, d) and ``h`` (K, d), with what all other logs and the companion of ``entry`` say added."""
        entry.add_companion(J, h)
        for other in self.logs:
            if other is not entry:
                other.add_to(J, h, cautiously=True)
        return J, h

    def _test_assumptions(self, events: int) -> None:
        if self.fading.forgets or self.automatic is None or self.binary or self.gaps is not None:
            # sums that fade or are weighted do not go with those of the tests, and forgetting expects a moving present
            return
        if self.misfit is None:
            if self.counts.sum() >= FIRST_JUDGED:
                self.misfit = Misfit.begin(self.automatic.units, self.grams, self.counts)
            return
        self.misfit.refresh((self.grams, self.moments), self.counts, self.noises)
        for name, evidence in (("linear", self.misfit.curved), ("still", self.misfit.moving)):
            if self.broken[name] < 0 and evidence >= BROKEN:
                self.broken[name] = events

    def _accused(self, entry: FusedLog) -> NDArray[np.bool_]:
        """(K_j,)  Whether a log is wrong beyond what curved rewards or a moving present may explain."""
        if self.misfit is None:
            return np.ones(len(entry.arms), dtype=bool)
        if self._moves():
            return np.zeros(len(entry.arms), dtype=bool)
        if self.misfit.curved < EXCUSE:
            return np.ones(len(entry.arms), dtype=bool)
        bias = LEVERAGE * self.misfit.share * square(self.noise)
        excused = float(np.mean(entry.s2)) / max(bias, 1e-300)
        return entry.standing.test.verdict(entry.standing.suspicion, excused, self._fits_badly()).doubted

    def _fits_badly(self) -> bool:
        """Whether even an honest log is expected to fit badly: rewards are curved, or are rates, which no line follows.

        Such a log still says more about contexts in which an arm is not played than that arm's rounds do.
        """
        return self.binary or (self.misfit is not None and self.misfit.curved >= BADLY)

    def _moves(self) -> bool:
        """Whether a moving present, which explains any misfit of a log, was found and fits better than curvature."""
        return self.misfit is not None and self.broken["still"] >= 0 and self.misfit.moving >= self.misfit.curved

    # ------------------------------------------------------------------------------------ telling

    def log_trust(self) -> list[dict[str, Any]]:
        """What each log still counts for, per arm.

        Returns:
            one entry for every log and arm: ``log``, ``arm``; ``share``: of what is known about the arm's weights, how
            much is the log's doing (shares of logs, rounds and prior add up to 1); ``effective_rows``: as many rows
            with a known hidden half would say as much; ``doubted``: the log is wrong about this arm; ``reduced``: it
            counts for less than in full, and ``cause`` says why: ``"log"``, ``"curved"``, ``"moving"``,
            ``"undecided"`` (the log is wrong or rewards are curved: rounds have not shown which) or None;
            ``feature``: the one feature that the log is wrong about, or None; ``strength`` (log likelihood ratio
            against the log), ``since`` (rounds and answers when it began to count for less, or None), ``whole_log``
            (the log is judged as one), ``suspicion`` (log odds against it from the answers alone), ``moved`` (by how
            many deviations contexts seem to have moved since the log, 0 where nothing speaks for it; what the log says
            about levels then counts for less), ``says`` (in words).
        """
        covariances = np.square(self.noises)[:, None, None] * self.covariances
        out = [e for entry in self.logs for e in entry.trust(self.arms, covariances, self._labels_of_features())]
        for e in out:
            e["cause"] = self._cause(e)
            e["says"] = _sentence(e)
        return out

    def _labels_of_features(self) -> list[Any]:
        """Names of the features, or their positions where there is no schema."""
        return list(range(self.n_features)) if self.schema is None else list(self.schema.encoded_names)

    def _cause(self, entry: dict[str, Any]) -> str | None:
        if not entry["reduced"]:
            return None
        if entry["doubted"] or self.misfit is None:
            return "log"
        if self._moves():
            return "moving"
        return "curved" if self.broken["linear"] >= 0 else "undecided"

    def assumptions(self) -> list[dict[str, Any]]:
        """What the rounds alone say about the model: are rewards linear, does the present stand still?

        Returns:
            one entry for each assumption that is tested: ``assumption`` (``"linear"`` or ``"still"``), ``holds``,
            ``strength`` (log evidence against it), ``since`` (rounds and answers when it was found broken, or None),
            ``error_rate`` (the chance that it is ever found broken where it holds), ``share`` (for ``"linear"``: at
            least so much of what rounds leave unexplained follows squares and products; else None), ``says``.
            Empty without tests: before 50 rounds, with ``safety=0``, with ``forgetting``, for rewards of 0 and 1, and
            where contexts may have gaps.
        """
        if self.misfit is None:
            return []
        out = []
        for name, strength in (("linear", self.misfit.curved), ("still", self.misfit.moving)):
            since, share = self.broken[name], self.misfit.share if name == "linear" else None
            out.append(
                {
                    "assumption": name,
                    "holds": since < 0,
                    "strength": strength,
                    "since": since if since >= 0 else None,
                    "error_rate": ERROR_RATE,
                    "share": share,
                    "says": SAYS[name][since < 0].format(share=self.misfit.share),
                }
            )
        return out

    # -------------------------------------------------------------------------------------- files

    def _trust_state(self) -> dict[str, Any]:
        """Arrays to be saved."""
        out = {name: getattr(self, name) for name in ("untested", *WEIGHED)}
        out["broken"] = np.array([self.broken["linear"], self.broken["still"]])
        return out if self.misfit is None else out | self.misfit.state()

    def _restore_trust(self, arrays: dict[str, Any]) -> None:
        """The inverse of ``_trust_state``; a file from before evidence was kept begins with what it has seen."""
        self.untested = np.array(arrays.get("untested", np.ones(self.n_arms)), dtype=np.float64)
        for name, now in zip(WEIGHED, (self.grams, self.moments, self.squares, self._arm_rounds()), strict=True):
            setattr(self, name, np.array(arrays.get(name, now), dtype=np.float64).reshape(now.shape))
        linear, still = (int(v) for v in arrays.get("broken", (-1, -1)))
        self.broken = {"linear": linear, "still": still}
        self.misfit = Misfit.restored(arrays, None if self.automatic is None else self.automatic.constant)


def _sentence(entry: dict[str, Any]) -> str:
    """What an entry of ``log_trust`` means."""
    which = "The log" if entry["log"] is None else f"The log {entry['log']!r}"
    about = "" if entry["feature"] is None else f" in what it says about {entry['feature']}"
    if entry["moved"] and not entry["reduced"]:
        return (
            f"{which} is believed about what features do, and less about how much arms pay on average: today's "
            "contexts, or the shares in which the old policy names its arms there, are not those of the log."
        )
    if not entry["reduced"]:
        return f"{which} is believed."
    if entry["cause"] == "moving":
        return f"{which} fits the present badly, which moves: nothing speaks against what it says about its own time."
    if entry["cause"] == "curved":
        why = "since rewards are not linear: a straight line through its rows is not ours"
        return f"{which} counts for less{about}, {why}."
    if entry["cause"] == "undecided":
        return (
            f"{which} counts for less{about}, since rewards do not fit it. Whether it is wrong, or rewards are not "
            "linear, rounds have not shown yet."
        )
    if entry["feature"] is not None:
        return f"{which} is wrong about {entry['feature']}; what it says about other features is believed."
    return f"{which} is wrong {'as a whole' if entry['whole_log'] else 'about this arm'}: rewards contradict it."
