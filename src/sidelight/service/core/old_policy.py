"""An old policy that is itself a learner: the service before this one, asked at every context instead of a caller.

A learner changed while it acted, so the policy of its log is a mixture: the learner as of a row of the log that is
drawn at random. The log's shares and moments are those of the mixture, so the mixture *answers* what the old policy
did. Where the old policy still *acts*, its latest state does.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from sidelight.errors import InputError
from sidelight.labels import Label, show_labels
from sidelight.learners.saving import load_learner
from sidelight.linalg import Array
from sidelight.logs.schema.schema import Schema
from sidelight.service.config import Config

__all__ = ["OldPolicy", "load_old_policy"]

_SUFFIX = ".learner"
_LATEST = "latest" + _SUFFIX


class OldPolicy:
    """What the service before this one did, and would do, at a context of this one.

    Args:
        moments: the learner as of points of its log that are equally many rows apart.
        latest: the learner as it was last.
        schema: of this service; it has all features of theirs.

    Raises:
        InputError: it needs a feature that the schema lacks.
    """

    def __init__(self, moments: Sequence[Any], latest: Any, schema: Schema) -> None:
        self._moments, self._latest = list(moments), latest
        known = list(schema.encoded_names)
        needed = latest.schema.encoded_names
        missing = [name for name in needed if name not in known]
        if missing:
            raise InputError(
                f"[learner] old_policy decides by {show_labels(missing)}, which the [schema] does not have. A "
                "successor keeps every feature of the service before it."
            )
        self._columns = np.array([known.index(name) for name in needed])
        self._kept = [arm for arm in latest.arms if arm in (schema.arms or ())]

    @classmethod
    def load(cls, folder: Path, schema: Schema) -> OldPolicy:
        """The learners that ``save`` wrote.

        Raises:
            InputError: they are not there.
        """
        moments = sorted(folder.glob("[0-9]*" + _SUFFIX))
        if not moments or not (folder / _LATEST).exists():
            raise InputError(f"[learner] old_policy: {folder} lacks what `sidelight successor` keeps there.")
        return cls([load_learner(path) for path in moments], load_learner(folder / _LATEST), schema)

    @staticmethod
    def save(moments: Sequence[bytes], latest: bytes, folder: str | os.PathLike[str]) -> None:
        """Keep learners, each as ``learner_bytes`` writes it, in a new folder."""
        Path(folder).mkdir(parents=True)
        for i, content in enumerate(moments):
            (Path(folder) / f"{i:03d}{_SUFFIX}").write_bytes(content)
        (Path(folder) / _LATEST).write_bytes(latest)

    def answer(self, x: Array, allowed: list[Label] | None, rng: np.random.Generator) -> Label | None:
        """What it did at a context ``x`` (d,) while its log was written; None where that was an arm since retired."""
        learner = self._moments[rng.integers(len(self._moments))]
        own = learner.arms if allowed is None else [arm for arm in learner.arms if arm in allowed]
        if not own:
            return None
        arm: Label = learner.decide(x[self._columns], own, rng).arm
        return arm if arm in self._kept else None

    def act(self, x: Array, allowed: list[Label] | None, rng: np.random.Generator) -> Label | None:
        """What it would do at ``x`` (d,) now; None where it knows none of the arms that may be taken."""
        arms = self._kept if allowed is None else [arm for arm in self._kept if arm in allowed]
        if not arms:
            return None
        arm: Label = self._latest.decide(x[self._columns], arms, rng).arm
        return arm


def load_old_policy(config: Config) -> OldPolicy | None:
    """The old policy of a configuration, where it is the learner of the service before this one."""
    if not config.learner.old_policy:
        return None
    return OldPolicy.load(config.folder / config.learner.old_policy, config.load_schema())
