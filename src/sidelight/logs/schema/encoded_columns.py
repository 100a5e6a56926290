"""Where a schema's features and derived features stand in an encoded context, and which columns were recorded."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass

import numpy as np

from sidelight.errors import SchemaError
from sidelight.labels import show_labels
from sidelight.logs.schema.encoding import Layout, spans

__all__ = ["EncodedColumns"]


@dataclass(frozen=True)
class EncodedColumns:
    """The ``d`` columns of an encoded context; the constant, if there is one, is the first and always recorded.

    Attributes:
        names: of the columns.
        spans: the columns of every feature by its name, and of every derived feature by its label.
        recorded: (L,) positions of the columns that the log recorded, increasing.
        hidden: (m,) positions of the others, increasing.
        derived: positions of the columns of derived features, which are the last.
    """

    names: tuple[str, ...]
    spans: Mapping[str, slice]
    recorded: np.ndarray
    hidden: np.ndarray
    derived: np.ndarray

    @classmethod
    def of(cls, layout: Layout, recorded: Collection[str]) -> EncodedColumns:
        """The columns of a layout, computed from columns of the log of which ``recorded`` are there.

        Raises:
            SchemaError: two columns would have the same name.
        """
        names = layout.names
        if len(set(names)) < len(names):
            repeated = sorted({name for name in names if names.count(name) > 1})
            raise SchemaError(f"two encoded columns would have the same name: {show_labels(repeated)}.")
        there, known = set(recorded), np.zeros(len(names), dtype=bool)
        known[: int(layout.intercept)] = True
        labels = [*(feature.name for feature in layout.features), *(term.label for term, _ in layout.terms)]
        where: dict[str, slice] = {}
        for label, (inputs, span) in zip(labels, spans(layout), strict=True):
            where[label] = span
            known[span] = inputs <= there
        derived = sum(sum(keep) for _, keep in layout.terms)
        found = cls(
            names, where, np.flatnonzero(known), np.flatnonzero(~known), np.arange(len(names) - derived, len(names))
        )
        for positions in (found.recorded, found.hidden, found.derived):
            positions.flags.writeable = False
        return found
