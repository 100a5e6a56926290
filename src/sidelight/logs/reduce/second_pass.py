"""Reading a log again: the rows of a bundle as arrays, those that the first pass skipped marked."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

import numpy as np

from sidelight.labels import Label
from sidelight.logs.reduce.batch import read_rows
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
    propensities: np.ndarray | None
    """(n,) chance with which the arm was taken, ``None`` if the schema names no column for it"""
    usable: np.ndarray
    """(rows of the bundle,) mask of the usable rows, which are the n of the other arrays"""


def encoded_rows(bundle: Bundle, schema: Schema, arms: Mapping[Label, int], text_labels: bool) -> Rows:
    """Encode a bundle under a resolved schema, without the rows that a pass with ``on_invalid="skip"`` leaves out."""
    read = read_rows(bundle.batch, schema, schema.layout(), arms, text_labels)
    usable = read.codes >= 0
    for problem in read.problems():
        usable &= ~problem.rows
    columns = read.encoded.columns
    X = np.column_stack(columns) if columns else np.empty((bundle.batch.num_rows, 0))
    if usable.all():
        return Rows(X, read.codes, read.rewards, read.propensities, usable)
    propensities = None if read.propensities is None else read.propensities[usable]
    return Rows(X[usable], read.codes[usable], read.rewards[usable], propensities, usable)
