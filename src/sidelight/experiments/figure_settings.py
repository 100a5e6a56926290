"""What an experiment is, as frozen data: logs, runs, and the cells of a figure.

A run is described completely by its setting and its seed, and named by a digest of them: a result file that exists need
not be made again, and two figures that share a run share its file.
"""

from __future__ import annotations

import hashlib
import json
from dataclasses import asdict, dataclass
from typing import Any, Literal

from sidelight.learners.registry import KINDS

__all__ = [
    "Cell",
    "Figure",
    "LearnerSetting",
    "LogSetting",
    "MomentSetting",
    "RunSetting",
    "WorldSetting",
    "digest",
    "options",
]

Options = tuple[tuple[str, Any], ...]
"""Names and values, sorted: a mapping that can be hashed."""


def options(**values: Any) -> Options:
    """Names and values as a mapping that can be hashed."""
    return tuple(sorted(values.items()))


@dataclass(frozen=True)
class WorldSetting:
    """A world by kind and settings; ``seed_of`` says which world a run with a given seed takes place in.

    Attributes:
        kind: a name that ``registry.make_world`` knows.
        values: its arguments.
        own: whether every seed has a world (and a log) of its own; else all share that of ``seed``.
        seed: of the world and the log that all share.
    """

    kind: str
    values: Options = ()
    own: bool = False
    seed: int = 0

    def seed_of(self, run_seed: int) -> int:
        """The seed of the world in which the run with this seed takes place."""
        return run_seed if self.own else self.seed


@dataclass(frozen=True)
class LogSetting:
    """A log: the first ``rows`` rows that the world of this seed writes, with ``recorded`` features."""

    world: WorldSetting
    recorded: int
    rows: int
    seed: int


@dataclass(frozen=True)
class MomentSetting:
    """The true cross moments of a world's old policy, for learners that are given them."""

    world: WorldSetting
    recorded: int
    seed: int


@dataclass(frozen=True)
class LearnerSetting:
    """A learner by kind and settings, and what it is told.

    Attributes:
        kind: a name that ``registry.learner_factory`` knows.
        values: its keyword arguments; ``hidden`` names how it learns what the log hides.
        queries: answers of the old policy that it gets before the first round, and none afterwards; ``None``: one in
            every round.
    """

    kind: str
    values: Options = ()
    queries: int | None = None

    @property
    def uses_log(self) -> bool:
        """Whether the learner reads a log."""
        return KINDS[self.kind].made_from != "schema"

    @property
    def is_told(self) -> bool:
        """Whether it is told the true cross moments."""
        return self.kind == "ProjectedOFUL" or ("hidden", "known") in self.values


@dataclass(frozen=True)
class RunSetting:
    """One learner in one world with one log."""

    world: WorldSetting
    learner: LearnerSetting
    horizon: int
    recorded: int = 0
    log_rows: int = 0

    def log(self, seed: int) -> LogSetting | None:
        """The log of the run with this seed, if its learner reads one."""
        if not self.learner.uses_log:
            return None
        return LogSetting(self.world, self.recorded, self.log_rows, self.world.seed_of(seed))

    def moments(self, seed: int) -> MomentSetting | None:
        """The cross moments that the run with this seed is told, if any."""
        if not self.learner.is_told:
            return None
        return MomentSetting(self.world, self.recorded, self.world.seed_of(seed))

    def to_dict(self) -> dict[str, Any]:
        """The setting as nested mappings and lists of plain JSON values."""
        return asdict(self)


@dataclass(frozen=True)
class Cell:
    """One line of a figure, or one point of a line.

    Attributes:
        series: the line's name.
        setting: what is run.
        x: where on the horizontal axis, for figures that are not curves over rounds.
        dashed: drawn dashed.
        colour: position among the colours.
        heavy: drawn heavier.
    """

    series: str
    setting: RunSetting
    x: float | str | None = None
    dashed: bool = False
    colour: int = 0
    heavy: bool = False


@dataclass(frozen=True)
class Figure:
    """A figure: the question it answers, and the cells (lines or points) that it is drawn from.

    Attributes:
        name: of its files.
        kind: curves over rounds, lines over a variable, or points over categories.
        title: what it shows.
        setting: one sentence about world, log and learners.
        claim: what the paper says about it, in our words; empty for figures of our own.
        question: which function of ``analysis`` writes the words under it.
        x_title: of the horizontal axis.
        baseline: the series that all are compared with.
        fair_baseline: the same with every arm played once first, as the paper's code has it and its text does not say.
        ordered: colours follow an order (more, less) rather than names.
        x_scale: of the horizontal axis.
        seeds: default number of runs of each setting.
    """

    name: str
    kind: Literal["curves", "lines", "points"]
    title: str
    setting: str
    question: str
    cells: tuple[Cell, ...]
    claim: str = ""
    x_title: str = "Round"
    baseline: str = ""
    fair_baseline: str = ""
    ordered: bool = False
    x_scale: Literal["linear", "log", "category"] = "linear"
    seeds: int = 5


def digest(setting: RunSetting | LogSetting | MomentSetting) -> str:
    """The name of a setting: equal settings have equal names, on every machine."""
    canonical = json.dumps(asdict(setting), sort_keys=True, separators=(",", ":"), ensure_ascii=True)
    return hashlib.blake2b(canonical.encode("ascii"), digest_size=8).hexdigest()
