"""The continuous self-check: a second fold of the log, read back from the database, beside the one that decides."""

from __future__ import annotations

from sidelight.service.core.fold import NotRebuildable, State
from sidelight.service.core.recovery import Retracted, fold_tail, recover
from sidelight.service.log.store import Store

__all__ = ["SelfCheck"]


class SelfCheck:
    """Folds what a server has folded, from the newest base on and without snapshots; each time only what is new.

    Args:
        store: the event log.
    """

    def __init__(self, store: Store) -> None:
        self._store = store
        self._state: State | None = None
        self._retractions = 0

    def digest_at(self, number: int) -> str | None:
        """The digest of the state after event ``number``; None where it cannot be had by folding any more.

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
            # Somebody was forgotten meanwhile: the next check starts from the base that was kept then.
            self._state = None
            return None
        return self._state.snapshot(0.0).digest
