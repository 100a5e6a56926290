"""The table of other libraries: what fails is a row's words, never the table's end; ratios are those measured."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from benchmarks.peers import environments, loop, run
from benchmarks.peers.environments import HERE, NotInstalled, Peer, peers_known, python_of

OURS = {"NumPy": 20.0, "simulated, L = 0": 5.0, "decide + observe, L = 0": 10.0, "something else": 1.0}


def row(name, **values):
    return {"name": name, "title": name.title(), **values}


def test_every_peer_has_a_loop_and_a_pinned_version():
    known = peers_known()
    assert {"mabwiser", "river", "contextualbandits", "pymab", "obp", "paretobandit", "vowpalwabbit"} <= {
        peer.name for peer in known
    }
    for peer in known:
        assert callable(getattr(loop, peer.name))
        assert any(line.startswith(f"{peer.name}==") for line in (*peer.install, *peer.alone))


def test_ratios_go_by_way_of_numpy():
    """A peer of 300 µs where NumPy took 30 is 10 NumPy rounds, 40 simulated and 20 called ones; 300/5 says nothing."""
    measured = row("slow", version="1.2", microseconds=300.0, numpy_microseconds=30.0, learns=True)
    results = {"date": "2026-01-02", "machine": "m", "load": 0.1, "sidelight": OURS, "peers": [measured]}
    lines = run.table(results).splitlines()
    assert "| Slow | 1.2 | 300 | 10 | 40 | 20 |" in lines
    assert lines[2].startswith("| Sidelight's OFUL, simulated |  | 5.0 | 0.25 | 1 | 0.5 |")
    assert "No figure" not in run.table(results)


def test_a_peer_that_fails_is_reported_and_the_others_are_timed(tmp_path, monkeypatch, capsys):
    known = [Peer("good", "Good", ("good==1",)), Peer("gone", "Gone", ("gone==1",))]
    monkeypatch.setattr(run, "peers_known", lambda: known)
    found = {"version": "1", "microseconds": 50.0, "numpy_microseconds": 25.0, "rounds": 10, "learns": True}
    monkeypatch.setattr(run, "timed", lambda peer: found if peer.name == "good" else {"failed": "does not install: x"})
    run.peers(OURS, tmp_path)
    assert "Gone: does not install: x" in capsys.readouterr().out
    text = (tmp_path / "table.md").read_text(encoding="utf-8")
    assert "| Good | 1 | 50.0 | 2 | 8 | 4 |" in text
    assert "No figure of Gone: does not install: x." in text
    kept = json.loads((tmp_path / "results.json").read_text(encoding="utf-8"))
    assert [peer["name"] for peer in kept["peers"]] == ["good", "gone"]
    assert set(kept["sidelight"]) == set(OURS) - {"something else"}


def test_what_can_go_wrong_in_one_environment_has_its_words(monkeypatch):
    peer = Peer("numpy", "NumPy itself", ("numpy",))

    def refuses(_):
        raise NotInstalled("no wheel")

    monkeypatch.setattr(run, "python_of", refuses)
    assert run.timed(peer) == {"failed": "does not install: no wheel"}
    monkeypatch.setattr(run, "python_of", lambda _: Path(sys.executable))
    assert "KeyError: 'nobody'" in run.timed(Peer("nobody", "Nobody", ()))["failed"]
    monkeypatch.setattr(run, "LOOP_SECONDS", 0.01)
    assert "took more than" in run.timed(peer)["failed"]


@pytest.mark.parametrize("learns", [True, False])
def test_a_loop_that_does_not_learn_is_no_measurement(monkeypatch, learns):
    said = {"version": "1", "microseconds": 1.0, "numpy_microseconds": 1.0, "rounds": 5, "learns": learns}
    monkeypatch.setattr(run, "python_of", lambda _: Path(sys.executable))
    monkeypatch.setattr(
        subprocess, "run", lambda command, **_: subprocess.CompletedProcess(command, 0, f"\n{json.dumps(said)}\n", "")
    )
    assert ("failed" in run.timed(Peer("x", "X", ()))) is not learns


def test_the_loop_tells_a_learner_from_chance():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(loop.ROUNDS, loop.D)) / np.sqrt(loop.D)
    table = X @ rng.normal(size=(loop.D, loop.K))
    learner, chance = loop.Turns(loop.numpy(), X, table), loop.Turns(lambda x, r: int(rng.integers(loop.K)), X, table)
    for turns in (learner, chance):
        while turns.round < 1_500:
            turns.play()
        assert len(turns.gains) == turns.round
    # chance exceeds four standard errors with probability 3e-5
    assert (learner.learns, chance.learns) == (True, False)


def test_an_environment_is_made_once_and_made_anew_after_a_failure(tmp_path, monkeypatch):
    made, commands = [], []
    monkeypatch.setattr(environments.venv, "create", lambda folder, **_: (made.append(folder), os.makedirs(folder)))
    monkeypatch.setattr(environments, "_run", commands.append)
    peer = Peer("obp", "O", ("numpy", "scipy"), ("obp==1",))
    python = python_of(peer, tmp_path)
    assert python_of(peer, tmp_path) == python
    assert len(made) == 1
    assert [command[-2:] for command in commands] == [["numpy", "scipy"], ["--ignore-requires-python", "obp==1"]]
    assert python_of(Peer("obp", "O", ("numpy",)), tmp_path) != python

    def fails(_):
        raise NotInstalled("x")

    monkeypatch.setattr(environments, "_run", fails)
    with pytest.raises(NotInstalled):
        python_of(Peer("river", "R", ("river",)), tmp_path)
    assert not list(tmp_path.glob("river-*/complete"))


def test_pip_s_own_words_are_kept(tmp_path):
    command = [sys.executable, "-c", "import sys; sys.exit('ERROR: No matching distribution found for nobody==9')"]
    with pytest.raises(NotInstalled, match="No matching distribution found for nobody"):
        environments._run(command)


def test_loop_runs_without_sidelight():
    """It runs in environments that have no Sidelight: NumPy's own loop, with the package out of reach."""
    blocked = "import sys, runpy; sys.modules['sidelight'] = None; sys.argv = ['loop.py', 'numpy']; "
    code = f"{blocked}runpy.run_path({str(HERE / 'loop.py')!r}, run_name='__main__')"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60)
    found = json.loads(done.stdout)
    assert found["learns"]
    assert found["microseconds"] == pytest.approx(found["numpy_microseconds"], rel=0.5)
