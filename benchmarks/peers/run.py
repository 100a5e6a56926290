"""Install each peer into an environment of its own and time its loop; one that does not install is skipped, aloud."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import venv
from pathlib import Path

from sidelight.simulation import ONE_THREAD

HERE = Path(__file__).parent


def peers(found: dict[str, float]) -> None:
    """Print each peer's microseconds a round, and how many of Sidelight's rounds fit into one."""
    names = [line.strip() for line in (HERE / "requirements.txt").read_text().splitlines()]
    print(f"\n{'':22}{'version':>10}{'µs':>10}{'simulated':>12}{'from Python':>13}")
    for name in (n for n in names if n and not n.startswith("#")):
        with tempfile.TemporaryDirectory() as folder:
            venv.create(folder, with_pip=True)
            python = str(Path(folder) / ("Scripts" if os.name == "nt" else "bin") / "python")
            try:
                _run([python, "-m", "pip", "install", "-q", name], 300)
                version, time = _run([python, str(HERE / "loop.py"), name], 300).split()[-2:]
            except (subprocess.CalledProcessError, subprocess.TimeoutExpired) as error:
                why = (getattr(error, "stderr", None) or str(error)).strip().splitlines()[-1:]
                print(f"{name:22}skipped: {' '.join(why)[:90]}")
                continue
        simulated, called = (float(time) / found[row] for row in ("simulated, L = 0", "decide + observe, L = 0"))
        print(f"{name:22}{version:>10}{float(time):10.1f}{simulated:11.0f}×{called:12.0f}×")


def _run(command: list[str], seconds: float) -> str:
    done = subprocess.run(
        command, capture_output=True, text=True, timeout=seconds, check=True, env={**os.environ, **ONE_THREAD}
    )
    sys.stderr.write(done.stderr[-200:] if done.returncode else "")
    return done.stdout
