"""The report: one HTML file that opens without a network."""

from __future__ import annotations

import io
import json
import os
from collections.abc import Sequence
from html import escape
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from sidelight.drawing import interactive
from sidelight.drawing import markup as html
from sidelight.errors import InputError
from sidelight.files import write_atomically
from sidelight.labels import counted
from sidelight.report.results_part import headline, parts
from sidelight.report.study import Study
from sidelight.version import __version__

__all__ = ["report_files", "report_html", "write_report"]


def write_report(
    results: Study | pa.Table,
    path: str | os.PathLike[str],
    *,
    title: str = "What the log was worth",
    words: Sequence[str] = (),
    baseline: str = "OFUL",
    best: str = "FusedOFUL",
    keep_results: bool = True,
    origin: str = "",
    **study: Any,
) -> Path:
    """Write the report of a study, and beside it the results it was drawn from.

    Args:
        results: a study, or the table that ``simulate`` returned.
        path: the HTML file; its results go to the same name with ``.parquet``.
        title: of the page.
        words: paragraphs below the first sentence.
        baseline: the learner without the log, for a table.
        best: the learner whose use of the log is judged, for a table.
        keep_results: whether to write the results too.
        origin: one line at the foot of the page: when, from what and how it was made.
        **study: further fields of ``Study``, for a table: ``diagnosis``, ``meanings``, ``probes``, …

    Returns:
        the path of the page.

    Examples:
        >>> import sidelight as sl, tempfile, pathlib
        >>> from sidelight.report.document import write_report
        >>> world = sl.worlds.ConfoundedWorld(seed=0)
        >>> learners = {
        ...     "OFUL": lambda run: sl.OFUL(10, 10, noise=0.3),
        ...     "FusedOFUL": lambda run: sl.FusedOFUL(sl.BehaviorQueries(run.summary)),
        ... }
        >>> table = sl.simulate(world, learners, 40, recorded=6, log_rows=2_000, seeds=2, workers=1)
        >>> page = write_report(table, pathlib.Path(tempfile.mkdtemp()) / "report.html")
        >>> page.name, page.with_suffix(".parquet").exists()
        ('report.html', True)
    """
    held = results if isinstance(results, Study) else Study(results, baseline, best, **study)
    target, table, probes = report_files(path)
    target.parent.mkdir(parents=True, exist_ok=True)
    if keep_results:
        _write_table(held.table, table, held)
        if held.probes is not None:
            _write_table(held.probes, probes, held)
    write_atomically(target, report_html(held, title=title, words=words, origin=origin).encode("utf-8"))
    return target


def report_files(path: str | os.PathLike[str]) -> tuple[Path, Path, Path]:
    """The page, its results, and the results of its probes, where it has any.

    Raises:
        InputError: the page is named like its results.
    """
    page = Path(path)
    if page.suffix == ".parquet":
        raise InputError(
            f"{page} is where the results of the page would go: call the page {page.with_suffix('.html')}."
        )
    return page, page.with_suffix(".parquet"), page.with_suffix(".probes.parquet")


def report_html(
    study: Study, *, title: str = "What the log was worth", words: Sequence[str] = (), origin: str = ""
) -> str:
    """The report as one HTML document."""
    made = parts(study)
    specifications = {name: spec for part in made for name, spec in part.specifications.items()}
    contents = "".join(f'<li><a href="#{escape(part.anchor)}">{escape(part.title)}</a></li>' for part in made)
    pieces = [
        interactive.STYLE,
        _STYLE,
        *(html.paragraph(text) for text in words),
        html.facts(study.facts) if study.facts else "",
        f'<nav aria-label="Contents"><ul class="contents">{contents}</ul></nav>',
        *(
            f'<section id="{escape(part.anchor)}"><h2>{escape(part.title)}</h2>{"".join(part.pieces)}</section>\n'
            for part in made
        ),
        interactive.script(specifications) if specifications else "",
    ]
    footer = f"Sidelight {__version__}. {counted(study.seeds, 'seed')}." + (f" {origin}" if origin else "")
    return html.page(title, headline(study), pieces, footer)


_STYLE = """<style>
.contents { display: flex; flex-wrap: wrap; gap: .2rem 1.1rem; padding: .5rem 0; margin: .8rem 0; list-style: none;
  border-top: 1px solid var(--line); border-bottom: 1px solid var(--line); font-size: .95rem; }
.contents a, a { color: var(--colour-4); }
section { scroll-margin-top: 1rem; }
dl + .scroll { margin-top: .9rem; }
.scroll + dl { margin-top: .8rem; font-size: .93rem; }
@media (max-width: 40rem) { dl { grid-template-columns: 1fr; } dd { margin-bottom: .5rem; } h1 { font-size: 1.4rem; }
  th, td { padding-right: .6rem; font-size: .9rem; } }
@media print { nav { display: none; } section { break-inside: auto; } h2 { break-after: avoid; } }
</style>
"""


def _write_table(table: pa.Table, path: Path, study: Study) -> None:
    told = {
        "version": __version__,
        "baseline": study.baseline,
        "best": study.best,
        "old_policy": None if study.old_policy is None else study.old_policy.mean,
        "best_possible": study.best_possible,
    }
    buffer = io.BytesIO()
    pq.write_table(table.replace_schema_metadata({"sidelight": json.dumps(told)}), buffer, compression="zstd")
    write_atomically(path, buffer.getvalue())
