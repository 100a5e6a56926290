"""The figures: those of the paper in both presets, the same with the fused learner, and four of our own.

Settings are those of the authors' released experiment where there is one (``λ = 0.1``, ``δ = 0.01``, ``α = 0.01``, the
radius as printed, weights, policy and log shared by all seeds); the text leaves them open, so the other preset takes
them over and differs in the world alone.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from sidelight.errors import InputError
from sidelight.experiments.figure_settings import Cell, Figure, LearnerSetting, RunSetting, WorldSetting, options
from sidelight.learners.registry import KINDS

__all__ = ["FULL", "PRESETS", "QUICK", "Scale", "catalogue", "choose"]

PRESETS = ("paper_text", "authors_code")
_PRESET_WORDS = {"paper_text": "the text's world", "authors_code": "the world of the authors' code"}
RECORDED = 25
"""``L`` in figures (b) and (c), of ``d = 30``."""


@dataclass(frozen=True)
class Scale:
    """How large the experiments are.

    Attributes:
        horizon, log_rows: of the paper's figures.
        recorded: ``L`` in figure (a).
        alphas: in figure (b).
        log_sizes: in figure (c).
        seeds: runs of each setting in the paper's figures   own_seeds: in our own.
        own_horizon, own_log_rows: of our own figures.
        own_sizes, strengths, queries, lies: what these vary.
    """

    horizon: int
    log_rows: int
    recorded: tuple[int, ...]
    alphas: tuple[float, ...]
    log_sizes: tuple[int, ...]
    seeds: int
    own_seeds: int
    own_horizon: int
    own_log_rows: int
    own_sizes: tuple[int, ...]
    strengths: tuple[float, ...]
    queries: tuple[int, ...]
    lies: tuple[str, ...]


_LIES = ("redrawn", "slandered", "shifted", "swapped", "moved", "policy")

FULL = Scale(
    horizon=100_000,
    log_rows=1_000_000,
    recorded=(5, 10, 15, 20, 25),
    alphas=(0.001, 0.01, 0.05, 0.1, 0.15, 0.2),
    log_sizes=(10_000, 100_000, 1_000_000),
    seeds=5,
    own_seeds=10,
    own_horizon=10_000,
    own_log_rows=20_000,
    own_sizes=(100, 1_000, 10_000, 100_000, 1_000_000, 10_000_000),
    strengths=(0.0, 0.5, 1.0, 2.0, 4.0, 8.0),
    queries=(0, 10, 30, 100, 300, 1_000, 3_000, 10_000),
    lies=_LIES,
)
QUICK = Scale(
    horizon=500,
    log_rows=20_000,
    recorded=(5, 25),
    alphas=(0.001, 0.01, 0.2),
    log_sizes=(3_000, 20_000),
    seeds=2,
    own_seeds=2,
    own_horizon=500,
    own_log_rows=5_000,
    own_sizes=(100, 1_000, 10_000, 100_000),
    strengths=(0.0, 2.0, 8.0),
    queries=(0, 30, 300),
    lies=_LIES,
)


def catalogue(scale: Scale) -> tuple[Figure, ...]:
    """Every figure at this scale."""
    paper = [make(scale, preset, fused) for fused in (False, True) for preset in PRESETS for make in (_a, _b, _c)]
    return (*paper, _log_size(scale), _confounding(scale), _queries(scale), _lies_figure(scale))


def choose(figures: tuple[Figure, ...], wanted: list[str]) -> tuple[Figure, ...]:
    """The figures whose name begins with one of ``wanted``; all if nothing is."""
    if not wanted:
        return figures
    chosen = tuple(f for f in figures if any(f.name == w or f.name.startswith(f"{w}-") for w in wanted))
    for w in wanted:
        if not any(f.name == w or f.name.startswith(f"{w}-") for f in figures):
            raise InputError(f"there is no figure {w!r}; there are {', '.join(f.name for f in figures)}.")
    return chosen


# ------------------------------------------------------------------------------------------ the paper's


def _paper_learner(kind: str, alpha: float = 0.01, **more: Any) -> LearnerSetting:
    values = {"regularization": 0.1, "delta": 0.01, "alpha": alpha, "noise": "true", "radius": "printed"}
    return LearnerSetting(kind, options(**values, **more))


def _cold(fused: bool) -> LearnerSetting:
    """OFUL without a log: as the paper ran it, or with the prior that the fused learner has."""
    if fused:
        return LearnerSetting("OFUL", options(regularization="auto", noise="auto", radius="posterior"))
    return _paper_learner("OFUL")


EACH_ARM_FIRST = ", each arm first"


def _cold_cells(series: str, world: WorldSetting, fused: bool, scale: Scale) -> list[Cell]:
    """OFUL without a log; the paper's also with every arm played once first, as its code has it and its text does not
    say. With its own prior and α = 1 OFUL tries its arms without being told to."""
    cells = [Cell(series, RunSetting(world, _cold(fused), scale.horizon))]
    if not fused:
        looks = RunSetting(world, _paper_learner("OFUL", first_plays=True), scale.horizon)
        cells.append(Cell(series + EACH_ARM_FIRST, looks, heavy=True))
    return cells


def _known(fused: bool, alpha: float = 0.01) -> LearnerSetting:
    if fused:
        return LearnerSetting("FusedOFUL", options(hidden="known"))
    return _paper_learner("ProjectedOFUL", alpha)


def _estimated(fused: bool, alpha: float | None = None) -> LearnerSetting:
    if fused:
        chosen = {} if alpha is None or alpha == 1.0 else {"alpha": alpha}
        return LearnerSetting("FusedOFUL", options(hidden="queries", **chosen))
    return _paper_learner("RunningOFUL", 0.01 if alpha is None else alpha, hidden="ipw")


def _name(letter: str, preset: str, fused: bool) -> str:
    return f"{letter}{'-fused' if fused else ''}-{preset}"


def _world_words(preset: str, scale: Scale) -> str:
    noise = "0.05" if preset == "paper_text" else "1"
    return f"d = K = 30 in {_PRESET_WORDS[preset]}, noise {noise}, {scale.horizon:,} rounds"


def _learner_words(fused: bool) -> str:
    return (
        "FusedOFUL as it comes, and OFUL with the same prior"
        if fused
        else "the paper's learners, λ = 0.1, δ = 0.01, α = 0.01"
    )


def _a(scale: Scale, preset: str, fused: bool) -> Figure:
    world = WorldSetting(preset)
    cells = _cold_cells("L = 0", world, fused, scale)
    for position, recorded in enumerate(scale.recorded, start=1):
        for way, dashed in (("known", False), ("estimated", True)):
            learner = (_estimated if dashed else _known)(fused)
            setting = RunSetting(world, learner, scale.horizon, recorded, scale.log_rows)
            cells.append(Cell(f"L = {recorded}, {way}", setting, dashed=dashed, colour=position))
    return Figure(
        name=_name("a", preset, fused),
        kind="curves",
        title="Regret by the number of recorded features, R12 known and estimated"
        + (" (fused learner)" if fused else ""),
        setting=f"{_world_words(preset, scale)}; a log of {scale.log_rows:,} rows; {_learner_words(fused)}.",
        question="recorded",
        claim="Using a log that recorded some of the features improves clearly on not using it, even where R12 must be "
        "estimated.",
        cells=tuple(cells),
        baseline="L = 0",
        fair_baseline="" if fused else "L = 0" + EACH_ARM_FIRST,
        ordered=True,
        seeds=scale.seeds,
    )


def _b(scale: Scale, preset: str, fused: bool) -> Figure:
    world = WorldSetting(preset)
    alphas = (*scale.alphas, 1.0)
    cells = [
        Cell(
            f"α = {alpha:g}",
            RunSetting(world, _estimated(fused, alpha), scale.horizon, RECORDED, scale.log_rows),
            colour=1 + round(5 * i / max(1, len(alphas) - 1)),
            dashed=bool(i % 2),
        )
        for i, alpha in enumerate(alphas)
    ]
    cold = "no log" if fused else "no log, α = 0.01"
    cells += _cold_cells(cold, world, fused, scale)
    return Figure(
        name=_name("b", preset, fused),
        kind="curves",
        title="Regret by the optimism parameter α" + (" (fused learner)" if fused else ""),
        setting=f"{_world_words(preset, scale)}; L = {RECORDED}, a log of {scale.log_rows:,} rows, R12 estimated; "
        + ("FusedOFUL (its default is α = 1)." if fused else "λ = 0.1, δ = 0.01."),
        question="optimism",
        claim="Very small values of α do best.",
        cells=tuple(cells),
        baseline=cold,
        fair_baseline="" if fused else cold + EACH_ARM_FIRST,
        ordered=True,
        seeds=scale.seeds,
    )


def _c(scale: Scale, preset: str, fused: bool) -> Figure:
    world = WorldSetting(preset)
    cells = []
    for i, rows in enumerate(scale.log_sizes):
        for way, dashed in (("known", False), ("estimated", True)):
            learner = (_estimated if dashed else _known)(fused)
            setting = RunSetting(world, learner, scale.horizon, RECORDED, rows)
            cells.append(Cell(f"{rows:,} rows, {way}", setting, dashed=dashed, colour=2 * i + 1))
    cells += _cold_cells("no log", world, fused, scale)
    return Figure(
        name=_name("c", preset, fused),
        kind="curves",
        title="Regret by the size of the log" + (" (fused learner)" if fused else ""),
        setting=f"{_world_words(preset, scale)}; L = {RECORDED}; {_learner_words(fused)}.",
        question="log size",
        claim="The number of rows has an effect but does not greatly change performance, so finite logs can be used.",
        cells=tuple(cells),
        baseline="no log",
        fair_baseline="" if fused else "no log" + EACH_ARM_FIRST,
        ordered=True,
        seeds=scale.seeds,
    )


# -------------------------------------------------------------------------------------------------- ours


def _told(kind: str, **more: Any) -> LearnerSetting:
    return LearnerSetting(kind, options(noise="true", radius="posterior", **more))


_OWN: tuple[tuple[str, LearnerSetting, int, bool], ...] = (
    ("no log (OFUL)", _told("OFUL"), 0, False),
    ("zero-filled", _told("ZeroFilledOFUL"), 1, True),
    ("hard, R12 known", _told("ProjectedOFUL"), 2, True),
    ("hard, R12 estimated", _told("RunningOFUL", hidden="ipw"), 3, True),
    ("fused", LearnerSetting("FusedOFUL", options(hidden="queries")), 4, False),
)
"""Name, learner, colour, dashed. Noise is told to all but the last; the last is told nothing."""

_CONFOUNDED = "10 arms and 10 features, 4 of them hidden, the old policy driven by these; a world for every seed"


def _own_cells(x: float | str, world: WorldSetting, horizon: int, rows: int) -> list[Cell]:
    return [
        Cell(name, RunSetting(world, learner, horizon, 6, rows), x, dashed, colour, heavy=name == "fused")
        for name, learner, colour, dashed in _OWN
    ]


def _own_figure(scale: Scale, cells: Sequence[Cell], **described: Any) -> Figure:
    """A figure of ours; all of them are compared with a learner that has no log."""
    return Figure(cells=tuple(cells), baseline="no log (OFUL)", seeds=scale.own_seeds, **described)


def _log_size(scale: Scale) -> Figure:
    world = WorldSetting("confounded", own=True)
    cells: list[Cell] = []
    for rows in scale.own_sizes:
        for cell in _own_cells(rows, world, scale.own_horizon, rows):
            if cell.setting.learner.uses_log:
                cells.append(cell)
            else:  # the same run everywhere, whatever the size of a log it does not read
                plain = RunSetting(world, cell.setting.learner, scale.own_horizon, 6)
                cells.append(Cell(cell.series, plain, rows, cell.dashed, cell.colour))
    return _own_figure(
        scale,
        cells,
        name="log-size",
        kind="lines",
        title="Where does a log begin to pay?",
        setting=f"{_CONFOUNDED}; {scale.own_horizon:,} rounds; λ = 1 and the noise told to all but the fused learner.",
        question="begins to pay",
        x_title="Rows of the log",
        x_scale="log",
    )


def _confounding(scale: Scale) -> Figure:
    cells: list[Cell] = []
    for strength in scale.strengths:
        world = WorldSetting("confounded", options(confounding=strength), own=True)
        cells += _own_cells(strength, world, scale.own_horizon, scale.own_log_rows)
    return _own_figure(
        scale,
        cells,
        name="confounding",
        kind="lines",
        title="How strongly the old policy followed what the log hides",
        setting=f"{_CONFOUNDED}; a log of {scale.own_log_rows:,} rows, {scale.own_horizon:,} rounds.",
        question="confounding",
        x_title="Confounding (0: the old policy was random)",
    )


def _queries(scale: Scale) -> Figure:
    world = WorldSetting("confounded", own=True)
    cells: list[Cell] = []
    for count in scale.queries:
        for name, learner, colour, dashed in _OWN:
            if name == "zero-filled":
                continue
            asks = KINDS[learner.kind].made_from == "hidden"
            asked = LearnerSetting(learner.kind, learner.values, count) if asks else learner
            rows = scale.own_log_rows if learner.uses_log else 0
            setting = RunSetting(world, asked, scale.own_horizon, 6, rows)
            cells.append(Cell(name, setting, f"{count:,}", dashed, colour, heavy=name == "fused"))
    return _own_figure(
        scale,
        cells,
        name="queries",
        kind="lines",
        title="How many answers of the old policy are needed",
        setting=f"{_CONFOUNDED}; a log of {scale.own_log_rows:,} rows, {scale.own_horizon:,} rounds; all answers given "
        "before the first round, none afterwards.",
        question="queries",
        x_title="Answers of the old policy",
        x_scale="category",
    )


def _lies_figure(scale: Scale) -> Figure:
    cells: list[Cell] = []
    for lie in ("honest", *scale.lies):
        values = options() if lie == "honest" else options(lies=lie)
        world = WorldSetting("confounded" if lie == "honest" else "drifted", values, own=True)
        cells += _own_cells(lie, world, scale.own_horizon, scale.own_log_rows)
    return _own_figure(
        scale,
        cells,
        name="lies",
        kind="points",
        title="A log that lies",
        setting=f"{_CONFOUNDED}; a log of {scale.own_log_rows:,} rows that tells of another world, "
        f"{scale.own_horizon:,} rounds.",
        question="lies",
        x_title="",
        x_scale="category",
    )
