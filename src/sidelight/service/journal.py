"""The log of the process: lines for people or JSON for programs, without personal data unless the settings ask for it.

What may be personal (contexts, subjects, and the messages of exceptions and warnings, which can quote them) is left
out here, so that no line can bring it in by accident.
"""

from __future__ import annotations

import datetime as dt
import functools
import json
import logging
import sys
import traceback
import warnings
from collections.abc import Callable
from typing import Any, TextIO

from sidelight.labels import label_to_json
from sidelight.logs.schema.schema import Schema
from sidelight.logs.schema.units import units_to_json
from sidelight.service.log.decision_id import DecisionId
from sidelight.service.log.events import Decisions
from sidelight.service.sections import LogsConfig

__all__ = ["decision_log", "set_up_logs"]

logger = logging.getLogger("sidelight.decisions")


class _Lines(logging.Formatter):
    """One line per record; of an exception its type and places, and its message only if personal data are allowed."""

    def __init__(self, personal: bool) -> None:
        super().__init__("%(asctime)s %(levelname)s %(name)s: %(message)s")
        self.personal = personal

    def formatMessage(self, record: logging.LogRecord) -> str:
        """The line, followed by the record's extra fields."""
        fields = getattr(record, "fields", {})
        return super().formatMessage(record) + "".join(f" {name}={value}" for name, value in fields.items())

    def formatException(self, ei: Any) -> str:
        """The type and the places of the traceback; with values only if personal data are allowed."""
        kind, error, trace = ei
        if self.personal:
            return super().formatException(ei)
        places = [f"{frame.filename}:{frame.lineno} in {frame.name}" for frame in traceback.extract_tb(trace)]
        return "\n".join([getattr(kind, "__name__", str(error)), *places])


class _JsonLines(_Lines):
    """One JSON object per line: ``at``, ``level``, ``logger``, ``message``, and the record's extra fields."""

    def format(self, record: logging.LogRecord) -> str:
        """The record as JSON."""
        body: dict[str, Any] = {
            "at": dt.datetime.fromtimestamp(record.created, dt.UTC).isoformat(timespec="milliseconds"),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": record.getMessage(),
            **getattr(record, "fields", {}),
        }
        if record.exc_info and record.exc_info[0] is not None:
            body["exception"] = self.formatException(record.exc_info).splitlines()
        return json.dumps(body, ensure_ascii=False, default=str)


def set_up_logs(config: LogsConfig, *, verbose: bool = False, stream: TextIO | None = None) -> None:
    """Send every logger of this process through one formatter, to standard error."""
    handler = logging.StreamHandler(sys.stderr if stream is None else stream)
    handler.setFormatter((_JsonLines if config.format == "json" else _Lines)(config.personal))
    root = logging.getLogger()
    root.handlers[:] = [handler]
    root.setLevel(logging.INFO if verbose else config.level.upper())
    logger.setLevel(logging.INFO if config.decisions else logging.NOTSET)
    warnings.showwarning = functools.partial(_log_warning, config.personal)


def _log_warning(
    personal: bool, message: Warning | str, category: type[Warning], filename: str, lineno: int, *_: Any, **__: Any
) -> None:
    """Log a Python warning; printed by Python itself, it could quote personal data."""
    said = f": {message}" if personal else " (what it says may quote a context: [logs] personal = true shows it)"
    logging.getLogger("sidelight.service").warning("%s at %s:%d%s", category.__name__, filename, lineno, said)


def decision_log(config: LogsConfig, schema: Schema) -> Callable[[int, Decisions], None]:
    """A function that logs every decision of this server; subject and context only if personal data are allowed."""

    def log(number: int, event: Decisions) -> None:
        for i, arm in enumerate(event.arms):
            fields: dict[str, Any] = {
                "decision": str(DecisionId(number, i, event.epoch)),
                "arm": None if arm is None else label_to_json(arm),
                "by": event.routes[i],
                "mode": event.mode,
                "version": event.version,
            }
            if config.personal:
                fields["context"] = units_to_json(event.contexts[i], schema)
                fields["subject"] = None if event.subjects is None else event.subjects[i]
            logger.info("decided", extra={"fields": fields})

    return log
