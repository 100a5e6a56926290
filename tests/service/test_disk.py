"""Disks that are full or must not be written to: a clear error, not ready, nothing lost."""

from __future__ import annotations

import os
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from sidelight.service.core.recovery import recover
from sidelight.service.core.starting import open_store
from tests.service.helpers import bits, make_config, post, serving

CONTEXT = {"age": 1.0, "dose": -0.5, "ward": "south", "severity": True, "pain": 2}


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of its own, of two megabytes."""
    folder = tmp_path / "disk"
    folder.mkdir()
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=2m", "tmpfs", str(folder)], capture_output=True, check=False
    )
    if mounted.returncode:
        pytest.skip("this machine does not let us mount a small disk")
    yield folder
    subprocess.run(["umount", "-l", str(folder)], check=False)


def decide_until_refused(client: httpx.Client, batch: int) -> tuple[list[str], httpx.Response]:
    """Ids that were acknowledged, and the first answer that was not."""
    told: list[str] = []
    body = {"decisions": [{"context": CONTEXT}] * batch}
    for _ in range(2_000):
        answer = post(client, "/v1/decisions/batch", body)
        if answer.status_code != 201:
            return told, answer
        told += [decision["id"] for decision in answer.json()["decisions"]]
    raise AssertionError("the disk never filled up")


def check_refusal(client: httpx.Client, folder: Path, answer: httpx.Response, words: str) -> None:
    """The request is told why, and so is who may read; anybody else learns that it is storage, and not where."""
    assert answer.status_code == 503, answer.text
    assert answer.json()["type"].endswith(":storage")
    assert words in answer.json()["detail"]
    assert int(answer.headers["retry-after"]) >= 1
    ready = client.get("/health/ready")
    assert ready.status_code == 503
    assert ready.json()["type"].endswith(":storage")
    assert "/v1/status says why" in ready.json()["detail"]
    assert str(folder) not in ready.text
    assert client.get("/health/live").status_code == 200
    status = client.get("/v1/status").json()
    assert status["ready"] is False
    assert words in status["error"]


def check_nothing_lost(folder: Path, told: list[str]) -> None:
    config = make_config(folder, kind="OFUL", mode="act")
    store = open_store(config)
    kinds = {row.number: row.kind for chunk in store.follow(0) for row in chunk}
    assert told
    assert all(kinds[int(id.partition(".")[0])] == "decisions" for id in told)
    assert bits(recover(store).state) == bits(recover(store, use_snapshots=False).state)
    store.close()


def test_a_full_disk(small_disk: Path):
    make_config(small_disk, kind="OFUL", mode="act")
    ballast = small_disk / "ballast"
    with serving(small_disk) as server, httpx.Client(base_url=server.url, timeout=20) as client:
        told, _ = decide_until_refused(client, 200)
        # where a batch has no room a single decision may have some
        more, answer = decide_until_refused(client, 1)
        told += more
        check_refusal(client, small_disk, answer, "disk is full")
        assert post(client, f"/v1/decisions/{told[-1]}/reward", {"reward": 1}).status_code == 503
        # room again: it recovers by itself and goes on
        subprocess.run(["mount", "-o", "remount,size=8m", str(small_disk)], check=True)
        end = time.monotonic() + 10
        while client.get("/health/ready").status_code != 200:
            assert time.monotonic() < end, "it did not recover"
            time.sleep(0.2)
        assert post(client, f"/v1/decisions/{told[-1]}/reward", {"reward": 1}).status_code == 201
        again = post(client, "/v1/decisions", {"context": CONTEXT})
        assert again.status_code == 201
        told.append(again.json()["id"])
        assert not ballast.exists()
    check_nothing_lost(small_disk, told)


def test_a_disk_that_becomes_read_only(small_disk: Path):
    make_config(small_disk, kind="OFUL", mode="act")
    with serving(small_disk) as server, httpx.Client(base_url=server.url, timeout=20) as client:
        told = [post(client, "/v1/decisions", {"context": CONTEXT}).json()["id"] for _ in range(5)]
        server.stop()
    subprocess.run(["mount", "-o", "remount,ro", str(small_disk)], check=True)
    with serving(small_disk) as server:
        assert server.url == ""
        assert "not writable" in server.errors
        assert server.process.returncode == 1
        assert "Traceback" not in server.errors
    subprocess.run(["mount", "-o", "remount,rw", str(small_disk)], check=True)
    check_nothing_lost(small_disk, told)


def test_a_limit_on_the_size_of_files(tmp_path: Path):
    """The same without privileges: the operating system refuses to let the file grow."""
    make_config(tmp_path, kind="OFUL", mode="act")
    limit = "import resource; resource.setrlimit(resource.RLIMIT_FSIZE, (1_500_000, 1_500_000))"
    with serving(tmp_path, prepare=limit) as server, httpx.Client(base_url=server.url, timeout=20) as client:
        told, answer = decide_until_refused(client, 200)
        check_refusal(client, tmp_path, answer, "the disk")
    check_nothing_lost(tmp_path, told)


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write anywhere")
def test_a_read_only_folder(tmp_path: Path):
    make_config(tmp_path, kind="OFUL")
    tmp_path.chmod(0o500)
    with serving(tmp_path) as server:
        assert server.url == ""
        assert "not writable" in server.errors
    tmp_path.chmod(0o700)
