"""50 million rows in under 600 MB: memory does not grow with the log.

``python -m benchmarks.scale [rows] [--links]`` writes a log of that many rows (25 features, 13 GB at 50 million),
summarizes it in a process of its own, and reports that process's largest resident memory.
"""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from benchmarks.log import ARMS, COLUMNS, FEATURES, write_log

ROWS = 50_000_000
LIMIT_MB = 600
PER_FILE = 5_000_000

_CHILD = """
import json, resource, sys, time
from benchmarks.log import SCHEMA
from sidelight.logs.summarize import summarize_log
calls = []
started = time.perf_counter()
summary = summarize_log(sys.argv[1], SCHEMA, progress=lambda done, total: calls.append((done, total)))
seconds = time.perf_counter() - started
peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
print(json.dumps({"rows": summary.n_rows, "seconds": seconds, "peak MB": peak, "reports": len(calls), "last": calls[-1],
                  "error": float(abs(summary.residual_variances - 1).max())}))
"""


def measure(rows: int = ROWS, folder: Path | None = None, links: bool = False) -> dict[str, Any]:
    """Rows, seconds, largest resident memory in MB, and whether progress knew how far it was.

    With ``links`` the first file is generated and the others are further names of it: a tenth of the disk and of the
    time to write, the same rows to read.
    """
    place = Path(tempfile.mkdtemp(dir=folder))
    try:
        started = time.perf_counter()
        for number, first in enumerate(range(0, rows, PER_FILE)):
            file, n = place / f"{number:03}.parquet", min(PER_FILE, rows - first)
            if links and number and n == PER_FILE:
                file.hardlink_to(place / "000.parquet")
            else:
                write_log(file, n, seed=number)
        written = time.perf_counter() - started
        size = sum(path.stat().st_size for path in place.iterdir())
        finished = subprocess.run(
            [sys.executable, "-c", _CHILD, str(place)], capture_output=True, text=True, check=True
        )
        found: dict[str, Any] = json.loads(finished.stdout)
    finally:
        shutil.rmtree(place)
    assert found["rows"] == rows
    assert found["last"] == [rows, rows]
    return {
        **found,
        "links": links,
        "features": FEATURES,
        "arms": ARMS,
        "columns": len(COLUMNS),
        "GB on disk": size / 1e9,
        "seconds to write": written,
        "million rows per second": rows / found["seconds"] / 1e6,
        "holds": found["peak MB"] < LIMIT_MB,
    }


if __name__ == "__main__":
    wanted = [argument for argument in sys.argv[1:] if argument != "--links"]
    print(json.dumps(measure(int(wanted[0]) if wanted else ROWS, links="--links" in sys.argv), indent=2))
