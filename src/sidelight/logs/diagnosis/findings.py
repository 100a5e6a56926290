"""What a diagnosis found, as plain values."""

from __future__ import annotations

from dataclasses import dataclass

from sidelight.labels import Label
from sidelight.logs.diagnosis.worth import Worth

__all__ = ["ArmReport", "Difference", "Findings"]


@dataclass(frozen=True)
class ArmReport:
    """One arm of the log.

    Attributes:
        arm: its label.
        rows: ``n_a``.
        share: ``P(a)``.
        determined: whether its rows determine ``b_a``.
        condition: condition number of its columns, scaled to unit norm; infinite if not determined.
        residual_variance: ``s²``.
        collinear: the smallest set of columns to leave out so that ``b_a`` is determined.
    """

    arm: Label
    rows: int
    share: float
    determined: bool
    condition: float
    residual_variance: float
    collinear: tuple[str, ...]


@dataclass(frozen=True)
class Difference:
    """How strongly the arms' regressions differ.

    Attributes:
        statistic: ``Q = Σ_a (b_a − b)ᵀ G_a/s²_a (b_a − b)`` with the ``b`` that makes it smallest.
        degrees: degrees of freedom, the mean of ``Q`` if all arms had one regression.
        beyond_chance: ``max(0, 1 − degrees/Q)``, the part of the differences that chance does not explain.
        p_value: the probability of so large a ``Q`` by chance.
        arms: how many arms are compared.
    """

    statistic: float
    degrees: int
    beyond_chance: float
    p_value: float
    arms: int


@dataclass(frozen=True, repr=False)
class Findings:
    """The fields of :class:`~sidelight.logs.diagnosis.diagnosis.Diagnosis`, which are described there."""

    rows_read: int
    rows_used: int
    skipped: dict[str, int]
    arms: tuple[ArmReport, ...]
    n_features: int
    n_recorded: int
    recorded: tuple[str, ...]
    hidden: tuple[str, ...]
    to_drop: tuple[str, ...]
    residual_variance: float
    difference: Difference | None
    queries: tuple[int, int]
    worth: Worth
    effective_rows: tuple[float, ...] | None
    warnings: tuple[str, ...]

    @property
    def smallest(self) -> ArmReport:
        """The arm with the fewest rows."""
        return min(self.arms, key=lambda report: report.rows)

    @property
    def sentence(self) -> str:
        """What the log is worth, in one sentence."""
        return self.worth.sentence
