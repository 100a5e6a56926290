"""A server is killed in the middle of a promotion: one promotion, and the same verdict bit for bit after a replay."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import pytest

from sidelight.service.config import GateConfig, load_config, save_config
from sidelight.service.core.recovery import recover
from sidelight.service.core.starting import open_store
from sidelight.service.log.events import GateStep
from sidelight.service.log.rows import event_from_row
from tests.service.helpers import Server, bits, make_config, random_context
from tests.service.test_crash import free_port
from tests.service.test_several_servers import same, until

GATE = GateConfig(promote="automatic", ladder=[0.5, 1.0], error_rate=0.1, holdout=0.1, reward_after="1h")


def decisions(url: str, rng: np.random.Generator, n: int) -> list[dict[str, Any]]:
    """Rewards that the learner's route earns 3 more by, not sent yet."""
    body = {"decisions": [{"context": random_context(rng)} for _ in range(n)]}
    made = httpx.post(url + "/v1/decisions/batch", json=body, timeout=60).json()["decisions"]
    return [{"decision": d["id"], "reward": 3.0 * (d["by"] == "learner") + float(rng.normal())} for d in made]


def send(url: str, rewards: list[dict[str, Any]]) -> None:
    answer = httpx.post(url + "/v1/rewards", json={"rewards": rewards}, timeout=60)
    assert answer.status_code == 200, answer.text


@pytest.mark.parametrize("delay", [0.0, 0.05])
def test_killed_in_the_middle_of_a_promotion(tmp_path: Path, new_postgres: Callable[[], str], delay: float):
    config = make_config(tmp_path, kind="OFUL", mode="act", share=0.5, database=new_postgres(), snapshot_every=500)
    save_config(replace(config, gate=GATE), tmp_path / "sidelight.toml")
    config = load_config(tmp_path / "sidelight.toml")
    ports = [free_port() for _ in range(2)]
    urls = [f"http://127.0.0.1:{port}" for port in ports]

    def start(i: int) -> Server:
        server = Server(tmp_path, "--port", str(ports[i]))
        assert server.url == urls[i], server.errors
        return server

    with ThreadPoolExecutor() as pool:
        one, other = pool.map(start, (0, 1))
        rng = np.random.default_rng(7)
        for i in range(4):
            send(urls[i % 2], decisions(urls[i % 2], rng, 260))
        # 1,040 units are known, 1,100 are needed: the next rewards promote, whichever server takes them in
        last = [decisions(urls[0], rng, 200), decisions(urls[1], rng, 200)]
        until(lambda: same(urls))
        assert httpx.get(urls[0] + "/v1/status").json()["gate"]["rung"] == 0
        begun = threading.Barrier(3)

        def reward(i: int) -> bool:
            begun.wait()
            try:
                send(urls[i], last[i])
            except httpx.HTTPError:
                return False
            return True

        sent = [pool.submit(reward, i) for i in range(2)]
        begun.wait()
        time.sleep(delay)
        one.kill()
        [task.result() for task in sent]
        # the other one takes in what the killed server did not acknowledge, and takes the step if that one did not
        send(urls[1], last[0])
        until(lambda: httpx.get(urls[1] + "/v1/status").json()["rails"]["share"] == 0.9)
        one = start(0)
        until(lambda: same(urls))
        verdicts = [httpx.get(url + "/v1/status").json()["gate"] for url in urls]
        assert verdicts[0] == verdicts[1]
        assert one.stop() == 0
        assert other.stop() == 0
    store = open_store(config)
    try:
        steps = [event_from_row(row, 0) for row in store.of_kind(GateStep.kind)]
        assert [(step.before, step.after) for step in steps] == [(0, 1)]
        whole, short = recover(store, use_snapshots=False).state, recover(store).state
        assert bits(whole) == bits(short)
        assert whole.gate.evidence() == short.gate.evidence()
        assert whole.gate.evidence()["rung"] == verdicts[0]["rung"] == 1
        assert whole.gate.evidence()["units"] == verdicts[0]["units"]
    finally:
        store.close()
