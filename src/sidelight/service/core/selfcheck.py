"""The continuous self-check: a second fold of the log, read back from the database, beside the one that decides."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from typing import Any

from sidelight.service.core.fold import NotRebuildable, State
from sidelight.service.core.recovery import Retracted, fold_tail, recover
from sidelight.service.log.store import Store
from sidelight.service.metrics import Metrics
from sidelight.service.problems import Problem

__all__ = ["SelfCheck", "again_and_again"]

logger = logging.getLogger("sidelight.service")

#: seconds between two self-checks
_SECONDS = 600.0


async def again_and_again(check: Callable[[], Awaitable[Any]]) -> None:
    """Run the check periodically until cancelled; where the log cannot be read, the next run tries again."""
    while True:
        await asyncio.sleep(_SECONDS)
        try:
            await check()
        except Problem:
            pass
        except Exception:
            # any exception: a check that silently stopped would look like one that finds nothing
            logger.exception("the self-check failed")


class SelfCheck:
    """Folds the log a second time, from the newest base and without snapshots; each check folds only new events.

    Args:
        store: the event log.
        metrics: where to count.
    """

    def __init__(self, store: Store, metrics: Metrics) -> None:
        self._store, self._metrics = store, metrics
        self._state: State | None = None
        self._retractions = 0

    async def compare(
        self, read: Callable[[Callable[[int], str | None], int], Awaitable[str | None]], number: int, expected: str
    ) -> bool | None:
        """Whether the digest after event ``number`` is the one expected; None where it cannot be computed.

        Args:
            read: runs a function that reads the store in a thread.
            number: the last event that the server has folded.
            expected: the digest of the state that decides.
        """
        found = await read(self.digest_at, number)
        if found is None:
            return None
        if found == expected:
            self._metrics.self_checked.set(number)
            return True
        self._metrics.self_check_failures.inc()
        logger.error(
            "a replay of events up to %d gives another learner than the one that decides: start the server again, and "
            "report this",
            number,
        )
        return False

    def digest_at(self, number: int) -> str | None:
        """The digest of the state after event ``number``; None where folding can no longer give it.

        Raises:
            StoreError: the log cannot be read.
        """
        retractions = len(self._store.of_kind("retraction"))
        if retractions != self._retractions or (self._state is not None and self._state.number > number):
            self._state = None
        self._retractions = retractions
        try:
            if self._state is None:
                self._state = recover(self._store, upto=number, use_snapshots=False).state
            else:
                fold_tail(self._store, self._state, number, Retracted(self._store, number))
        except NotRebuildable:
            # A person was forgotten meanwhile: the next check starts from the base that was written then.
            self._state = None
            return None
        return self._state.snapshot(0.0).digest
