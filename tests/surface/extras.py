"""What must work with the base alone and with one extra: ``python extras.py base``, or ``figures``, ….

``make wheels`` runs this in clean environments into which the built wheel was installed with one extra;
``test_extras.py`` runs the base with everything else blocked. It imports nothing of the tests.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
from pathlib import Path

#: extra → modules that it brings; the base must not need them
BRINGS = {
    "figures": ["altair", "vl_convert"],
    "cluster": ["dask", "distributed"],
    "service": [
        "starlette",
        "msgspec",
        "uvicorn",
        "httptools",
        "sqlalchemy",
        "psycopg",
        "httpx",
        "prometheus_client",
    ],
    "telemetry": ["opentelemetry"],
}
#: what users may bring, and nobody must
FRAMES = ["pandas", "polars", "duckdb", "sklearn", "statsmodels"]


def command(*words: str) -> str:
    """``sidelight …`` in a process of its own, under the same blocks; fails where it fails."""
    code = BLOCK.format(names=sorted(BLOCKED)) + f"\nfrom sidelight.cli import main\nmain({list(words)!r})"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    if done.returncode:
        raise SystemExit(f"sidelight {' '.join(words)}\n{done.stdout}{done.stderr}")
    return done.stdout


#: put before any code: these modules are not there
BLOCK = """
from importlib.machinery import PathFinder
find = PathFinder.find_spec
PathFinder.find_spec = lambda name, path=None, target=None: (
    None if name.split(".")[0] in {names} else find(name, path, target)
)
"""
BLOCKED: set[str] = set()


def base() -> None:
    """A CSV file to a diagnosis, a learner, decisions for a file, a simulation, a summary on the command line."""
    import numpy as np
    import pyarrow.csv

    import sidelight as sl

    world, rng = sl.worlds.DosingWorld(), np.random.default_rng(0)
    recorded = world.default_recorded
    pyarrow.csv.write_csv(world.sample_log(500, recorded, rng), "log.csv")
    pyarrow.csv.write_csv(world.sample_log(20, world.features, rng), "patients.csv")
    summary = sl.summarize_log("log.csv", world.schema(recorded))
    assert "online round" in summary.diagnose().to_html("diagnosis.html")
    learner = sl.FusedOFUL(sl.BehaviorQueries(summary))
    learner.save("learner.sidelight")
    assert command("decide", "learner.sidelight", "patients.csv", "decisions.parquet").startswith("20 decisions")
    assert "sidelight diagnose" in command(
        "summarize", "log.csv", "--recorded", "weight,age", "--arm", "regimen", "--reward", "response"
    )
    assert "online round" in command("diagnose", "log.summary")
    table = sl.simulate(world, {"OFUL": lambda run: sl.OFUL(4, 11, arms=world.arms)}, horizon=20, seeds=1, workers=1)
    assert table.num_rows
    assert sl.BanditClassifier(arms=[0, 1]).partial_fit([[1.0], [2.0]], [0, 1], [0.1, 0.9]).predict([[1.5]]).shape == (
        1,
    )


def figures() -> None:
    """A picture from results."""
    command("figures", "log-size", "--quick", "--seeds", "2", "--rounds", "30", "--out", "results")
    assert list(Path("results").rglob("*.svg"))


def cluster() -> None:
    """A log on a cluster."""
    import numpy as np
    import pyarrow.parquet as pq
    from distributed import Client

    import sidelight as sl

    world = sl.worlds.ConfoundedWorld(seed=0)
    pq.write_table(world.sample_log(500, 6, np.random.default_rng(0)), "log.parquet")
    with Client(n_workers=1, threads_per_worker=1, processes=False, dashboard_address=None) as client:
        assert sl.summarize_log("log.parquet", world.schema(6), client=client).n_rows == 500


def service() -> None:
    """A configuration, and everything that it describes."""
    command("init", "--features", "age,dose", "--arms", "low,high", "--mode", "shadow")
    assert "is good" in command("serve", "--check")


def telemetry() -> None:
    """What the service hands its spans to."""
    from opentelemetry.sdk.trace import TracerProvider

    assert TracerProvider().get_tracer("sidelight")


if __name__ == "__main__":
    import os

    if "--blocked" in sys.argv:
        BLOCKED |= {name for names in BRINGS.values() for name in names} | set(FRAMES)
        exec(BLOCK.format(names=sorted(BLOCKED)))
    with tempfile.TemporaryDirectory() as folder:
        os.chdir(folder)
        base()
        if sys.argv[1] != "base":
            globals()[sys.argv[1]]()
        os.chdir("/")
    print(f"{sys.argv[1]}: works")
