"""What runs beside the requests goes on after an error, whatever it was."""

from __future__ import annotations

import asyncio
import gc
import weakref

import numpy as np
import pytest

from sidelight.service import app as apps
from sidelight.service.app import create_app
from sidelight.service.core import selfcheck, waits
from sidelight.service.core.engine import Engine
from sidelight.service.core.starting import open_store
from tests.service.helpers import engine_of, make_config, run


class Once:
    """Raises when it is called first, and tells when it is called again."""

    def __init__(self, value) -> None:
        self.calls, self.again, self._value = 0, asyncio.Event(), value

    def __call__(self, *_):
        self.calls += 1
        if self.calls == 1:
            raise LookupError("nobody has thought of this")
        asyncio.get_running_loop().call_soon(self.again.set)
        return self._value

    async def coroutine(self, *_):
        return self(*_)


@pytest.mark.parametrize(
    "what", ["waits for rewards cannot be ended", "the self-check failed", "tokens cannot be read"]
)
def test_a_loop_in_the_background_survives_an_error(tmp_path, monkeypatch, caplog, what):
    config = make_config(tmp_path, kind="OFUL", mode="act")
    monkeypatch.setattr(waits, "_IDLE_SECONDS", 0.01)
    monkeypatch.setattr(selfcheck, "_SECONDS", 0.01)
    monkeypatch.setattr(apps, "_TOKENS_SECONDS", 0.01)

    async def live() -> None:
        store = open_store(config)
        engine = Engine(store, config)
        if what.startswith("waits"):
            once = Once(0)
            monkeypatch.setattr(engine._waits, "end", once.coroutine)
        elif what.startswith("the self"):
            once = Once(True)
            monkeypatch.setattr(engine, "check_itself", once.coroutine)
        app = create_app(engine)
        loop = asyncio.get_running_loop()
        if what.startswith("tokens"):
            once = Once([])
            tokens = apps.list_tokens

            def in_a_thread(store):
                asyncio.run_coroutine_threadsafe(once.coroutine(), loop).result()
                return tokens(store)

            monkeypatch.setattr(apps, "list_tokens", in_a_thread)
        async with app.router.lifespan_context(app):
            await once.again.wait()
        store.close()

    run(live())
    assert what in caplog.text
    assert "nobody has thought of this" in caplog.text


def test_nothing_of_a_request_is_kept_when_it_was_answered(tmp_path):
    """Nobody asks how the server is here, and that must not be what empties its list of who waits."""

    async def live() -> int:
        async with engine_of(make_config(tmp_path, kind="OFUL", mode="act")) as engine:
            contexts = [np.ones((1, engine.state.learner.n_features)) for _ in range(20)]
            kept = [weakref.ref(X) for X in contexts]
            while contexts:
                await engine.decide(contexts.pop(), None)
            gc.collect()
            return sum(reference() is not None for reference in kept)

    assert run(live()) <= 1
