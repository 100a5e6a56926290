"""The services that are simulated: learners, bounds, waits and a gate that need few rounds to do something."""

from __future__ import annotations

import contextlib
import functools
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import Any
from unittest import mock

from sidelight.judging import sequences
from sidelight.judging.sequences import AsymptoticSequence
from sidelight.judging.shared_traffic import Comparison
from sidelight.service.config import Config
from sidelight.service.core import gate as gates
from sidelight.service.log.connections import database_url
from sidelight.service.log.store import Store
from sidelight.service.sections import BoundsConfig, GateConfig
from tests.service.helpers import make_config

#: rewards beyond it are kept from the learner, as are contexts whose second feature is
REWARDS, DOSES = [-10.0, 10.0], [-50.0, 50.0]
#: seconds until the default reward counts
WAIT = 0.4
#: and until it must have been written by a server that runs: the wait, until it is heard of, looks, retries
PATIENCE = 3.0
DEFAULT_REWARD = 0.25

_WAITING = GateConfig(reward_after=f"{WAIT}s", default_reward=DEFAULT_REWARD)
_GATE = replace(_WAITING, promote="automatic", ladder=[0.5, 1.0], error_rate=0.4, holdout=0.1)

#: name → how often, and what differs from a learner without a log that acts on all traffic
KINDS: dict[str, tuple[float, dict[str, Any]]] = {
    "plain": (0.38, {}),
    "waiting": (0.2, {"gate": _WAITING}),
    "gate": (0.25, {"gate": _GATE, "share": 0.5}),
    "running": (0.12, {"kind": "RunningOFUL", "gate": _WAITING}),
    "fused": (0.05, {"kind": "FusedOFUL"}),
}


@cache
def _folder() -> Path:
    """Where everything is, in memory if possible."""
    base = Path("/dev/shm") if Path("/dev/shm").is_dir() else None
    return Path(tempfile.mkdtemp(prefix="sidelight-simulation-", dir=base))


@cache
def empty_database() -> Path:
    """A migrated database without events, to be copied: making the tables takes a while."""
    path = _folder() / "empty.db"
    Store(database_url(str(path))).close()
    return path


@cache
def template(name: str = "plain") -> tuple[Path, Config]:
    """A folder for runs of this kind, and the configuration in it."""
    folder = _folder() / name
    folder.mkdir()
    changes = dict(KINDS[name][1])
    gate = changes.pop("gate", GateConfig())
    config = make_config(folder, **{"kind": "OFUL", "mode": "act", "snapshot_every": 9, **changes})
    bounds = BoundsConfig(reward=REWARDS, features={"dose": DOSES})
    return folder, replace(config, gate=gate, bounds=bounds)


def edited(config: Config, draw: float) -> Config:
    """The configuration after somebody has edited its file."""
    if draw < 0.3:
        return replace(config, mode=replace(config.mode, share=0.5 if config.mode.share == 1.0 else 1.0))
    if draw < 0.5:
        return replace(config, mode=replace(config.mode, explore=0.1 if not config.mode.explore else 0.0))
    if draw < 0.8:
        ladder = [0.25, 0.5, 1.0] if config.gate.ladder == [0.5, 1.0] else [0.5, 1.0]
        return replace(config, gate=replace(config.gate, ladder=ladder))
    return replace(config, gate=replace(config.gate, default_reward=config.gate.default_reward + 0.125))


@dataclass
class _Early(Comparison):
    """A comparison that may speak after a handful of units."""

    first_look: int = 5
    least_per_route: int = 2


@contextlib.contextmanager
def early_gate() -> Iterator[None]:
    """A gate that takes its steps within the few rounds of a run."""
    sequence = functools.partial(AsymptoticSequence, variance=0.02, target_rows=8.0)
    with (
        mock.patch.object(gates, "Comparison", _Early),
        mock.patch.object(gates, "AsymptoticSequence", sequence),
        mock.patch.object(sequences, "LARGEST_SHARE", 10.0),
    ):
        yield
