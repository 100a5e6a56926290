"""Conditions that a type cannot express: which labels exist, that probabilities sum to 1, which fields agree.

A rule belongs to a place in a message (``messages``). ``read`` turns a value of the right type into what the engine
takes, and raises ``Unfit`` without a message where the value breaks the rule; ``errors`` then says what is wrong.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import Any

from sidelight.labels import Label, label_to_json, show_labels
from sidelight.service.checking import FieldError, shown
from sidelight.service.problems import pointer

__all__ = ["Distinct", "LabelSet", "PlainText", "Probabilities", "ToldArm", "Unfit"]


class Unfit(Exception):
    """A value that breaks a rule of its message; the full check (``checking``) says which and how."""


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
    """The rule that a list of labels has no duplicates."""

    #: whether the rule applies even if entries of the list are invalid
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
    """The rule that the arms' probabilities sum to 1 within 1e-6; ``read`` divides them by their sum."""

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


class ToldArm:
    """The rule that the old policy's arm has a positive probability, where both are given."""

    def __init__(self, arms: LabelSet) -> None:
        self._arms = arms

    def check(self, arm: Any, probabilities: Sequence[float]) -> None:
        """Check that the arm, in its JSON form, has a positive probability.

        Raises:
            Unfit: the arm is unknown, or its probability is 0.
        """
        place = self._arms.find(arm)
        if place is None or probabilities[place] == 0.0:
            raise Unfit

    def errors(self, answer: dict[str, Any], where: str) -> Iterator[FieldError]:
        """An error where the answer tells an arm and probabilities that exclude it."""
        probabilities = answer.get("probabilities")
        if "arm" not in answer or probabilities is None:
            return
        place = self._arms.find(answer["arm"])
        if place is not None and probabilities[place] == 0.0:
            yield FieldError(
                pointer(where, "arm"),
                f"{shown(answer['arm'])} is told as the old policy's arm, and {pointer(where, 'probabilities')} gives "
                f"it 0: {shown(probabilities)}",
                "Tell the arm that was drawn from these probabilities, or the probabilities that it was drawn from",
            )


class PlainText:
    """The rule that a text can be shown: no control characters, no lone surrogates."""

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
