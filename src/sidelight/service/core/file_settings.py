"""Detection of changes in the configuration file since a server last read it."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

from sidelight.service.config import Config
from sidelight.service.core.ladder import GateSettings
from sidelight.service.log.events import Configuration
from sidelight.service.log.rows import event_from_row
from sidelight.service.log.store import Store

__all__ = ["changed_settings"]


def changed_settings(store: Store, config: Config) -> Configuration | None:
    """The event that applies the settings changed in the file; None where nothing was changed.

    Other settings stay as requests set them: editing the share does not release a kill switch that somebody has set.
    """
    wanted, gate = config.rails(), GateSettings.from_dict(asdict(config.gate))
    last = _last_file(store)
    now, before = wanted.to_dict(), last.get("rails") or {}
    if before:
        before = {"explore": 0.0, **before}  # which a log of an earlier version did not have
    changed = {name: getattr(wanted, name) for name in now if name not in before or before[name] != now[name]}
    # a log that never had a gate needs no event to say that it still has none
    if gate.to_dict() != last.get("gate", GateSettings().to_dict()):
        changed["gate"] = gate.to_dict()
    waits = {"seconds": config.gate.wait_seconds, "reward": config.gate.default_reward}
    if waits != last.get("waits", {"seconds": None, "reward": 0.0}):
        changed["waits"] = waits
    if not changed:
        return None
    file = {"rails": now, "gate": gate.to_dict(), "waits": waits}
    return Configuration(**changed, source="file", file=file)


def _last_file(store: Store) -> dict[str, Any]:
    """Rails, gate and waits as the configuration file had them when they were last taken over."""
    last: dict[str, Any] = {}
    for row in store.configurations():
        event = event_from_row(row, 0)
        if isinstance(event, Configuration) and event.file is not None:
            last |= {name: event.file[name] for name in ("rails", "gate", "waits") if name in event.file}
    return last
