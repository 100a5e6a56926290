"""What a type cannot say about a value: which labels there are, that probabilities sum to 1, how an id is spelt.

A rule belongs to a place in a message (``messages``). ``read`` turns a value of the right type into what the engine
takes, and raises ``Unfit`` without a word where the value breaks the rule; ``errors`` then says what is wrong with it.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import Any, Protocol

from sidelight.labels import Label, label_to_json, show_labels
from sidelight.service.checking import FieldError, shown
from sidelight.service.log.decision_id import DecisionId
from sidelight.service.problems import pointer

__all__ = ["Distinct", "IdText", "LabelSet", "PlainText", "Probabilities", "Rule", "Unfit"]


class Unfit(Exception):
    """A value that breaks a rule of its message; the second look says which and how."""


class Rule(Protocol):
    """A condition on a value whose type is right."""

    def errors(self, value: Any, where: str) -> Iterator[FieldError]:
        """What is wrong with ``value``, which is at ``where`` in the body; nothing if it keeps the rule."""
        ...


class LabelSet:
    """Labels of arms or of a category, found by their JSON form: ``true`` is not ``1`` here, and ``1.0`` is.

    Args:
        labels: in order.
        what: what one of them is called in messages.
    """

    def __init__(self, labels: Sequence[Label], what: str = "arm") -> None:
        self.labels = tuple(labels)
        self.what = what
        self.json = [label_to_json(label) for label in self.labels]
        self._index = {_key(form): i for i, form in enumerate(self.json)}

    def __len__(self) -> int:
        return len(self.labels)

    def find(self, value: Any) -> int | None:
        """The position of the label with this JSON form, or None."""
        return self._index.get(value) if type(value) is str else self._index.get(_key(value))

    def read(self, value: Any) -> Label:
        """The label with this JSON form.

        Raises:
            Unfit: there is none.
        """
        found = self.find(value)
        if found is None:
            raise Unfit
        return self.labels[found]

    def errors(self, value: Any, where: str) -> Iterator[FieldError]:
        """An error unless there is such a label."""
        if self.find(value) is None:
            remedy = f"The {self.what}s are {show_labels(self.labels)}"
            yield FieldError(where, f"{shown(value)} is not one of the {self.what}s", remedy)


def _key(form: Any) -> Any:
    kind = type(form)
    if kind is str:
        return form
    if kind is bool:
        return ("boolean", form)
    if kind is int or kind is float:
        return ("number", form)
    if kind is dict and len(form) == 1:
        ((name, text),) = form.items()
        return (name, text) if type(text) is str else None
    return None


class Distinct:
    """A list of labels that names none twice."""

    #: what it says about a list holds whatever else is wrong with its entries
    of_any_list = True

    def __init__(self, labels: LabelSet) -> None:
        self._labels = labels

    def read(self, values: list[Any]) -> list[Label]:
        """The labels.

        Raises:
            Unfit: one is unknown or named twice.
        """
        found = [self._labels.read(value) for value in values]
        if len(set(found)) < len(found):
            raise Unfit
        return found

    def errors(self, values: list[Any], where: str) -> Iterator[FieldError]:
        """An error for a label that comes again, at its second place."""
        seen: set[int | None] = {None}
        for i, value in enumerate(values):
            place = self._labels.find(value)
            if place in seen and place is not None:
                what = self._labels.what
                yield FieldError(pointer(where, i), f"names the {what} {shown(value)} twice", f"Name each {what} once")
            seen.add(place)


class Probabilities:
    """One probability for each arm; they sum to 1 within 1e-6, and are divided by their sum to do so exactly."""

    tolerance = 1e-6

    def read(self, values: list[float]) -> tuple[float, ...]:
        """The probabilities, each divided by their sum.

        Raises:
            Unfit: the sum is off.
        """
        total = math.fsum(values)
        if not abs(total - 1.0) <= self.tolerance:
            raise Unfit
        return tuple(value / total for value in values)

    def errors(self, values: list[float], where: str) -> Iterator[FieldError]:
        """An error unless they sum to 1."""
        total = math.fsum(values)
        if not abs(total - 1.0) <= self.tolerance:
            yield FieldError(where, f"sum to {total:.6g}", "Probabilities of all arms sum to 1")


class PlainText:
    """Text that people can read: no control characters, no half of a surrogate pair."""

    def read(self, text: str) -> str:
        """The text itself.

        Raises:
            Unfit: it holds something else.
        """
        if not text.isprintable():
            raise Unfit
        return text

    def errors(self, text: str, where: str) -> Iterator[FieldError]:
        """An error where the text has characters that cannot be shown."""
        if not text.isprintable():
            remedy = "Give text of 1 to 200 characters without control characters"
            yield FieldError(where, f"{shown(text)} has characters that cannot be shown", remedy)


class IdText:
    """The id of a decision, in its one spelling."""

    def read(self, text: str) -> DecisionId:
        """The id.

        Raises:
            Unfit: no decision can have it.
        """
        id = DecisionId.parse(text)
        if id is None:
            raise Unfit
        return id

    def errors(self, text: str, where: str) -> Iterator[FieldError]:
        """An error unless the text is an id."""
        if DecisionId.parse(text) is None:
            yield FieldError(where, f"{shown(text)} is not a decision's id", "Use the id from the decision")
