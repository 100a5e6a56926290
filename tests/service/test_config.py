"""The configuration file: what is wrong is said by field, before anything is written."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

import sidelight as sl
from sidelight.errors import InputError, SidelightError
from sidelight.service.config import SECTIONS, Config, GateConfig, initial_config, load_config, save_config
from sidelight.service.core.starting import open_store, prepare
from sidelight.service.fields import fields_of, table
from sidelight.service.http.auth import create_token
from sidelight.service.sections import LEARNERS
from sidelight.service.views.checkup import check_config
from tests.service.helpers import ARMS, command, make_config, make_schema, make_summary


def broken(folder: Path, old: str, new: str) -> Config:
    path = folder / "sidelight.toml"
    text = path.read_text()
    assert old in text
    path.write_text(text.replace(old, new))
    return load_config(path)


@pytest.mark.parametrize(
    ("old", "new", "words"),
    [
        ('mode = "shadow"', 'mode = "auto"', r"\[mode\] mode = 'auto' is not one of 'shadow'"),
        ("share = 1.0", "share = 1.5", r"\[mode\] share = 1.5"),
        ("share = 1.0", 'share = "1"', r"\[mode\] share = '1' must be a number"),
        ("port = 0", "port = 70000", r"\[service\] port = 70000"),
        ("port = 0", "port = true", r"\[service\] port = True must be a whole number"),
        ("port = 0", "prot = 0", r"\[service\] prot is not a field"),
        ("[limits]", "[limit]", r"\[limit\], which is not a section"),
        ("batch = 1000", "batch = 0", r"\[limits\] batch = 0 must be above 0"),
        ("batch = 1000", "batch = 1000001", "batch = 1000001 must be above 0 and at most 1e6, because ids have six"),
        ("seconds = 10.0", "seconds = 1e308", r"\[limits\] seconds = 1e\+308 must be above 0 and at most 86400"),
        ("poll_seconds = 0.25", "poll_seconds = 1e308", r"\[storage\] poll_seconds = 1e\+308 .* at most 3600"),
        ('database = "sidelight.db"', 'database = "\\u0000"', "must not hold a NUL character"),
        ('summary = "log.summary"', 'summary = "a\\u0000b"', "must not hold a NUL character"),
        ("default_reward = 0.0", "default_reward = -1e12", "default_reward = -1000000000000.0 is larger than"),
        ("largest_number = 1000000000.0", "largest_number = 1e200", "at most 1e15"),
        ('kind = "RunningOFUL"', 'kind = "os.system"', r"\[learner\] kind = 'os.system' is not one of"),
        ('answers = "queries"', 'answers = "guesses"', r"\[learner\] answers"),
        ("[service]", "[service", "is not TOML"),
        ("snapshot_every = 10000", "snapshot_every = 0", r"\[storage\] snapshot_every = 0 must be at least 1"),
    ],
)
def test_what_is_wrong_is_named(tmp_path, old, new, words):
    make_config(tmp_path, kind="RunningOFUL")
    with pytest.raises(InputError, match=words):
        broken(tmp_path, old, new)


def test_all_that_is_wrong_is_named_at_once(tmp_path):
    path = tmp_path / "sidelight.toml"
    path.write_text(
        """
        [service]
        port = 70000
        prot = 1
        [limit]
        [limits]
        seconds = inf
        batch = 2.5
        [learner]
        answers = "probabilities"
        old_policy = "before"
        settings = 3
        [telemetry]
        traces = 7
        [logs]
        level = "loud"
        """
    )
    with pytest.raises(InputError) as caught:
        load_config(path)
    lines = str(caught.value).splitlines()
    assert lines[0].endswith("has 9 errors:")
    for words in (
        "[limit], which is not a section",
        "[service] port = 70000 must be in 0 … 65535.",
        "[service] prot is not a field; it has 'host', 'port'.",
        "[learner] settings = 3 must be a table.",
        "[learner] old_policy is asked for its actions: answers must be 'queries'.",
        "[limits] seconds = inf must be above 0 and at most 86400.",
        "[limits] batch = 2.5 must be a whole number.",
        "[logs] level = 'loud' is not one of 'debug', 'info', 'warning', 'error'.",
        "[telemetry] traces = 7 must be text.",
    ):
        assert sum(words in line for line in lines[1:]) == 1, words


def test_the_page_has_every_field():
    page = (Path(__file__).parents[2] / "docs" / "service" / "configuration.md").read_text("utf-8")
    between = page.split("<!-- fields", 1)[1].split("-->", 1)[1].split("<!-- end of fields -->")[0].strip()
    assert between == table(SECTIONS), "docs/service/configuration.md: take over what fields.table(SECTIONS) returns"


def test_the_example_of_the_page_is_a_configuration(tmp_path):
    page = (Path(__file__).parents[2] / "docs" / "service" / "configuration.md").read_text("utf-8")
    (tmp_path / "sidelight.toml").write_text(page.split("```toml\n", 1)[1].split("```", 1)[0])
    config = load_config(tmp_path / "sidelight.toml")
    for name, record in SECTIONS.items():
        given, otherwise = getattr(config, name), record()
        changed = {f.name for f in fields_of(record) if getattr(given, f.name) != getattr(otherwise, f.name)}
        assert changed <= {"summary", "settings", "fallback"}, "the example shows the defaults"


@pytest.mark.parametrize(
    ("old", "new", "words"),
    [
        ('fallback = "low"', 'fallback = "none"', r"\[mode\] fallback = 'none' is not one of the arms"),
        ('fallback = "low"', "fallback = {}", "{} is not a label"),
        ('fallback = "low"', 'fallback = { date = "soon" }', "is not a label"),
        ('summary = "log.summary"', 'summary = "gone.summary"', "cannot read"),
        ('summary = "log.summary"', 'summary = ""', "starts from a log"),
        ('name = "age"', 'name = "years"', r"\[schema\]"),
        (
            'database = "sidelight.db"',
            'database = "gone/sidelight.db"',
            r"\[storage\] database: there is no folder .*gone",
        ),
        ("[learner.settings]", "[learner.settings]\nalhpa = 0.5", "something that RunningOFUL does not take.*alhpa"),
        ("[learner.settings]", "[learner.settings]\ndelta = 2.0", "delta"),
    ],
)
def test_check_builds_everything(tmp_path, old, new, words):
    make_config(tmp_path, kind="RunningOFUL")
    config = broken(tmp_path, old, new)
    with pytest.raises(SidelightError, match=words):
        check_config(config)
    done = command("serve", "--check", cwd=tmp_path)
    assert done.returncode == 1
    assert not (tmp_path / "sidelight.db").exists()


def test_check_compares_with_the_log_that_has_begun(tmp_path, database):
    """A file that a start refuses was said to be good."""
    config = make_config(tmp_path, kind="RunningOFUL", database=database)
    if "://" not in database:
        assert "log: none yet" in check_config(config)
    store = open_store(config)
    assert "log: none yet" in check_config(config)
    prepare(store, config)
    store.close()
    text = (tmp_path / "sidelight.toml").read_text()
    lines = check_config(config)
    assert "log: up to event 1, begun with this schema, learner and log summary" in lines
    for old, new, words in (
        ('"RunningOFUL"', '"ZeroFilledOFUL"', "was started with learner = 'RunningOFUL'"),
        ("[learner.settings]", "[learner.settings]\nalpha = 3.0", "was started with settings"),
    ):
        (tmp_path / "sidelight.toml").write_text(text.replace(old, new))
        done = command("serve", "--check", cwd=tmp_path)
        assert done.returncode == 1
        assert words in done.stderr
    (tmp_path / "sidelight.toml").write_text(text)
    make_summary(seed=6).save(tmp_path / "log.summary")
    assert "another log summary" in command("serve", "--check", cwd=tmp_path).stderr


def test_check_says_what_of_the_log_it_cannot_see(tmp_path):
    config = make_config(tmp_path, kind="OFUL")
    (tmp_path / "sidelight.db").write_bytes(b"no database" * 100)
    (line,) = [line for line in check_config(config) if "cannot be compared" in line]
    assert "damaged or not a database" in line


def test_check_says_that_a_server_without_tokens_would_not_start(tmp_path, database):
    """A file with which a start is refused was said to be good without a word."""

    def said(config) -> list[str]:
        return [line for line in check_config(config) if "there are no tokens" in line]

    config = make_config(tmp_path, kind="OFUL", database=database)
    elsewhere = replace(config, service=replace(config.service, host="0.0.0.0"))
    if "://" not in database:
        assert len(said(elsewhere)) == 1
    store = open_store(config)
    assert len(said(elsewhere)) == 1
    assert not said(config), "this machine needs no token"
    create_token(store, "anna", ["read"])
    store.close()
    assert not said(elsewhere)


@pytest.mark.parametrize(("mode", "share", "said"), [("act", 1.0, True), ("act", 0.5, False), ("shadow", 1.0, False)])
def test_check_says_if_the_share_is_on_no_rung(tmp_path, mode, share, said):
    """An operator who turned the gate on at a share of 1, which is the default, waited for steps in vain."""
    config = make_config(tmp_path, kind="OFUL", mode=mode, share=share)
    config = replace(config, gate=GateConfig(promote="automatic", ladder=[0.5, 1.0], reward_after="1h"))
    lines = [line for line in check_config(config) if "on no rung (0.5, 0.99)" in line]
    assert bool(lines) is said


@pytest.mark.parametrize("kind", [kind for kind in LEARNERS if hasattr(sl, kind) and kind != "EpochOFUL"])
def test_every_learner_can_be_served(tmp_path, kind):
    config = make_config(tmp_path, kind=kind)
    learner = config.build_learner()
    assert type(learner).__name__ == kind
    assert list(learner.arms) == ARMS
    assert any(kind in line for line in check_config(config))


def test_settings_reach_the_learner(tmp_path):
    make_summary().save(tmp_path / "log.summary")
    settings = {"alpha": 0.25, "noise": 0.5, "delta": 0.1}
    config = initial_config(make_schema(), summary_path="log.summary", kind="RunningOFUL", settings=settings)
    save_config(config, tmp_path / "sidelight.toml")
    learner = load_config(tmp_path / "sidelight.toml").build_learner()
    assert (learner.settings.alpha, learner.settings.noise, learner.settings.delta) == (0.25, 0.5, 0.1)


def test_a_schema_written_by_hand(tmp_path):
    (tmp_path / "sidelight.toml").write_text(
        """
        [learner]
        kind = "OFUL"
        [mode]
        fallback = 2
        [schema]
        features = ["age", { name = "ward", levels = ["north", "south"] }]
        arms = [1, 2, 3]
        intercept = true
        """
    )
    config = load_config(tmp_path / "sidelight.toml")
    assert config.load_schema().encoded_names == ("intercept", "age", "ward=south")
    assert config.rails().fallback == 2
    assert config.mode.mode == "shadow", "the safe mode is the default"
    assert config.loopback


def test_init_without_a_log(tmp_path):
    done = command("init", "--features", "age,dose", "--arms", "1,2,3", "--fallback", "2", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    config = load_config(tmp_path / "sidelight.toml")
    assert config.learner.kind == "OFUL"
    assert config.load_schema().arms == (1, 2, 3)
    assert config.rails().fallback == 2
    assert "--features and --arms" in command("init", "--out", "x.toml", cwd=tmp_path).stderr
    assert (
        "not one of the arms"
        in command(
            "init", "--features", "a", "--arms", "1,2", "--fallback", "9", "--out", "y.toml", cwd=tmp_path
        ).stderr
    )


def test_a_configuration_is_only_given_up_for_a_good_one(tmp_path):
    start = ("init", "--features", "age,dose", "--arms", "1,2", "--force")
    assert command(*start, "--mode", "assist", cwd=tmp_path).returncode == 0
    before = (tmp_path / "sidelight.toml").read_bytes()
    refused = command(*start, "--learner", "learner.sidelight", cwd=tmp_path)
    assert refused.returncode == 1
    assert "[learner] kind" in refused.stderr
    assert (tmp_path / "sidelight.toml").read_bytes() == before
    assert [path.name for path in tmp_path.iterdir()] == ["sidelight.toml"]
    assert command(*start, "--mode", "shadow", cwd=tmp_path).returncode == 0
    assert load_config(tmp_path / "sidelight.toml").mode.mode == "shadow"


def test_init_takes_the_most_frequent_arm_as_fallback(tmp_path):
    summary = make_summary()
    summary.save(tmp_path / "log.summary")
    assert command("init", "--summary", "log.summary", cwd=tmp_path).returncode == 0
    config = load_config(tmp_path / "sidelight.toml")
    assert config.rails().fallback == summary.arms[int(summary.counts.argmax())]
    assert config.learner.kind == "FusedOFUL"


@pytest.mark.parametrize(
    ("host", "loopback"),
    [
        ("127.0.0.1", True),
        ("::1", True),
        ("localhost", True),
        ("0.0.0.0", False),
        ("10.0.0.7", False),
        ("service", False),
    ],
)
def test_loopback(tmp_path, host, loopback):
    assert make_config(tmp_path, kind="OFUL", host=host).loopback is loopback
