"""Event logs that older versions wrote are read, replayed and continued, ids and all."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from sidelight.errors import StoreError
from sidelight.service.config import Config, load_config
from sidelight.service.core.recovery import recover
from sidelight.service.core.starting import open_store
from sidelight.service.log import migrations as tables
from sidelight.service.log.connections import database_url
from sidelight.service.log.decision_id import DecisionId
from sidelight.service.log.store import Store
from sidelight.service.operations.copying import copy_store
from sidelight.service.operations.retention import forget
from sidelight.service.views.audit import audit
from sidelight.service.views.export import export_log
from tests.service.helpers import bits, engine_of, run
from tests.upgrades.make_fixtures import ARMS, service_context, state_numbers

FIXTURES = Path(__file__).parent / "fixtures"
LOGS = sorted(path.parent for path in FIXTURES.glob("*/*/sidelight.toml"))
#: a snapshot holds the sums; rounding of what is computed from them stays far below this
TOLERANCE = 1e-9


@pytest.fixture(params=LOGS, ids=lambda path: f"{path.parts[-2]}-{path.parts[-1]}")
def old(request: pytest.FixtureRequest, tmp_path: Path) -> tuple[Config, dict[str, Any]]:
    """A configuration whose event log an older version wrote, and what that version said at the end."""
    folder = tmp_path / "service"
    shutil.copytree(request.param, folder)
    expected = json.loads((folder / "expected.json").read_text())
    dump = folder / "dump.sql"
    if dump.exists():
        import psycopg

        address = request.getfixturevalue("new_postgres")()
        with psycopg.connect(address, autocommit=True) as connection:
            connection.execute(dump.read_text())
        settings = folder / "sidelight.toml"
        settings.write_text(settings.read_text().replace("postgresql://to-be-replaced/", address))
    return load_config(folder / "sidelight.toml"), expected


def _same_scores(learner: Any, expected: dict[str, Any]) -> None:
    found = state_numbers(learner)
    for name in ("estimates", "widths"):
        np.testing.assert_allclose(found[name], expected[name], rtol=TOLERANCE, atol=TOLERANCE, err_msg=name)


def test_it_starts_where_the_old_version_stopped(old):
    config, expected = old

    async def start() -> None:
        async with engine_of(config) as engine:
            state = engine.state
            assert state.number >= expected["number"]
            assert {name: state.counts[name] for name in expected["counts"]} == expected["counts"]
            _same_scores(state.learner, expected)

    run(start())


def test_every_old_decision_is_found_and_takes_its_reward(old):
    """Ids of the old version stay valid, in answers, audits and exports."""
    config, expected = old
    unrewarded = [made for made in expected["decisions"] if "reward" not in made]
    assert unrewarded

    async def late() -> None:
        async with engine_of(config) as engine:
            for made in expected["decisions"]:
                id = DecisionId.parse(made["id"])
                assert id is not None
                event = await engine.decision(id)
                assert event.arms[id.position] == made["arm"]
            id = DecisionId.parse(unrewarded[0]["id"])
            assert id is not None
            number, new, *_ = await engine.reward(id, 0.25, unrewarded[0]["arm"] or "low", None)
            assert new
            assert await engine.reward(id, 0.25, None, None) == (number, False, None, False)

    run(late())
    store = open_store(config)
    found = audit(store, config.load_schema(), DecisionId.parse(unrewarded[0]["id"]))
    assert found["followed"]["reward"]["reward"] == 0.25
    out = config.folder / "out.parquet"
    done = export_log(store, config.load_schema(), out)
    assert done.rows + done.dropped == sum("reward" in made for made in expected["decisions"]) + 1
    store.close()


def test_it_is_replayed_and_continued(old):
    config, expected = old

    async def go_on(seed: int) -> str:
        rng = np.random.default_rng(seed)
        async with engine_of(config) as engine:
            for step in range(25):
                number, event, _ = await engine.decide(service_context(rng)[None], None)
                if step % 2:
                    await engine.reward(DecisionId(number), float(rng.normal()), event.arms[0] or ARMS[0], None)
            return bits(engine.state)

    for seed in (1, 2):
        ended = run(go_on(seed))
        store = open_store(config)
        assert store.head() > expected["number"]
        # what 0.1.0 wrote is the base; this version goes on from there, and says so once
        (taken_over,) = store.of_kind("fold")
        assert taken_over.number == expected["number"] + 1
        assert recover(store, use_snapshots=False).start == taken_over.number
        assert bits(recover(store).state) == ended
        assert bits(recover(store, use_snapshots=False).state) == ended
        store.close()


def test_a_person_can_still_be_forgotten(old):
    config, _ = old

    async def start() -> None:
        async with engine_of(config):
            pass

    run(start())
    store = open_store(config)
    done = forget(store, "person-2")
    assert done.decisions > 0
    assert done.event is not None
    state = recover(store, use_snapshots=False).state
    assert state.number >= done.event
    store.close()
    run(start())


def test_it_is_backed_up_and_restored(old, tmp_path, request):
    """Events that older versions wrote have no seals; they are copied like the others, into either database."""
    config, expected = old

    async def start() -> None:
        async with engine_of(config):
            pass

    run(start())
    source = open_store(config)
    for address in (str(tmp_path / "copy.db"), request.getfixturevalue("new_postgres")()):
        target = Store(database_url(address))
        assert copy_store(source, target) == source.head() > expected["number"]
        assert bits(recover(target).state) == bits(recover(source).state)
        rows = [row for chunk in target.follow(0) for row in chunk]
        assert rows == [row for chunk in source.follow(0) for row in chunk]
        # and a server of the old version can write no more, there either
        with pytest.raises(StoreError, match="newer Sidelight"), target.writing() as connection:
            connection.execute(tables.events.insert().values(number=10**6, kind="action", at=0.0, payload="{}"))
        target.close()
    source.close()
