"""Checksums of events and the digest that chains them: how a log notices that it was altered, cut or exchanged.

Every event has a *seal*, a salted checksum of its content, and a *chain*, the digest of the chain before it and of its
seal. Two logs with the same chain at an event have the same events up to there. Deleting a person's contexts writes the
event's seal anew with a new salt, and leaves the chain: the old seal is gone, so nobody can check a guess of what was
deleted against it.
"""

from __future__ import annotations

import hashlib
import struct
from typing import NamedTuple, TypeAlias

__all__ = ["SALT_BYTES", "Content", "Head", "chain_after", "is_sealed_anew", "seal_matches", "seal_of"]

SALT_BYTES = 8
_DIGEST_BYTES = 16
_pack = struct.Struct("<qdqqqqq").pack
#: first byte of a seal: written with the event, or anew after a part of it was deleted
_FIRST, _ANEW = b"\x01", b"\x02"


#: what a seal covers: number, kind, time, key, payload, contexts and epoch, as the first columns of a row
Content: TypeAlias = tuple[int, str, float, str | None, str, bytes | None, int]


class Head(NamedTuple):
    """The end of the log.

    Attributes:
        number: of the last event.
        chain: the chained digest after it.
        epoch: what ids of decisions that are written now carry; 0 until the log is restored or loses its tail.
        fold: the version of the fold that the servers of this log must have.
        place: where the database was when it was last written to; see ``connections.place_of``.
    """

    number: int
    chain: bytes
    epoch: int
    fold: int
    place: str | None


def seal_of(content: Content, salt: bytes, *, anew: bool = False) -> bytes:
    """The seal of an event's content: a flag, the salt, and 16 bytes of BLAKE2b over all of it."""
    number, kind, at, key, payload, contexts, epoch = content
    name, text = (key or "").encode(), payload.encode()
    kind_bytes = kind.encode()
    head = _pack(
        number,
        at,
        epoch,
        len(kind_bytes),
        -1 if key is None else len(name),
        len(text),
        -1 if contexts is None else len(contexts),
    )
    whole = b"".join((salt, head, kind_bytes, name, text, contexts or b""))
    return (_ANEW if anew else _FIRST) + salt + hashlib.blake2b(whole, digest_size=_DIGEST_BYTES).digest()


def seal_matches(seal: bytes, content: Content) -> bool:
    """Whether the content is the one that was sealed."""
    return seal == seal_of(content, seal[1 : 1 + SALT_BYTES], anew=is_sealed_anew(seal))


def is_sealed_anew(seal: bytes) -> bool:
    """Whether a part of the event was deleted, so that its chain does not follow from its seal any more."""
    return seal[:1] == _ANEW


def chain_after(chain: bytes, seal: bytes) -> bytes:
    """The chained digest after the event with this seal (16 bytes)."""
    return hashlib.blake2b(chain + seal, digest_size=_DIGEST_BYTES).digest()
