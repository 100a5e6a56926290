"""Learners on disk: whatever is wrong with a file is a ``FileFormatError``, and nothing is ever unpickled."""

from __future__ import annotations

import io
import json
import pickle
import zipfile

import numpy as np
import pytest
from tests.contract.registry import ARMS, FEATURES, LEARNERS

import sidelight as sl
from sidelight.errors import FileFormatError, InputError

X = np.linspace(-0.4, 0.8, len(FEATURES))


@pytest.fixture
def saved(played, tmp_path):
    learner = played(15)
    path = tmp_path / "learner.sidelight"
    learner.save(path)
    return learner, path


def rewrite(path, change) -> None:
    """The container again, with ``change(members)`` applied: a zip whose own checksums are right."""
    with zipfile.ZipFile(path) as archive:
        members = {info.filename: archive.read(info) for info in archive.infolist()}
    change(members)
    with zipfile.ZipFile(path, "w") as archive:
        for name, content in members.items():
            archive.writestr(name, content)


def test_the_same_learner_gives_the_same_file(make, player, tmp_path):
    contents = []
    for name in ("one", "two"):
        learner = make()
        player.play(learner, 15)
        learner.save(tmp_path / name)
        contents.append((tmp_path / name).read_bytes())
    assert contents[0] == contents[1]
    again = sl.load_learner(tmp_path / "one")
    again.save(tmp_path / "three")
    assert (tmp_path / "three").read_bytes() == contents[0]


def test_a_truncated_file(saved):
    _, path = saved
    content = path.read_bytes()
    lengths = {0, 1, 3, 4, 30, 100, len(content) - 1, len(content) - 22, *range(200, len(content), len(content) // 20)}
    for length in lengths:
        path.write_bytes(content[:length])
        with pytest.raises(FileFormatError, match=r"learner\.sidelight"):
            sl.load_learner(path)


def test_an_altered_byte_anywhere(saved, entry):
    """Every region, at other bytes for every learner.  In what Sidelight wrote no byte may change; of the zip's own
    bytes (dates, attributes) one may change that means nothing, and then nothing else changes."""
    learner, path = saved
    shift = 31 * LEARNERS.index(entry)
    content = path.read_bytes()
    expected = [a.tobytes() for a in learner.scores(X)]
    ours = np.zeros(len(content), dtype=bool)
    with zipfile.ZipFile(path) as archive:
        for info in archive.infolist():
            start = info.header_offset + 30 + len(info.filename)
            ours[start : start + info.file_size] = True
    written, zips = np.flatnonzero(ours), np.flatnonzero(~ours)
    steps = [max(len(positions) // 150, 1) for positions in (written, zips)]
    for position in [*written[shift % steps[0] :: steps[0]], *zips[shift % steps[1] :: steps[1]]]:
        altered = bytearray(content)
        altered[position] ^= 0x41
        path.write_bytes(bytes(altered))
        try:
            loaded = sl.load_learner(path)
        except FileFormatError:
            continue
        assert not ours[position]
        assert [a.tobytes() for a in loaded.scores(X)] == expected


@pytest.mark.parametrize("region", ["description", "array"])
def test_an_edited_member_fails_the_checksum(saved, region):
    """The zip's own checksums are right here: only ours can notice."""
    _, path = saved

    def change(members):
        if region == "description":
            header = json.loads(members["sidelight.json"])
            header["meta"]["settings"]["alpha"] = 17.0
            members["sidelight.json"] = json.dumps(header).encode()
        else:
            name = next(name for name in members if name.endswith("counts.npy"))
            members[name] = members[name][:-1] + bytes([members[name][-1] ^ 1])

    rewrite(path, change)
    with pytest.raises(FileFormatError, match="altered"):
        sl.load_learner(path)


def test_a_member_too_few_or_too_many(saved):
    _, path = saved
    content = path.read_bytes()
    rewrite(path, lambda members: members.pop(next(name for name in members if name.endswith(".npy"))))
    with pytest.raises(FileFormatError, match="missing"):
        sl.load_learner(path)
    path.write_bytes(content)
    rewrite(path, lambda members: members.update({"state/extra.npy": b"x"}))
    with pytest.raises(FileFormatError, match="unexpected"):
        sl.load_learner(path)


def test_a_newer_version(saved):
    _, path = saved

    def newer(members):
        header = json.loads(members["sidelight.json"])
        header["version"] = 999
        members["sidelight.json"] = json.dumps(header).encode()

    rewrite(path, newer)
    with pytest.raises(FileFormatError, match=r"999.*[Uu]pgrade"):
        sl.load_learner(path)


def test_foreign_files(saved, tmp_path, log):
    _, path = saved
    path.write_bytes(b"PAR1" + b"\0" * 100)
    with pytest.raises(FileFormatError, match="PAR1"):
        sl.load_learner(path)
    np.savez(tmp_path / "arrays.npz", a=np.ones(3))
    with pytest.raises(FileFormatError, match="not one that Sidelight wrote"):
        sl.load_learner(tmp_path / "arrays.npz")
    log.summary.save(tmp_path / "summary")
    with pytest.raises(FileFormatError, match=r"summary.*learner"):
        sl.load_learner(tmp_path / "summary")
    with pytest.raises(FileFormatError, match="cannot read"):
        sl.load_learner(tmp_path / "nothing here")
    with pytest.raises(FileFormatError):
        sl.load_learner(tmp_path)


def test_nothing_is_ever_unpickled(saved, monkeypatch, tmp_path):
    learner, path = saved

    def never(*_, **__):
        raise AssertionError("something was unpickled")

    for name in ("load", "loads", "Unpickler", "_Unpickler"):
        monkeypatch.setattr(pickle, name, never)
    assert [a.tobytes() for a in sl.load_learner(path).scores(X)] == [a.tobytes() for a in learner.scores(X)]
    monkeypatch.undo()
    # a pickle in place of an array, and a file that is nothing but a pickle, are refused unread
    buffer = io.BytesIO()
    np.save(buffer, np.array([{"a": 1}], dtype=object), allow_pickle=True)
    for name in ("load", "loads", "Unpickler", "_Unpickler"):
        monkeypatch.setattr(pickle, name, never)
    rewrite(path, lambda m: m.update({next(n for n in m if n.endswith("counts.npy")): buffer.getvalue()}))
    with pytest.raises(FileFormatError):
        sl.load_learner(path)
    (tmp_path / "pickle").write_bytes(pickle.dumps({"class": "OFUL"}))
    with pytest.raises(FileFormatError):
        sl.load_learner(tmp_path / "pickle")


def test_a_class_that_is_not_sidelights_is_neither_saved_nor_loaded(entry, log, tmp_path):
    learner = entry.make(log)
    own = type("Mine", (type(learner),), {})
    learner.__class__ = own
    with pytest.raises(InputError, match="Mine cannot be saved"):
        learner.save(tmp_path / "mine")
    assert not (tmp_path / "mine").exists()


def test_a_failed_save_leaves_the_old_file(saved, monkeypatch, tmp_path):
    import os

    learner, path = saved
    before = path.read_bytes()
    learner.observe(X, ARMS[0], 1.0)

    def full(*_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(OSError, match="No space"):
        learner.save(path)
    monkeypatch.undo()
    assert path.read_bytes() == before
    assert [p.name for p in tmp_path.iterdir()] == ["learner.sidelight"]


def test_a_folder_that_does_not_exist(saved, tmp_path):
    learner, _ = saved
    with pytest.raises(InputError, match="no-such-folder"):
        learner.save(tmp_path / "no-such-folder" / "learner")


def test_a_generator_is_saved_with_the_learner(make, tmp_path):
    learner = make(rng=np.random.default_rng(12))
    learner.rng.random(5)
    learner.save(tmp_path / "learner")
    assert sl.load_learner(tmp_path / "learner").rng.random() == learner.rng.random()
    odd = make(rng=np.random.Generator(np.random.MT19937(1)))
    with pytest.raises(InputError, match="MT19937"):
        odd.save(tmp_path / "odd")
