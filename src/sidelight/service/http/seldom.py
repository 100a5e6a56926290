"""A value that is expensive to make, made seldom."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from typing import Any

__all__ = ["Seldom"]


class Seldom:
    """A cached value that is expensive to compute: recomputing it takes at most a twentieth of the time.

    Args:
        make: computes it.
        moment: returns the cache key; while it is the same, so is the value.
    """

    def __init__(self, make: Callable[[], Awaitable[Any]], moment: Callable[[], int]) -> None:
        self._make, self._moment = make, moment
        self._made: tuple[int, Any] | None = None
        self._after = 0.0
        self._making = asyncio.Lock()

    async def now(self) -> Any:
        """The current value, or the cached one where recomputing it would take more than that share of the time."""
        async with self._making:
            moment, started = self._moment(), time.monotonic()
            if self._made is None or (self._made[0] != moment and started >= self._after):
                self._made = moment, await self._make()
                ended = time.monotonic()
                self._after = ended + 20.0 * (ended - started)
            return self._made[1]
