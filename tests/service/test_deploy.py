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
    assert {name.removesuffix("_total").removesuffix("_count") for name in used} <= {
        name.removesuffix("_total") for name in known
    }
