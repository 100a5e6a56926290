"""Checks of a file against the records of ``sections``, and the table that documents their fields."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

import msgspec
import msgspec.inspect as mi

from sidelight.errors import InputError
from sidelight.labels import show_labels

__all__ = ["Field", "fields_of", "read_section", "refuse", "table"]

_WORDS: dict[type, str] = {
    mi.StrType: "text",
    mi.IntType: "a whole number",
    mi.FloatType: "a number",
    mi.BoolType: "true or false",
    mi.DictType: "a table",
    mi.ListType: "a list of numbers",
    mi.AnyType: "an arm",
}


class Field(NamedTuple):
    """One field of a section.

    Attributes:
        name: as the file has it.
        kind: its type, as msgspec describes it.
        description: what it means.
        choices: the values it may have; None for any of its type.
        why: why it is bounded as it is.
        default: its value where the file has none.
    """

    name: str
    kind: mi.Type
    description: str
    choices: tuple[str, ...] | None
    why: str
    default: Any

    def errors(self, value: Any) -> Iterator[str]:
        """What is wrong with a value, to be read after "[section] name = value"."""
        kind = self.kind
        if not _fits(kind, value):
            yield f"must be {_WORDS[type(kind)]}"
        elif self.choices is not None and value not in self.choices:
            yield f"is not one of {show_labels(self.choices)}"
        elif isinstance(kind, mi.StrType) and kind.min_length and not value:
            yield "must not be empty"
        elif isinstance(kind, mi.StrType) and "\0" in value:
            yield "must not hold a NUL character"
        elif isinstance(kind, mi.IntType | mi.FloatType) and not _within(kind, value):
            yield f"must be {_range(kind)}" + (f", {self.why}" if self.why else "")


def fields_of(record: type) -> list[Field]:
    """The fields of a section's record."""
    kind = mi.type_info(record)
    assert isinstance(kind, mi.DataclassType)
    out = []
    for field in kind.fields:
        inner = field.type
        extra: dict[str, Any] = {}
        described: dict[str, Any] = {}
        while isinstance(inner, mi.Metadata):
            extra, described = {**(inner.extra or {}), **extra}, {**(inner.extra_json_schema or {}), **described}
            inner = inner.type
        default = field.default if field.default_factory is msgspec.NODEFAULT else field.default_factory()
        out.append(
            Field(
                field.encode_name,
                inner,
                described.get("description", ""),
                extra.get("choices"),
                extra.get("why", ""),
                default,
            )
        )
    return out


def read_section(record: Any, body: Any, section: str, errors: list[str]) -> Any:
    """The record of a section; errors are added to ``errors``, and a field in error has its default in the record."""
    if not isinstance(body, Mapping):
        errors.append(f"[{section}] must be a table")
        return record()
    known = {field.name: field for field in fields_of(record)}
    values = {}
    for name, value in body.items():
        field = known.get(name)
        if field is None:
            errors.append(f"[{section}] {name} is not a field; it has {show_labels(known)}")
            continue
        wrong = [f"[{section}] {name} = {value!r} {said}" for said in field.errors(value)]
        errors += wrong
        if not wrong:
            values[name] = float(value) if isinstance(field.kind, mi.FloatType) else value
    return record(**values)


def refuse(path: Any, errors: list[str]) -> None:
    """Report all errors of a file, if there are any.

    Raises:
        InputError: ``errors`` is not empty.
    """
    if len(errors) == 1:
        raise InputError(f"{errors[0]}.")
    if errors:
        raise InputError(f"{path} has {len(errors)} errors:\n" + "\n".join(f"  {error}." for error in errors))


def table(sections: Mapping[str, type]) -> str:
    """The fields of all sections as a table in Markdown: name, what it may be, its default, what it means."""
    lines = ["| field | may be | default | what it means |", "|---|---|---|---|"]
    for section, record in sections.items():
        for field in fields_of(record):
            lines.append(
                f"| `[{section}]` `{field.name}` | {_may_be(field)} | {_shown(field.default)} | {field.description} |"
            )
    return "\n".join(lines)


def _may_be(field: Field) -> str:
    if field.choices is not None:
        return ", ".join(f"`{choice}`" for choice in field.choices)
    bounds = _range(field.kind) if isinstance(field.kind, mi.IntType | mi.FloatType) else ""
    return _WORDS[type(field.kind)] + (f" {bounds}" if bounds else "")


def _shown(default: Any) -> str:
    if default is None:
        return "–"
    if isinstance(default, bool):
        return f"`{str(default).lower()}`"
    if isinstance(default, float):
        return f"`{_plain(default)}`"
    return f'`"{default}"`' if isinstance(default, str) else f"`{default}`"


def _fits(kind: mi.Type, value: Any) -> bool:
    match kind:
        case mi.StrType():
            return type(value) is str
        case mi.IntType():
            return type(value) is int
        case mi.FloatType():
            return type(value) in (int, float)
        case mi.BoolType():
            return type(value) is bool
        case mi.DictType():
            return isinstance(value, dict)
        case mi.ListType():
            return isinstance(value, list) and all(type(item) in (int, float) for item in value)
        case _:
            return True


def _within(kind: mi.IntType | mi.FloatType, value: float) -> bool:
    return (
        math.isfinite(value)
        and (kind.gt is None or value > kind.gt)
        and (kind.ge is None or value >= kind.ge)
        and (kind.le is None or value <= kind.le)
        and (kind.lt is None or value < kind.lt)
    )


def _range(kind: mi.IntType | mi.FloatType) -> str:
    if kind.ge is not None and kind.le is not None:
        return f"in {_plain(kind.ge)} … {_plain(kind.le)}"
    parts = (
        [f"above {_plain(kind.gt)}"]
        if kind.gt is not None
        else [f"at least {_plain(kind.ge)}"]
        if kind.ge is not None
        else []
    )
    parts += [f"at most {_plain(kind.le)}"] if kind.le is not None else []
    parts += [f"below {_plain(kind.lt)}"] if kind.lt is not None else []
    open_above = kind.le is None and kind.lt is None
    return " and ".join([*parts, *(["finite"] if isinstance(kind, mi.FloatType) and open_above else [])])


def _plain(number: float) -> str:
    """A number as people write it in such a file: ``1e9``, not ``1e+09``."""
    return re.sub(r"e\+0*", "e", f"{number:g}")
