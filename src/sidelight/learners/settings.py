"""The settings every learner shares, checked once."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import asdict, dataclass, fields
from inspect import Parameter, Signature, signature
from typing import Any, Literal, TypedDict, TypeVar, cast

import numpy as np
from numpy.typing import NDArray

from sidelight.arrays import is_number
from sidelight.errors import InputError
from sidelight.linalg import Array, eigenvalues, square

__all__ = ["RADII", "ProjectedArguments", "SettingArguments", "Settings", "lists_settings"]

Constructor = TypeVar("Constructor", bound=Callable[..., None])

#: relative to the largest, an eigenvalue that rounding may have made of zero
ROUNDING = 1e-15
RADII = ("determinant", "printed", "posterior", "theory")


class SettingArguments(TypedDict, total=False):
    """The settings that every constructor takes by keyword; ``Settings`` has their meanings and defaults."""

    regularization: float | Literal["auto"]
    prior_mean: Any
    noise: float | Literal["auto"] | None
    alpha: float
    delta: float
    context_bound: float
    weight_bound: float
    radius: str


class ProjectedArguments(SettingArguments, total=False):
    """What constructors of learners with an exact constraint take besides: bounds within its kernel."""

    projected_context_bound: float | None
    projected_weight_bound: float | None


@dataclass(frozen=True)
class Settings:
    """Settings of a learner, in the paper's symbols.

    Attributes:
        regularization: ``λ``, in noise units: ``w ~ N(prior_mean, σ²/λ)``; ``"auto"`` learns prior mean,
            precision and noise from the data.
        prior_mean: ``μ``, a number or (d,) or (K, d).
        noise: ``σ``, the standard deviation (sub-Gaussian scale) of a reward around its mean; ``"auto"`` learns it, and
            is the default where ``regularization`` is ``"auto"``; otherwise the default is 1.
        alpha: ``α``, a factor on every width; theory is 1, the paper's experiments used about 0.01.
        delta: ``δ``, the probability with which a confidence set may fail, over all arms and rounds.
        context_bound: ``S_x ≥ ‖x‖``.
        weight_bound: ``S_w ≥ ‖w_a − μ‖``.
        projected_context_bound, projected_weight_bound: bounds on ``‖P_a x‖`` and ``‖P_a(w_a − μ)‖`` where
            they are known to be smaller; default the plain ones.
        radius: ``"determinant"`` (proven, self-normalised mixture), ``"printed"`` (as in the paper),
            ``"posterior"`` (``√β = σ``, no guarantee) or ``"theory"`` (the fused learners' proven one).
    """

    regularization: float | Literal["auto"] = 1.0
    prior_mean: Any = 0.0
    noise: float | Literal["auto"] | None = None
    alpha: float = 1.0
    delta: float = 0.05
    context_bound: float = 1.0
    weight_bound: float = 1.0
    projected_context_bound: float | None = None
    projected_weight_bound: float | None = None
    radius: str = "determinant"

    def __post_init__(self) -> None:
        if self.noise is None:
            learned = isinstance(self.regularization, str) and self.regularization == "auto"
            object.__setattr__(self, "noise", "auto" if learned else 1.0)
        for name in ("alpha", "context_bound", "weight_bound"):
            _number(name, getattr(self, name), lowest=0.0, strict=name == "context_bound")
        for name in ("projected_context_bound", "projected_weight_bound"):
            if getattr(self, name) is not None:
                _number(name, getattr(self, name), lowest=0.0)
        if not (isinstance(self.regularization, str) and self.regularization == "auto"):
            _number("regularization", self.regularization, lowest=0.0, strict=True)
        if not (isinstance(self.noise, str) and self.noise == "auto"):
            # what a prior that is learned counts for is relative to the noise
            _number("noise", self.noise, lowest=0.0, strict=isinstance(self.regularization, str))
        if not (isinstance(self.delta, int | float | np.floating) and 0.0 < self.delta < 1.0):
            raise InputError(f"delta={self.delta!r} is a probability of failure and must lie in (0, 1).")
        if self.radius not in RADII:
            raise InputError(f"radius={self.radius!r} is not one of {', '.join(RADII)}.")

    @classmethod
    def of(
        cls,
        given: SettingArguments,
        names: type[SettingArguments] = SettingArguments,
        defaults: SettingArguments | None = None,
    ) -> Settings:
        """The settings that a constructor was given by keyword.

        Args:
            given: the keywords and their values.
            names: those that the constructor takes.
            defaults: those that differ from this class's.

        Raises:
            TypeError: a keyword that is no setting of this learner.
        """
        for name in given:
            if name not in names.__annotations__:
                known = ", ".join(names.__annotations__)
                raise TypeError(f"unexpected keyword argument {name!r}; the settings of this learner are {known}.")
        return cls(**cast(ProjectedArguments, {**(defaults or {}), **given}))

    @property
    def sigma(self) -> float:
        """``σ`` where it is given as a number."""
        assert isinstance(self.noise, int | float | np.floating | np.integer)
        return float(self.noise)

    @property
    def kernel_context_bound(self) -> float:
        """Bound on ``‖P_a x‖``."""
        return self.context_bound if self.projected_context_bound is None else self.projected_context_bound

    @property
    def kernel_weight_bound(self) -> float:
        """Bound on ``‖P_a(w_a − μ)‖``."""
        return self.weight_bound if self.projected_weight_bound is None else self.projected_weight_bound

    def radius_terms(self, precision: Array, known: NDArray[np.bool_] | None = None) -> tuple[float, float]:
        """``λS_w²`` and ``S_x²/λ`` of the radii; for a prior of several variances, the safe side of each.

        Args:
            precision: (…, d, d)  ``V₀``.
            known: (d,)  which features have varied; weights of others are zero, not unbounded.  Default all.
        """
        if self.radius == "posterior":
            return 0.0, 0.0  # it needs neither
        if not isinstance(self.regularization, str):
            least = largest = float(self.regularization)
        elif known is not None and not known.any():
            least = largest = 1.0
        else:
            values = eigenvalues(precision if known is None else precision[..., known, :][..., known])
            largest = float(values[..., -1].max())
            # far from zero features leave the least one to rounding
            least = max(float(values[..., 0].min()), ROUNDING * largest)
        return largest * square(self.kernel_weight_bound), square(self.kernel_context_bound) / least

    def prior_means(self, n_arms: int, n_features: int) -> Array:
        """``μ`` for every arm, in the context's order.  (K, d)"""
        try:
            mean = np.asarray(self.prior_mean, dtype=np.float64)
        except (TypeError, ValueError):
            raise InputError(f"prior_mean={self.prior_mean!r} must be numbers.") from None
        if mean.shape not in ((), (n_features,), (n_arms, n_features)) or not np.isfinite(mean).all():
            raise InputError(
                f"prior_mean of shape {mean.shape} must be a number, ({n_features},) or ({n_arms}, {n_features}), "
                "and finite."
            )
        return np.array(np.broadcast_to(mean, (n_arms, n_features)))

    def to_dict(self) -> dict[str, Any]:
        """The settings as values that JSON can hold, by name."""
        out = asdict(self)
        out["prior_mean"] = np.asarray(self.prior_mean, dtype=np.float64).tolist()
        return out


def lists_settings(
    names: type[SettingArguments] = SettingArguments, defaults: SettingArguments | None = None
) -> Callable[[Constructor], Constructor]:
    """Show a constructor's ``**given`` in its signature, in help and in the reference as one keyword for each setting.

    Args:
        names: the settings that it takes.
        defaults: those that differ from the defaults of ``Settings``.
    """
    listed = [
        Parameter(field.name, Parameter.KEYWORD_ONLY, default=default, annotation=field.type)
        for field in fields(Settings)
        if field.name in names.__annotations__
        for default in [(defaults or {}).get(field.name, field.default)]
    ]

    def decorate(constructor: Constructor) -> Constructor:
        own = [p for p in signature(constructor).parameters.values() if p.kind is not Parameter.VAR_KEYWORD]
        parameters = sorted([*listed, *own], key=lambda parameter: parameter.kind)  # positional ones first
        constructor.__signature__ = Signature(parameters, return_annotation=None)  # type: ignore[attr-defined]
        return constructor

    return decorate


def _number(name: str, value: Any, lowest: float, strict: bool = False) -> None:
    if not is_number(value):
        raise InputError(f"{name}={value!r} must be a number.")
    if not math.isfinite(value) or value < lowest or (strict and value == lowest):
        raise InputError(f"{name}={value!r} must be finite and {'above' if strict else 'at least'} {lowest:g}.")
