"""A server that stands still while it holds the log's lock: a machine that is paused, a process that is stopped.

Real servers on a real PostgreSQL; the one stops itself inside its transaction, so every run meets the same moment.
"""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Callable
from pathlib import Path

import httpx
import numpy as np

from sidelight.service.config import load_config
from sidelight.service.core.recovery import recover
from sidelight.service.core.starting import open_store
from tests.service.helpers import Server, bits, make_config, post, random_context

#: stops the process when a file is there: its events are written, and its transaction holds the lock. The signal may
#: reach another thread first, and take a while: this one goes no further before the file is gone.
FREEZE = """
import os, signal, time
from sidelight.service.log.store import Store
advance = Store.advance
def freezing(self, connection, head):
    advance(self, connection, head)
    if os.path.exists({flag!r}):
        os.kill(os.getpid(), signal.SIGSTOP)
        while os.path.exists({flag!r}):
            time.sleep(0.01)
Store.advance = freezing
"""

#: a transaction that says nothing is ended by PostgreSQL after ten seconds; the rest is for a busy machine
LONGEST = 60.0


def stands_still(process: int) -> bool:
    return Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[0] == "T"


def wait_until(condition: Callable[[], bool]) -> float:
    began = time.monotonic()
    while not condition():
        assert time.monotonic() - began < LONGEST, "it never came true"
        time.sleep(0.05)
    return time.monotonic() - began


def test_others_go_on_and_what_it_had_not_acknowledged_is_written_once(
    tmp_path: Path, new_postgres: Callable[[], str], rng: np.random.Generator
):
    make_config(tmp_path, kind="OFUL", mode="act", database=new_postgres())
    flag = tmp_path / "freeze"
    frozen = Server(tmp_path, prepare=FREEZE.format(flag=str(flag)))
    other = Server(tmp_path)
    patient = httpx.Timeout(LONGEST)
    body, key = {"context": random_context(rng)}, {"Idempotency-Key": "while-frozen"}
    answers: list[httpx.Response] = []

    def decide(url: str, **headers: str) -> httpx.Response:
        with httpx.Client(base_url=url, timeout=patient) as client:
            return post(client, "/v1/decisions", body, **headers)

    def decides(url: str) -> bool:
        answer = decide(url)
        assert answer.status_code in (201, 503), answer.text
        return answer.status_code == 201

    try:
        assert decides(frozen.url)
        assert decides(other.url)
        flag.touch()
        caller = threading.Thread(target=lambda: answers.append(decide(frozen.url, **key)))
        caller.start()
        wait_until(lambda: stands_still(frozen.process.pid))
        # The other one answers again, with the frozen one as it is.
        wait_until(lambda: decides(other.url))
        assert stands_still(frozen.process.pid)
        wait_until(lambda: httpx.get(other.url + "/health/ready", timeout=patient).status_code == 200)
        flag.unlink()
        os.kill(frozen.process.pid, signal.SIGCONT)
        caller.join(LONGEST)
        # Its transaction was ended, so nothing was acknowledged; it goes on where the log is now.
        assert [answer.status_code for answer in answers] == [503]
        wait_until(lambda: decides(frozen.url))
        first, again = decide(frozen.url, **key), decide(other.url, **key)
        assert (first.status_code, again.status_code) == (201, 200)
        assert first.json()["id"] == again.json()["id"]
        store = open_store(load_config(tmp_path / "sidelight.toml"))
        urls = (frozen.url, other.url)
        wait_until(lambda: len({httpx.get(u + "/v1/state", timeout=patient).json()["digest"] for u in urls}) == 1)
        assert httpx.get(urls[0] + "/v1/state").json()["digest"] == bits(recover(store, use_snapshots=False).state)
        store.close()
        assert (frozen.stop(), other.stop()) == (0, 0)
    finally:
        for server in (frozen, other):
            if server.process.poll() is None:
                os.kill(server.process.pid, signal.SIGCONT)
                server.kill()


def test_a_server_ends_although_another_one_holds_the_lock(
    tmp_path: Path, new_postgres: Callable[[], str], rng: np.random.Generator
):
    make_config(tmp_path, kind="OFUL", mode="act", database=new_postgres(), limits={"seconds": 2.0})
    store = open_store(load_config(tmp_path / "sidelight.toml"))
    server = Server(tmp_path)
    try:
        with httpx.Client(base_url=server.url, timeout=LONGEST) as client:
            body = {"context": random_context(rng)}
            assert post(client, "/v1/decisions", body).status_code == 201
            # somebody who may be silent for longer than this test takes
            with store.writing(patience=600) as connection:
                store.lock(connection)
                assert post(client, "/v1/decisions", body).status_code == 503
                began = time.monotonic()
                server.process.send_signal(signal.SIGTERM)
                server.process.wait(LONGEST)
                # 2 · seconds + 10 is the bound; starting and ending a process takes its time on a busy machine
                assert time.monotonic() - began < LONGEST / 2
    finally:
        store.close()
        if server.process.poll() is None:
            server.kill()
