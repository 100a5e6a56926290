"""The claims of ``docs/evidence.md``: what is measured, and when it holds."""

from __future__ import annotations

import hashlib
import subprocess
import sys
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

import numpy as np

import sidelight as sl
from benchmarks import floor, gate
from benchmarks.evidence import Claim, Row, source_hash
from sidelight.drawing.regret import standings
from sidelight.experiments.first_plays import FirstPlays

Part = Callable[[str, Callable[[], Any]], Any]


# ------------------------------------------------------------------------------------------------------- coverage

RUNS, ROUNDS = 1_000, 300


def coverage(part: Part) -> list[Row]:
    """How often a confidence set of Algorithm 1 fails at some round for some arm."""
    rows = []
    for radius in ("determinant", "printed"):
        for open_directions in (1, 4):
            for delta in (0.05, 0.20):
                key = f"{radius}-{open_directions}-{delta}"
                misses = part(key, partial(count_misses, radius, open_directions, delta))
                low, high = binomial_interval(misses, RUNS)
                rows.append(
                    {
                        "radius": radius,
                        "open directions m": open_directions,
                        "δ": delta,
                        "runs": RUNS,
                        "missed": misses / RUNS,
                        "low": low,
                        "high": high,
                    }
                )
    return rows


def count_misses(radius: str, open_directions: int, delta: float) -> int:
    from loky import get_reusable_executor

    chunks = np.array_split(np.arange(RUNS), 20)
    jobs = [(radius, open_directions, delta, chunk.tolist()) for chunk in chunks]
    return sum(get_reusable_executor().map(_misses_of_runs, *zip(*jobs, strict=True)))


def _misses_of_runs(radius: str, open_directions: int, delta: float, seeds: list[int]) -> int:
    return sum(misses(radius, open_directions, delta, seed) for seed in seeds)


def misses(radius: str, open_directions: int, delta: float, seed: int) -> bool:
    """One run of ``ProjectedOFUL`` with exact side information: did ``‖ŵ − w‖_V`` ever exceed ``√β``?

    ``ŵ − w`` lies in the kernel of ``M``, so its norm in ``V`` is the norm of ``Uᵀ(ŵ − w)`` in ``Ṽ``.
    """
    rng = np.random.default_rng([seed, open_directions])
    n_arms, n_recorded, regularization, weight_bound = 2, 2, 0.1, 0.1
    d = n_recorded + open_directions
    B = rng.normal(size=(n_arms, n_recorded, open_directions))
    M = np.concatenate([np.broadcast_to(np.eye(n_recorded), (n_arms, n_recorded, n_recorded)), B], axis=2)
    w = rng.normal(size=(n_arms, d))
    w *= weight_bound / np.linalg.norm(w, axis=1, keepdims=True)
    learner = sl.ProjectedOFUL(
        sl.SideInformation(M, np.einsum("kld,kd->kl", M, w)),
        regularization=regularization,
        noise=1.0,
        delta=delta,
        weight_bound=weight_bound,
        radius=radius,
    )
    V = np.broadcast_to(regularization * np.eye(d), (n_arms, d, d)).copy()
    for _ in range(ROUNDS):
        x = rng.normal(size=d)
        x /= np.linalg.norm(x)
        a = learner.decide(x).arm
        learner.observe(x, a, float(x @ w[a] + rng.normal()))
        V[a] += np.outer(x, x)
        error = learner.weights_of(a) - w[a]
        if error @ V[a] @ error > learner.radii[a] ** 2:
            return True
    return False


def binomial_interval(successes: int, trials: int) -> tuple[float, float]:
    """Clopper and Pearson's 95 %."""
    from scipy.stats import beta

    low = 0.0 if successes == 0 else float(beta.ppf(0.025, successes, trials - successes + 1))
    high = 1.0 if successes == trials else float(beta.ppf(0.975, successes + 1, trials - successes))
    return low, high


def coverage_holds(rows: list[Row]) -> bool:
    """The default radius misses at most δ of the time, as far as so many runs can tell."""
    return all(row["low"] <= row["δ"] for row in rows if row["radius"] == "determinant")


# -------------------------------------------------------------------------------------------------- simulations


def regrets(
    part: Part, key: str, world: Any, learners: Mapping[str, Any], horizon: int, recorded: int, rows: int, seeds: int
) -> dict[str, list[float]]:
    """Final regrets of each learner by seed, one kept piece for each seed."""
    out: dict[str, list[float]] = {name: [] for name in learners}
    workers = 2
    # a piece is kept for these settings alone: changed ones are measured anew
    settings = [horizon, recorded, rows, *((name, getattr(make, "keywords", {})) for name, make in learners.items())]
    digest = hashlib.sha256(repr(settings).encode()).hexdigest()[:6]
    for start in range(0, seeds, workers):
        group = list(range(start, min(start + workers, seeds)))
        piece = part(
            f"{key}-{digest}-seeds-{group[0]}-{group[-1]}",
            partial(_final, world, dict(learners), horizon, recorded, rows, group, workers),
        )
        for name in learners:
            out[name] += piece[name]
    return out


def _final(
    world: Any, learners: dict[str, Any], horizon: int, recorded: int, rows: int, seeds: list[int], workers: int
) -> dict[str, list[float]]:
    table = sl.simulate(world, learners, horizon, recorded, rows, seeds, workers, every=horizon)
    out: dict[str, list[float]] = {name: [] for name in learners}
    for name, regret in zip(table["learner"].to_pylist(), table["regret"].to_pylist(), strict=True):
        out[name].append(regret)
    return out


def summary_rows(found: dict[str, list[float]], baseline: str, **columns: Any) -> list[Row]:
    """One row for each learner: mean, interval, paired difference to the baseline."""
    import pyarrow as pa

    long = [
        {"learner": name, "seed": i, "round": 1, "regret": value}
        for name, values in found.items()
        for i, value in enumerate(values)
    ]
    return [
        {
            **columns,
            "learner": s.learner,
            "seeds": s.seeds,
            "regret": s.mean,
            "low": s.low,
            "high": s.high,
            f"minus {baseline}": s.difference,
            "from": s.difference_low,
            "to": s.difference_high,
        }
        for s in standings(pa.Table.from_pylist(long), baseline)
    ]


def confounded_world(seed: int) -> Any:
    return sl.worlds.ConfoundedWorld(seed=seed)


def oful(run: Any, **settings: Any) -> Any:
    return sl.OFUL(run.world.n_arms, run.world.n_features, **settings)


def known(run: Any, share: float = 1.0, **settings: Any) -> Any:
    """Algorithm 1 on ``share`` times the true cross moments: 0 pretends that nothing is hidden."""
    return sl.ProjectedOFUL(sl.SideInformation.from_log(run.summary, share * run.true_cross_moments), **settings)


def every_round(run: Any, **settings: Any) -> Any:
    return sl.RunningOFUL(sl.BehaviorQueries(run.summary, estimator="ipw"), **settings)


def fused(run: Any, **settings: Any) -> Any:
    from sidelight.learners.fused.learner import FusedOFUL

    return FusedOFUL(sl.BehaviorQueries(run.summary), **settings)


def deconfounding(part: Part) -> list[Row]:
    """``B = 0`` against the known R12 where the old policy looked at hidden features only."""
    settings = {"noise": 0.3}
    learners = {
        "R12 known": partial(known, **settings),
        "B = 0": partial(known, share=0.0, **settings),
        "OFUL": partial(oful, **settings),
    }
    found = regrets(part, "run", confounded_world, learners, 10_000, 6, 100_000, 8)
    rows = summary_rows(found, "R12 known")
    ratios = np.array(found["B = 0"]) / np.array(found["R12 known"])
    for row in rows:
        row["times R12 known"] = row["regret"] / rows[0]["regret"]
        row["smallest of any seed"] = float(ratios.min()) if row["learner"] == "B = 0" else None
    return rows


def deconfounding_holds(rows: list[Row]) -> bool:
    return next(row["times R12 known"] for row in rows if row["learner"] == "B = 0") >= 1.4


PAPER = {"noise": 0.05, "alpha": 0.01, "regularization": 0.1, "delta": 0.01, "radius": "printed"}
"""The paper's learners in the text's world, as figure (a) has them."""


def paper_text(seed: int) -> Any:
    """Weights and policy shared by all seeds, as in the paper."""
    return sl.worlds.PaperWorld.preset("paper_text", seed=0)


def oful_after_first_plays(run: sl.Run, **settings: Any) -> Any:
    """OFUL that plays every arm once first, as the paper's released code does; without, it may hardly try any."""
    return FirstPlays(oful(run, **settings))


def recorded_features(part: Part) -> list[Row]:
    """The paper's figure (a): known and estimated R12 over L."""
    rows = []
    for recorded in (0, 5, 10, 15, 20, 25):
        learners: dict[str, Any] = {"R12 known": partial(known, **PAPER), "every round": partial(every_round, **PAPER)}
        if recorded == 0:
            first = partial(oful_after_first_plays, **PAPER)
            learners = {"no log": partial(oful, **PAPER), "no log, each arm first": first}
        found = regrets(part, f"L{recorded}", paper_text, learners, 100_000, recorded, 1_000_000, 6)
        for row in summary_rows(found, next(iter(learners)), L=recorded):
            rows.append({name: row[name] for name in ("L", "learner", "seeds", "regret", "low", "high")})
    return rows


def recorded_features_hold(rows: list[Row]) -> bool:
    """25 recorded features cost less than none, known or estimated, whether or not a cold start tries every arm."""
    cold = min(row["low"] for row in rows if row["L"] == 0)
    return all(row["high"] < cold for row in rows if row["L"] == 25)


def authors_code(seed: int) -> Any:
    return sl.worlds.PaperWorld.preset("authors_code", seed=0)


def finite_logs(part: Part) -> list[Row]:
    """The hard constraint over the length of the log, against OFUL, in the setting of the authors' released code."""
    settings = {"noise": 1.0, "alpha": 0.01, "regularization": 0.1, "delta": 0.01}
    rows = []
    for log_rows in (10_000, 1_000_000):
        learners = {
            "OFUL": partial(oful, **settings),
            "OFUL, each arm first": partial(oful_after_first_plays, **settings),
            "OFUL, automatic": partial(oful, regularization="auto", radius="posterior"),
            "R12 known": partial(known, **settings),
            "FusedOFUL": fused,
        }
        found = regrets(part, f"N{log_rows}", authors_code, learners, 100_000, 25, log_rows, 6)
        alike = {row["learner"]: row for row in summary_rows(found, "OFUL, automatic")}
        for row in summary_rows(found, "OFUL", **{"log rows": log_rows}):
            same = alike[row["learner"]]
            figures = {
                "minus automatic": same["minus OFUL, automatic"],
                "of it from": same["from"],
                "of it to": same["to"],
            }
            rows.append({**row, **figures})
    return rows


def finite_logs_hold(rows: list[Row]) -> bool:
    """At 10⁴ rows the constraint does harm, at 10⁶ it helps; both beyond what the seeds leave open."""
    constraint = {row["log rows"]: row for row in rows if row["learner"] == "R12 known"}
    return constraint[10_000]["from"] > 0 and constraint[1_000_000]["to"] < 0


# ------------------------------------------------------------------------------------------------------ timings


# ---------------------------------------------------------------------------------------------------- calibration

WORLDS = 60


def calibration(part: Part) -> list[Row]:
    """``ξᵀΛξ/L``: the squared error of what a fused learner takes from a log, in units of what it claims."""
    from scipy.stats import t as student

    rows = []
    for case in ("one log, 1,000 rows", "one log, 50,000 rows", "R12 known, 1,000 rows", "two logs that share answers"):
        found = part(case, partial(_log_errors_of, case))
        means = [float(np.mean(values)) for values in found]
        half = float(student.ppf(0.975, WORLDS - 1) * np.std(means, ddof=1) / np.sqrt(WORLDS))
        mean, largest = float(np.mean(means)), max(max(values) for values in found)
        figures = {"mean": mean, "low": mean - half, "high": mean + half, "largest": largest}
        rows.append({"case": case, "worlds": WORLDS, **figures})
    return rows


def _log_errors_of(case: str) -> list[list[float]]:
    from tests.statistical.fused_worlds import log_errors, log_of, play, small_world

    found = []
    for seed in range(WORLDS):
        rng, world = np.random.default_rng([seed, 7]), small_world(seed=seed)
        if case.startswith("two"):
            logs = [sl.BehaviorQueries(log_of(world, 20_000, columns, rng)) for columns in ([0, 1, 2, 3], [0, 4])]
        else:
            summary = log_of(world, 50_000 if "50,000" in case else 1_000, 4, rng)
            known = case.startswith("R12")
            logs = [sl.KnownCrossMoments(summary, world.cross_moments(4)) if known else sl.BehaviorQueries(summary)]
        learner = sl.FusedOFUL(logs)
        play(world, learner, 300, rng)
        learner._relearn()
        found.append(log_errors(learner, world))
    return found


def calibration_holds(rows: list[Row]) -> bool:
    """One log: within 30 % of 1; two: no surer than that."""
    return all((row["mean"] >= 0.7 or row["case"].startswith("two")) and row["mean"] <= 1.3 for row in rows)


def import_time(part: Part) -> list[Row]:
    """Best wall time of a new process, less that of a process that imports nothing: other work only adds to it."""
    commands = {
        "import sidelight": "import sidelight",
        "import sidelight; sidelight.OFUL": "import sidelight; sidelight.OFUL",
        "sidelight --help": "from sidelight.cli import main\ntry: main(['--help'])\nexcept SystemExit: pass",
    }
    idle = _best_seconds("pass")
    return [
        {"what": name, "seconds": max(_best_seconds(command) - idle, 0.0), "repetitions": REPETITIONS}
        for name, command in commands.items()
    ]


REPETITIONS = 11


def _best_seconds(command: str) -> float:
    import time

    times = []
    for _ in range(REPETITIONS):
        started = time.perf_counter()
        subprocess.run([sys.executable, "-c", command], check=True, stdout=subprocess.DEVNULL)
        times.append(time.perf_counter() - started)
    return min(times)


def log_pass(part: Part) -> list[Row]:
    """``benchmarks/log.py``: summarizing a log against reading it, and against the ways people do it now."""
    from benchmarks.log import measure

    found = measure()
    base, reading = found["seconds"]["Sidelight"], found["seconds"]["reading the columns"]
    return [
        {"what": name, "seconds": seconds, "times Sidelight": seconds / base, "times reading": seconds / reading}
        for name, seconds in found["seconds"].items()
    ]


def log_pass_holds(rows: list[Row]) -> bool:
    return next(row["times reading"] for row in rows if row["what"] == "Sidelight") <= 3.5


def log_memory(part: Part) -> list[Row]:
    """``benchmarks/scale.py``."""
    from benchmarks.scale import measure

    found = measure()
    columns = ("rows", "GB on disk", "seconds", "million rows per second", "peak MB")
    return [{name: found[name] for name in columns}]


# --------------------------------------------------------------------------------------------------------- verdict


def verdict_grid(stage: str, part: Part) -> list[Row]:
    """A grid of ``benchmarks/verdict.py``, 1,000 logs in each cell, one kept piece for each cell."""
    from benchmarks.verdict import GRIDS

    cells, measured = GRIDS[stage]
    return [part(f"{stage}-{i}", partial(measured, cell)) for i, cell in enumerate(cells)]


def covers(rows: list[Row], *stages: str) -> bool:
    """At least 93 % in every cell."""
    return all(row[stage] >= 0.93 for row in rows for stage in stages)


# ---------------------------------------------------------------------------------------------------------- rivals

ZOO_ROUNDS = 2_000


def rivals(part: Part) -> list[Row]:
    """What the result files of ``python -m benchmarks.rivals`` say at this state of ``src/``, worlds and data apart.

    Raises:
        SystemExit: there are none.
    """
    from benchmarks.cells import CELLS
    from benchmarks.rivals.data import DATA, FETCHED_DATA, UNSEEN_DATA
    from benchmarks.rivals.table import BAR, WORST, closest_rival, geometric_mean, groups
    from benchmarks.rivals.table import rows as found_in

    out = []
    cells = [*CELLS.values(), *DATA.values(), *FETCHED_DATA.values(), *UNSEEN_DATA.values()]
    for where, found in groups(found_in(cells, ZOO_ROUNDS, None, source_hash())).items():
        highs, values = [row.against.high for row in found], [row.against.value for row in found]
        mean, low, high = geometric_mean(found)
        closest, single = closest_rival(found)
        out.append(
            {
                "where": where,
                "cells": len(found),
                "seeds": min(row.seeds for row in found),
                "mean ratio": mean,
                "low": low if low == low else None,  # not a number with a single seed
                "high": high if high == high else None,
                "best single rival": closest,
                "mean ratio to it": single,
                "largest": max(values),
                "mean at most 1": sum(value <= 1.0 for value in values),
                "mean at most 1.05": sum(value <= BAR for value in values),
                "surely above 1": sum(row.against.low > 1.0 for row in found),
                "within 1.05": sum(high <= BAR for high in highs),
                "within 1.10": sum(high <= WORST for high in highs),
            }
        )
    if not out:
        raise SystemExit("rivals: first run python -m benchmarks.rivals --cells all, which resumes and takes hours")
    return out


def rivals_hold(rows: list[Row]) -> bool:
    """Nine cells of ten within 1.05, all within 1.10."""
    cells = sum(row["cells"] for row in rows)
    return sum(row["within 1.05"] for row in rows) >= 0.9 * cells and sum(row["within 1.10"] for row in rows) == cells


CLAIMS: dict[str, Claim] = {
    claim.name: claim
    for claim in (
        Claim(
            "rivals",
            "No rival does better by more than 5 % in nine cells of ten, nor by more than 10 % in any",
            "Summary of [the table](rivals.md): the ratio of the default learner's regret to that of the best rival of "
            "the cell, whose settings were chosen on other seeds; *within* counts cells whose 95 % interval ends "
            "below. "
            "The mean is geometric, its interval a jackknife over seeds. First `python -m benchmarks.rivals --cells "
            "worlds data fetched unseen --first-seed 900 --seeds N --workers 2`, which "
            "resumes (`--plan` says how long it takes).",
            rivals,
            rivals_hold,
            30_000,
        ),
        Claim(
            "coverage",
            "Confidence sets fail no more often than δ",
            f"Algorithm 1 with exact side information, 2 arms, 2 recorded and m open directions, λ = 0.1, σ = 1, "
            f"S_w = 0.1, {ROUNDS} rounds; a run misses if any set fails at any round. The claim is about the default "
            "radius, `determinant`; the paper's, `printed`, is there for comparison.",
            coverage,
            coverage_holds,
            600,
        ),
        Claim(
            "deconfounding",
            "Pretending that nothing is hidden costs at least 1.4 times the regret",
            "`ConfoundedWorld`, one world for each seed; Algorithm 1 with its default radius, log of 100,000 rows, "
            "10,000 rounds.",
            deconfounding,
            deconfounding_holds,
            60,
        ),
        Claim(
            "recorded_features",
            "With 25 of 30 features recorded the paper's learner has less regret than without a log, R12 known or not",
            "The paper's world as its text describes it (d = K = 30, σ = 0.05), a log of a million rows, 100,000 "
            "rounds, α = 0.01, λ = 0.1, δ = 0.01, the radius as printed: figure (a), with a log of its own for each "
            "seed. L = 0 is OFUL; *each arm first* plays every arm once first, as the authors' code does and the text "
            "does not say. The claim is about L = 25, against both.",
            recorded_features,
            recorded_features_hold,
            900,
        ),
        Claim(
            "finite_logs",
            "A short log does harm as a constraint",
            "The setting of the authors' released code (d = K = 30, L = 25, σ = 1, α = 0.01, λ = 0.1), 100,000 rounds. "
            "The claim is about the constraint with R12 known; for comparison `FusedOFUL`, automatic, OFUL that plays "
            "every arm once first, as the authors' code does, and OFUL with the automatic prior that `FusedOFUL` has.",
            finite_logs,
            finite_logs_hold,
            600,
        ),
        Claim(
            "calibration",
            "The error that a fused learner claims for a log is about the error it makes",
            "Small confounded worlds (4 arms, 6 features, 2 hidden), `FusedOFUL` with default arguments, 300 rounds; "
            "the mean over arms and worlds of `ξᵀΛξ/L`, of which 1 is right and less is cautious, and the largest of "
            "any arm. For an arm that is hardly ever played the learned `τ²` can be far too small. Two logs: 20,000 "
            "rows each, one with four of the features and one with two; counting their shared answers twice is "
            "avoided by caution. Features are normal here: where they are far from it, a known R12 errs by more than "
            "is claimed (`docs/explanation/fused.md`).",
            calibration,
            calibration_holds,
            60,
        ),
        Claim(
            "verdict_answers",
            "The verdict's intervals from a log and from answers hold the truth in at least 93 % of logs in every cell",
            '24 cells (`benchmarks/verdict.py`): features, strength of the hidden part ("worst": `σ ≈ 0`, `w_h ∝ '
            "Σ_e⁻¹g`), sharpness of the old policy, rows, answers. Stage 1 is told the true strength, stage 2 nothing; "
            "*naive* is the sampling interval alone. Monte Carlo error of a coverage near 0.95 (two standard errors): "
            "0.014.",
            partial(verdict_grid, "answers"),
            lambda rows: covers(rows, "stage 1", "stage 2"),
            260,
        ),
        Claim(
            "verdict_complete",
            "The verdict's intervals from complete rows hold the truth in at least 93 % of samples in every cell",
            "Linear and curved rewards, propensities known, or estimated with the right model; *of known*: width "
            "against that with known propensities. Monte Carlo error of a coverage near 0.95 (two standard errors): "
            "0.014.",
            partial(verdict_grid, "complete"),
            lambda rows: covers(rows, "stage 3") and all((row["of known"] or 1.0) <= 1.3 for row in rows),
            170,
        ),
        Claim(
            "verdict_sequences",
            "Looked at after every unit, a comparison without a difference errs in at most 5 % of runs",
            "From the first unit at which it may speak to 20,000 units; both directions count.",
            partial(verdict_grid, "sequences"),
            lambda rows: all(row["false verdicts"] <= 0.05 + 0.014 for row in rows),
            130,
        ),
        Claim(
            "verdict_widths",
            "Answers narrow the verdict's interval to at most 0.65 of what the log alone must allow",
            "20 worlds, 4 arms, 9 features of which 4 hidden, 20,000 rows, 500 answers, a fixed arm and a rule; the "
            "log alone at `reward_share=1, choice_share=0.5`. *of stage 1*: the mean over worlds and policies, *least* "
            "and *most* among them; *of it bias*: the part of it that hidden features can do, which no number of "
            "answers lowers.",
            partial(verdict_grid, "widths"),
            lambda rows: all(row["of stage 1"] <= 0.65 for row in rows),
            35,
        ),
        Claim(
            "gate",
            "The gate steps falsely in at most 5 % of runs, and promotes within 1.5 times a fixed-sample test",
            "Simulated services with a clock of their own (`python -m benchmarks.gate`), an error rate of 5 %, a "
            "ladder of 10, 50 and 95 %, looked at after every event; the first 50 runs of each scenario by the real "
            "fold, all by compiled sums that must agree with it to the bit. The fixed-sample test has a power of 90 % "
            "and was told the gain.",
            gate.measure,
            gate.holds,
            800,
        ),
        Claim(
            "floor",
            "A floor of 90 % of the old policy's reward is broken in at most 5 % of runs, whatever the log says",
            "Three arms, five features of which two are hidden (`python -m benchmarks.floor`), δ = 5 %; with negative "
            "rewards the floor is an allowance a round. *Least room*: how far above what was promised the expected "
            "total was at its worst, in the mean over runs; *old arm kept*: the share of rounds in which the floor "
            "held the learner back.",
            floor.measure,
            lambda rows: all(float(row["interval"].split(" ")[0]) <= floor.DELTA for row in rows),
            2_400,
        ),
        Claim(
            "floor_regret",
            "On honest logs regret with a floor of 90 % is at most 1.1 times that without",
            "The same worlds, positive rewards, the same contexts and noise with and without the floor.",
            floor.measure_regret,
            lambda rows: rows[0]["ratio"] <= 1.1,
            120,
        ),
        Claim(
            "log_pass",
            "Summarizing a log takes at most 3.5 times as long as reading it",
            "2 million rows of 25 recorded features and 30 arms in one Parquet file, warm cache, best of five in turns "
            "(`python -m benchmarks log`); the row-by-row loop is scaled from 20,000 rows.",
            log_pass,
            log_pass_holds,
            120,
            timing=True,
        ),
        Claim(
            "log_memory",
            "50 million rows are summarized in under 600 MB",
            "25 recorded features, 30 arms, Parquet files of 5 million rows, in a process of its own "
            "(`python -m benchmarks.scale`).",
            log_memory,
            lambda rows: rows[0]["peak MB"] < 600,
            400,
        ),
        Claim(
            "import_time",
            "Importing Sidelight takes less than 0.3 seconds",
            "A new process for each repetition, the best of them; the time of an empty Python process is subtracted.",
            import_time,
            lambda rows: rows[0]["seconds"] < 0.3,
            20,
            timing=True,
        ),
    )
}
