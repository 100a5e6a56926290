"""The configuration file: TOML in, checked records out.

Every section and field is one of the records in ``sections``; a field that is not there has the default that is written
there, and an unknown field is an error. All errors of a file are reported at once.
"""

from __future__ import annotations

import ipaddress
import os
import tomllib
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any

import tomli_w

import sidelight
from sidelight.errors import InputError, SidelightError
from sidelight.files import write_atomically
from sidelight.labels import label_from_json, label_to_json, show_labels
from sidelight.learners.registry import KINDS, learner_class
from sidelight.logs.schema.schema import Schema
from sidelight.logs.summary import LogSummary
from sidelight.service.fields import read_section, refuse
from sidelight.service.rails import Rails
from sidelight.service.sections import (
    BoundsConfig,
    GateConfig,
    LearnerConfig,
    Limits,
    LogsConfig,
    ModeConfig,
    ServerConfig,
    StorageConfig,
    TelemetryConfig,
)

__all__ = [
    "SECTIONS",
    "BoundsConfig",
    "Config",
    "GateConfig",
    "LearnerConfig",
    "Limits",
    "LogsConfig",
    "ModeConfig",
    "ServerConfig",
    "StorageConfig",
    "TelemetryConfig",
    "load_config",
    "save_config",
]

#: the sections of the file beside ``[schema]``
SECTIONS: dict[str, Any] = {
    "service": ServerConfig,
    "storage": StorageConfig,
    "learner": LearnerConfig,
    "mode": ModeConfig,
    "gate": GateConfig,
    "bounds": BoundsConfig,
    "limits": Limits,
    "logs": LogsConfig,
    "telemetry": TelemetryConfig,
}


@dataclass(frozen=True)
class Config:
    """The whole file.

    Attributes:
        schema: features, recorded ones and arms, as in ``Schema.to_dict``; must agree with the log summary.
        folder: where the file is; paths in it are relative to this.
    """

    service: ServerConfig = field(default_factory=ServerConfig)
    storage: StorageConfig = field(default_factory=StorageConfig)
    learner: LearnerConfig = field(default_factory=LearnerConfig)
    mode: ModeConfig = field(default_factory=ModeConfig)
    gate: GateConfig = field(default_factory=GateConfig)
    bounds: BoundsConfig = field(default_factory=BoundsConfig)
    limits: Limits = field(default_factory=Limits)
    logs: LogsConfig = field(default_factory=LogsConfig)
    telemetry: TelemetryConfig = field(default_factory=TelemetryConfig)
    schema: dict[str, Any] = field(default_factory=dict)
    folder: Path = field(default_factory=Path)

    @property
    def loopback(self) -> bool:
        """Whether the service can be reached from this machine only."""
        if self.service.host == "localhost":
            return True
        try:
            return ipaddress.ip_address(self.service.host).is_loopback
        except ValueError:
            return False

    def load_summary(self) -> LogSummary | None:
        """The log summary, the first where there are several; None where there is none."""
        return next(iter(self.load_summaries().values()), None)

    def summary_files(self) -> dict[str, Path]:
        """Name → file of the log summaries; one that has no name is called ``""``."""
        named = {"": self.learner.summary} if self.learner.summary else self.learner.summaries
        return {name: self.folder / path for name, path in named.items()}

    def load_summaries(self) -> dict[str, LogSummary]:
        """The log summaries by name.

        Raises:
            InputError: they describe other features or arms.
        """
        found = {name: LogSummary.load(path) for name, path in self.summary_files().items()}
        first = next(iter(found.values()), None)
        for name, summary in found.items():
            if first is not None and summary.schema.with_recorded(first.schema.recorded) != first.schema:
                raise InputError(
                    f"[learner] the summary {name!r} has other features or arms than the first one. Eras differ in "
                    "what was recorded alone: make them with `sidelight summarize --eras`, or from one schema."
                )
        return found

    def load_schema(self) -> Schema:
        """The schema: the file's, which the summary must share."""
        written = schema_from_toml(self.schema) if self.schema else None
        summary = self.load_summary()
        if summary is None:
            if written is None:
                raise InputError("[schema] is missing, and there is no [learner] summary to take it from.")
            if not written.resolved:
                raise InputError(
                    "[schema] must list the arms, every category's levels, and what derived features would take from a "
                    "log (knots, edges, a first day, a value for gaps): there is no log to find them in."
                )
            return written
        if written is not None and schema_to_toml(written) != schema_to_toml(summary.schema):
            raise InputError(
                f"[schema] does not describe the log summary {self.learner.summary!r}. "
                "Remove [schema] to take the summary's, or make the file again with `sidelight init`."
            )
        assert isinstance(summary.schema, Schema)
        return summary.schema

    def build_learner(self) -> Any:
        """The learner as configured, before any event."""
        return self.make_learner(self.load_schema(), self.load_summaries())

    def make_learner(self, schema: Schema, summaries: dict[str, LogSummary]) -> Any:
        """A learner of the configured kind, with its settings, from these summaries by name."""
        kind, settings = self.learner.kind, dict(self.learner.settings)
        summary = next(iter(summaries.values()), None)
        made_from = KINDS[kind].made_from
        try:
            cls = learner_class(kind)
            if made_from == "schema":
                arms = list(schema.arms or ())
                return cls(len(arms), schema.n_features, arms=arms, schema=schema, **settings)
            if summary is None:
                raise InputError(
                    f"[learner] kind = {kind!r} starts from a log: name its summary, or use kind = 'OFUL', which "
                    "starts from nothing."
                )
            if made_from == "summary":
                return cls(summary, **settings)
            estimator = getattr(
                sidelight, "BehaviorQueries" if self.learner.answers == "queries" else "BehaviorProbabilities"
            )
            if len(summaries) > 1:
                return cls({name: estimator(era) for name, era in summaries.items()}, **settings)
            return cls(estimator(summary), **settings)
        except TypeError as error:
            raise InputError(f"[learner.settings] has something that {kind} does not take: {error}.") from error

    def rails(self) -> Rails:
        """The rails (mode, share, fallback, kill switch, exploration) that the file sets."""
        schema = self.load_schema()
        arms = schema.arms or ()
        fallback = self.mode.fallback
        if fallback is None:
            raise InputError(f"[mode] fallback is missing: name the arm to take in doubt, one of {show_labels(arms)}.")
        label = label_from_json(fallback)
        if label not in arms:
            raise InputError(f"[mode] fallback = {fallback!r} is not one of the arms {show_labels(arms)}.")
        if self.mode.explore and "floor" in self.learner.settings:
            raise InputError(
                f"[mode] explore = {self.mode.explore!r} and [learner.settings] floor: arms that are drawn evenly "
                "would break the floor. Leave one of them out."
            )
        return Rails(self.mode.mode, float(self.mode.share), label, self.mode.killed, float(self.mode.explore))


# ------------------------------------------------------------------------------------- reading, writing


def load_config(path: str | os.PathLike[str]) -> Config:
    """Read and check a configuration file.

    Raises:
        InputError: fields are unknown, of the wrong type or out of range; it names every one.
    """
    try:
        text = Path(path).read_text(encoding="utf-8")
    except OSError as error:
        raise InputError(
            f"cannot read {path}: {error.strerror or error}. `sidelight init` makes a configuration."
        ) from error
    except UnicodeDecodeError as error:
        raise InputError(f"{path} is not text in UTF-8: {error}.") from error
    try:
        body = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise InputError(f"{path} is not TOML: {error}.") from error
    errors: list[str] = []
    unknown = sorted(set(body) - set(SECTIONS) - {"schema"})
    errors += [f"{path} has [{name}], which is not a section: {show_labels([*SECTIONS, 'schema'])}" for name in unknown]
    made = {name: read_section(record, body.get(name, {}), name, errors) for name, record in SECTIONS.items()}
    schema = body.get("schema", {})
    if not isinstance(schema, dict):
        errors.append("[schema] must be a table")
    learner = made["learner"]
    if learner.old_policy and learner.answers != "queries":
        errors.append("[learner] old_policy is asked for its actions: answers must be 'queries'")
    if learner.summary and learner.summaries:
        errors.append("[learner] has summary and summaries: put all of them into summaries, each with a name")
    several = [name for name, kind in KINDS.items() if kind.several_logs]
    if len(learner.summaries) > 1 and learner.kind not in several:
        errors.append(
            f"[learner] kind = {learner.kind!r} starts from one log, and there are {len(learner.summaries)} summaries: "
            f"{', '.join(learner.summaries)}. {' and '.join(several)} take several"
        )
    errors += [*made["gate"].problems(), *made["bounds"].problems()]
    default, largest = made["gate"].default_reward, made["limits"].largest_number
    if abs(default) > largest:
        errors.append(f"[gate] default_reward = {default!r} is larger than [limits] largest_number = {largest:g}")
    refuse(path, errors)
    return Config(**made, schema=schema, folder=Path(path).resolve().parent)


def save_config(config: Config, path: str | os.PathLike[str]) -> None:
    """Write a configuration that :func:`load_config` reads."""
    body: dict[str, Any] = {}
    for f in fields(Config):
        value = getattr(config, f.name)
        if f.name == "folder":
            continue
        if f.name == "schema":
            if value:
                body["schema"] = value
            continue
        body[f.name] = {g.name: getattr(value, g.name) for g in fields(value) if getattr(value, g.name) is not None}
    header = "# Configuration of a Sidelight decision service.  Check it with: sidelight serve --check\n\n"
    write_atomically(path, (header + tomli_w.dumps(body)).encode())


def schema_to_toml(schema: Schema) -> dict[str, Any]:
    """``Schema.to_dict`` without what TOML lacks (null)."""

    def clean(value: Any) -> Any:
        if isinstance(value, dict):
            return {k: clean(v) for k, v in value.items() if v is not None}
        return [clean(v) for v in value] if isinstance(value, list | tuple) else value

    cleaned = clean(schema.to_dict())
    assert isinstance(cleaned, dict)
    return cleaned


def schema_from_toml(body: dict[str, Any]) -> Schema:
    """The inverse of :func:`schema_to_toml`, with defaults for what a person leaves out."""
    features: list[dict[str, Any]] = []
    for feature in body.get("features", []):
        if isinstance(feature, str):
            features.append({"kind": "number", "name": feature})
        elif isinstance(feature, dict):
            default: dict[str, Any] = {
                "kind": "category" if "levels" in feature else "number",
                "levels": None,
                "baseline": None,
            }
            features.append(default | {"discovered": False, "chosen_baseline": False} | feature)
        else:
            raise InputError(f"[schema] features: {feature!r} is neither a name nor a table with a name.")
    try:
        return Schema.from_dict(
            {
                "recorded": [],
                "arm": "arm",
                "reward": "reward",
                "propensity": None,
                "intercept": False,
                "arms": None,
                "arms_discovered": False,
            }
            | body
            | {"features": features}
        )
    except SidelightError as error:
        raise InputError(f"[schema] {error}") from error


def initial_config(
    schema: Schema,
    *,
    summary_path: str = "",
    summaries: dict[str, str] | None = None,
    kind: str | None = None,
    answers: str = "queries",
    settings: dict[str, Any] | None = None,
    database: str = "sidelight.db",
    mode: str = "shadow",
    share: float = 1.0,
    fallback: Any = None,
    host: str = "127.0.0.1",
    port: int = 8321,
) -> Config:
    """What ``sidelight init`` writes: a configuration for this schema, with the old policy acting at first."""
    label = (schema.arms or (None,))[0] if fallback is None else fallback
    return Config(
        service=ServerConfig(host, port),
        storage=StorageConfig(database=database),
        learner=LearnerConfig(
            kind or ("FusedOFUL" if summary_path or summaries else "OFUL"),
            summary_path,
            summaries or {},
            answers,
            settings=settings or {},
        ),
        mode=ModeConfig(mode, share, None if label is None else label_to_json(label)),
        schema=schema_to_toml(schema),
    )
