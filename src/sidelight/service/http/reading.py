"""Reading a body as one of the messages: fast if it is valid, with a list of all errors if it is not."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from typing import Any, TypeVar

import msgspec
import msgspec.inspect
import numpy as np
from msgspec import UNSET
from msgspec.structs import astuple

from sidelight.service.checking import FieldError, ObjectWords, field_errors, invalid_body
from sidelight.service.http.rules import Unfit
from sidelight.service.http.wire import parse
from sidelight.service.problems import invalid

__all__ = ["Reader"]

logger = logging.getLogger("sidelight.service")

T = TypeVar("T")

_SCALARS = frozenset({float, int, str, bool, type(None)})
#: bytes from which on NumPy counts faster
_LONG = 4_096


def _colons(content: bytes) -> int:
    if len(content) < _LONG:
        return content.count(b":")
    return int(np.count_nonzero(np.frombuffer(content, dtype=np.uint8) == ord(":")))


class Reader:
    """Reads messages of some types.

    Args:
        types: structs by the name of the message.
        words: the texts of errors about the fields of each kind of object.
        counted: structs all of whose fields are required and hold no objects, with their number of fields.
    """

    def __init__(
        self, types: Mapping[str, type], words: Mapping[type, ObjectWords], counted: Mapping[type, int]
    ) -> None:
        self._types, self._words, self._counted = types, words, counted
        self._decoders: dict[str, msgspec.json.Decoder[Any]] = {
            name: msgspec.json.Decoder(kind) for name, kind in types.items()
        }
        self._kinds = {name: msgspec.inspect.type_info(kind) for name, kind in types.items()}

    def errors(self, name: str, value: Any) -> list[FieldError]:
        """Everything that keeps a JSON value from being the message."""
        return field_errors(self._kinds[name], value, self._words)

    def read(self, name: str, content: bytes, convert: Callable[[Any], T]) -> T:
        """A request as ``convert`` makes it from the decoded message.

        The fast parser stops at the first error, so a body that it refuses is checked again in full. It also silently
        keeps the last of two equal keys. Each key has a colon of its own, so as many colons as keys mean that no key
        was lost; anything else, a colon inside a text included, is parsed again.

        Args:
            name: of the message.
            content: the body.
            convert: raises ``Unfit`` where the message breaks one of its rules.

        Raises:
            Problem: 400 where the body is not JSON, 422 with every error where it is not this message.
        """
        try:
            message = self._decoders[name].decode(content)
            if self._keys(message) != _colons(content):
                parse(content)
            return convert(message)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError, Unfit) as error:
            return self._look_again(name, content, convert, error)

    def _look_again(self, name: str, content: bytes, convert: Callable[[Any], T], refused: Exception) -> T:
        value = parse(content)
        errors = self.errors(name, value)
        if errors:
            raise invalid_body(errors)
        try:
            return convert(msgspec.convert(value, self._types[name]))
        except (msgspec.ValidationError, Unfit) as error:
            logger.error("the fast parser refused a %s in which the full check finds no error", name, exc_info=refused)
            raise invalid("", str(error) or "is not valid", "Compare it with /openapi.json") from error

    def _keys(self, message: Any) -> int:
        """How many keys the objects of a message have, as deep as messages go."""
        count = 0
        for value in astuple(message):
            if value is not UNSET:
                count += 1 + (self._counted.get(type(value)) or self._keys_in(value))
        return count

    def _keys_in(self, value: Any) -> int:
        """How many keys the objects in a field have."""
        kind = type(value)
        if kind in _SCALARS:
            return 0
        if kind in self._counted:
            return self._counted[kind]
        if kind is list:
            return self._keys_in_all(value) if value and type(value[0]) not in _SCALARS else 0
        if kind is dict:
            return len(value)
        return self._keys(value) if isinstance(value, msgspec.Struct) else 0

    def _keys_in_all(self, values: list[Any]) -> int:
        """How many keys the objects of an array have: field by field, since most have the same ones."""
        kinds = set(map(type, values))
        if len(kinds) > 1 or not isinstance(values[0], msgspec.Struct):
            return sum(map(self._keys_in, values))
        count = 0
        for column in zip(*map(astuple, values), strict=True):
            if column[0] is UNSET and column.count(UNSET) == len(column):
                continue
            if type(column[0]) in self._counted and len(set(map(type, column))) == 1:
                count += len(column) * (1 + self._counted[type(column[0])])
            else:
                count += sum([1 + self._keys_in(value) for value in column if value is not UNSET])
        return count
