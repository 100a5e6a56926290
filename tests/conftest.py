"""Fixtures for every test: one seed by default, a hundred on demand."""

from __future__ import annotations

import gc
import os
import tempfile
from pathlib import Path

import pytest

# Before NumPy reads it, and for every process that a test starts: tests already run one to a core, and threads of the
# linear algebra library that wait for a core spin, which on a busy machine made a test take twenty times the work.
for _name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"):
    os.environ.setdefault(_name, "1")

# The service syncs what it writes, thousands of times in these tests: in memory, if there is enough, none of them waits
# for a disk.  Servers and databases that tests start get it by the variable, this process has looked it up already.
_MEMORY = "/dev/shm"
if "TMPDIR" not in os.environ and os.path.isdir(_MEMORY):
    _found = os.statvfs(_MEMORY)
    # a test builds a library and has it loaded, which some systems forbid there
    if _found.f_bavail * _found.f_frsize > 4 << 30 and not _found.f_flag & os.ST_NOEXEC:
        os.environ["TMPDIR"] = tempfile.tempdir = _MEMORY

import numpy as np  # noqa: E402


def pytest_collection_finish() -> None:
    """Let the garbage collector pass over modules and tests, which stay until the end.

    Each process holds a million objects of them, and a collection that looks at all takes a quarter of a second.
    """
    gc.collect()
    gc.freeze()


def _seeds() -> list[int]:
    """The seeds of the ``seed`` fixture: ``SIDELIGHT_SEEDS`` is unset (42), ``all`` (0..99) or ``3,7,9``."""
    wanted = os.environ.get("SIDELIGHT_SEEDS", "42")
    if wanted == "all":
        return list(range(100))
    return [int(s) for s in wanted.split(",")]


@pytest.fixture(params=_seeds())
def seed(request: pytest.FixtureRequest) -> int:
    """The seed of a statistical test."""
    return request.param


@pytest.fixture(scope="session")
def other_machine(pytestconfig: pytest.Config) -> Path:
    """Where code that is compiled for another processor is kept.

    It is one folder for all tests and worker processes, which stays for the next run as the code for this processor
    does: compiling takes twelve seconds.  Numba's keys cover the source of the kernels.
    """
    return pytestconfig.cache.mkdir("sidelight-other-machine")


@pytest.fixture
def rng(seed: int) -> np.random.Generator:
    """A generator made from ``seed``."""
    return np.random.default_rng(seed)
