"""The files of ``deploy/``, as far as a machine without systemd or containers running can try them."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from sidelight.cli import COMMANDS

DEPLOY = Path(__file__).parents[2] / "deploy"


def test_the_unit_is_one_that_systemd_understands(tmp_path: Path):
    tool = shutil.which("systemd-analyze")
    if tool is None:
        pytest.skip("there is no systemd-analyze here")
    text = (DEPLOY / "sidelight.service").read_text()
    # the programs it starts are not installed there; whether they exist is the one thing not asked
    unit = tmp_path / "sidelight.service"
    unit.write_text(text.replace("/opt/sidelight/bin/sidelight", sys.executable))
    done = subprocess.run([tool, "verify", str(unit)], capture_output=True, text=True, check=False)
    complaints = [line for line in done.stderr.splitlines() if "sidelight.service" in line]
    assert not complaints
    for bad in ("Restart=sometimes", "NoNewPriviliges=yes"):
        unit.write_text(text.replace("/opt/sidelight/bin/sidelight", sys.executable).replace("Restart=on-failure", bad))
        done = subprocess.run([tool, "verify", str(unit)], capture_output=True, text=True, check=False)
        assert "sidelight.service" in done.stderr, "the check itself can fail"


def test_files_name_commands_and_files_that_exist():
    unit, container = (DEPLOY / name for name in ("sidelight.service", "Containerfile"))
    called = re.findall(r"bin/sidelight (\w+)", unit.read_text()) + re.findall(
        r"(?:RUN sidelight|CMD \[)\s*\"?(\w+)", container.read_text()
    )
    assert {"serve", "warm"} <= set(called)
    assert set(called) - {"python"} <= set(COMMANDS)
    for line in re.findall(r"^COPY (?!--)(.*)$", container.read_text(), re.MULTILINE):
        for name in line.split()[:-1]:
            assert (DEPLOY.parent / name).exists(), name


def test_every_alert_names_a_metric_that_the_service_has():
    """The rule file is YAML in its simplest form: one expression a line."""
    from sidelight.service.metrics import Metrics

    metrics = Metrics()
    metrics.gate_stands(None)
    known = set(re.findall(r"^# TYPE (\w+) ", metrics.text().decode(), re.MULTILINE))
    text = (DEPLOY / "alerts.yml").read_text(encoding="utf-8")
    used = set(re.findall(r"sidelight_\w+", "\n".join(re.findall(r"expr: (.*)", text))))
    assert len(used) >= 8
    # a histogram has a series that counts
    assert {_family(name) for name in used} <= {_family(name) for name in known}


def test_alerts_are_about_all_series_of_a_metric():
    """A route on which nothing is decided any more, such as the old policy's after shadow, is not "no decision"."""
    from sidelight.service.metrics import Metrics

    split = {made._name for made in vars(Metrics()).values() if getattr(made, "_labelnames", ())}
    assert "sidelight_decisions" in split
    for expr in re.findall(r"expr: (.*)", (DEPLOY / "alerts.yml").read_text(encoding="utf-8")):
        for name, selected in re.findall(r"(sidelight_\w+)(\{\w+=\"[^}]*\})?", expr):
            assert _family(name) not in split or selected or "sum without (route)" in expr, expr


def test_the_rule_file_has_every_alert_of_the_page_on_monitoring():
    page = (DEPLOY.parent / "docs" / "service" / "monitoring.md").read_text(encoding="utf-8")
    table = page.split("## Which alerts, and why")[1].split("\nTwo servers")[0]
    rows = [row.split(" | ")[1] for row in table.splitlines() if row.startswith("| ") and "sidelight_" in row]
    assert len(rows) >= 20
    rules = "\n".join(re.findall(r"expr: (.*)", (DEPLOY / "alerts.yml").read_text(encoding="utf-8")))
    told = {_family(name) for row in rows for name in re.findall(r"sidelight_\w+", row)}
    assert told <= {_family(name) for name in re.findall(r"sidelight_\w+", rules)}


def _family(name: str) -> str:
    """The metric of a series: a counter's and a histogram's have endings."""
    return re.sub(r"_(total|count|bucket|sum)$", "", name)
