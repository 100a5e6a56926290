"""Every code block of README, CONTRIBUTING and docs runs, in order, in a folder of its own.

Python blocks are executed, those of one page in one namespace; ``console`` blocks are run by a shell (``make`` targets
are looked up, since make runs these tests; what ends in ``&`` runs until the end of the page; a ``sidelight`` command
that needs nothing of a shell but variables is run in this process, which saves its start); TOML and JSON are parsed;
BibTeX is compared with CITATION.cff. A block in any other language fails: nothing is marked as not to be run.
What a page shows as output is compared with what is printed, by the rule in ``shown.py``.
"""

from __future__ import annotations

import io
import json
import os
import re
import runpy
import shlex
import socket
import subprocess
import sys
import tempfile
import time
import tomllib
import warnings
from contextlib import ExitStack, redirect_stderr, redirect_stdout
from pathlib import Path
from typing import IO, Any

import numpy as np
import pytest
from tests.service.prepared import ForkedServer
from tests.surface.shown import console, explain, matches, run_python

import sidelight as sl
from sidelight.cli import main

ROOT = Path(__file__).parents[2]
PAGES = sorted(
    [ROOT / "README.md", ROOT / "CONTRIBUTING.md", ROOT / "CHANGELOG.md"]
    + [page for page in (ROOT / "docs").rglob("*.md") if "_build" not in page.parts]
)
#: the service's, exchanged for a free one
PORT = "8321"
#: the page whose server begins as a reader's does
FROM_NOTHING = "docs/tutorial/service.md"
#: what only a shell can do: pipes, files, patterns, commands in commands, quotes that keep a variable's name
SHELL = re.compile(r"[|&;<>`()~*?'\[]")
BLOCK = re.compile(r"^```(?P<language>[^\n`]*)\n(?P<body>.*?)^```$", re.MULTILINE | re.DOTALL)


def blocks(page: Path) -> list[tuple[str, str, int]]:
    """Language, body and first line of every fenced block; directives of the site (``{image}`` …) are not code."""
    text = page.read_text(encoding="utf-8")
    found = [(m["language"].strip(), m["body"], text[: m.start("body")].count("\n") + 1) for m in BLOCK.finditer(text)]
    return [block for block in found if not block[0].startswith("{")]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_every_block_runs(page: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "100")
    monkeypatch.setenv("NO_COLOR", "1")
    copy = tmp_path / "page.md"
    port = free_port()
    copy.write_text(page.read_text(encoding="utf-8").replace(PORT, port), encoding="utf-8")
    namespace: dict[str, Any] = {"__name__": "page"}
    with ExitStack() as running:
        running.callback(restore_environment, dict(os.environ))
        os.environ["PATH"] = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
        for language, body, line in blocks(copy):
            where = f"{page.relative_to(ROOT)}:{line}"
            if language == "python":
                run_python(body, namespace, str(page.relative_to(ROOT)), line + 1)
            elif language == "console":
                run_console(body, where, running, port)
            elif language == "bibtex":
                check_bibtex(body)
            elif language == "toml":
                assert tomllib.loads(body), where
            elif language == "json":
                assert json.loads(body), where
            else:
                raise AssertionError(f"{where}: nothing here runs {language!r} blocks")


def restore_environment(before: dict[str, str]) -> None:
    """What a page sets for its commands ends with the page."""
    os.environ.clear()
    os.environ.update(before)


def free_port() -> str:
    """A port that nothing listens at: the pages' own may be taken on this machine."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return str(probe.getsockname()[1])


def run_console(body: str, where: str, running: ExitStack, port: str) -> None:
    """``$``-lines: make targets must exist, anything else must end with exit code 0; with ``&`` it runs on."""
    commands = console(body)
    assert commands, f"{where}: a console block without a command"
    for command, shown in commands:
        words = shlex.split(command, comments=True)
        if words[0] == "make":
            targets = re.findall(r"^([a-z]+):", (ROOT / "Makefile").read_text(), re.MULTILINE)
            assert {word for word in words[1:] if "=" not in word} <= set(targets), f"{where}: {command}"
            assert not shown, f"{where}: what make prints is not compared, so it is not shown"
            continue
        if words[-1] == "&":
            output = running.enter_context(tempfile.TemporaryFile("w+"))  # noqa: SIM115
            if shown:  # once it has ended, so that nothing is left in a buffer
                running.callback(compare_later, output, shown, f"{where}: {command}")
            process = start(words[:-1], output, from_nothing=where.startswith(FROM_NOTHING))
            running.callback(stop, process, f"{where}: {command}")
            wait_for(port, process)
            continue
        if words[0] == "sidelight" and not SHELL.search(command):
            result = run_in_this_process([os.path.expandvars(word) for word in words[1:]])
        else:
            result = subprocess.run(command, shell=True, capture_output=True, text=True, check=False)
        assert result.returncode == 0, f"{where}: {command}\n{result.stdout}\n{result.stderr}"
        if shown:
            # progress bars go to standard error, and so do notes that belong to what is shown
            found = matches(shown, result.stdout) or matches(shown, result.stderr + result.stdout)
            assert found, explain(f"{where}: {command}", shown, result.stderr + result.stdout)


def start(words: list[str], output: IO[str], *, from_nothing: bool) -> subprocess.Popen[bytes] | ForkedServer:
    """A command in the background; servers are forks of a process that has loaded everything (``prepared.py``)."""
    if words[0] == "sidelight" and not from_nothing:
        return ForkedServer(words[1:], dict(os.environ), output=output)
    return subprocess.Popen(words, stdout=output, stderr=subprocess.STDOUT)


def run_in_this_process(arguments: list[str]) -> subprocess.CompletedProcess[str]:
    """``sidelight …`` with the warnings that a process of its own would print."""
    out, err = io.StringIO(), io.StringIO()
    code = 0
    with redirect_stdout(out), redirect_stderr(err), warnings.catch_warnings():
        warnings.resetwarnings()
        warnings.simplefilter("ignore", DeprecationWarning)
        warnings.showwarning = print_warning
        try:
            main(arguments)
        except SystemExit as ended:
            code = int(ended.code or 0)
    return subprocess.CompletedProcess(arguments, code, out.getvalue(), err.getvalue())


def print_warning(message: Warning | str, category: type[Warning], filename: str, lineno: int, *_: Any) -> None:
    """As Python does; pytest keeps warnings to itself."""
    sys.stderr.write(warnings.formatwarning(message, category, filename, lineno))


def compare_later(output: IO[str], shown: list[str], where: str) -> None:
    """What a command in the background has printed first, compared at the end of the page."""
    output.seek(0)
    printed = output.read()
    assert matches([*shown, "…"], printed), explain(where, shown, printed)


def wait_for(port: str, process: subprocess.Popen[bytes] | ForkedServer) -> None:
    """As a reader would, for the service to say that it listens; longer where kernels have to be compiled first."""
    end = time.monotonic() + 120
    while process.poll() is None and time.monotonic() < end:
        with socket.socket() as probe:
            if probe.connect_ex(("127.0.0.1", int(port))) == 0:
                return
        time.sleep(0.1)


def stop(process: subprocess.Popen[bytes] | ForkedServer, what: str) -> None:
    """What ran in the background still runs, and ends when it is told to."""
    assert process.poll() is None, f"{what} ended by itself, with {process.returncode}"
    process.terminate()
    process.wait(timeout=30)


def check_bibtex(body: str) -> None:
    citation = (ROOT / "CITATION.cff").read_text(encoding="utf-8")
    fields = dict(re.findall(r"(\w+)\s*=\s*\{(.*?)\}", body))
    assert f"title: {fields['title']}" in citation
    assert f"year: {fields['year']}" in citation
    for author in fields["author"].split(" and "):
        family, given = author.split(", ")
        assert re.search(rf"family-names: {family}\s+given-names: {given}", citation)


def test_readme_shows_the_two_commands_on_its_first_screen() -> None:
    screen = (ROOT / "README.md").read_text(encoding="utf-8").splitlines()[:40]
    assert any("make demo" in line for line in screen)
    assert any("make test" in line for line in screen)
    assert any("```python" in line for line in screen)


def test_the_example_of_the_readme_is_short() -> None:
    examples = [body for language, body, _ in blocks(ROOT / "README.md") if language == "python"]
    assert examples
    assert len([line for body in examples for line in body.splitlines() if line.strip()]) <= 15


def test_links_between_pages_exist() -> None:
    for page in PAGES:
        prose = re.sub(r"`[^`\n]*`", "", BLOCK.sub("", page.read_text(encoding="utf-8")))
        for target in re.findall(r"\]\(([^)#]+?)(?:#[^)]*)?\)", prose):
            if "://" not in target:
                assert (page.parent / target).exists(), f"{page.relative_to(ROOT)} links to {target}"


def test_pictures_exist_and_fetch_nothing() -> None:
    for page in PAGES:
        text = page.read_text(encoding="utf-8")
        assert "```{image}" not in text, f"{page.relative_to(ROOT)}: a picture that only the site shows"
        for target in re.findall(r"^!\[[^\]]*\]\((\S+)\)", text, re.MULTILINE):
            assert (page.parent / target).exists(), f"{page.relative_to(ROOT)} shows {target}"
    for picture in (ROOT / "docs" / "images").glob("*.svg"):
        text = picture.read_text(encoding="utf-8")
        assert not re.search(r"(href|src)\s*=\s*[\"']https?:", text), picture.name


@pytest.mark.timeout(900)  # a whole suite, which on a busy machine takes minutes
def test_the_skeleton_of_a_learner_passes_the_contract_suite(tmp_path: Path) -> None:
    skeleton = next(body for _, body, _ in blocks(ROOT / "CONTRIBUTING.md") if "class AlmostGreedy" in body)
    (tmp_path / "skeleton.py").write_text(skeleton)
    (tmp_path / "plugin.py").write_text(
        "from dataclasses import replace\n"
        "import skeleton\n"
        "from sidelight.learners.registry import KINDS\n"
        "from tests.contract import registry\n"
        "KINDS['AlmostGreedy'] = replace(KINDS['OFUL'], home='skeleton')\n"
        "parent = next(entry for entry in registry.LEARNERS if entry.name == 'OFUL')\n"
        "registry.LEARNERS[:] = [replace(parent, name='AlmostGreedy', make=lambda log, **s: skeleton.AlmostGreedy(\n"
        "    len(log.arms), len(registry.FEATURES), schema=log.schema, **{'arms': log.arms, **s}))]\n"
    )
    command = [sys.executable, "-m", "pytest", "-q", "-p", "plugin", "-p", "no:cacheprovider", "-x"]
    # but for the two files that do not look at the list of learners
    others = ("test_same_bits_everywhere.py", "test_any_units.py")
    command += ["tests/contract", *(f"--ignore=tests/contract/{name}" for name in others)]
    path = os.pathsep.join([str(tmp_path), str(ROOT), os.environ.get("PYTHONPATH", "")])
    result = subprocess.run(
        command, cwd=ROOT, env={**os.environ, "PYTHONPATH": path}, capture_output=True, text=True, check=False
    )
    assert result.returncode == 0, result.stdout[-3000:] + result.stderr[-1000:]
    assert re.search(r"\d\d+ passed", result.stdout), "the contract suite did not run"


def skeletons() -> dict[str, Any]:
    """What the pages' blocks for contributors define."""
    namespace: dict[str, Any] = {}
    for language, body, _ in blocks(ROOT / "CONTRIBUTING.md"):
        if language == "python":
            exec(body, namespace)
    return namespace


def test_the_skeleton_of_an_estimator_serves_every_learner_that_takes_one() -> None:
    made = skeletons()
    study, x = made["study"], np.ones(4) / 2
    for learner in (sl.FusedOFUL(study), sl.RunningOFUL(study, noise=0.3), sl.EpochOFUL(study, 200, noise=0.3)):
        assert learner.needs is None
        for _ in range(5):
            learner.observe(x, 1, 0.4)
        decision = learner.decide(x)
        assert decision.arm in study.summary.arms
        assert np.isfinite([decision.estimate, decision.width]).all()
    assert sl.FusedThompson(study).decide(x, rng=np.random.default_rng(0)).propensity > 0


def test_the_skeleton_of_a_world_keeps_what_worlds_promise() -> None:
    world = skeletons()["TwoClinics"](noise=0.5)
    assert isinstance(world, sl.worlds.World)
    X = world.contexts(500, np.random.default_rng(1))
    means = world.mean_rewards(X)
    noise = [world.rewards(X, arm, np.random.default_rng(2)) - means[:, a] for a, arm in enumerate(world.arms)]
    np.testing.assert_allclose(noise[0], noise[1], atol=1e-12)  # the same whatever is played
    log = world.sample_log(40_000, 2, np.random.default_rng(3))
    summary = sl.summarize_log(log, world.schema(2))
    shares, moments = world.second_moments()
    # 40,000 rows: standard errors below 0.01, so five of them, over 10 numbers: fails once in 10⁵ times
    np.testing.assert_allclose(summary.shares, shares, atol=0.0125)
    np.testing.assert_allclose(summary.second_moments, moments[:, :2, :2], atol=0.05)


@pytest.mark.parametrize("script", sorted((ROOT / "examples").glob("*.py")), ids=lambda script: script.name)
def test_examples_run(script: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As a script, but in this process, which has the imports."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(ROOT / "src"), os.environ.get("PYTHONPATH", "")]))
    monkeypatch.setattr(sys, "argv", [str(script)])
    with redirect_stdout(io.StringIO()) as printed:
        runpy.run_path(str(script), run_name="__main__")
    assert re.search(r"\d", printed.getvalue()), "an example prints what it found"


def test_evidence_is_never_written_by_hand() -> None:
    """The pages are what ``make evidence`` writes from the figures it keeps, for the claims that exist."""
    from benchmarks import evidence
    from benchmarks.claims import CLAIMS

    measured = evidence.load()
    assert set(measured) <= set(CLAIMS)
    assert evidence.PAGE.read_text(encoding="utf-8") == evidence.sentences(CLAIMS, measured)
    assert evidence.TABLES.read_text(encoding="utf-8") == evidence.render(CLAIMS, measured)
    for name, record in measured.items():
        assert record["holds"] == CLAIMS[name].holds(record["rows"]), name
    assert len(evidence.SENTENCES) == 10


def test_pages_about_regret_are_never_written_by_hand() -> None:
    from benchmarks import regret_pages as pages

    rows, early = pages.read(pages.FIGURES), pages.read(pages.EARLY_FIGURES)
    assert pages.PAGE.read_text(encoding="utf-8") == pages.page(rows, early)
    assert pages.BOOK.read_text(encoding="utf-8") == pages.book(rows, early)
    for row in rows:
        if row["against"]:
            # rounded to two digits, so a bar that is met may look equal to the upper end
            assert (row["met"] == "yes") <= (float(row["high"]) <= float(row["bar"]) + 0.005), row
            assert (row["met"] == "no") <= (float(row["low"]) >= float(row["bar"]) - 0.005), row
