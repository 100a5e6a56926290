"""Every exception and warning Sidelight raises.

The tree::

    SidelightError
    ├── InputError (ValueError)        an argument or a value that cannot be used
    │   ├── SchemaError                columns, features, arms that do not fit together
    │   ├── ContextError               a context of the wrong length, or not finite
    │   ├── UnknownArmError            an arm label that is not one of the arms
    │   └── SideInformationError       rows M_a w = b_a that no w satisfies, shapes that do not fit
    ├── LogError (ValueError)          the log itself
    │   ├── InvalidRowsError           rows with missing, infinite or unparsable values, unknown arms
    │   ├── SourceError                a source that cannot be read, or files that do not agree
    │   └── UnderdeterminedError       an arm whose recorded features do not determine b_a
    ├── FileFormatError (ValueError)   a summary or learner file that is cut, altered or foreign
    ├── MissingExtraError (ImportError)  a feature whose optional dependency is not installed
    └── ServiceError                   the decision service
        └── StoreError                 its event log

    SidelightWarning (UserWarning)
    ├── StandInWarning                 a number such as -999 that seems to stand for a missing value
    └── WildValueWarning               a value out of all proportion to those seen before; its row hardly counts

A message says what was seen, why it is a problem and what to do about it.
"""

from __future__ import annotations

import sys

from sidelight.version import __version__

__all__ = [
    "ContextError",
    "FileFormatError",
    "InputError",
    "InvalidRowsError",
    "LogError",
    "MissingExtraError",
    "SchemaError",
    "ServiceError",
    "SideInformationError",
    "SidelightError",
    "SidelightWarning",
    "SourceError",
    "StandInWarning",
    "StoreError",
    "UnderdeterminedError",
    "UnknownArmError",
    "WildValueWarning",
    "calls_inside",
    "how_to_install",
]


class SidelightError(Exception):
    """The root of everything Sidelight raises on purpose."""


class InputError(SidelightError, ValueError):
    """An argument or a value that cannot be used."""


class SchemaError(InputError):
    """Columns, features or arms that do not fit together."""


class ContextError(InputError):
    """A context that has the wrong length, an unknown feature, or a value that is not finite."""


class UnknownArmError(InputError):
    """An arm label that is not one of the arms."""


class SideInformationError(InputError):
    """Side information ``M_a w = b_a`` whose shapes do not fit or that no ``w`` satisfies."""


class LogError(SidelightError, ValueError):
    """The log itself is the problem."""


class InvalidRowsError(LogError):
    """Rows with missing, infinite or unparsable values, or with an arm that was not declared."""


class SourceError(LogError):
    """A source that cannot be read, or whose files do not agree."""


class UnderdeterminedError(LogError):
    """An arm with too few or collinear rows: its recorded features do not determine ``b_a``."""


class FileFormatError(SidelightError, ValueError):
    """A summary or learner file that is cut off, altered, foreign or from a newer version."""


class MissingExtraError(SidelightError, ImportError):
    """A feature whose optional dependency is not installed."""


class ServiceError(SidelightError):
    """The decision service cannot do what was asked."""


class StoreError(ServiceError):
    """The event log of the decision service cannot be read or written."""


class SidelightWarning(UserWarning):
    """Something that works, but that its user will want to know."""


class StandInWarning(SidelightWarning):
    """A column of a log with a heap of one number, such as -999, that seems to stand for a missing value."""


class WildValueWarning(SidelightWarning):
    """A context or a reward out of all proportion to those seen before: its row counts for next to nothing."""


def calls_inside() -> int:
    """The ``stacklevel`` at which a warning of the caller's points to the first line outside of this package."""
    frame, level = sys._getframe(1), 1
    while frame.f_back is not None and str(frame.f_globals.get("__name__")).startswith("sidelight."):
        frame, level = frame.f_back, level + 1
    return level


def how_to_install(extra: str) -> str:
    """The commands that install one of the package's extras, for messages: from a clone, and from the wheel."""
    wheel = f"sidelight-{__version__}-py3-none-any.whl"
    return f"""pip install ".[{extra}]" in a clone, pip install "{wheel}[{extra}]" from the wheel"""
