"""What a server takes from its environment beside the log: clock, randomness and threads.

All of it is injected, so that a test can run several servers on one deterministic scheduler, driven by a seed.
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
    """Something that calls a step in a loop until the step returns False, such as a thread."""

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
    """Clock, randomness and threads of a server; those of the operating system by default.

    Attributes:
        now: seconds since 1970; written into events, no part of the fold.
        monotonic: seconds that never go back.
        sleep: wait for some seconds, in a thread that may.
        random_bytes: returns the given number of unpredictable bytes.
        generator: a new generator for what learners and ramps draw.
        start: starts a worker that calls a step; see ``start_thread``.
        readers: makes an executor for work that must not block the event loop.
    """

    now: Callable[[], float] = time.time
    monotonic: Callable[[], float] = time.monotonic
    sleep: Callable[[float], None] = time.sleep
    random_bytes: Callable[[int], bytes] = os.urandom
    generator: Callable[[], np.random.Generator] = np.random.default_rng
    start: Callable[[Callable[[bool], bool], str], Worker] = start_thread
    readers: Callable[[], Executor] = _readers
