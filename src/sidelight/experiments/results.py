"""Result files: one for each setting and seed, written whole or not at all, and the tidy table of a figure."""

from __future__ import annotations

import io
import json
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray

from sidelight.errors import FileFormatError, InputError
from sidelight.experiments.figure_settings import Figure, LogSetting, MomentSetting, RunSetting, digest
from sidelight.files import write_atomically
from sidelight.version import __version__

__all__ = ["Results", "about"]


class Results:
    """A folder of results.

    ``runs/<digest>-<seed>.parquet`` holds one run, ``logs/<digest>.summary`` and ``logs/<digest>.npy`` a log and true
    cross moments that runs share, ``<figure>.parquet`` everything a figure is drawn from.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def run_path(self, setting: RunSetting, seed: int) -> Path:
        """Where the result of this run is."""
        return self.folder / "runs" / f"{digest(setting)}-{seed}.parquet"

    def log_path(self, setting: LogSetting) -> Path:
        """Where the summary of this log is."""
        return self.folder / "logs" / f"{digest(setting)}.summary"

    def figure_path(self, figure: Figure) -> Path:
        """Where the tidy table of this figure is."""
        return self.folder / f"{figure.name}.parquet"

    def has_run(self, setting: RunSetting, seed: int) -> bool:
        """Whether this run is done, by this version of Sidelight."""
        path = self.run_path(setting, seed)
        if not path.exists():
            return False

        return bool(about(pq.read_schema(path), path)["version"] == __version__)

    def keep_run(self, setting: RunSetting, seed: int, table: pa.Table) -> None:
        """Write a run's result to a temporary file and rename it, so that a file that exists is complete."""
        _write(self.run_path(setting, seed), table)

    def log(self, setting: LogSetting) -> bytes | None:
        """The summary of a log, if it has been drawn."""
        path = self.log_path(setting)
        return path.read_bytes() if path.exists() else None

    def keep_log(self, setting: LogSetting, content: bytes) -> None:
        """Write the summary of a log."""
        path = self.log_path(setting)
        path.parent.mkdir(parents=True, exist_ok=True)
        write_atomically(path, content)

    def moments(self, setting: MomentSetting) -> NDArray[np.float64] | None:
        """True cross moments, if they have been computed."""
        path = self._moments_path(setting)
        return np.load(path, allow_pickle=False) if path.exists() else None

    def keep_moments(self, setting: MomentSetting, moments: NDArray[np.float64]) -> None:
        """Write true cross moments."""
        path = self._moments_path(setting)
        path.parent.mkdir(parents=True, exist_ok=True)
        buffer = io.BytesIO()
        np.save(buffer, moments, allow_pickle=False)
        write_atomically(path, buffer.getvalue())

    def _moments_path(self, setting: MomentSetting) -> Path:
        return self.folder / "logs" / f"{digest(setting)}.npy"

    def gather(self, figure: Figure, seeds: int) -> pa.Table:
        """The tidy table of a figure from its runs' files, also written as ``<figure>.parquet``.

        Columns ``figure, series, x, learner, recorded, log_rows, horizon, settings, version, machine, seed, round,
        arm, reward, regret``. Runs that a learner refused are missing from it and named in the metadata.
        """
        parts, refused = [], {}
        for cell in figure.cells:
            mine, why = [], ""
            for seed in range(seeds):
                path = self.run_path(cell.setting, seed)
                if not path.exists():
                    raise InputError(
                        f"figure {figure.name}: the run of {cell.series!r}{_at(cell.x)} with seed {seed} is not there "
                        f"({path}). Run the figure first, without --redraw."
                    )
                table = pq.read_table(path)
                told = about(table.schema, path)
                why = why or told["refused"]
                mine.append(_labelled(table, figure, cell, told))
            # where one seed's log is too small the others are left out too: their mean would not be comparable
            if why:
                refused[f"{cell.series}{_at(cell.x)}"] = why
            else:
                parts += mine
        if not parts:
            raise InputError(f"figure {figure.name}: no learner could start from its log.")
        gathered = pa.concat_tables(parts)
        gathered = gathered.replace_schema_metadata({"refused": json.dumps(refused), "figure": figure.name})
        _write(self.figure_path(figure), gathered)
        return gathered


def _at(x: float | str | None) -> str:
    return "" if x is None else f" at {x:,}" if isinstance(x, int | float) else f" at {x}"


def _labelled(table: pa.Table, figure: Figure, cell: Any, told: dict[str, Any]) -> pa.Table:
    setting: RunSetting = cell.setting
    n = table.num_rows
    described = {
        "options": dict(setting.learner.values),
        "queries": setting.learner.queries,
        "world": {"kind": setting.world.kind, **dict(setting.world.values)},
    }
    constant: dict[str, tuple[Any, Any]] = {
        "figure": (figure.name, pa.string()),
        "series": (cell.series, pa.string()),
        "x": ("" if cell.x is None else str(cell.x), pa.string()),
        "learner": (setting.learner.kind, pa.string()),
        "recorded": (setting.recorded, pa.int64()),
        "log_rows": (setting.log_rows if setting.learner.uses_log else 0, pa.int64()),
        "horizon": (setting.horizon, pa.int64()),
        "settings": (json.dumps(described, sort_keys=True), pa.string()),
        "version": (told["version"], pa.string()),
        "machine": (json.dumps(told["machine"], sort_keys=True), pa.string()),
    }
    columns = {
        name: pa.array([value] * n, kind).dictionary_encode() if kind == pa.string() else pa.array([value] * n, kind)
        for name, (value, kind) in constant.items()
    }
    columns |= {name: table[name].combine_chunks() for name in ("seed", "round", "arm", "reward", "regret")}
    return pa.table(columns)


def about(schema: pa.Schema, path: Path) -> dict[str, Any]:
    """The metadata of a run's file: setting, seed, version, machine."""
    held = (schema.metadata or {}).get(b"sidelight")
    if held is None:
        raise FileFormatError(f"{path} is not a result of Sidelight; move it away.")
    told: dict[str, Any] = json.loads(held)
    return told


def _write(path: Path, table: pa.Table) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    buffer = io.BytesIO()
    pq.write_table(table, buffer, compression="zstd")
    write_atomically(path, buffer.getvalue())
