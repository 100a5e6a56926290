"""The state as it was after an earlier event, rebuilt from the log to explain a decision."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import TypeVar

from sidelight.service.core.fold import NotRebuildable, State
from sidelight.service.core.folding import Folding
from sidelight.service.core.recovery import recover
from sidelight.service.core.server import Server
from sidelight.service.log.store import Store

__all__ = ["Past"]

T = TypeVar("T")


class Past:
    """Earlier states of one server, one rebuilt at a time.

    Args:
        server: whose log it is.
        folding: where the present state is.
    """

    def __init__(self, server: Server, folding: Folding) -> None:
        self._server, self._folding = server, folding
        self._rebuilding = asyncio.Semaphore(1)

    async def look_at(
        self, version: int, function: Callable[[State], T], farthest: int = 50_000
    ) -> tuple[T, int, bool]:
        """The result of a function of the state after event ``version``.

        Returns:
            the result, the version of the state used, and whether that is ``version``: it is not where rebuilding means
            folding more than ``farthest`` events, or is impossible, such as after a context was deleted.
        """
        found, seen = await self._folding.look(lambda state: (function(state), state.version))
        if seen != version and (past := await self._state_at(version, farthest)) is not None:
            return await self._server.read(function, past), version, True
        return found, seen, seen == version

    async def _state_at(self, version: int, farthest: int) -> State | None:
        store = self._server.store
        numbers = await self._server.read(store.snapshot_numbers)
        start = max((number for number in numbers if number <= version), default=store.origin)
        if version - start > farthest:
            return None
        async with self._rebuilding:
            found: State | None = await self._server.read(_rebuild, store, version)
            return found


def _rebuild(store: Store, version: int) -> State | None:
    try:
        return recover(store, upto=max(version, store.origin + 1)).state
    except NotRebuildable:
        return None
