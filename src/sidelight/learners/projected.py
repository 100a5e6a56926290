"""Algorithm 1: OFUL with known linear side information."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Unpack

import numpy as np

from sidelight.errors import InputError
from sidelight.learners.reduced import ReducedLearner
from sidelight.learners.settings import ProjectedArguments, Settings, lists_settings
from sidelight.side.constraint import SideInformation

if TYPE_CHECKING:
    from sidelight.logs.schema.schema import Schema

__all__ = ["ProjectedOFUL"]


class ProjectedOFUL(ReducedLearner):
    """OFUL on the ``d − L`` dimensions that ``M_a w_a = b_a`` leaves open (Algorithm 1).

    The estimate is ``x·M†b + x·ŵ^P`` and the width ``α√β ‖x‖_{(PVP)†}``, computed as
    ``ŵ = anchor + N(NᵀVN)⁻¹Nᵀ(Y − V anchor)`` with ``λI`` inside ``V``: with ``L = 0`` this is OFUL to the
    last bit, with ``L = d`` the weights are fixed and the width is 0.

    Args:
        side_information: ``M_a``, ``b_a``.
        regularization, prior_mean, noise, alpha, delta, context_bound, weight_bound, radius: see ``Settings``.
        projected_context_bound, projected_weight_bound: bounds on ``‖P_a x‖``, ``‖P_a w_a‖``; default the plain ones.
        schema: to take contexts by feature name; default the log's.
        arms: labels; default those of the side information.
        rng: unused; every learner takes one.

    Examples:
        >>> import sidelight as sl
        >>> side = sl.SideInformation(M=[[[1.0, 0.0]], [[1.0, 0.0]]], b=[[0.5], [0.2]])
        >>> learner = sl.ProjectedOFUL(side, noise=0.1)
        >>> estimates, widths = learner.scores([1.0, 0.0])
        >>> estimates.tolist(), widths.tolist()   # along the recorded feature everything is known
        ([0.5, 0.2], [0.0, 0.0])
    """

    @lists_settings(ProjectedArguments)
    def __init__(
        self,
        side_information: SideInformation,
        *,
        schema: Schema | None = None,
        arms: Sequence[Any] | None = None,
        rng: np.random.Generator | None = None,
        **given: Unpack[ProjectedArguments],
    ) -> None:
        if not isinstance(side_information, SideInformation):
            raise InputError(
                f"ProjectedOFUL takes SideInformation, got {type(side_information).__name__}: make it with "
                "SideInformation(M, b), or SideInformation.from_log(summary, cross_moments). Where the cross "
                "moments must be learned, RunningOFUL or FusedOFUL take the estimator."
            )
        settings = Settings.of(given, ProjectedArguments)
        super().__init__(
            side_information.arms if arms is None else list(arms),
            side_information.reduction,
            settings,
            side_information.schema if schema is None else schema,
            rng,
            log=side_information.summary,
        )
        if side_information.summary is not None:
            self._learn_from_log()
