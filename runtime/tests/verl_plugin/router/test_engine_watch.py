"""The actor of a replica ends with its engine, and not before."""

from __future__ import annotations

import asyncio

import pytest

from rljob_runtime.verl_plugin.router import engine_watch


class Engine:
    """Ends at the third look."""

    looks, ended = 0, False

    @property
    def errored(self) -> bool:
        self.looks += 1
        return self.looks > 2

    def shutdown(self) -> None:
        self.ended = True


def test_the_actor_leaves_when_its_engine_has_ended(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(engine_watch, "POLL_SECONDS", 0.0)
    engine, codes = Engine(), list[int]()
    asyncio.run(engine_watch.watch(engine, codes.append))
    assert (engine.looks, engine.ended, codes) == (3, True, [engine_watch.EXIT_CODE])
    assert "engine of this replica has ended" in capsys.readouterr().err
