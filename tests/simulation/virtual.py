"""An event loop with virtual time: nothing waits, and the order of everything follows from a seed."""

from __future__ import annotations

import asyncio
import selectors
from collections.abc import Callable
from concurrent.futures import Executor
from typing import Any

import numpy as np

from sidelight.service.log.surroundings import Surroundings


class _Selector(selectors.BaseSelector):
    """Never finds anything ready; waiting moves the clock instead."""

    def __init__(self) -> None:
        self.loop: VirtualLoop | None = None
        self._map: dict[Any, selectors.SelectorKey] = {}

    def register(self, fileobj: Any, events: int, data: Any = None) -> selectors.SelectorKey:
        self._map[fileobj] = key = selectors.SelectorKey(fileobj, 0, events, data)
        return key

    def unregister(self, fileobj: Any) -> selectors.SelectorKey:
        return self._map.pop(fileobj)

    def select(self, timeout: float | None = None) -> list[Any]:
        if timeout is None:
            raise RuntimeError("deadlock: everybody waits, and nothing is going to happen")
        if timeout > 0 and self.loop is not None:
            self.loop.now += timeout
        return []

    def get_map(self) -> dict[Any, selectors.SelectorKey]:
        return self._map


class VirtualLoop(asyncio.SelectorEventLoop):
    """Runs as fast as it can; ``now`` is its clock, in seconds."""

    def __init__(self, rng: np.random.Generator) -> None:
        selector = _Selector()
        super().__init__(selector)
        selector.loop = self
        self.now = 0.0
        self.rng = rng

    def time(self) -> float:
        return self.now

    def _write_to_self(self) -> None:
        """There is no other thread to be woken by."""

    def run_in_executor(self, executor: Any, func: Callable[..., Any], *args: Any) -> asyncio.Future[Any]:
        """Run ``func`` in the loop itself, a little later."""
        future = self.create_future()

        def run() -> None:
            if future.cancelled():
                return
            try:
                future.set_result(func(*args))
            except Exception as error:
                future.set_exception(error)

        self.call_later(float(self.rng.exponential(0.002)), run)
        return future


class NoExecutor(Executor):
    """What ``run_in_executor`` of the virtual loop never asks."""


class Turns:
    """Calls a step at moments that the seed chooses."""

    def __init__(self, loop: VirtualLoop, step: Callable[[bool], bool], mean: float) -> None:
        self._loop, self._step, self._mean = loop, step, mean
        self._alive = True
        self.paused = False
        self._later()

    def _later(self) -> None:
        self._loop.call_later(float(self._loop.rng.exponential(self._mean)), self._turn)

    def _turn(self) -> None:
        if not self._alive:
            return
        if not self.paused:
            self._alive = self._step(False)
        if self._alive:
            self._later()

    def is_alive(self) -> bool:
        return self._alive

    def join(self, timeout: float | None = None) -> None:
        while self._alive:
            self._alive = self._step(False)

    def kill(self) -> None:
        """No turn any more, whatever is left to do."""
        self._alive = False


def surroundings(loop: VirtualLoop, started: list[Turns]) -> Surroundings:
    """Time, randomness and workers of the loop; ``started`` collects the workers."""

    def start(step: Callable[[bool], bool], name: str) -> Turns:
        started.append(Turns(loop, step, 0.02))
        return started[-1]

    return Surroundings(
        now=lambda: 1.7e9 + loop.now,
        monotonic=lambda: loop.now,
        sleep=lambda seconds: None,
        random_bytes=loop.rng.bytes,
        generator=lambda: np.random.default_rng(loop.rng.integers(2**63)),
        start=start,
        readers=NoExecutor,
    )
