"""One file format for everything Sidelight saves: arrays, a JSON description and a checksum.

A container is a plain zip that ``numpy.load(path, allow_pickle=False)`` can open too::

    sidelight.json     {"sidelight": 1, "kind": ..., "version": ..., "sha256": ..., "meta": {...}, "arrays": [...]}
    <name>.npy         one per array, in the order of "arrays"

``sha256`` covers the kind, the version, the meta data and the bytes of every array, so a file that was cut,
edited or mixed with another one is refused; so is one with bytes before, between or after its members. Nothing is
ever unpickled: arrays of Python objects are refused on both sides. The same content gives the same bytes: members
are stored uncompressed with a fixed date.
"""

from __future__ import annotations

import hashlib
import io
import json
import os
import secrets
import zipfile
import zlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from numpy.lib import format as npy

from sidelight.errors import FileFormatError, InputError

__all__ = [
    "container_bytes",
    "file_to_replace",
    "may_be_container",
    "read_container",
    "read_container_bytes",
    "sync_folder",
    "write_atomically",
    "write_container",
]

_HEADER = "sidelight.json"
_LAYOUT = 1
# The earliest date a zip member can carry: a real one would make equal contents unequal files.
_DATE = (1980, 1, 1, 0, 0, 0)
# Bytes of a zip's fixed parts: before each member, per member in the directory, and at the end.
_LOCAL_HEADER, _DIRECTORY_ENTRY, _END_RECORD = 30, 46, 22


def container_bytes(kind: str, version: int, meta: Mapping[str, Any], arrays: Mapping[str, np.ndarray]) -> bytes:
    """The container as bytes; the same content gives the same bytes.

    Args:
        kind: what the file holds, e.g. ``"summary"``; reading asks for the same word.
        version: the version of that kind's content.
        meta: anything JSON can hold (finite numbers only).
        arrays: name → array of any shape and any dtype but ``object``.
    """
    members = {name: _array_bytes(name, array) for name, array in arrays.items()}
    header = {
        "sidelight": _LAYOUT,
        "kind": kind,
        "version": version,
        "sha256": _checksum(kind, version, meta, members),
        "meta": meta,
        "arrays": list(members),
    }
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_STORED) as archive:
        archive.writestr(_member(_HEADER), _canonical(header))
        for name, content in members.items():
            archive.writestr(_member(f"{name}.npy"), content)
    return buffer.getvalue()


def write_container(
    path: str | os.PathLike[str],
    kind: str,
    version: int,
    meta: Mapping[str, Any],
    arrays: Mapping[str, np.ndarray],
) -> None:
    """Write a container to ``path`` atomically: a crash leaves the old file or the complete new one."""
    write_atomically(path, container_bytes(kind, version, meta, arrays))


def write_atomically(path: str | os.PathLike[str], content: bytes) -> None:
    """Write ``content`` beside ``path``, force it to the disk, then rename it into place.

    A symbolic link stays: the file it points to is replaced.  A device or a pipe, such as /dev/stdout, is written to.

    Raises:
        InputError: ``path`` is a folder, or its folder is not there or not writable.
    """
    target = Path(path)
    if target.exists() and not (target.is_file() or target.is_dir()):
        target.write_bytes(content)
        return
    place = file_to_replace(target)
    folder = place.parent
    temporary = folder / f".{place.name}.{os.getpid()}.{secrets.token_hex(4)}.part"
    try:
        # Mode 0o666 minus the umask, as for any new file; O_EXCL refuses an existing name, so follows no planted link.
        handle = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL | getattr(os, "O_BINARY", 0), 0o666)
    except OSError as error:
        raise InputError(
            f"cannot write {target}: {error.strerror or error}. Choose a folder that exists and is writable."
        ) from error
    try:
        with os.fdopen(handle, "wb") as stream:
            stream.write(content)
            stream.flush()
            os.fsync(stream.fileno())
        os.replace(temporary, place)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise
    sync_folder(folder)


def file_to_replace(path: str | os.PathLike[str]) -> Path:
    """The file that a new one takes the place of when it is complete: ``path``, or what a symbolic link points to.

    Raises:
        InputError: it is a folder, or a device or a pipe, which renaming a file to it would remove.
    """
    target = Path(path)
    if target.is_dir():
        raise InputError(f"cannot write {target}: it is a folder. Name a file in it.")
    if target.exists() and not target.is_file():
        raise InputError(f"cannot write {target}: it is a device or a pipe. Name a file.")
    return Path(os.path.realpath(target))


def may_be_container(path: str | os.PathLike[str]) -> bool:
    """Whether a file is a container, or a zip archive too damaged to tell."""
    with open(path, "rb") as stream:
        if stream.read(4) != b"PK\x03\x04":
            return False
    try:
        with zipfile.ZipFile(path) as archive:
            return _HEADER in archive.namelist()
    except (zipfile.BadZipFile, OSError):
        return True


def read_container(
    path: str | os.PathLike[str], kind: str, version: int
) -> tuple[dict[str, Any], dict[str, np.ndarray]]:
    """Read what :func:`write_container` wrote.

    Args:
        path: the file.
        kind: the kind it must be.
        version: the newest version the caller understands; an older one is returned as it is, and its version is
            in ``meta["version"]`` only if the writer put it there.

    Raises:
        FileFormatError: the file is absent, cut off, altered, of another kind, or newer than this Sidelight.
    """
    try:
        content = Path(path).read_bytes()
    except OSError as error:
        raise FileFormatError(f"cannot read {path}: {error.strerror or error}.") from error
    return read_container_bytes(content, kind, version, origin=str(path))


def read_container_bytes(
    content: bytes, kind: str, version: int, origin: str = "these bytes"
) -> tuple[dict[str, Any], dict[str, np.ndarray]]:
    """Read what :func:`container_bytes` returned; ``origin`` names it in errors."""
    if not content:
        raise FileFormatError(f"{origin} is empty: the file was never written completely. Save it again.")
    try:
        with zipfile.ZipFile(io.BytesIO(content)) as archive:
            members = {info.filename: archive.read(info) for info in archive.infolist()}
            tight = _is_tight(archive, content)
    except (
        zipfile.BadZipFile,
        zlib.error,
        EOFError,
        NotImplementedError,
        RuntimeError,
        ValueError,
        OSError,
    ) as error:
        hint = (
            "it starts like a Sidelight file but is cut off or damaged; copy or save it again"
            if content[:4] == b"PK\x03\x04"
            else f"it does not start like one (first bytes {content[:8]!r})"
        )
        raise FileFormatError(f"{origin} is not a readable Sidelight {kind} file: {hint}.") from error
    if _HEADER not in members:
        raise FileFormatError(
            f"{origin} is a zip file but not one that Sidelight wrote: it has no {_HEADER} (it holds {_some(members)})."
        )
    if not tight:
        raise FileFormatError(
            f"{origin} holds more than Sidelight wrote: bytes before, between or after its parts, or a part twice. "
            "It was altered after it was saved; save or copy it again."
        )
    return _open(members, kind, version, origin)


def _is_tight(archive: zipfile.ZipFile, content: bytes) -> bool:
    """Whether the archive is its members one after the other, then their directory, without any other byte.

    A zip reader skips bytes before, between and after members, and the checksum covers members only.
    """
    infos = archive.infolist()
    # a zip64 archive keeps some lengths in other fields; a file that large is verified by its checksum alone
    if 1.05 * len(content) >= zipfile.ZIP64_LIMIT:
        return True
    position = 0
    for info in infos:
        if info.header_offset != position or info.extra or info.comment or info.compress_type != zipfile.ZIP_STORED:
            return False
        position += _LOCAL_HEADER + len(info.orig_filename.encode()) + info.file_size
    directory = sum(_DIRECTORY_ENTRY + len(info.orig_filename.encode()) for info in infos)
    return len({info.filename for info in infos}) == len(infos) and len(content) == position + directory + _END_RECORD


def _open(
    members: dict[str, bytes], kind: str, version: int, origin: str
) -> tuple[dict[str, Any], dict[str, np.ndarray]]:
    try:
        header = json.loads(members.pop(_HEADER))
        layout, found_kind, found_version = header["sidelight"], header["kind"], header["version"]
        checksum, meta, names = header["sha256"], header["meta"], header["arrays"]
    except (ValueError, KeyError, TypeError) as error:
        raise FileFormatError(f"{origin} has an unreadable {_HEADER}: the file was altered. Save it again.") from error
    if not isinstance(layout, int) or layout > _LAYOUT:
        raise FileFormatError(
            f"{origin} was written by a newer Sidelight (file layout {layout}, this one reads up to {_LAYOUT}). "
            "Upgrade Sidelight to read it."
        )
    if found_kind != kind:
        raise FileFormatError(f"{origin} holds a Sidelight {found_kind}, but a {kind} was asked for.")
    if not isinstance(found_version, int) or found_version > version:
        raise FileFormatError(
            f"{origin} is a {kind} of version {found_version}, and this Sidelight reads up to version {version}. "
            "Upgrade Sidelight to read it."
        )
    contents = {name: members.pop(f"{name}.npy", None) for name in names}
    present = {name: content for name, content in contents.items() if content is not None}
    if len(present) < len(contents) or members:
        raise FileFormatError(
            f"{origin} does not hold the arrays it lists (missing {sorted(set(contents) - set(present))}, "
            f"unexpected {sorted(members)}): the file was altered. Save it again."
        )
    if _checksum(found_kind, found_version, meta, present) != checksum:
        raise FileFormatError(f"{origin} fails its checksum: it was altered after it was saved. Save or copy it again.")
    return meta, {name: _array(content, f"{origin}: {name}") for name, content in present.items()}


def _checksum(kind: str, version: int, meta: Mapping[str, Any], members: Mapping[str, bytes]) -> str:
    digest = hashlib.sha256()
    for part in (
        _canonical([kind, version, meta]),
        *(p for name in members for p in (name.encode(), members[name])),
    ):
        # Each part follows its length: otherwise bytes moved from one part to the next would give the same digest.
        digest.update(len(part).to_bytes(8, "little"))
        digest.update(part)
    return digest.hexdigest()


def _canonical(value: Any) -> bytes:
    try:
        return json.dumps(value, sort_keys=True, ensure_ascii=False, allow_nan=False, separators=(",", ":")).encode()
    except (TypeError, ValueError) as error:
        raise InputError(f"the description of a saved file must be plain JSON: {error}.") from error


def _member(name: str) -> zipfile.ZipInfo:
    info = zipfile.ZipInfo(name, date_time=_DATE)
    info.external_attr = 0o644 << 16
    return info


def _array_bytes(name: str, array: np.ndarray) -> bytes:
    # ascontiguousarray would turn a 0-dimensional array into a vector.
    array = np.asarray(array)
    if array.dtype.hasobject:
        raise InputError(f"array {name!r} holds Python objects ({array.dtype}), which Sidelight never saves.")
    buffer = io.BytesIO()
    npy.write_array(buffer, array, allow_pickle=False)
    return buffer.getvalue()


def _array(content: bytes, origin: str) -> np.ndarray:
    try:
        array: np.ndarray = npy.read_array(io.BytesIO(content), allow_pickle=False)
    except (ValueError, EOFError, SyntaxError, TypeError) as error:
        raise FileFormatError(f"{origin} is not a plain array: {error}.") from error
    return array


def _some(members: Mapping[str, bytes]) -> str:
    names = sorted(members)[:3]
    return ", ".join(names) + (", ..." if len(members) > 3 else "") if names else "nothing"


def sync_folder(folder: Path) -> None:
    """Force the rename itself to the disk, where the system can open a folder."""
    if os.name == "nt":
        return
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
