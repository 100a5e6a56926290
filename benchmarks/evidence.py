"""``make evidence``: the claims of the docs, each measured by a function.

``docs/evidence.md`` has ten of them as sentences, ``docs/measurements/claims.md`` all of them with their tables.

A claim is measured anew when ``src/`` has changed since, or with ``--again``; ``--only NAME`` measures one. Figures are
kept in ``docs/evidence.json``, from which the page is written, so a partial run leaves the other claims as they were
and says at which state of ``src/`` each was measured. Parts of a long claim are kept in ``results/evidence/`` as they
are done: a run that was stopped goes on where it stood.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import platform
import sys
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks.sentences import SENTENCES

# one BLAS thread a process: the seeds use the cores
for _name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"):
    os.environ.setdefault(_name, "1")

ROOT = Path(__file__).parents[1]
FIGURES = ROOT / "docs" / "evidence.json"
PAGE = ROOT / "docs" / "evidence.md"
TABLES = ROOT / "docs" / "measurements" / "claims.md"
PARTS = ROOT / "results" / "evidence"

Row = dict[str, Any]


@dataclass(frozen=True)
class Claim:
    """Something the docs say.

    Attributes:
        name: for ``--only``.
        statement: what is claimed, in a sentence.
        setting: what was run, in a sentence.
        measure: ``measure(part)`` → rows of figures; ``part(key, function)`` keeps the result of a long piece of work.
        holds: whether the figures bear the statement out.
        seconds: about how long it takes on two cores.
        timing: its figures are wall times, which a busy machine falsifies: then it is not measured.
    """

    name: str
    statement: str
    setting: str
    measure: Callable[[Callable[[str, Callable[[], Any]], Any]], list[Row]]
    holds: Callable[[list[Row]], bool]
    seconds: int
    timing: bool = False


def source_hash() -> str:
    """Twelve hex digits of SHA-256 over the paths and contents of the Python files below ``src/``."""
    digest = hashlib.sha256()
    for path in sorted((ROOT / "src").rglob("*.py")):
        digest.update(path.relative_to(ROOT).as_posix().encode() + b"\0" + path.read_bytes() + b"\0")
    return digest.hexdigest()[:12]


def machine() -> str:
    """A description without names: processor architecture, cores, system, Python."""
    return f"{platform.machine()}, {os.cpu_count()} cores, {platform.system()}, Python {platform.python_version()}"


class Parts:
    """Results of pieces of one claim at one state of ``src/``, on disk as JSON."""

    def __init__(self, claim: str, state: str) -> None:
        self.folder = PARTS / state / claim

    def __call__(self, key: str, function: Callable[[], Any]) -> Any:
        """The piece called ``key``: read if it was done before, else done now and kept."""
        path = self.folder / f"{key}.json"
        if path.exists():
            return json.loads(path.read_text(encoding="utf-8"))
        result = function()
        write_json(path, result)
        return json.loads(path.read_text(encoding="utf-8"))


def write_json(path: Path, content: Any) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    unfinished = path.with_suffix(".tmp")
    unfinished.write_text(json.dumps(content, indent=1, ensure_ascii=False, allow_nan=False) + "\n", encoding="utf-8")
    unfinished.replace(path)


# ------------------------------------------------------------------------------------------------------- the page


TERMS = (
    "Regret is what a learner loses over all rounds against always taking the arm with the largest mean reward; R12 is "
    "how the hidden features go with the recorded ones for each arm, which the log lacks."
)


def sentences(claims: Mapping[str, Claim], measured: Mapping[str, Any]) -> str:
    """The first page: ten sentences, each with its figure, its interval, its command and the state of ``src/``."""
    lines = [
        "# Evidence",
        "",
        "Ten sentences, written by `make evidence` and never by hand. Behind each are its "
        "[table](measurements/claims.md), "
        f"the command that measures it again, and the hash of `src/` it was measured at. {TERMS}",
        "",
    ]
    for number, (name, sentence) in enumerate(SENTENCES.items(), start=1):
        command = f"`make evidence ONLY={name}`"
        if name not in measured:
            lines.append(f"{number}. {claims[name].statement}: not measured yet ({command}).")
            continue
        record = measured[name]
        said = told(sentence, record["rows"])
        if not said:
            lines.append(f"{number}. {claims[name].statement}: to be measured again, with more columns ({command}).")
            continue
        aim = claims[name].statement
        false = "" if record["holds"] else f"**Falls short of the aim** ({aim[0].lower()}{aim[1:]}). "
        lines.append(f"{number}. {false}{said} {command}, `src/` at `{record['src']}`, {record['date']}.")
    lines += [
        "",
        "The hash of the present `src/` is what `python -m benchmarks.evidence --hash` prints; where it differs, `make "
        "evidence` measures again. Behind these pages:",
        "",
        "| page | what it has |",
        "|---|---|",
        "| [every claim](measurements/claims.md) | the tables behind these sentences, and more claims |",
        "| [against every rival](measurements/rivals.md) | regret beside eight published or common methods, with a "
        "lower "
        "bound |",
        "| [rivals](explanation/rivals.md) | what each of them is, and what was chosen where its paper leaves a "
        "choice |",
        "| [public data](measurements/public-data.md), [five curved ones](measurements/curved.md) | the same for data "
        "sets alone, at the state of `src/` that each page names |",
        "| [honest worlds](zoo.md) | 84 simulated worlds, the default learner in each |",
        "| [regret](regret.md) | against the paper's algorithms, and when the log lies; its [lab "
        "book](measurements/regret.md) |",
        "| [figures](figures/index.md) | the paper's figures, drawn again |",
        "| [performance](performance.md) | how long decisions, refreshes and logs take |",
    ]
    return "\n".join(lines) + "\n"


def told(sentence: Callable[[list[Row]], str], rows: list[Row]) -> str:
    """The sentence; empty where the kept figures are from before a column or a learner was added."""
    try:
        return sentence(rows)
    except LookupError:
        return ""


def render(claims: Mapping[str, Claim], measured: Mapping[str, Any]) -> str:
    """The page behind it: each claim with its command, its figures and the state of ``src/`` it was measured at."""
    lines = [
        "# Every claim, with its table",
        "",
        "Every figure here was written by `make evidence`, never by hand; the ten sentences in front are "
        "[evidence](../evidence.md). Each claim names the command that measures it again and the hash of `src/` it was "
        "measured at (`python -m benchmarks.evidence --hash` gives the present one). Intervals are 95 %: Student's for "
        f"means over seeds, Clopper and Pearson's for frequencies. {TERMS}",
        "",
    ]
    for name, claim in claims.items():
        lines += [f"## {claim.statement}", ""]
        if name not in measured:
            lines += [f"Not measured yet: `make evidence ONLY={name}`, about {claim.seconds} seconds.", ""]
            continue
        record = measured[name]
        verdict = "Holds" if record["holds"] else "**Does not hold**"
        lines += [f"{claim.setting}", "", *table(record["rows"]), ""]
        lines += [
            f"{verdict}. `make evidence ONLY={name}`, {record['seconds']:.0f} seconds on {record['machine']}, "
            f"{record['date']}, `src/` at `{record['src']}`.",
            "",
        ]
    return "\n".join(lines).rstrip() + "\n"


def table(rows: list[Row]) -> list[str]:
    """A Markdown table; numbers are rounded for reading, the JSON file has them in full."""
    columns = list(rows[0])
    body = ["| " + " | ".join(show(row.get(column)) for column in columns) + " |" for row in rows]
    return ["| " + " | ".join(columns) + " |", "|" + "---|" * len(columns), *body]


def show(value: Any) -> str:
    if value is None:
        return "–"
    if isinstance(value, bool) or not isinstance(value, int | float):
        return str(value)
    if isinstance(value, int) or abs(value) >= 100:
        return f"{value:,.0f}"
    return f"{value:.3g}"


# ------------------------------------------------------------------------------------------------------- running


def load() -> dict[str, Any]:
    return json.loads(FIGURES.read_text(encoding="utf-8")) if FIGURES.exists() else {}


def write_pages(claims: Mapping[str, Claim], measured: Mapping[str, Any]) -> None:
    """Both pages."""
    TABLES.parent.mkdir(exist_ok=True)
    PAGE.write_text(sentences(claims, measured), encoding="utf-8")
    TABLES.write_text(render(claims, measured), encoding="utf-8")


def run(claims: Mapping[str, Claim], only: list[str], again: bool) -> None:
    """Measure what is missing or stale, one claim after the other, and write the page after each."""
    state = source_hash()
    for name in only or list(claims):
        measured = load()
        claim = claims[name]
        if not again and measured.get(name, {}).get("src") == state:
            print(f"{name}: measured at this state of src/ already", flush=True)
            continue
        busy, cores = os.getloadavg()[0], os.cpu_count() or 1
        if claim.timing and busy > cores / 2:
            print(f"{name}: not measured, a load of {busy:.1f} on {cores} cores would be in its times", flush=True)
            continue
        print(f"{name}: about {claim.seconds} s on two free cores", flush=True)
        started = time.perf_counter()
        rows = json.loads(json.dumps(claim.measure(Parts(name, state)), allow_nan=False))
        measured[name] = {
            "rows": rows,
            "holds": bool(claim.holds(rows)),
            "src": state,
            "date": time.strftime("%Y-%m-%d", time.gmtime()),
            "machine": machine(),
            "seconds": round(time.perf_counter() - started, 1),
        }
        write_json(FIGURES, {key: measured[key] for key in claims if key in measured})
        write_pages(claims, measured)
        for line in table(rows):
            print("   " + line)
        print(f"   {'holds' if measured[name]['holds'] else 'DOES NOT HOLD'}", flush=True)
    write_pages(claims, load())


def main(arguments: list[str] | None = None) -> int:
    from benchmarks.claims import CLAIMS

    parser = argparse.ArgumentParser(prog="python -m benchmarks.evidence", description=__doc__)
    parser.add_argument(
        "--only", action="append", default=[], metavar="NAME", help="measure this claim; may be repeated"
    )
    parser.add_argument("--again", action="store_true", help="measure even if src/ has not changed")
    parser.add_argument("--list", action="store_true", help="list the claims and stop")
    parser.add_argument("--pages", action="store_true", help="measure nothing, write the pages from the figures")
    parser.add_argument("--hash", action="store_true", help="print the hash of src/ and stop")
    given = parser.parse_args(arguments)
    if given.hash:
        print(source_hash())
        return 0
    if given.pages:
        write_pages(CLAIMS, load())
        return 0
    if given.list:
        for claim in CLAIMS.values():
            print(f"{claim.name:20} {claim.statement}")
        return 0
    unknown = sorted(set(given.only) - set(CLAIMS))
    if unknown:
        print(f"No claim called {', '.join(unknown)}; there are {', '.join(CLAIMS)}.", file=sys.stderr)
        return 2
    run(CLAIMS, given.only, given.again)
    return 0


if __name__ == "__main__":
    sys.exit(main())
