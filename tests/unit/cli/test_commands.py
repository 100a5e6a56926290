"""The command group: which module a command needs, when it is imported, and what a missing extra says."""

from __future__ import annotations

import importlib
import importlib.util
import inspect
import os
import subprocess
import sys

import pytest

from sidelight import cli
from sidelight.cli import COMMANDS, EXTRAS, main
from sidelight.errors import how_to_install


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
    assert how_to_install("service") in " ".join(told.split())


@pytest.fixture
def completions(monkeypatch, capsys):
    """What bash is offered when the cursor stands at the end of a line."""

    def offered(line: str) -> list[str]:
        told = {"_SIDELIGHT_COMPLETE": "complete_bash", "COMP_WORDS": line, "COMP_CWORD": str(line.count(" "))}
        for name, value in told.items():
            monkeypatch.setenv(name, value)
        with pytest.raises(SystemExit) as stop:
            main([])
        assert stop.value.code == 0
        printed = capsys.readouterr()
        assert printed.err == ""
        return printed.out.split()

    return offered


def test_the_shell_completes_commands_and_the_options_of_each(completions):
    assert completions("sidelight rep") == ["report", "replay"]
    assert {"--hidden", "--help"} == set(completions("sidelight report --h"))
    assert completions("sidelight tokens rev") == ["revoke"]


def test_completion_without_the_extra_completes_what_is_there(completions, monkeypatch):
    package = EXTRAS["service"][1][0]
    found = importlib.util.find_spec
    monkeypatch.setattr(cli.importlib.util, "find_spec", lambda name: None if name == package else found(name))
    completions("sidelight serve --che")


@pytest.mark.parametrize(
    ("shell", "file"),
    [
        ("bash", ".bash_completions/sidelight.sh"),
        ("zsh", ".zfunc/_sidelight"),
        ("fish", ".config/fish/completions/sidelight.fish"),
    ],
)
def test_completion_is_installed_in_the_home_folder(shell, file, tmp_path):
    environment = {**os.environ, "HOME": str(tmp_path), "_TYPER_COMPLETE_TEST_DISABLE_SHELL_DETECTION": "1"}
    code = "import sys; from sidelight.cli import main; main(sys.argv[1:])"
    command = [sys.executable, "-c", code, "--install-completion", shell]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=True, env=environment)
    assert "completion installed" in done.stdout
    assert "_SIDELIGHT_COMPLETE" in (tmp_path / file).read_text(encoding="utf-8")


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="needs a device that is always full")
def test_a_full_disk_is_said_without_a_traceback(capsys):
    with pytest.raises(SystemExit) as ended:
        main(["simulate", "--rounds", "10", "--seeds", "1", "--log-rows", "500", "--workers", "1", "-o", "/dev/full"])
    assert ended.value.code == 1
    assert capsys.readouterr().err.splitlines()[-1].startswith("sidelight: No space left on device")
