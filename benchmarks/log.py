"""How fast a log is summarized: against reading it, and against the ways people do it now.

``python -m benchmarks log [--rows N]``: 2 million rows, 25 recorded float64 features, 30 arms, PyArrow's default writer
with row groups of 131,072, warm cache, validation on. All in one run; each time is the best of a few, taken in turns.
"""

from __future__ import annotations

import argparse
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from sidelight.logs.schema.schema import Schema
from sidelight.logs.summarize import summarize_here

FEATURES, ARMS, GROUP = 25, 30, 131_072
NAMES = [f"x{i}" for i in range(FEATURES)]
COLUMNS = [*NAMES, "arm", "reward"]
SCHEMA = Schema([*NAMES, "hidden"], NAMES)
# The row-by-row loop would take minutes: it runs on this many rows, and its time is scaled.
LOOP_ROWS = 20_000


def write_log(path: Path, rows: int, seed: int = 0) -> None:
    """A log of random numbers, written a row group at a time, so that memory does not grow."""
    weights = np.random.default_rng(0).normal(size=(ARMS, FEATURES))
    rng = np.random.default_rng([seed, 1])
    types = [*((name, pa.float64()) for name in NAMES), ("arm", pa.int64()), ("reward", pa.float64())]
    with pq.ParquetWriter(path, pa.schema(types)) as writer:
        for first in range(0, rows, GROUP):
            n = min(GROUP, rows - first)
            X = rng.normal(size=(n, FEATURES))
            arms = rng.integers(0, ARMS, n)
            rewards = (X * weights[arms]).sum(axis=1) + rng.normal(size=n)
            columns = [*(pa.array(X[:, j]) for j in range(FEATURES)), pa.array(arms), pa.array(rewards)]
            writer.write_table(pa.table(columns, names=COLUMNS), row_group_size=GROUP)


def read_and_drop(path: Path) -> None:
    """The same columns, decoded by all cores, a row group at a time, and dropped."""
    with pq.ParquetFile(path) as file:
        for group in range(file.num_row_groups):
            file.read_row_group(group, columns=COLUMNS)


def ours(path: Path, threads: int | None = None) -> np.ndarray:
    return summarize_here(path, SCHEMA, threads=threads).coefficients


def ours_on_one_core(path: Path) -> np.ndarray:
    before = pa.cpu_count()
    pa.set_cpu_count(1)
    try:
        return ours(path, threads=1)
    finally:
        pa.set_cpu_count(before)


def pandas_groupby(path: Path) -> np.ndarray:
    import pandas as pd

    frame = pd.read_parquet(path, columns=COLUMNS)
    fits = [
        np.linalg.lstsq(part[NAMES].to_numpy(), part["reward"].to_numpy(), rcond=None)[0]
        for _, part in frame.groupby("arm", sort=True)
    ]
    return np.array(fits)


def scikit_learn(path: Path) -> np.ndarray:
    from sklearn.linear_model import LinearRegression

    table = pq.read_table(path, columns=COLUMNS)
    X = np.column_stack([table[name].to_numpy() for name in NAMES])
    arms, rewards = table["arm"].to_numpy(), table["reward"].to_numpy()
    return np.array(
        [LinearRegression(fit_intercept=False).fit(X[arms == a], rewards[arms == a]).coef_ for a in range(ARMS)]
    )


def duckdb_sums(path: Path) -> np.ndarray:
    import duckdb

    pairs = [(i, j) for i in range(FEATURES) for j in range(i, FEATURES)]
    sums = [f"sum(x{i} * x{j})" for i, j in pairs] + [f"sum(x{i} * reward)" for i in range(FEATURES)]
    rows = duckdb.sql(f"select {', '.join(sums)} from '{path}' group by arm order by arm").fetchall()
    fits = []
    for row in rows:
        gram = np.zeros((FEATURES, FEATURES))
        for (i, j), value in zip(pairs, row, strict=False):
            gram[i, j] = gram[j, i] = value
        fits.append(np.linalg.solve(gram, np.array(row[len(pairs) :])))
    return np.array(fits)


def row_by_row(path: Path) -> None:
    """Sums of products in a loop, as a textbook writes it."""
    with pq.ParquetFile(path) as file:
        batch = next(file.iter_batches(LOOP_ROWS, columns=COLUMNS))
    grams, cross = np.zeros((ARMS, FEATURES, FEATURES)), np.zeros((ARMS, FEATURES))
    for row in batch.to_pylist():
        x = np.array([row[name] for name in NAMES])
        grams[row["arm"]] += np.outer(x, x)
        cross[row["arm"]] += x * row["reward"]


def measure(rows: int = 2_000_000, repeats: int = 5, slow_repeats: int = 2) -> dict[str, Any]:
    """Seconds of everything, and the ratios that are judged."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "log.parquet"
        write_log(path, rows)
        quick: dict[str, Callable[[Path], Any]] = {
            "reading the columns": read_and_drop,
            "Sidelight": ours,
            "Sidelight, one core": ours_on_one_core,
        }
        slow: dict[str, Callable[[Path], Any]] = {
            "pandas groupby, least squares": pandas_groupby,
            "scikit-learn per arm": scikit_learn,
            "DuckDB sums of products": duckdb_sums,
            "row by row": row_by_row,
        }
        results = {name: function(path) for name, function in quick.items()}  # warms caches, compiles
        seconds = _best(quick, path, repeats)
        for name, function in slow.items():
            results[name] = function(path)
        seconds.update(_best(slow, path, slow_repeats))
    seconds["row by row"] *= rows / min(LOOP_ROWS, rows)
    for name in ("pandas groupby, least squares", "scikit-learn per arm", "DuckDB sums of products"):
        np.testing.assert_allclose(results[name], results["Sidelight"], rtol=1e-6, atol=1e-8)
    return {
        "rows": rows,
        "seconds": seconds,
        "times reading": seconds["Sidelight"] / seconds["reading the columns"],
        "two cores over one": seconds["Sidelight, one core"] / seconds["Sidelight"],
        "ahead": {name: seconds[name] / seconds["Sidelight"] for name in slow},
    }


def _best(functions: dict[str, Callable[[Path], Any]], path: Path, repeats: int) -> dict[str, float]:
    """The best time of each, taken in turns, so that a busy moment does not fall on one of them."""
    times: dict[str, list[float]] = {name: [] for name in functions}
    for _ in range(repeats):
        for name, function in functions.items():
            started = time.perf_counter()
            function(path)
            times[name].append(time.perf_counter() - started)
    return {name: min(values) for name, values in times.items()}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=2_000_000)
    found = measure(parser.parse_args().rows)
    base = found["seconds"]["Sidelight"]
    print(f"{found['rows']:,} rows x {FEATURES} features, {ARMS} arms")
    for name, seconds in found["seconds"].items():
        print(f"  {name:32} {seconds:8.3f} s   {seconds / base:8.2f} x Sidelight")
    print(f"Sidelight takes {found['times reading']:.2f} x the time of reading (3.5 is the limit, 2.5 excellent)")
    print(f"two cores are {found['two cores over one']:.2f} x as fast as one")


if __name__ == "__main__":
    main()
