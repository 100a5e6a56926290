"""An environment for each peer, made once by pip and kept: ``peers.toml`` says what goes into it."""

from __future__ import annotations

import hashlib
import json
import os
import subprocess
import tomllib
import venv
from dataclasses import dataclass
from pathlib import Path

HERE = Path(__file__).parent
KEPT = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "sidelight" / "peers"
"""Where environments are kept between runs."""

INSTALL_SECONDS = 900


@dataclass(frozen=True)
class Peer:
    """A library and how it is installed.

    Attributes:
        name: its distribution, and its function in ``loop.py``.
        title: as the table shows it.
        install: requirements, with their dependencies.
        alone: requirements without their dependencies, whatever Python they ask for.
    """

    name: str
    title: str
    install: tuple[str, ...]
    alone: tuple[str, ...] = ()


class NotInstalled(Exception):
    """Pip could not install a peer; the message is its last line that says why."""


def peers_known() -> list[Peer]:
    """The peers of ``peers.toml``, in its order."""
    described = tomllib.loads((HERE / "peers.toml").read_text(encoding="utf-8"))
    return [
        Peer(name, values["title"], tuple(values["install"]), tuple(values.get("alone", ())))
        for name, values in described.items()
    ]


def python_of(peer: Peer, kept: Path = KEPT) -> Path:
    """The interpreter of the peer's environment, which is made first if it is not there or was made otherwise.

    Raises:
        NotInstalled: pip failed, or took too long.
    """
    recipe = json.dumps([peer.install, peer.alone])
    folder = kept / f"{peer.name}-{hashlib.sha256(recipe.encode()).hexdigest()[:8]}"
    python = folder / ("Scripts" if os.name == "nt" else "bin") / "python"
    complete = folder / "complete"
    if complete.exists():
        return python
    # what an interrupted installation left is made anew
    venv.create(folder, with_pip=True, clear=True)
    pip = [str(python), "-m", "pip", "install", "-q", "--disable-pip-version-check"]
    _run([*pip, *peer.install])
    if peer.alone:
        _run([*pip, "--no-deps", "--ignore-requires-python", *peer.alone])
    complete.write_text(recipe, encoding="utf-8")
    return python


def _run(command: list[str]) -> None:
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=INSTALL_SECONDS)
    except subprocess.TimeoutExpired:
        raise NotInstalled(f"pip took more than {INSTALL_SECONDS} seconds") from None
    if done.returncode:
        said = [line.strip() for line in done.stderr.splitlines() if "error" in line.lower()]
        raise NotInstalled((said or done.stderr.strip().splitlines() or ["pip failed and said nothing"])[-1])
