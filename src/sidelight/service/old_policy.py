"""An old policy that is itself a learner: the service before this one, asked at every context instead of a caller.

A learner changed while it acted, so its log is that of a mixture: the learner as it was at one moment of the log, drawn
at random. That is what the log's shares and moments belong to, and what the saved learners here stand for.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from sidelight.errors import InputError
from sidelight.linalg import Array
from sidelight.logs.labels import Label, show_labels
from sidelight.logs.schema import Schema

__all__ = ["OldPolicy"]

_SUFFIX = ".learner"


class OldPolicy:
    """What the service before this one would do at a context of this one.

    Args:
        learners: the learner at moments that stand for equally many rows of its log.
        schema: of this service; it has all features of theirs.

    Raises:
        InputError: there is no learner, or one needs a feature that the schema lacks.
    """

    def __init__(self, learners: Sequence[Any], schema: Schema) -> None:
        if not learners:
            raise InputError(f"[learner] old_policy: there is no *{_SUFFIX} in that folder.")
        self._learners = list(learners)
        known = list(schema.encoded_names)
        needed = learners[0].schema.encoded_names
        missing = [name for name in needed if name not in known]
        if missing:
            raise InputError(
                f"[learner] old_policy decides by {show_labels(missing)}, which the [schema] does not have. A "
                "successor keeps every feature of the service before it."
            )
        self._columns = np.array([known.index(name) for name in needed])
        self._kept = {arm for arm in learners[0].arms if arm in (schema.arms or ())}

    @classmethod
    def load(cls, folder: Path, schema: Schema) -> OldPolicy:
        """The learners that ``save`` wrote."""
        from sidelight.learners.files import load_learner

        return cls([load_learner(path) for path in sorted(folder.glob("*" + _SUFFIX))], schema)

    @staticmethod
    def save(learners: Sequence[bytes], folder: str | os.PathLike[str]) -> None:
        """Keep learners, each as ``learner_bytes`` writes it, in a new folder."""
        Path(folder).mkdir(parents=True)
        for i, content in enumerate(learners):
            (Path(folder) / f"{i:03d}{_SUFFIX}").write_bytes(content)

    def act(self, x: Array, allowed: list[Label] | None, rng: np.random.Generator) -> tuple[Label | None, bool]:
        """Its arm at a context ``x`` (d,) of this service, and whether that is what it did when its log was written.

        It is not where its choice would be an arm that was retired since: then the arm is its second choice. None where
        no arm that it knows may be taken.
        """
        learner = self._learners[rng.integers(len(self._learners))]
        x = x[self._columns]
        own = learner.arms if allowed is None else [arm for arm in learner.arms if arm in allowed]
        if not own:
            return None, False
        arm: Label = learner.decide(x, own, rng).arm
        if arm in self._kept:
            return arm, True
        kept = [arm for arm in own if arm in self._kept]
        return (learner.decide(x, kept, rng).arm, False) if kept else (None, False)
