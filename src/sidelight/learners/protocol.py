"""The protocol of all learners, and the decisions they return."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple, Protocol, TypeAlias, runtime_checkable

import numpy as np
from numpy.typing import ArrayLike

from sidelight.arrays import Array
from sidelight.drawing.notebook import card
from sidelight.hidden.protocol import Needs

__all__ = ["Allowed", "Context", "Decision", "DecisionColumns", "Learner"]

#: a context as a user gives it: encoded, or by the names of its features
Context: TypeAlias = ArrayLike | Mapping[str, Any]
#: labels of the arms that may be taken in one decision; None: all of them
Allowed: TypeAlias = Iterable[Any] | None
#: arms, estimates, widths and propensities of many decisions
DecisionColumns: TypeAlias = tuple[list[Any], list[float], list[float], list[float]]


class Decision(NamedTuple):
    """What was decided for one context.

    Attributes:
        arm: the label of the arm.
        estimate: its estimated mean reward ``x·ŵ``.
        width: how far above the estimate the learner's index was (for Thompson: the posterior deviation).
        propensity: the probability with which the learner would take this arm here; 1 where it is certain.
    """

    arm: Any
    estimate: float
    width: float
    propensity: float

    def _repr_html_(self) -> str:
        return card(
            f"Take {self.arm}.",
            [
                ("estimated reward", f"{self.estimate:.4g}"),
                ("width", f"{self.width:.4g} above the estimate, for what is not known yet"),
                ("propensity", f"{self.propensity:.3g}"),
            ],
        )


@runtime_checkable
class Learner(Protocol):
    """A contextual bandit learner over labelled arms.

    ``decide``, ``scores`` and ``wants_query`` change no state and may run in several threads; the
    ``observe`` methods have one writer.
    """

    needs: Needs
    arms: tuple[Any, ...]
    n_features: int

    def decide(
        self, x: Context, allowed: Allowed = None, rng: np.random.Generator | None = None, default: Any = None
    ) -> Decision:
        """Choose an arm for the full context ``x``, among ``allowed`` where given.

        ``default`` is the old policy's arm there, which a learner with a floor falls back to; others ignore it.
        """

    def scores(self, x: Context) -> tuple[Array, Array]:
        """Estimates (K,) and widths (K,); the index is their sum."""

    def observe(self, x: Context, arm: Any, reward: float) -> None:
        """Learn that ``arm``, taken at ``x``, was followed by ``reward``."""

    def observe_behavior(
        self,
        x: Context,
        arm: Any = None,
        *,
        probabilities: ArrayLike | None = None,
        probability: float | None = None,
        log: Any = None,
    ) -> None:
        """Learn what the old policy would do at ``x``."""

    def wants_query(self, x: Context) -> bool:
        """Whether to ask the old policy what it would do at ``x``."""

    def decide_many(self, X: Any, rng: np.random.Generator | None = None) -> Any:
        """``decide`` for every row: a list of decisions, or a frame where a frame came in."""

    def observe_many(self, X: Any, arms: Sequence[Any], rewards: ArrayLike) -> None:
        """``observe`` for every row, in order."""

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the learner to one file; ``sidelight.load_learner`` reads it back."""
