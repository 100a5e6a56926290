"""The name of a decision, which callers get and give back."""

from __future__ import annotations

from typing import Self

__all__ = ["DecisionId"]

_HEX = frozenset("0123456789abcdef")


class DecisionId(tuple[int, ...]):
    """A decision's name: the number of its event, its position in it, and the epoch of the log.

    Written ``1042`` or ``1042.17``; after the log was restored from a back-up or had lost its end ``1042.17@5e0f3a1c``,
    because another decision may have been called ``1042.17`` in what was lost. As a tuple it is ``(number, position)``
    in epoch 0, which every log begins with, and ``(number, position, epoch)`` in others.
    """

    __slots__ = ()

    def __new__(cls, number: int, position: int = 0, epoch: int = 0) -> Self:
        """The id with these parts."""
        return super().__new__(cls, (number, position, epoch) if epoch else (number, position))

    @property
    def number(self) -> int:
        """The number of its event."""
        return self[0]

    @property
    def position(self) -> int:
        """Its position in the event, from 0."""
        return self[1]

    @property
    def epoch(self) -> int:
        """The epoch in which it was decided; 0 unless the log was restored or had lost its end before."""
        return self[2] if len(self) > 2 else 0

    def __getnewargs__(self) -> tuple[int, ...]:
        return tuple(self)

    def __repr__(self) -> str:
        return f"DecisionId({str(self)!r})"

    def __str__(self) -> str:
        name = f"{self.number}.{self.position}" if self.position else str(self.number)
        return f"{name}@{self.epoch:x}" if self.epoch else name

    @classmethod
    def parse(cls, text: str) -> DecisionId | None:
        """The inverse of ``str``; None where the text is not an id in its one spelling."""
        name, at, epoch = text.partition("@")
        number, dot, position = name.partition(".")
        if not (number.isascii() and number.isdigit() and 0 < len(number) <= 18):
            return None
        if dot and not (position.isascii() and position.isdigit() and 0 < len(position) <= 6):
            return None
        if at and not (0 < len(epoch) <= 8 and set(epoch) <= _HEX):
            return None
        found = cls(int(number), int(position) if dot else 0, int(epoch, 16) if at else 0)
        return found if str(found) == text else None
