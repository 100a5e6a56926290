"""What a server takes from outside beside its log: the time, randomness, and somebody who runs its work.

Everything is handed over, so that a test can put several servers on one scheduler and drive them by a seed.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable
from concurrent.futures import Executor, ThreadPoolExecutor
from dataclasses import dataclass
from typing import Protocol

import numpy as np

__all__ = ["Surroundings", "Worker", "start_thread"]


class Worker(Protocol):
    """Something that calls a step again and again until the step says that it was the last."""

    def is_alive(self) -> bool:
        """Whether the step is still called."""

    def join(self, timeout: float | None = None) -> None:
        """Wait until it is called no more, at most ``timeout`` seconds."""


def start_thread(step: Callable[[bool], bool], name: str) -> Worker:
    """A thread that calls ``step(True)``, which may wait for something to do, until it returns False or raises."""

    def run() -> None:
        while step(True):
            pass

    thread = threading.Thread(target=run, name=name, daemon=True)
    thread.start()
    return thread


def _readers() -> Executor:
    return ThreadPoolExecutor(2, thread_name_prefix="sidelight-read")


@dataclass(frozen=True)
class Surroundings:
    """The real ones by default.

    Attributes:
        now: seconds since 1970; written into events, no part of the fold.
        monotonic: seconds that never go back.
        sleep: wait for some seconds, in a thread that may.
        random_bytes: so many unpredictable bytes.
        generator: a new generator for what learners and ramps draw.
        start: begins to call a step; see ``start_thread``.
        readers: a new executor for what must not hold up the event loop.
    """

    now: Callable[[], float] = time.time
    monotonic: Callable[[], float] = time.monotonic
    sleep: Callable[[float], None] = time.sleep
    random_bytes: Callable[[int], bytes] = os.urandom
    generator: Callable[[], np.random.Generator] = np.random.default_rng
    start: Callable[[Callable[[bool], bool], str], Worker] = start_thread
    readers: Callable[[], Executor] = _readers
