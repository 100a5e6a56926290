"""The command group: which module a command needs, when it is imported, and what a missing extra says."""

from __future__ import annotations

import importlib
import importlib.util
import inspect
import subprocess
import sys

import pytest

from sidelight import cli
from sidelight.cli import COMMANDS, EXTRAS, main


@pytest.mark.parametrize("name", COMMANDS)
def test_every_command_is_where_the_list_says(name):
    module = importlib.import_module(f"sidelight.cli.{COMMANDS[name].module}")
    attribute = {"try": "try_"}.get(name, name.replace("-", "_"))
    assert hasattr(module, f"{attribute}_app") or inspect.isfunction(getattr(module, attribute))


def test_help_imports_no_command_and_nothing_heavy():
    code = (
        "import sys\nfrom sidelight.cli import main\ntry:\n    main(['--help'])\nexcept SystemExit:\n    pass\n"
        "print(sorted(m for m in sys.modules if m.startswith('sidelight.')))\n"
        "print([m for m in ('numpy', 'numba', 'scipy', 'pyarrow', 'sqlalchemy') if m in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=120, check=True)
    ours, heavy = done.stdout.strip().splitlines()[-2:]
    assert ours == "['sidelight.cli', 'sidelight.errors', 'sidelight.version']"
    assert heavy == "[]"


@pytest.mark.parametrize("command", ["serve", "replay", "successor"])
def test_a_missing_extra_says_what_to_install(command, monkeypatch, capsys):
    package = EXTRAS["service"][1][0]
    found = importlib.util.find_spec
    monkeypatch.setattr(cli.importlib.util, "find_spec", lambda name: None if name == package else found(name))
    with pytest.raises(SystemExit) as stop:
        main([command])
    assert stop.value.code == 1
    told = capsys.readouterr().err
    assert package in told
    assert "pip install 'sidelight[service]'" in told
