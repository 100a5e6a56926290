"""One file format: whole or not at all, the same bytes for the same content, and nothing foreign is read."""

from __future__ import annotations

import io
import json
import os
import threading
import zipfile

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from sidelight.errors import FileFormatError, InputError
from sidelight.files import container_bytes, read_container, read_container_bytes, write_atomically, write_container
from sidelight.logs.sources.writing import write_tables

META = {"schema": {"arms": ["a", 1, 2.5, True, None]}, "name": "Zürich"}
ARRAYS = {"counts": np.array([3, 0, 5]), "factors": np.arange(12.0).reshape(2, 3, 2), "empty": np.zeros((0, 4))}


def test_what_is_written_is_read(tmp_path):
    path = tmp_path / "a.summary"
    write_container(path, "summary", 3, META, ARRAYS)
    meta, arrays = read_container(path, "summary", 3)
    assert meta == META
    assert list(arrays) == list(ARRAYS)
    for name, array in ARRAYS.items():
        assert arrays[name].dtype == array.dtype
        assert arrays[name].shape == array.shape
        np.testing.assert_array_equal(arrays[name], array)


@given(hnp.arrays(hnp.scalar_dtypes(), hnp.array_shapes(min_dims=0, max_dims=3, min_side=0, max_side=3)))
@settings(max_examples=60, deadline=None)
def test_any_dtype_and_shape_survives(array):
    _, arrays = read_container_bytes(container_bytes("k", 1, {}, {"x": array}), "k", 1)
    assert arrays["x"].dtype == array.dtype
    assert arrays["x"].shape == array.shape
    assert arrays["x"].tobytes() == array.tobytes()


def test_fortran_order_survives_in_value():
    array = np.asfortranarray(np.arange(6.0).reshape(2, 3))
    _, arrays = read_container_bytes(container_bytes("k", 1, {}, {"x": array}), "k", 1)
    np.testing.assert_array_equal(arrays["x"], array)


def test_the_same_content_gives_the_same_bytes():
    first = container_bytes("summary", 1, {"b": 1, "a": 2}, ARRAYS)
    assert first == container_bytes("summary", 1, {"a": 2, "b": 1}, ARRAYS)
    assert first != container_bytes("summary", 1, {"a": 2, "b": 3}, ARRAYS)


def test_numpy_reads_it_too(tmp_path):
    write_container(tmp_path / "a.npz", "summary", 1, META, ARRAYS)
    with np.load(tmp_path / "a.npz", allow_pickle=False) as opened:
        np.testing.assert_array_equal(opened["factors"], ARRAYS["factors"])


@given(st.data())
@settings(max_examples=120, deadline=None)
def test_any_single_change_or_cut_is_noticed(data):
    """Every byte matters, save those of the zip's own bookkeeping that mean the same."""
    content = container_bytes("summary", 1, META, ARRAYS)
    cut = data.draw(st.integers(0, len(content) - 1))
    with pytest.raises(FileFormatError):
        read_container_bytes(content[:cut], "summary", 1)
    where = data.draw(st.integers(0, len(content) - 1))
    flip = data.draw(st.integers(1, 255))
    altered = content[:where] + bytes([content[where] ^ flip]) + content[where + 1 :]
    try:
        meta, arrays = read_container_bytes(altered, "summary", 1)
    except FileFormatError:
        return
    assert meta == META
    for name, array in ARRAYS.items():
        np.testing.assert_array_equal(arrays[name], array)


@given(st.data())
@settings(max_examples=60, deadline=None)
def test_bytes_put_anywhere_are_noticed(data):
    content = container_bytes("summary", 1, META, ARRAYS)
    where = data.draw(st.integers(0, len(content)))
    junk = data.draw(st.binary(min_size=1, max_size=40))
    with pytest.raises(FileFormatError):
        read_container_bytes(content[:where] + junk + content[where:], "summary", 1)


def _through_zip(content, change):
    """A container that a zip program has changed; every member still has its bytes."""
    buffer = io.BytesIO(content)
    with zipfile.ZipFile(buffer, "a") as archive:
        change(archive)
    return buffer.getvalue()


ADDITIONS = {
    "before": lambda content: b"#!/bin/sh\n" + content,
    "after": lambda content: content + b"junk",
    "a comment": lambda content: _through_zip(content, lambda archive: setattr(archive, "comment", b"hello")),
    "a member twice": lambda content: _through_zip(content, lambda z: z.writestr("a.npy", z.read("a.npy"))),
}


@pytest.mark.filterwarnings("ignore:Duplicate name")
@pytest.mark.parametrize("addition", ADDITIONS)
def test_what_the_checksum_does_not_see_is_refused(addition):
    content = container_bytes("k", 1, {}, {"a": np.arange(3.0)})
    with pytest.raises(FileFormatError, match="holds more than Sidelight wrote"):
        read_container_bytes(ADDITIONS[addition](content), "k", 1)


@pytest.mark.parametrize(
    ("content", "says"),
    [
        (b"", "empty"),
        (b"PAR1 something else", "does not start like one"),
        (b"PK\x03\x04 and then nothing", "cut off or damaged"),
    ],
)
def test_foreign_files_are_named(tmp_path, content, says):
    path = tmp_path / "x"
    path.write_bytes(content)
    with pytest.raises(FileFormatError, match=says) as error:
        read_container(path, "summary", 1)
    assert str(path) in str(error.value)


def test_a_zip_of_someone_else_is_named(tmp_path):
    with zipfile.ZipFile(tmp_path / "x.zip", "w") as archive:
        archive.writestr("hello.txt", "hi")
    with pytest.raises(FileFormatError, match=r"not one that Sidelight wrote.*hello\.txt"):
        read_container(tmp_path / "x.zip", "summary", 1)


def test_other_kind_newer_version_newer_layout_and_absence():
    content = container_bytes("learner", 4, {}, {})
    with pytest.raises(FileFormatError, match="holds a Sidelight learner, but a summary was asked for"):
        read_container_bytes(content, "summary", 9)
    with pytest.raises(FileFormatError, match=r"version 4, and this Sidelight reads up to version 3\. Upgrade"):
        read_container_bytes(content, "learner", 3)
    assert read_container_bytes(content, "learner", 5) == ({}, {})
    with pytest.raises(FileFormatError, match="cannot read /nowhere/at/all"):
        read_container("/nowhere/at/all", "learner", 1)


def test_swapped_arrays_fail_the_checksum():
    content = container_bytes("k", 1, {}, {"a": np.zeros(2), "b": np.ones(2)})
    with zipfile.ZipFile(io.BytesIO(content)) as archive:
        members = {name: archive.read(name) for name in archive.namelist()}
    members["a.npy"], members["b.npy"] = members["b.npy"], members["a.npy"]
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as archive:
        for name, member in members.items():
            archive.writestr(name, member)
    with pytest.raises(FileFormatError, match="fails its checksum"):
        read_container_bytes(buffer.getvalue(), "k", 1)


def test_nothing_is_unpickled():
    with pytest.raises(InputError, match="holds Python objects"):
        container_bytes("k", 1, {}, {"x": np.array([{}], dtype=object)})
    # A file made by hand whose checksum is right and whose array is a pickle.
    pickled = io.BytesIO()
    np.lib.format.write_array(pickled, np.array([{}], dtype=object), allow_pickle=True)
    honest = container_bytes("k", 1, {}, {"x": np.zeros(1)})
    with zipfile.ZipFile(io.BytesIO(honest)) as archive:
        header = json.loads(archive.read("sidelight.json"))
    from sidelight import files

    header["sha256"] = files._checksum("k", 1, {}, {"x": pickled.getvalue()})
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as archive:
        archive.writestr("sidelight.json", json.dumps(header))
        archive.writestr("x.npy", pickled.getvalue())
    with pytest.raises(FileFormatError, match="not a plain array"):
        read_container_bytes(buffer.getvalue(), "k", 1)


def test_meta_must_be_json():
    with pytest.raises(InputError, match="plain JSON"):
        container_bytes("k", 1, {"x": float("nan")}, {})
    with pytest.raises(InputError, match="plain JSON"):
        container_bytes("k", 1, {"x": {1, 2}}, {})


def test_writing_is_all_or_nothing(tmp_path, monkeypatch):
    path = tmp_path / "a.summary"
    write_container(path, "k", 1, {"v": 1}, {})
    before = path.read_bytes()

    def fails(*_):
        raise OSError("disk full")

    monkeypatch.setattr(os, "replace", fails)
    with pytest.raises(OSError, match="disk full"):
        write_container(path, "k", 1, {"v": 2}, {})
    assert path.read_bytes() == before
    assert os.listdir(tmp_path) == ["a.summary"]


def test_a_folder_that_is_not_there(tmp_path):
    with pytest.raises(InputError, match="Choose a folder that exists"):
        write_container(tmp_path / "no" / "a", "k", 1, {}, {})


def test_a_folder_instead_of_a_file(tmp_path):
    with pytest.raises(InputError, match="is a folder"):
        write_container(tmp_path, "k", 1, {}, {})
    assert not list(tmp_path.parent.glob(f".{tmp_path.name}*"))


def test_a_link_stays_a_link(tmp_path):
    (tmp_path / "behind").mkdir()
    link = tmp_path / "a.summary"
    link.symlink_to(tmp_path / "behind" / "real.summary")
    write_container(link, "k", 1, {"v": 1}, {})
    assert link.is_symlink()
    assert os.listdir(tmp_path / "behind") == ["real.summary"]


def test_a_device_is_written_to_and_stays_one(tmp_path):
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    read: list[bytes] = []
    reader = threading.Thread(target=lambda: read.append(pipe.read_bytes()))
    reader.start()
    write_atomically(pipe, b"content")
    reader.join(10.0)
    assert read == [b"content"]
    assert pipe.is_fifo()


def test_tables_replace_neither_a_device_nor_a_link(tmp_path):
    pipe, link = tmp_path / "pipe", tmp_path / "link"
    os.mkfifo(pipe)
    link.symlink_to(tmp_path / "real")
    table = pa.table({"a": [1, 2]})
    with pytest.raises(InputError, match="a device or a pipe"):
        write_tables(pipe, "parquet", [table])
    assert pipe.is_fifo()
    assert write_tables(link, "parquet", [table]) == 2
    assert link.is_symlink()
    assert sorted(os.listdir(tmp_path)) == ["link", "pipe", "real"]
