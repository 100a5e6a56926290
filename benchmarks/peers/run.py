"""Time every peer's loop and write the table: ``results.json`` in full, ``table.md`` for the docs to include.

A peer that does not install, does not run or does not learn is reported as such in its row.
"""

from __future__ import annotations

import json
import os
import subprocess
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from benchmarks.evidence import machine, write_json
from benchmarks.peers.environments import HERE, NotInstalled, Peer, peers_known, python_of
from sidelight.simulation import WORKER_ENVIRONMENT

LOOP_SECONDS = 120


def peers(found: Mapping[str, float], folder: Path = HERE) -> None:
    """Time all peers, print their table and write it.

    Args:
        found: microseconds a round by name, of Sidelight and of NumPy's LinUCB in one run (``benchmarks.online``).
        folder: where the results are written.
    """
    rows = []
    for peer in peers_known():
        row = {"name": peer.name, "title": peer.title, **timed(peer)}
        rows.append(row)
        said = row.get("failed") or f"{row['version']}, {row['microseconds']:,.0f} µs a round"
        print(f"{peer.title}: {said}", flush=True)
    results = {
        "date": time.strftime("%Y-%m-%d", time.gmtime()),
        "machine": machine(),
        "load": round(os.getloadavg()[0], 1),
        "sidelight": {name: round(found[name], 3) for name in ("NumPy", *_OURS)},
        "peers": rows,
    }
    write_json(folder / "results.json", results)
    text = table(results)
    (folder / "table.md").write_text(text, encoding="utf-8")
    print("\n" + text)


def timed(peer: Peer) -> dict[str, Any]:
    """What ``loop.py`` found in the peer's own environment, or why it found nothing, as ``failed``."""
    try:
        python = python_of(peer)
    except NotInstalled as error:
        return {"failed": f"does not install: {error}"}
    command = [str(python), str(HERE / "loop.py"), peer.name]
    try:
        done = subprocess.run(
            command, capture_output=True, text=True, timeout=LOOP_SECONDS, env={**os.environ, **WORKER_ENVIRONMENT}
        )
    except subprocess.TimeoutExpired:
        return {"failed": f"took more than {LOOP_SECONDS} seconds"}
    if done.returncode:
        return {"failed": f"does not run: {(done.stderr.strip().splitlines() or ['no message'])[-1]}"}
    found: dict[str, Any] = json.loads(done.stdout.strip().splitlines()[-1])
    return found if found["learns"] else {**found, "failed": "its loop does not learn, so its time says nothing"}


_OURS = {"simulated, L = 0": "Sidelight's OFUL, simulated", "decide + observe, L = 0": "Sidelight's OFUL, from Python"}


def table(results: Mapping[str, Any]) -> str:
    """The table in Markdown, the quickest first; Sidelight and NumPy are rows of it.

    Ratios are ratios of ratios: each peer against NumPy's LinUCB in its own process, over Sidelight against the same
    in another.
    """
    ours = results["sidelight"]
    simulated, called = (ours[name] / ours["NumPy"] for name in _OURS)
    rows = [(title, "", ours[name], ours[name] / ours["NumPy"]) for name, title in _OURS.items()]
    rows.append(("NumPy, LinUCB (`benchmarks/numpy_linucb.py`)", "", ours["NumPy"], 1.0))
    rows += [
        (row["title"], row["version"], row["microseconds"], row["microseconds"] / row["numpy_microseconds"])
        for row in results["peers"]
        if "failed" not in row
    ]
    lines = [
        "| library | version | µs a round | NumPy's rounds | simulated rounds | `decide` + `observe` |",
        "|---|---|---|---|---|---|",
    ]
    for title, version, microseconds, ratio in sorted(rows, key=lambda row: row[3]):
        times = (f"{ratio:,.2g}", f"{ratio / simulated:,.2g}", f"{ratio / called:,.2g}")
        if ratio >= 10:
            times = (f"{ratio:,.0f}", f"{ratio / simulated:,.0f}", f"{ratio / called:,.0f}")
        shown = f"{microseconds:,.0f}" if microseconds >= 100 else f"{microseconds:.1f}"
        lines.append(f"| {title} | {version} | {shown} | {times[0]} | {times[1]} | {times[2]} |")
    failed = [f"{row['title']}: {row['failed']}." for row in results["peers"] if "failed" in row]
    lines += [
        "",
        f"One choice and one update a round at d = K = 30, measured by `python -m benchmarks.online --peers` on "
        f"{results['date']} ({results['machine']}; load {results['load']} at the end). The last three columns say how "
        "many rounds of NumPy's LinUCB, of Sidelight's OFUL in a simulation, and of its `decide` and `observe` called "
        "from Python fit into one of the library's.",
    ]
    if failed:
        lines += ["", "No figure of " + " ".join(failed)]
    return "\n".join(lines) + "\n"
