"""MABWiser and contextualbandits themselves, as pip installs them, warm-started from the log.

Each runs in an environment of its own (``benchmarks/peers``), which the first run makes; nothing of them is needed to
use or test Sidelight. They start from the log's rows with zeros for what it lacks, or with the columns that
scikit-learn's ``IterativeImputer`` fills in, fitted to the log and to the contexts seen so far, again whenever those
have doubled. Their widths are multiples of the log's residual deviation, tuned; the ridge parameter is 1. Of several
logs they have the newest.
"""

from __future__ import annotations

import json
import os
import subprocess
import tempfile
from pathlib import Path
from typing import Any

import numpy as np

import sidelight as sl
from benchmarks.cells import CELLS
from benchmarks.paired import Setting, play
from benchmarks.peers.environments import peers_known, python_of
from benchmarks.rivals.data import DATA, DataSetting
from benchmarks.rivals.practice import ZeroStart
from benchmarks.rivals.ridge import noise_of
from sidelight.simulation import WORKER_ENVIRONMENT

Array = Any
LOOP = Path(__file__).with_name("package_loop.py")
SECONDS = 1_800
LIBRARIES = ("mabwiser", "contextualbandits")

#: name in the table → library, how it starts, and the values that are tried of its settings
PACKAGES: dict[str, tuple[str, str, dict[str, tuple[float, ...]]]] = {
    "MABWiser, zeros": ("mabwiser", "zeros", {"alpha": (0.1, 0.3, 1.0)}),
    "MABWiser, imputed": ("mabwiser", "imputed", {"alpha": (0.1, 0.3, 1.0)}),
    "contextualbandits, zeros": ("contextualbandits", "zeros", {"alpha": (0.1, 0.3, 1.0)}),
    "contextualbandits, imputed": ("contextualbandits", "imputed", {"alpha": (0.1, 0.3, 1.0)}),
}


def task_of(
    library: str, start: str, setting: Setting | DataSetting, settings: dict[str, float]
) -> tuple[dict[str, Any], dict[str, Array]]:
    """What ``package_loop.py`` is given: the task, and its arrays."""
    schema, log_X, log_arms, log_rewards = setting.newest_rows
    log_X = log_X.copy()
    log_X[:, schema.hidden_index] = np.nan
    X, rewards, _, _, _ = setting.draws
    task = {
        "library": library,
        "start": start,
        "settings": {**settings, "alpha": settings["alpha"] * noise_of(setting.summary)},
        "delay": setting.cell.delay,
        "batch": setting.cell.batch,
    }
    return task, {"X": X, "rewards": rewards, "log_X": log_X, "log_arms": log_arms, "log_rewards": log_rewards}


def package_choices(library: str, start: str, setting: Setting | DataSetting, settings: dict[str, float]) -> Array:
    """The arms that a package takes in one setting, as positions.  (rounds,)

    Raises:
        benchmarks.peers.environments.NotInstalled: pip could not install it.
        RuntimeError: it failed.
    """
    peer = next(peer for peer in peers_known() if peer.name == library)
    task, arrays = task_of(library, start, setting, settings)
    with tempfile.TemporaryDirectory() as folder:
        given, found = Path(folder) / "task.npz", Path(folder) / "result.npz"
        np.savez(given, task=np.array(json.dumps(task)), **arrays)
        command = [str(python_of(peer)), str(LOOP), str(given), str(found)]
        environment = {**os.environ, **WORKER_ENVIRONMENT}
        done = subprocess.run(command, capture_output=True, text=True, timeout=SECONDS, env=environment)
        if done.returncode:
            raise RuntimeError(f"{library} failed in {setting.cell.name!r}: {done.stderr.strip().splitlines()[-1]}")
        with np.load(found) as stored:
            return np.asarray(stored["played"])


def package_regret(name: str, setting: Setting | DataSetting, settings: dict[str, float]) -> Array:
    """Cumulative regret (rounds,) of a package in one setting."""
    library, start, _ = PACKAGES[name]
    played = package_choices(library, start, setting, settings)
    means = setting.draws[2]
    return np.cumsum(means.max(axis=1) - means[np.arange(len(means)), played])


class Noted(ZeroStart):
    """Writes down which arms it takes."""

    def __init__(self, summary: sl.LogSummary, alpha: float) -> None:
        super().__init__(summary, alpha)
        self.taken: list[int] = []

    def _choose(self, x: Array, rng: np.random.Generator | None) -> int:
        self.taken.append(super()._choose(x, rng))
        return self.taken[-1]


def main() -> None:
    """How often each package takes the arm that our own ``ZeroStart`` takes, with zeros and the same width, and both
    packages take the same with imputed columns."""
    for name in ("base", "size: K = 2", "rounds: delay of 100"):
        setting = Setting(CELLS[name], 0, 500)
        ours = Noted(setting.summary, 0.3)
        play(ours, setting)
        for library in LIBRARIES:
            same = np.mean(package_choices(library, "zeros", setting, {"alpha": 0.3}) == np.array(ours.taken))
            print(f"{name:24} {library:20} the same arm in {same:.1%} of {len(ours.taken)} rounds", flush=True)
    for name in ("wine", "iris"):
        data = DataSetting(DATA[name], 0, 500)
        first, second = (package_choices(library, "imputed", data, {"alpha": 0.3}) for library in LIBRARIES)
        print(
            f"{name:24} imputed columns, both the same arm in {np.mean(first == second):.1%} of 500 rounds", flush=True
        )


if __name__ == "__main__":
    main()
