"""What an operator sees of a running service: log lines without personal data, and traces where they are configured."""

from __future__ import annotations

import io
import json
import logging
import re
import subprocess
import sys
import warnings
from collections.abc import Iterator
from dataclasses import replace

import httpx
import numpy as np
import pytest

from sidelight.errors import InputError, StoreError
from sidelight.service.app import create_app
from sidelight.service.config import LogsConfig, TelemetryConfig, load_config
from sidelight.service.core.deciding import Ask
from sidelight.service.core.engine import Engine
from sidelight.service.core.starting import open_store
from sidelight.service.journal import decision_log, set_up_logs
from sidelight.service.log.decision_id import DecisionId
from sidelight.service.metrics import Metrics
from sidelight.service.telemetry import CommitSpans, TracedRequests, trace_provider
from tests.service.helpers import SOURCE, engine_of, make_config, make_schema, random_context, run

encode = make_schema().encode
SECRET = 61.0625  # a context's value, easy to find


@pytest.fixture
def root() -> Iterator[logging.Logger]:
    """The root logger, put back afterwards."""
    logger = logging.getLogger()
    handlers, level = list(logger.handlers), logger.level
    yield logger
    logger.handlers[:] = handlers
    logger.setLevel(level)
    logging.getLogger("sidelight.decisions").setLevel(logging.NOTSET)


def lines_of(config: LogsConfig, tmp_path) -> str:
    """What is logged while a learner decides, fails and is explained."""
    stream = io.StringIO()
    set_up_logs(config, stream=stream)
    service = make_config(tmp_path, kind="OFUL", mode="act")

    async def live() -> None:
        async with engine_of(service) as engine:
            if config.decisions:
                engine.on_decision = decision_log(config, make_schema())
            context = random_context(np.random.default_rng(0)) | {"age": SECRET}
            x = encode(context)[None]
            await engine.decide(x, [Ask(subject="anna@example.org")])

            def fails(*_: object) -> None:
                raise ArithmeticError(f"cannot decide at {SECRET}")

            engine.state.learner.decide = fails
            await engine.decide(x, [Ask(subject="anna@example.org")])

    run(live())
    return stream.getvalue()


def test_lines_are_json_and_say_nothing_about_people(tmp_path, root):
    text = lines_of(LogsConfig(format="json", level="info", decisions=True), tmp_path)
    lines = [json.loads(line) for line in text.splitlines()]
    assert all({"at", "level", "logger", "message"} <= line.keys() for line in lines)
    decided = [line for line in lines if line["message"] == "decided"]
    assert [line["by"] for line in decided] == ["learner", "fallback"]
    assert decided[0]["decision"] == "2"
    failure = next(line for line in lines if line["level"] == "error")
    assert failure["exception"][0] == "ArithmeticError"
    assert any("in fails" in place for place in failure["exception"]), "where it happened is there"
    assert str(SECRET) not in text
    assert "anna" not in text


def test_people_are_named_only_where_that_was_asked_for(tmp_path, root):
    text = lines_of(LogsConfig(format="json", level="info", decisions=True, personal=True), tmp_path)
    decided = [json.loads(line) for line in text.splitlines() if '"decided"' in line]
    assert decided[0]["context"]["age"] == SECRET
    assert decided[0]["subject"] == "anna@example.org"
    (tmp_path / "plain").mkdir()
    plain = lines_of(LogsConfig(), tmp_path / "plain")
    assert "ERROR sidelight.service: the learner could not decide" in plain
    assert str(SECRET) not in plain
    assert "decided" not in plain


@pytest.mark.parametrize("personal", [False, True])
def test_warnings_of_learners_are_lines_of_the_log(tmp_path, root, personal):
    """Python printed them past the log, not as JSON, with the values of contexts and rewards."""
    config = make_config(tmp_path, kind="FusedOFUL", mode="act")
    config = replace(config, bounds=replace(config.bounds, automatic=False))
    stream = io.StringIO()

    async def live() -> None:
        async with engine_of(config) as engine:
            with warnings.catch_warnings():
                warnings.simplefilter("always")
                set_up_logs(LogsConfig(format="json", personal=personal), stream=stream)
                X = np.full((1, engine.state.learner.n_features), 7_654_321.5)
                number, _, _ = await engine.decide(X, None)
                await engine.reward(DecisionId(number), 1.0, None, None)

    run(live())
    lines = [json.loads(line) for line in stream.getvalue().splitlines()]
    (warned,) = [line["message"] for line in lines if "WildValueWarning" in line["message"]]
    assert ("7.65432e+06" in warned) is personal


def test_settings_of_logs_are_checked(tmp_path):
    make_config(tmp_path, kind="OFUL")
    path = tmp_path / "sidelight.toml"
    text = path.read_text()
    for good, bad in (('format = "text"', 'format = "xml"'), ('level = "warning"', 'level = "loud"')):
        assert good in text
        path.write_text(text.replace(good, bad))
        with pytest.raises(InputError, match=r"\[logs\]"):
            load_config(path)


# -------------------------------------------------------------------------------------------- traces


def test_spans_of_requests_and_commits(tmp_path):
    pytest.importorskip("opentelemetry.sdk")
    from opentelemetry.sdk.trace import TracerProvider
    from opentelemetry.sdk.trace.export import SimpleSpanProcessor
    from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

    exporter = InMemorySpanExporter()
    provider = TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    config = make_config(tmp_path, kind="OFUL", mode="act")
    caller = "0af7651916cd43dd8448eb211c80319c"

    async def live() -> None:
        store = open_store(config)
        engine = Engine(store, config)
        engine.spans = CommitSpans(provider)
        app = create_app(engine)
        app.add_middleware(TracedRequests, provider=provider)
        await engine.start()
        transport = httpx.ASGITransport(app=app)
        async with httpx.AsyncClient(transport=transport, base_url="http://localhost") as client:
            context = random_context(np.random.default_rng(0)) | {"age": SECRET}
            headers = {"traceparent": f"00-{caller}-b7ad6b7169203331-01"}
            body = {"context": context, "subject": "anna@example.org"}
            decided = await client.post("/v1/decisions", json=body, headers=headers)
            assert decided.status_code == 201
            assert (await client.post("/v1/decisions/2/reward", json={"reward": 1.0})).status_code == 201
            assert (await client.get("/v1/decisions/77")).status_code == 404

            def broken(*_: object) -> None:
                raise StoreError("no")

            store.append = broken
            assert (await client.post("/v1/decisions", json={"context": context})).status_code == 503
        del store.append
        await engine.stop()
        store.close()

    run(live())
    spans = exporter.get_finished_spans()
    requests = [span for span in spans if span.name != "commit"]
    assert [span.name for span in requests] == [
        "POST /v1/decisions",
        "POST /v1/decisions/{id}/reward",
        "GET /v1/decisions/{id}",
        "POST /v1/decisions",
    ]
    assert [span.attributes["http.response.status_code"] for span in requests] == [201, 201, 404, 503]
    assert [span.status.is_ok for span in requests] == [True, True, True, False]
    assert f"{requests[0].context.trace_id:032x}" == caller, "the caller's trace goes on"
    commits = [span for span in spans if span.name == "commit"]
    assert len(commits) == 3
    assert [link.context.span_id for link in commits[0].links] == [requests[0].context.span_id]
    assert [span.status.is_ok for span in commits] == [True, True, False]
    told = " ".join(span.to_json() for span in spans)
    assert str(SECRET) not in told
    assert "anna" not in told


def test_opentelemetry_is_loaded_only_where_it_is_configured():
    assert trace_provider(TelemetryConfig()) is None
    code = "import sys, sidelight.service.run; print([m for m in sys.modules if m.startswith('opentelemetry.sdk')])"
    environment = {"PYTHONPATH": str(SOURCE)}
    done = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=True)
    # (FastAPI itself knows the bare interface)
    assert done.stdout.strip() == "[]", done.stderr


# ------------------------------------------------------------------------------------------- metrics


def test_metrics_say_from_the_start_that_it_is_ready(tmp_path):
    """An alert on ``sidelight_ready == 0`` must not go off because nobody has asked for anything yet."""
    config = make_config(tmp_path, kind="OFUL", mode="act", share=0.25)

    async def live() -> None:
        async with engine_of(config) as engine:
            told = engine.metrics.text()
            assert b"sidelight_ready 1.0" in told
            assert b"sidelight_event_number 1.0" in told
            assert b"sidelight_share 0.25" in told
        assert b"sidelight_ready 0.0" in engine.metrics.text()

    run(live())


def test_metrics_do_not_call_a_server_ready_whose_database_hangs(tmp_path, monkeypatch):
    """Nothing has failed yet then: the metric stayed at 1 while /health/ready was 503."""
    config = make_config(tmp_path, kind="OFUL", mode="act")

    async def live() -> None:
        store = open_store(config)
        engine = Engine(store, config)
        app = create_app(engine)
        async with app.router.lifespan_context(app):
            transport = httpx.ASGITransport(app=app)
            async with httpx.AsyncClient(transport=transport, base_url="http://127.0.0.1") as client:
                assert "sidelight_ready 1.0" in (await client.get("/metrics")).text
                with monkeypatch.context() as hanging:
                    hanging.setattr(engine.committer, "oldest_wait", lambda: 6.0)
                    assert (await client.get("/health/ready")).status_code == 503
                    assert "sidelight_ready 0.0" in (await client.get("/metrics")).text
                assert "sidelight_ready 1.0" in (await client.get("/metrics")).text
        store.close()

    run(live())


def test_every_metric_of_the_page_on_monitoring_exists(tmp_path):
    page = (SOURCE.parent / "docs" / "service" / "monitoring.md").read_text()
    named = set(re.findall(r"sidelight_[a-z_]+", page))
    assert len(named) > 12
    told = Metrics().text().decode()
    known = set(re.findall(r"^# TYPE (\S+)", told, re.MULTILINE))
    # a counter has a series that ends in total, a histogram one that counts
    series = {name: {name, name.removesuffix("_total"), name.removesuffix("_count")} for name in named}
    assert {name for name, meant in series.items() if not meant & known} == set()
