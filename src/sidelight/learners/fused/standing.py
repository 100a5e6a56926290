"""What rewards and answers have shown about one log so far, and what the next rounds will be compared with."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sidelight.linalg import Array, apply, solve
from sidelight.side.evidence import FrozenLog
from sidelight.side.trust import EFFECTIVE_ROWS, LogTest, Verdict

__all__ = ["CAUGHT", "Frozen", "Standing"]

#: how much more readily the other arms of a log are tried that was wrong about one
CAUGHT = 20.0
#: what is saved of a ``FrozenLog``
FROZEN = ("R", "y", "B", "A", "tau2", "s2")


@dataclass(frozen=True)
class Frozen:
    """What rounds are compared with: ``J``, ``h`` without this log, the noise's variance, and the log as it was."""

    J: Array
    h: Array
    variance: float
    log: FrozenLog

    def weighted(self, rounds: tuple[Array, Array], squares: Array, counts: Array) -> tuple[Array, Array]:
        """The sums of rounds, those of an arm whose rewards vary more than the noise counted for as much less.

        Rewards vary around what prior, companion and rounds themselves say.  A few wild ones are no lie of the log.

        Args:
            rounds: ``Σ x xᵀ`` (K_j, d, d) and ``Σ x r`` (K_j, d), recorded features first.
            squares: (K_j,)  their ``Σ r²``.
            counts: (K_j,)  their number.
        """
        grams, moments = rounds
        weights = np.ones(len(counts))
        played = np.flatnonzero(counts > 0)
        G, g = grams[played], moments[played]
        w = solve(self.J[played] + G / self.variance, (self.h[played] + g / self.variance)[:, :, None])[:, :, 0]
        left = squares[played] + (w * (apply(G, w) - 2.0 * g)).sum(axis=1)
        weights[played] = np.minimum(1.0, self.variance * counts[played] / np.maximum(left, 1e-300))
        return weights[:, None, None] * grams, weights[:, None] * moments

    def state(self) -> dict[str, Array]:
        """Arrays to be saved."""
        parts = {name: getattr(self.log, name) for name in FROZEN}
        return {"J": self.J, "h": self.h, **parts, "variance": np.array([self.variance])}

    @classmethod
    def restored(cls, arrays: Mapping[str, Any]) -> Frozen:
        """The inverse of ``state``."""
        J, h, *log = (np.array(arrays[k], dtype=np.float64) for k in ("J", "h", *FROZEN))
        return cls(J, h, float(arrays["variance"][0]), FrozenLog(*log))


class Standing:
    """How far a log is believed.

    Attributes:
        levels: (K_j,)  for how many ``EFFECTIVE_ROWS`` it may count, by their position   strengths: (K_j,)  of the
            evidence against it   since: (K_j,)  events when it began to count for less, or −1.
        common: whether it is judged as one   feature: ``size·L`` and the position of the recorded feature that it is
            wrong about, or −1.
        accused: (K_j,)  whether it is the log that is wrong where it counts for less, not curved rewards or a moving
            present   suspicion: log odds against it, from the answers alone.
        test: the evidence so far   frozen: what rounds since the last refresh are compared with.
    """

    def __init__(self, K: int, L: int) -> None:
        self.levels: NDArray[np.int64] = np.zeros(K, dtype=np.int64)
        self.strengths = np.zeros(K)
        self.since = np.full(K, -1, dtype=np.int64)
        self.common, self.feature = False, -1
        self.accused = np.zeros(K, dtype=bool)
        self.suspicion = 0.0
        self.test = LogTest(K, L)
        self.frozen: Frozen | None = None

    def judge(self, found: Verdict, accused: NDArray[np.bool_], events: int) -> bool:
        """Take over a verdict, and say whether it is a new one; remember since when an arm is doubted.

        accused: (K_j,)  whether it is the log that is wrong, where it counts for less
        """
        self.since = np.where(found.doubted, np.where(self.since >= 0, self.since, events), -1)
        self.strengths, self.common, self.accused = found.strengths, found.common, accused
        changed = bool((found.levels != self.levels).any()) or found.feature != self.feature
        self.levels, self.feature = found.levels, found.feature
        return changed

    def readiness(self, counts: Array) -> Array:
        """(K_j,)  How readily to try an arm in doubt: 1; more if the log is wrong elsewhere; 0 where it is silent.

        counts: (K_j,)  rows of the log
        """
        wrong = self.levels > 0
        others_wrong = wrong.sum() > wrong
        speaks = (counts > 0) & (np.array(EFFECTIVE_ROWS)[self.levels] > 0)
        return np.where(speaks, np.where(others_wrong & (self.levels == 0), CAUGHT, 1.0), 0.0)

    def state(self) -> tuple[dict[str, Any], dict[str, Any]]:
        """Arrays to be saved, those of the evidence and those of the verdict: in a file the log's own stand between.

        ``common``, ``suspicion`` and ``feature`` are among the log's own numbers.
        """
        frozen = {} if self.frozen is None else self.frozen.state()
        evidence = {
            **{f"test_{name}": value for name, value in self.test.state().items()},
            **{f"frozen_{name}": value for name, value in frozen.items()},
            "accused": self.accused,
        }
        return evidence, {"levels": self.levels, "strengths": self.strengths, "since": self.since}

    def restore(self, arrays: Mapping[str, Any], common: bool, suspicion: float, feature: int) -> None:
        """The inverse of ``state``; the verdict of a file from before evidence was kept stands until there is new."""
        self.strengths = np.array(arrays["strengths"], dtype=np.float64)
        self.levels = np.array(arrays["levels"], dtype=np.int64)
        self.since = np.array(arrays["since"], dtype=np.int64)
        self.common, self.suspicion, self.feature = common, suspicion, feature
        if "accused" in arrays:
            self.test.restore(_under("test_", arrays))
            self.accused = np.array(arrays["accused"], dtype=bool)
            frozen = _under("frozen_", arrays)
            self.frozen = Frozen.restored(frozen) if frozen else None
        else:
            self._continue_verdict()

    def _continue_verdict(self) -> None:
        """Let the test start where an earlier version's verdict stood."""
        self.accused = self.levels > 0
        for i in np.flatnonzero(self.levels):
            self.test.arms[self.levels[i], i] = self.strengths[i]
        if self.common and len(self.levels):
            self.test.whole[self.levels[0]] = self.strengths.sum()


def _under(prefix: str, arrays: Mapping[str, Any]) -> dict[str, Any]:
    return {key.removeprefix(prefix): value for key, value in arrays.items() if key.startswith(prefix)}
