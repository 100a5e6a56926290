"""The log pass on a Dask cluster: here two processes of this machine, for you the address of a scheduler.

The result does not depend on the workers, and equals that of one machine. It needs the extra ``cluster``.
"""

import tempfile
import time
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
from distributed import Client, LocalCluster

import sidelight as sl

FILES, ROWS = 8, 50_000

if __name__ == "__main__":
    world = sl.worlds.ConfoundedWorld(seed=2, n_features=20, n_hidden=5)
    schema = world.schema(world.default_recorded)
    with tempfile.TemporaryDirectory() as folder:
        for part in range(FILES):
            log = world.sample_log(ROWS, world.default_recorded, np.random.default_rng(part))
            pq.write_table(log, Path(folder) / f"part-{part}.parquet")
        source = f"{folder}/part-*.parquet"

        with (
            LocalCluster(n_workers=2, threads_per_worker=1, dashboard_address=None, memory_limit=0) as cluster,
            Client(cluster) as client,  # yours: Client("tcp://scheduler:8786")
        ):
            started = time.perf_counter()
            there = sl.summarize_log(source, schema, client=client)
            print(f"on the cluster: {there} in {time.perf_counter() - started:.1f} s")

        here = sl.summarize_log(source, schema)
    difference = np.abs(there.coefficients - here.coefficients).max()
    print(f"largest difference of a coefficient to one machine: {difference:.1e}")
    assert there.n_rows == FILES * ROWS
    assert difference < 1e-9

    learner = sl.FusedOFUL(sl.BehaviorQueries(there))
    print(learner.decide(world.contexts(1, np.random.default_rng(99))[0]))
