"""A simulated service: several servers on one log, clients that retry, a network and a database that misbehave.

Everything happens on one virtual loop and follows from one integer. What happens is a plan, a list of steps, so that a
failing run can be made smaller by leaving steps out.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import shutil
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np
import sqlalchemy as sa

from sidelight.errors import StoreError
from sidelight.service.config import Config
from sidelight.service.core import engine as engines
from sidelight.service.core import fold as folds
from sidelight.service.core import folding, recovery, starting
from sidelight.service.core.engine import Engine
from sidelight.service.log import connections, snapshots
from sidelight.service.log import database as databases
from sidelight.service.log import migrations as tables
from sidelight.service.log.connections import database_url
from sidelight.service.log.decision_id import DecisionId
from sidelight.service.log.store import Store
from sidelight.service.operations.copying import copy_store
from sidelight.service.operations.retention import forget
from sidelight.service.problems import Problem
from tests.simulation.plans import Plan, Step
from tests.simulation.settings import PATIENCE, edited, empty_database
from tests.simulation.virtual import Turns, VirtualLoop, surroundings

FOLD = folds.FOLD
#: compiled statements, shared by the connections of all runs, and the dialect that their keys contain
_COMPILED: dict[Any, Any] = {}
_DIALECTS: dict[str, Any] = {}


@dataclass
class Ack:
    """What a server has acknowledged.

    Attributes:
        what: ``decision``, ``reward``, ``answer``, ``action``, ``release``, ``retraction`` or ``gate``.
        number: the event's.
        id: the decision's.
        history: how many times the log had gone back by then.
        value: what was asked for: a decision's marker and key, a reward's value.
        fold: the version by which the server folds that decided; None where that was another server's retry.
    """

    what: str
    number: int
    id: DecisionId | None
    history: int
    value: Any
    fold: int | None = None


@dataclass
class Decided:
    """A decision as its caller knows it.

    Attributes:
        marker: a number in its context that no other has.
        route: who decided.
        history: how many times the log had gone back when it was made.
        rewarded: what its reward is, once somebody has given it.
    """

    id: DecisionId
    marker: float
    key: str
    route: str
    history: int
    rewarded: float | None = None


class SimStore(Store):
    """A store whose writes fail before or after their commit, at the world's will."""

    world: World

    def close(self) -> None:
        """The connections are the world's: making new ones for every server takes most of the time."""

    def append(self, *arguments: Any, **named: Any) -> Any:
        fate = self.world.rng.random()
        if fate < self.world.failing_writes / 2:
            raise StoreError("simulated: failed before the commit")
        done = super().append(*arguments, **named)
        if fate > 1 - self.world.failing_writes / 2:
            raise StoreError("simulated: committed, and the answer was lost")
        return done

    @contextlib.contextmanager
    def writing(self, patience: float | None = None) -> Iterator[sa.Connection]:
        self.world.writes += 1
        with super().writing(patience) as connection:
            yield connection

    def news(self, *arguments: Any) -> Any:
        if self.world.rng.random() < self.world.failing_writes / 4:
            raise StoreError("simulated: cannot read")
        # Most looks find nothing, and the world knows: nobody has written since this server looked last.
        looked = (self.world.writes, *arguments)
        if looked == self._looked:
            return
        yield from super().news(*arguments)
        self._looked = looked

    _looked: Any = None

    def place(self, connection: Any) -> str:
        return self.world.place


@dataclass
class Server:
    """One server: its store, its engine, its workers, and whether it has come so far as to take requests."""

    store: SimStore
    engine: Engine
    turns: list[Turns]
    tasks: dict[asyncio.Task[Any], None] = field(default_factory=dict)  # in the order in which they began
    started: bool = False


class LostMessage(Exception):
    """The network lost a request or its answer."""


@contextlib.contextmanager
def shared_connections() -> Iterator[None]:
    """Every store on a file has the same connections, and nobody compiles anything."""
    made: dict[str, tuple[sa.Engine, sa.Engine]] = {}

    def connect(url: sa.URL) -> tuple[sa.Engine, sa.Engine]:
        name = url.render_as_string()
        if name not in made:
            made[name] = connections.connect(url)
            for engine in made[name]:
                engine.dialect = _DIALECTS.setdefault(engine.dialect.name, engine.dialect)
                engine.update_execution_options(compiled_cache=_COMPILED)
            sa.event.listen(made[name][1], "connect", _not_durable)
        return made[name]

    warm, Engine._warm = Engine._warm, lambda self: None
    databases.connect = connect
    try:
        yield
    finally:
        Engine._warm, databases.connect = warm, connections.connect
        for pair in made.values():
            for engine in pair:
                engine.dispose()


@contextlib.contextmanager
def fold_version() -> Iterator[Any]:
    """A function that changes the version of the fold, and what it computes; undone at the end."""
    default = recovery.recover.__kwdefaults__

    reward = folds.State._reward

    def change(version: int) -> None:
        for module in (folds, recovery, starting, engines):
            module.FOLD = version

        def other(self: Any, event: Any, context: Any) -> None:
            reward(self, replace(event, reward=event.reward * (1 + (version - FOLD) / 8)), context)

        folds.State._reward = reward if version == FOLD else other
        recovery.recover.__kwdefaults__ = {**default, "fold": version}

    try:
        yield change
    finally:
        change(FOLD)
        recovery.recover.__kwdefaults__ = default


class World:
    """One run."""

    def __init__(self, plan: Plan, folder: Path, config: Config) -> None:
        self.plan, self.folder, self.config = plan, folder, config
        self.rng = np.random.default_rng([plan.seed, 2])
        self.loop = VirtualLoop(np.random.default_rng([plan.seed, 3]))
        self.writes = 0
        self.failing_writes = 0.0
        self.lost_messages = 0.0
        self.place = "here"
        self.path = folder / "log-0.db"
        shutil.copy(empty_database(), self.path)
        self.servers: list[Server | None] = [None] * plan.servers
        # those that write what they have accepted, and take nothing more
        self.stopping: list[Server] = []
        self.acks: list[Ack] = []
        self.decided: list[Decided] = []
        self.intended: dict[float, Decided] = {}
        # what was lost each time: everything after a number, and everything of the histories after one
        self.losses: list[tuple[int, int]] = []
        self.backups: list[tuple[Path, int, int]] = []
        self.complaints: list[str] = []
        self.forgotten: set[str] = set()
        # contexts by marker, and what was kept from the learner
        self.contexts: dict[float, np.ndarray] = {}
        self.kept: list[tuple[DecisionId, int]] = []
        self.version = FOLD
        self.peace_at = 0.0
        self._marks = iter(range(1, 1_000_000))

    # ------------------------------------------------------------------------------------- servers

    def open(self) -> SimStore:
        """A handle on the log as another process has it."""
        SimStore.world = self
        return SimStore(database_url(str(self.path)), surroundings=surroundings(self.loop, []))

    def _empty(self, path: Path) -> SimStore:
        """A new database: a copy of an empty one, because making the tables takes a while."""
        SimStore.world = self
        shutil.copy(empty_database(), path)
        return SimStore(database_url(str(path)), surroundings=surroundings(self.loop, []))

    async def start(self, i: int) -> None:
        """Start server ``i`` if it does not run."""
        if self.servers[i] is not None:
            return
        turns: list[Turns] = []
        store = self.open()
        try:
            engine = Engine(store, self.config, surroundings=surroundings(self.loop, turns))
        except (StoreError, Problem):
            store.close()
            return
        self.servers[i] = server = Server(store, engine, turns)
        # a task of the server's: a crash ends it
        starting = self.loop.create_task(engine.start())
        server.tasks[starting] = None
        starting.add_done_callback(lambda done: server.tasks.pop(done, None))
        await asyncio.wait([starting])
        if starting.cancelled():
            return
        if starting.exception() is None:
            server.started = True
            return
        if self.servers[i] is server:
            self.crash(i)  # a process that cannot start ends
        if not isinstance(starting.exception(), StoreError | Problem):
            raise starting.exception()

    def crash(self, i: int) -> None:
        """As kill −9 does."""
        server, self.servers[i] = self.servers[i], None
        if server is not None:
            self._kill(server)

    def _kill(self, server: Server) -> None:
        for turns in server.turns:
            turns.kill()
        # the engine's own tasks end with its process
        own = (server.engine._watching, server.engine._checking, *server.engine._gatekeeper._tasks)
        for task in (*server.tasks, *own):
            if task is not None:
                task.cancel()
        server.store.close()

    async def stop(self, i: int) -> None:
        """As an operator does: what was accepted is written."""
        server, self.servers[i] = self.servers[i], None
        if server is None:
            return
        self.stopping.append(server)
        # a task of the server's: a crash ends it
        stopping = self.loop.create_task(server.engine.stop())
        server.tasks[stopping] = None
        await asyncio.wait([stopping])
        if stopping.cancelled():
            return
        self.stopping.remove(server)
        server.store.close()
        if not isinstance(stopping.exception(), (StoreError, type(None))):
            raise stopping.exception()

    # ------------------------------------------------------------------------------------- callers

    def _at_some_server(self, draw: float) -> Server | None:
        up = [server for server in self.servers if server is not None and server.started]
        return up[int(draw * len(up))] if up else None

    async def call(self, what: Any, tries: int = 12) -> Any:
        """Have a server do something, and another if that fails; None where nobody could, or the caller gave up."""
        for _ in range(tries):
            await asyncio.sleep(float(self.rng.exponential(0.01)))
            server = self._at_some_server(float(self.rng.random()))
            if server is None:
                continue
            try:
                return await self._send(server, what)
            except (LostMessage, asyncio.CancelledError, TimeoutError):
                continue
            except Problem as problem:
                if self.plan.calm or problem.kind not in ("storage", "starting"):
                    raise
        return None

    async def _send(self, server: Server, what: Any) -> Any:
        if self.rng.random() < self.lost_messages:
            raise LostMessage
        again = self.rng.random() < self.lost_messages
        task = self.loop.create_task(what(server.engine))
        server.tasks[task] = None
        task.add_done_callback(lambda done: server.tasks.pop(done, None))
        if again:
            double = self.loop.create_task(self._later(what, server.engine))
            server.tasks[double] = None
            double.add_done_callback(_look_away)
        task.add_done_callback(_look_away)
        result = await asyncio.wait_for(asyncio.shield(task), 2.0)
        if self.rng.random() < self.lost_messages:
            raise LostMessage
        return result

    async def _later(self, what: Any, engine: Engine) -> None:
        await asyncio.sleep(float(self.rng.exponential(0.05)))
        await what(engine)

    async def good(self, name: str, what: Any) -> Any:
        """A call that must not fail but for reasons of its own."""
        try:
            return await self.call(what)
        except Problem as problem:
            return problem
        except Exception as error:
            self.complaints.append(f"{name}: {error!r}")
            return None

    # ------------------------------------------------------------------ what happens to the machines

    async def step(self, step: Step) -> None:
        """Do one step of the plan."""
        await asyncio.sleep(max(0.0, step.at - self.loop.now))
        await getattr(self, "do_" + step.kind)(step.draw)

    async def do_crash(self, draw: float) -> None:
        self.crash(int(draw * len(self.servers)))

    async def do_stop(self, draw: float) -> None:
        await self.stop(int(draw * len(self.servers)))

    async def do_start(self, draw: float) -> None:
        await self.start(int(draw * len(self.servers)))

    async def do_freeze(self, draw: float) -> None:
        server = self.servers[int(draw * len(self.servers))]
        if server is not None:
            for turns in server.turns:
                turns.paused = True
            await asyncio.sleep(0.5)
            for turns in server.turns:
                turns.paused = False

    async def do_forget(self, draw: float) -> None:
        store = self.open()
        subject = f"s{int(draw * 3)}"
        with contextlib.suppress(StoreError):
            if forget(store, subject, erase=False).decisions:
                self.forgotten.add(subject)
        store.close()

    async def do_backup(self, draw: float) -> None:
        source, path = self.open(), self.folder / f"backup-{len(self.backups)}.db"
        target = self._empty(path)
        last = copy_store(source, target)
        source.close(), target.close()
        self.backups.append((path, last, len(self.losses)))

    async def do_restore(self, draw: float) -> None:
        """Everything is lost but a back-up: it is copied to a new place, and the servers start there."""
        if not self.backups:
            return
        for i in range(len(self.servers)):
            self.crash(i)
        while self.stopping:
            self._kill(self.stopping.pop())
        path, last, history = self.backups[int(draw * len(self.backups))]
        self.losses.append((last, history))
        self.path = self.folder / f"log-{len(self.losses)}.db"
        source, target = SimStore(database_url(str(path))), self._empty(self.path)
        copy_store(source, target)
        source.close(), target.close()
        for i in range(len(self.servers)):
            await self.start(i)

    async def do_lose(self, draw: float) -> None:
        """A standby that lagged takes over: the last events are gone, while servers run."""
        store = self.open()
        with store.writing() as connection:
            head = store.lock(connection)
            base = connection.execute(sa.select(sa.func.max(tables.bases.c.number))).scalar_one() or 0
            last = max(head.number - int(draw * 12), base, 1)
            if last < head.number:
                chain = store.chain_within(connection, head, last)
                for table in (tables.events, tables.snapshots, tables.subjects):
                    connection.execute(table.delete().where(table.c.number > last))
                e = tables.events
                epoch = connection.execute(sa.select(e.c.epoch).where(e.c.number == last)).scalar_one()
                store.advance(connection, head._replace(number=last, chain=chain, epoch=epoch))
                self.losses.append((last, len(self.losses)))
                self.place = f"there {len(self.losses)}"
        store.close()

    async def do_file(self, draw: float) -> None:
        """Somebody edits the configuration, and one server starts with it."""
        self.config = edited(self.config, draw)
        i = int(draw * 1000) % len(self.servers)
        await self.stop(i)
        await self.start(i)

    async def do_upgrade(self, draw: float) -> None:
        """One server starts with a fold that computes other numbers."""
        self.version += 1
        self.change_fold(self.version)
        i = int(draw * len(self.servers))
        self.crash(i)
        await self.start(i)

    # ----------------------------------------------------------------------------------- the run

    async def live(self) -> None:
        """The plan, then peace: whoever does not run or cannot decide is started again, and must decide."""
        for i in range(len(self.servers)):
            await self.start(i)
        self.failing_writes, self.lost_messages = self.plan.failing_writes, self.plan.lost_messages
        await asyncio.gather(*(self.step(step) for step in self.plan.steps))
        await asyncio.sleep(0.3)
        self.failing_writes = self.lost_messages = 0.0
        await asyncio.sleep(1.2)
        for i, server in enumerate(self.servers):
            if server is None or not server.engine.ready:
                self.crash(i)
                await self.start(i)
        for i, server in enumerate(self.servers):
            if server is None or not server.engine.ready:
                error = None if server is None else server.engine.why_not_ready()
                self.complaints.append(f"server {i} does not come back: {error}")
            else:
                await self.decide_at_last(server.engine)
        await asyncio.sleep(PATIENCE)
        self.peace_at = 1.7e9 + self.loop.now
        for _ in range(40):
            await asyncio.sleep(0.05)
            at = {server.engine.state.number for server in self.servers if server is not None}
            if len(at) == 1:
                break

    async def decide_at_last(self, engine: Engine) -> None:
        """One more decision, in peace."""
        raise NotImplementedError

    def run(self) -> None:
        """All of it."""
        asyncio.set_event_loop(self.loop)
        # Every other run folds in a thread, as large learners are.
        large = 0 if self.plan.seed % 2 else folding.LARGE
        # Every third writes its snapshots in pieces, as those of large learners are.
        piece = snapshots.PIECE if self.plan.seed % 3 else 4000
        with (
            fold_version() as self.change_fold,
            mock.patch.object(folding, "LARGE", large),
            mock.patch.object(snapshots, "PIECE", piece),
        ):
            try:
                self.loop.run_until_complete(self.live())
            finally:
                self.loop.run_until_complete(self._leave())

    async def _leave(self) -> None:
        pending = [task for task in asyncio.all_tasks(self.loop) if task is not asyncio.current_task()]
        for task in pending:
            task.cancel()
        await asyncio.gather(*pending, return_exceptions=True)

    def close(self) -> None:
        """Give everything back."""
        asyncio.set_event_loop(None)
        self.loop.close()


def _look_away(task: asyncio.Task[Any]) -> None:
    """Whoever asked does not wait any more."""
    if not task.cancelled():
        task.exception()


def _not_durable(connection: Any, _record: Any) -> None:
    # Power cuts are another test's matter.
    connection.execute("PRAGMA synchronous = OFF")


@contextlib.contextmanager
def quiet() -> Iterator[None]:
    """No lines about what goes wrong on purpose."""
    loggers = [logging.getLogger(name) for name in ("sidelight", "asyncio")]
    levels = [logger.level for logger in loggers]
    try:
        for logger in loggers:
            logger.setLevel(logging.CRITICAL)
        yield
    finally:
        for logger, level in zip(loggers, levels, strict=True):
            logger.setLevel(level)
