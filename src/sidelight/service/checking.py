"""The full check of a body that the fast parser refused: every error in it, with its place and its remedy.

``messages`` describes what a body may be, as types that msgspec reads fast and that stop at the first error. Here the
JSON value is compared with the same types once more, to report all errors at once.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol

import msgspec.inspect as mi

from sidelight.labels import show_labels
from sidelight.service.problems import Problem, pointer

__all__ = ["FieldError", "ObjectWords", "Rule", "field_errors", "invalid_body", "shown"]

#: errors that one answer names; a body of four megabytes could hold a million
MOST_ERRORS = 1000
_NAMED_IN_DETAIL = 500


class FieldError(NamedTuple):
    """A field at fault: JSON pointer into the body, what is wrong, what to do."""

    pointer: str
    detail: str
    remedy: str


def shown(value: Any) -> str:
    """A value for a message, at most 60 characters long."""
    text = "null" if value is None else repr(value)
    return text if len(text) <= 60 else text[:57] + "..."


class Rule(Protocol):
    """A condition on a value whose type is right."""

    def errors(self, value: Any, where: str) -> Iterator[FieldError]:
        """The errors of ``value``, which is at ``where`` in the body; none if it satisfies the rule."""
        ...


@dataclass(frozen=True)
class ObjectWords:
    """The texts of errors about the fields of one kind of object, and which of them it needs.

    Attributes:
        unknown: the error for an unknown field.
        takes: the words before the list of known fields.
        missing: the remedy for a missing field that has no remedy of its own.
        one_of: at least one of these fields must be there.
        empty: the remedy where none of them is.
        rule: a condition on several fields, checked only if each of them is valid by itself.
    """

    unknown: str = "is not a field of this request"
    takes: str = "it takes"
    missing: str = "Add it"
    one_of: tuple[str, ...] = ()
    empty: str = ""
    rule: Rule | None = None


_PLAIN = ObjectWords()


def field_errors(kind: mi.Type, value: Any, words: Mapping[type, ObjectWords]) -> list[FieldError]:
    """Everything that keeps a JSON value from being of a kind, in the order of the body; at most ``MOST_ERRORS``.

    Args:
        kind: ``msgspec.inspect.type_info`` of a message.
        value: JSON as Python's own parser reads it.
        words: what to say about the objects of each message type.
    """
    look = _Look(words)
    look.at(kind, value, "", {})
    return look.found[:MOST_ERRORS]


def invalid_body(errors: list[FieldError]) -> Problem:
    """A 422 that names every field at fault; its ``detail`` has the first error in full and the others by name."""
    first = errors[0]
    detail = f"{first.pointer or 'the body'}: {first.detail}. {first.remedy}."
    if len(errors) > 1:
        names: list[str] = []
        room = _NAMED_IN_DETAIL
        for error in errors[1:]:
            room -= len(error.pointer) + 2
            if room < 0:
                break
            names.append(error.pointer)
        left = len(errors) - 1 - len(names)
        more = ", ".join(names) + (f" and {left} more" if names and left else f"{left} more" if left else "")
        detail += f" Also wrong: {more}."
    return Problem("invalid", detail, errors=[error._asdict() for error in errors])


def _nullable(kind: mi.Type) -> bool:
    """Whether ``null`` is a value of this kind."""
    inner = kind.type if isinstance(kind, mi.Metadata) else kind
    parts = inner.types if isinstance(inner, mi.UnionType) else (inner,)
    return any(isinstance(part, mi.NoneType | mi.AnyType) for part in parts)


class _Look:
    """Collects the errors of one value, recursively."""

    def __init__(self, words: Mapping[type, ObjectWords]) -> None:
        self.words = words
        self.found: list[FieldError] = []

    def at(self, kind: mi.Type, value: Any, where: str, said: Mapping[str, Any]) -> None:
        """Add the errors of ``value``; ``said`` holds the extras of the type (noun, remedy, rule)."""
        if len(self.found) >= MOST_ERRORS:
            return
        match kind:
            case mi.Metadata():
                before = len(self.found)
                extra = kind.extra or {}
                self.at(kind.type, value, where, {**said, **extra})
                rule = extra.get("rule")
                # Duplicate labels can be reported beside unknown ones; the sum of entries that are no numbers cannot.
                despite = getattr(rule, "of_any_list", False) and type(value) is list
                if rule is not None and (len(self.found) == before or despite):
                    self.found += rule.errors(value, where)
            case mi.UnionType():
                self._union(kind, value, where, said)
            case mi.StructType():
                self._object(kind, value, where)
            case mi.ListType():
                self._list(kind, value, where, said)
            case mi.FloatType():
                self._number(kind, value, where, said)
            case mi.IntType():
                least, most = (-math.inf if kind.ge is None else kind.ge), (math.inf if kind.le is None else kind.le)
                if not (type(value) is int and least <= value <= most):
                    self._wrong(value, where, said, "a whole number", "Give a whole number, without quotes")
            case mi.BoolType():
                if type(value) is not bool:
                    self._wrong(value, where, said, "true or false", "Give true or false, without quotes")
            case mi.StrType():
                self._text(kind, value, where, said)
            case mi.LiteralType():
                if type(value) is not str or value not in kind.values:
                    order = said.get("order", kind.values)
                    self._wrong(value, where, said, "one of them", f"It is one of {', '.join(map(str, order))}")
            case mi.AnyType():
                pass
            case _:
                raise TypeError(f"a message may not hold {kind!r}")

    def _wrong(self, value: Any, where: str, said: Mapping[str, Any], noun: str, remedy: str) -> None:
        detail = f"{shown(value)} is not {said.get('noun', noun)}"
        self.found.append(FieldError(where, detail, said.get("remedy", remedy)))

    def _union(self, kind: mi.UnionType, value: Any, where: str, said: Mapping[str, Any]) -> None:
        if value is None and any(isinstance(part, mi.NoneType) for part in kind.types):
            return
        others = [part for part in kind.types if not isinstance(part, mi.NoneType)]
        if len(others) == 1:
            self.at(others[0], value, where, said)
            return
        forms: dict[type, Any] = {dict: mi.StructType, list: mi.ListType, bool: mi.BoolType, str: mi.StrType}
        wanted = forms.get(type(value), mi.FloatType)
        for part in kind.types:
            inner = part.type if isinstance(part, mi.Metadata) else part
            if isinstance(inner, wanted):
                self.at(part, value, where, said)
                return
        if any(isinstance(part, mi.FloatType) for part in kind.types):
            self._wrong(value, where, said, "a number", "Give a number, without quotes")
            return
        self._wrong(value, where, said, "an object or an array", "Give an object or an array")

    def _object(self, kind: mi.StructType, value: Any, where: str) -> None:
        words = self.words.get(kind.cls, _PLAIN)
        if type(value) is not dict:
            shown_fields = [field for field in kind.fields if field.required] or kind.fields[:1]
            example = "{" + ", ".join(f'"{field.encode_name}": …' for field in shown_fields) + "}"
            self.found.append(FieldError(where, f"{shown(value)} is not an object", f"Send a JSON object, {example}"))
            return
        before = len(self.found)
        known = {field.encode_name: field for field in kind.fields}
        if words.one_of and not any(name in value for name in words.one_of):
            detail = f"has none of {', '.join(words.one_of)}" if value else "is empty"
            self.found.append(FieldError(where, detail, words.empty))
        for name, field in known.items():
            null = name in value and value[name] is None and field.required and not _nullable(field.type)
            if name in value and not null:
                self.at(field.type, value[name], pointer(where, name), {})
            elif field.required:
                extra = (field.type.extra or {}) if isinstance(field.type, mi.Metadata) else {}
                missing = extra.get("missing", words.missing)
                detail = "is null" if null else extra.get("is_missing", "is missing")
                self.found.append(FieldError(pointer(where, name), detail, missing))
        for name in value:
            if name not in known:
                takes = f"Leave it out; {words.takes} {show_labels(known)}"
                self.found.append(FieldError(pointer(where, name[:200]), words.unknown, takes))
        if words.rule is not None and len(self.found) == before:
            self.found += words.rule.errors(value, where)

    def _list(self, kind: mi.ListType, value: Any, where: str, said: Mapping[str, Any]) -> None:
        least, most = kind.min_length or 0, kind.max_length
        exact = f"{most} entries" if least == most else None
        if type(value) is not list:
            self._wrong(value, where, said, "an array", f"Give an array with {exact or 'at least one entry'}")
        elif len(value) < least or (most is not None and len(value) > most):
            remedy = f"Give {exact}" if exact else "Give at least one" if not value else f"Send at most {most} at once"
            detail = f"has {len(value)} entr{'y' if len(value) == 1 else 'ies'}" + (f", not {most}" if exact else "")
            self.found.append(FieldError(where, detail, said.get("remedy", remedy)))
        else:
            for i, item in enumerate(value):
                self.at(kind.item_type, item, pointer(where, i), {})

    def _number(self, kind: mi.FloatType, value: Any, where: str, said: Mapping[str, Any]) -> None:
        if type(value) not in (int, float):
            self._wrong(value, where, {}, "a number", "Give a number, without quotes")
        elif type(value) is float and not math.isfinite(value):
            self.found.append(FieldError(where, f"{value} is not finite", "Give a finite number"))
        elif (kind.ge is not None and value < kind.ge) or (kind.le is not None and value > kind.le):
            if "noun" in said or kind.ge != -(kind.le or 0.0):
                self._wrong(value, where, said, "in its range", f"Give a number from {kind.ge:g} to {kind.le:g}")
            else:
                remedy = "Use a larger unit, or check the value"
                self.found.append(FieldError(where, f"{shown(value)} is larger than {kind.le:g}", remedy))

    def _text(self, kind: mi.StrType, value: Any, where: str, said: Mapping[str, Any]) -> None:
        if type(value) is not str:
            self._wrong(value, where, said, "text", "Give text, in quotes")
        elif len(value) < (kind.min_length or 0) or len(value) > (kind.max_length or math.inf):
            self._wrong(value, where, said, "short enough", f"Give text of 1 to {kind.max_length} characters")
