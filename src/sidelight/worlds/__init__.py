"""Worlds by name (``sl.worlds.PaperWorld``), each loaded when first used."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

_HOMES = {
    "World": "sidelight.worlds.protocol",
    "PaperWorld": "sidelight.worlds.paper",
    "ConfoundedWorld": "sidelight.worlds.confounded",
    "DriftedWorld": "sidelight.worlds.drifted",
    "DosingWorld": "sidelight.worlds.dosing",
    "TrafficWorld": "sidelight.worlds.signals",
    "ReplayWorld": "sidelight.worlds.replay",
    "TwinWorld": "sidelight.worlds.twin",
}

__all__ = list(_HOMES)

if TYPE_CHECKING:
    from sidelight.worlds.confounded import ConfoundedWorld
    from sidelight.worlds.dosing import DosingWorld
    from sidelight.worlds.drifted import DriftedWorld
    from sidelight.worlds.paper import PaperWorld
    from sidelight.worlds.protocol import World
    from sidelight.worlds.replay import ReplayWorld
    from sidelight.worlds.signals import TrafficWorld
    from sidelight.worlds.twin import TwinWorld


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'sidelight.worlds' has no attribute {name!r}")
    value = getattr(import_module(_HOMES[name]), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted(__all__)
