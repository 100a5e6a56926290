"""What is recorded: an old log is taken over, decisions and rewards, snapshots, a back-up, a person forgotten, a stop.

Run in a process of its own under the recorder, in a folder with the files of an older version. Every line of ``acks``
is written when a server would have answered: ``event NUMBER``, ``forgotten``, ``backup NUMBER``.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import sys
from pathlib import Path

import numpy as np

from sidelight.errors import StoreError
from sidelight.service.config import load_config
from sidelight.service.core.engine import Engine
from sidelight.service.core.starting import open_store
from sidelight.service.log.connections import database_url
from sidelight.service.log.decision_id import DecisionId
from sidelight.service.log.store import Store
from sidelight.service.operations.copying import back_up
from sidelight.service.operations.retention import forget
from sidelight.service.problems import Problem
from tests.upgrades.make_fixtures import service_context


async def session(folder: Path, rounds: int) -> None:
    """All of it; what the store refuses ends it as it ends a server: others are still asked, then it stops."""
    acks = os.open(folder / "acks", os.O_WRONLY | os.O_CREAT | os.O_APPEND)

    def told(line: str) -> None:
        os.write(acks, f"{line}\n".encode())

    config = load_config(folder / "sidelight.toml")
    rng = np.random.default_rng(3)
    store = open_store(config)
    engine = Engine(store, config)
    await engine.start()

    async def some(n: int) -> None:
        for _ in range(n):
            number, event, _ = await engine.decide(service_context(rng)[None], None)
            told(f"event {number}")
            if rng.random() < 0.5:
                number, *_ = await engine.reward(DecisionId(number, 0, event.epoch), 1.0, "low", None)
                told(f"event {number}")

    async def everything() -> None:
        await some(rounds)
        store.put_snapshot(engine.state.snapshot(1.0))
        await some(rounds)
        copy()
        forget(store, "person-2")
        told("forgotten")
        await some(rounds)
        # as the serving process does once its write-ahead log is long; it goes on if that fails
        with contextlib.suppress(StoreError):
            store._truncate_log()
        await some(rounds)

    def copy() -> None:
        source = Store(store.url)
        try:
            last = back_up(source, database_url(str(folder / "copy.db")))
        finally:
            source.close()
        told(f"backup {last}")

    try:
        await everything()
    except (StoreError, Problem):
        # A back-up that failed concerns nobody but itself; whether decisions go on, the store says.
        with contextlib.suppress(StoreError, Problem):
            await some(rounds)
        raise
    finally:
        await engine.stop()
        store.close()
        told("stopped")


if __name__ == "__main__":
    try:
        asyncio.run(session(Path(sys.argv[1]), int(sys.argv[2])))
    except (StoreError, Problem) as error:
        print(error)
        os._exit(3)
