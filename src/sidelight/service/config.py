"""The configuration file: TOML in, checked records out.

Every section and field is one of the records in ``sections``; a field that is not there has the default that is written
there, and a field that nobody knows is an error.
"""

from __future__ import annotations

import ipaddress
import os
import tomllib
import types
import typing
from dataclasses import dataclass, field, fields, is_dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from sidelight.errors import InputError, SidelightError
from sidelight.labels import label_from_json, label_to_json, show_labels
from sidelight.service.rails import MODES, Rails
from sidelight.service.sections import (
    LearnerConfig,
    Limits,
    LogsConfig,
    ModeConfig,
    ServerConfig,
    StorageConfig,
    TelemetryConfig,
)

if TYPE_CHECKING:
    from sidelight.logs.schema.schema import Schema
    from sidelight.logs.summary import LogSummary
    from sidelight.service.core.old_policy import OldPolicy

__all__ = [
    "Config",
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

#: the learners a file may name, and what they are made from
LEARNERS = {
    "FusedOFUL": "hidden",
    "FusedThompson": "hidden",
    "RunningOFUL": "hidden",
    "EpochOFUL": "hidden",
    "ZeroFilledOFUL": "summary",
    "OFUL": "schema",
}
_ANSWERS = ("queries", "probabilities")
_LEVELS = ("debug", "info", "warning", "error")


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
        """The log summary, if there is one."""
        from sidelight.logs.summary import LogSummary

        return LogSummary.load(self.folder / self.learner.summary) if self.learner.summary else None

    def load_schema(self) -> Schema:
        """The schema: the file's, which the summary must share."""
        from sidelight.logs.schema.schema import Schema

        written = schema_from_toml(self.schema) if self.schema else None
        summary = self.load_summary()
        if summary is None:
            if written is None:
                raise InputError("[schema] is missing, and there is no [learner] summary to take it from.")
            if not written.resolved:
                raise InputError(
                    "[schema] must list the arms and every category's levels: there is no log to find them in."
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
        """The learner at its very start."""
        import sidelight

        kind, settings = self.learner.kind, dict(self.learner.settings)
        schema = self.load_schema()
        summary = self.load_summary()
        made_from = LEARNERS[kind]
        try:
            cls = getattr(sidelight, kind)
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
            return cls(estimator(summary), **settings)
        except TypeError as error:
            raise InputError(f"[learner.settings] has something that {kind} does not take: {error}.") from error

    def load_old_policy(self) -> OldPolicy | None:
        """The old policy, where it is the learner of the service before this one."""
        from sidelight.service.core.old_policy import OldPolicy

        if not self.learner.old_policy:
            return None
        return OldPolicy.load(self.folder / self.learner.old_policy, self.load_schema())

    def rails(self) -> Rails:
        """Who acts, as the file says."""
        schema = self.load_schema()
        arms = schema.arms or ()
        fallback = self.mode.fallback
        if fallback is None:
            raise InputError(f"[mode] fallback is missing: name the arm to take in doubt, one of {show_labels(arms)}.")
        label = label_from_json(fallback)
        if label not in arms:
            raise InputError(f"[mode] fallback = {fallback!r} is not one of the arms {show_labels(arms)}.")
        return Rails(self.mode.mode, float(self.mode.share), label, self.mode.killed)


# ------------------------------------------------------------------------------------- reading, writing


def load_config(path: str | os.PathLike[str]) -> Config:
    """Read and check a configuration file; every complaint names the field.

    Raises:
        InputError: a field is unknown, of the wrong type or out of range.
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
    sections = {f.name: f for f in fields(Config) if f.name not in ("schema", "folder")}
    unknown = sorted(set(body) - set(sections) - {"schema"})
    if unknown:
        raise InputError(f"{path} has [{unknown[0]}], which is not a section: {show_labels([*sections, 'schema'])}.")
    made: dict[str, Any] = {}
    for name, section in sections.items():
        record = typing.get_type_hints(Config)[name]
        assert is_dataclass(record), section
        made[name] = _record(record, body.get(name, {}), name)
    schema = body.get("schema", {})
    if not isinstance(schema, dict):
        raise InputError("[schema] must be a table.")
    config = Config(**made, schema=schema, folder=Path(path).resolve().parent)
    _check(config)
    return config


def _record(record: Any, body: Any, section: str) -> Any:
    if not isinstance(body, dict):
        raise InputError(f"[{section}] must be a table.")
    hints = typing.get_type_hints(record)
    for name in body:
        if name not in hints:
            raise InputError(f"[{section}] {name} is not a field; it has {show_labels(hints)}.")
    return record(**{name: _value(value, hints[name], f"[{section}] {name}") for name, value in body.items()})


def _value(value: Any, hint: Any, where: str) -> Any:
    origin = typing.get_origin(hint)
    if hint is Any:
        return value
    if origin is dict:
        if not isinstance(value, dict):
            raise InputError(f"{where} must be a table.")
        return value
    wanted = types.UnionType if origin is types.UnionType else hint
    if wanted is float and type(value) is int:
        return float(value)
    if type(value) is not wanted:
        words = {str: "text", int: "a whole number", float: "a number", bool: "true or false"}
        raise InputError(f"{where} = {value!r} must be {words.get(hint, hint)}.")
    return value


def _check(config: Config) -> None:
    def need(ok: bool, message: str) -> None:
        if not ok:
            raise InputError(message)

    c = config
    need(0 <= c.service.port <= 65535, f"[service] port = {c.service.port} must lie in 0 … 65535.")
    need(bool(c.service.host), "[service] host is empty.")
    need(c.learner.kind in LEARNERS, f"[learner] kind = {c.learner.kind!r} is not one of {show_labels(LEARNERS)}.")
    need(
        c.learner.answers in _ANSWERS,
        f"[learner] answers = {c.learner.answers!r} is not one of {show_labels(_ANSWERS)}.",
    )
    need(
        not c.learner.old_policy or c.learner.answers == "queries",
        "[learner] old_policy is asked for its actions: answers must be 'queries'.",
    )
    need(c.mode.mode in MODES, f"[mode] mode = {c.mode.mode!r} is not one of {show_labels(MODES)}.")
    need(0.0 <= c.mode.share <= 1.0, f"[mode] share = {c.mode.share} is a share of traffic and must lie in 0 … 1.")
    need(c.logs.format in ("text", "json"), f"[logs] format = {c.logs.format!r} must be 'text' or 'json'.")
    need(c.logs.level in _LEVELS, f"[logs] level = {c.logs.level!r} is not one of {show_labels(_LEVELS)}.")
    need(bool(c.storage.database), "[storage] database is empty.")
    need(c.storage.snapshot_every >= 1, "[storage] snapshot_every must be at least 1.")
    need(c.storage.poll_seconds > 0, "[storage] poll_seconds must be above 0.")
    for f in fields(Limits):
        value = getattr(c.limits, f.name)
        need(0 < value < float("inf"), f"[limits] {f.name} = {value} must be above 0 and finite.")
    need(c.limits.largest_number <= 1e15, "[limits] largest_number must be at most 1e15, or sums of squares overflow.")


def check_config(config: Config) -> list[str]:
    """What ``sidelight serve --check`` says: everything is built, nothing is written.  One line per thing checked."""
    schema = config.load_schema()
    learner = config.build_learner()
    rails = config.rails()
    config.load_old_policy()
    lines = [
        f"schema: {schema.n_features} encoded features, {schema.n_recorded} recorded in the log, "
        f"{len(schema.arms or ())} arms",
        f"learner: {learner!r}",
        f"mode: {rails.mode}, share {rails.share:g}, fallback {rails.fallback!r}"
        + (", killed" if rails.killed else ""),
    ]
    from sidelight.service.log.connections import database_url

    url = database_url(config.storage.database, config.folder)
    if url.get_backend_name() == "sqlite" and not (folder := Path(str(url.database)).parent).is_dir():
        raise InputError(f"[storage] database: there is no folder {folder}. Make it, or name another file.")
    lines.append(f"storage: {url.render_as_string(hide_password=True)}")
    return lines


def save_config(config: Config, path: str | os.PathLike[str]) -> None:
    """Write a configuration that :func:`load_config` reads."""
    import tomli_w

    from sidelight.files import write_atomically

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
    from sidelight.logs.schema.schema import Schema

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
            kind or ("FusedOFUL" if summary_path else "OFUL"), summary_path, answers, settings=settings or {}
        ),
        mode=ModeConfig(mode, share, None if label is None else label_to_json(label)),
        schema=schema_to_toml(schema),
    )
