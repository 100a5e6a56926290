"""Reading a log again: the rows of a bundle as arrays, those that the first pass skipped marked."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

import numpy as np

from sidelight.labels import Label
from sidelight.logs.schema.columns import label_codes, number_column
from sidelight.logs.schema.encoding import (
    all_problems,
    encode_columns,
    label_problems,
    number_problems,
)
from sidelight.logs.schema.schema import Schema
from sidelight.logs.sources.base import Bundle

__all__ = ["Rows", "encoded_rows"]


class Rows(NamedTuple):
    """The usable rows of a bundle."""

    X: np.ndarray
    """(n, L) recorded columns, encoded"""
    codes: np.ndarray
    """(n,) position of the logged arm"""
    rewards: np.ndarray
    """(n,)"""
    usable: np.ndarray
    """(rows of the bundle,) booleans: those among the n"""


def encoded_rows(bundle: Bundle, schema: Schema, arms: Mapping[Label, int], text_labels: bool) -> Rows:
    """Encode a bundle under a resolved schema, without the rows that a pass with ``on_invalid="skip"`` leaves out."""
    batch = bundle.batch
    layout = schema.layout()
    encoded = encode_columns(batch, layout, text_labels)
    rewards, unparsable = number_column(batch.column(schema.reward), schema.reward)
    codes, found = label_codes(batch.column(schema.arm), arms, text_labels)
    usable = codes >= 0
    problems = [
        *all_problems(encoded, layout),
        *label_problems(schema.arm, found),
        *number_problems(schema.reward, rewards, unparsable),
    ]
    for problem in problems:
        usable &= ~problem.rows
    X = np.column_stack(encoded.columns) if encoded.columns else np.empty((batch.num_rows, 0))
    if usable.all():
        return Rows(X, codes, rewards, usable)
    return Rows(X[usable], codes[usable], rewards[usable], usable)
