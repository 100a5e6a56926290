"""``sidelight decide``: decisions of a saved learner for a file of contexts, batch by batch."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import pyarrow as pa
import typer

from sidelight.cli.input_files import not_over_input
from sidelight.cli.log_options import AsJson, names_of
from sidelight.errors import ContextError, InputError
from sidelight.labels import counted
from sidelight.learners.saving import load_learner
from sidelight.logs.schema.encoding import encode_batch, first_problem
from sidelight.logs.schema.features import Category, Date
from sidelight.logs.schema.schema import Schema
from sidelight.logs.sources.base import Bundle
from sidelight.logs.sources.opening import open_source
from sidelight.logs.sources.writing import kind_written, write_tables

__all__ = ["decide", "decide_file"]

_ROWS = 16_384


def decide(
    learner: Annotated[Path, typer.Argument(help="A learner saved with learner.save(path).")],
    contexts: Annotated[str, typer.Argument(help="Contexts: Parquet, CSV or Arrow, with every feature.")],
    decisions: Annotated[
        Path, typer.Argument(help="The file to write, a row for each context: .parquet, .csv or .arrow.")
    ],
    keep: Annotated[str | None, typer.Option(help="Columns to copy beside the decisions, comma-separated.")] = None,
    as_json: AsJson = False,
) -> None:
    """Let a saved learner decide for every row of a file, in batches.

    The result has the columns arm, estimate, width and propensity. Nothing is learned from it.
    """
    not_over_input(decisions, str(learner), contexts)
    started = time.perf_counter()
    kept = names_of(keep) if keep else []
    rows = decide_file(learner, contexts, decisions, kept, progress=not as_json)
    seconds = time.perf_counter() - started
    if as_json:
        typer.echo(json.dumps({"rows": rows, "file": str(decisions), "seconds": round(seconds, 3)}))
    else:
        typer.echo(f"{counted(rows, 'decision')} in {seconds:.1f} s, written to {decisions}")


def decide_file(learner_path: Path, contexts: str, decisions: Path, keep: list[str], progress: bool) -> int:
    """Let a saved learner decide for every row of ``contexts`` and write ``decisions``, whole or not at all.

    Returns:
        How many decisions were written.
    """
    kind = kind_written(decisions)
    learner: Any = load_learner(learner_path)
    schema = getattr(learner, "schema", None) or Schema.for_arrays(learner.n_features, 0)
    names = [feature.name for feature in schema.features]
    clash = [name for name in keep if name in ("arm", "estimate", "width", "propensity")]
    if clash:
        raise InputError(f"cannot keep {', '.join(clash)}: the decisions have a column of that name.")
    labels = [feature.name for feature in schema.features if isinstance(feature, Category | Date)]
    source = open_source(contexts, list(dict.fromkeys([*names, *keep])), [*labels, *keep])
    layout = schema.whole_layout
    arm_type = _arm_type(learner.arms)

    def decided() -> Iterator[pa.Table]:
        for bundle in source.bundles(_ROWS):
            chosen = learner.decide_many(_encoded(bundle, layout, source.text_labels))
            yield _table(chosen, bundle.batch, keep, arm_type)

    try:
        with source.reporting(progress, "deciding for"):
            rows = write_tables(decisions, kind, decided())
    except pa.ArrowException as error:
        raise InputError(f"cannot write {decisions}: {error}") from error
    except OSError as error:
        raise InputError(f"cannot write {decisions}: {error.strerror or error}.") from error
    if rows is None:
        raise InputError(f"{source.name} has no rows: there is nothing to decide.")
    return rows


def _encoded(bundle: Bundle, layout: Any, text_labels: bool) -> np.ndarray:
    X, problems = encode_batch(bundle.batch, layout, text_labels)
    if problems:
        row, wrong = first_problem(bundle.batch, problems, layout)
        origin, number = bundle.origin(row)
        raise ContextError(
            f"row {number:,} of {origin}: {wrong}. Every feature needs a known, finite value to decide, but for those "
            'that the learner\'s schema lets be missing (missing = "impute"); nothing was written.'
        )
    return X


def _arm_type(arms: Any) -> pa.DataType:
    """The Arrow type that all labels share, otherwise text."""
    try:
        return pa.array(list(arms)).type
    except (pa.ArrowInvalid, pa.ArrowTypeError):
        return pa.string()


def _table(chosen: Any, batch: pa.RecordBatch, keep: list[str], arm_type: pa.DataType) -> pa.Table:
    labels = [decision.arm for decision in chosen]
    columns: dict[str, Any] = {name: batch.column(name) for name in keep}
    columns["arm"] = pa.array([str(label) for label in labels] if arm_type == pa.string() else labels, arm_type)
    for name in ("estimate", "width", "propensity"):
        columns[name] = pa.array([float(getattr(decision, name)) for decision in chosen], pa.float64())
    return pa.table(columns)
