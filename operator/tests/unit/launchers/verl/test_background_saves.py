"""checkpoint.async: where checkpoints are written behind, and why not elsewhere."""

from __future__ import annotations

import pytest
from builders import IDENTITY, Json, merged, saving, small_spec, typed

from rljob.launchers import LAUNCHER
from rljob.launchers.verl.background_saves import decide

KNOWN = {"model": {"architecture": "Qwen2.5-0.5B"}}
SAVES = saving({"checkpoint": {"path": "/data/saves", "everySteps": 5}, **KNOWN})


def spec(change: Json, memory: str = "64Gi") -> Json:
    made = small_spec(merged(SAVES, change))
    made["workerGroups"][0]["template"]["memory"] = memory
    return made


@pytest.mark.parametrize(
    ("made", "value", "word"),
    [
        (spec({}), "Auto", "while the run continues"),
        (spec({"checkpoint": {"async": "Off"}}), "Off", "set in the spec"),
        (small_spec(KNOWN), "Off", "checkpoint.path"),
        (spec({"model": {"architecture": None}}), "Off", "is not known"),
        (spec({}, memory="8Gi"), "Off", "a quarter of template.memory"),
        (spec({"trainer": {"mode": "ColocateAsync"}}), "Off", "trainer.mode ColocateAsync"),
        (spec({"trainer": {"backend": "Megatron"}}), "Off", "FSDP2 only"),
        (spec({"accelerator": {"class": "atlas-a3-superpod"}}), "Off", "not proved on NPUs"),
    ],
)
def test_where_it_is_in_effect(made: Json, value: str, word: str) -> None:
    parsed = typed(made)
    found = decide(parsed)
    assert (found.value, word in found.reason) == (value, True), found.reason
    assert LAUNCHER(parsed).job_config(IDENTITY, parsed, 1).background_saves == (value == "Auto")


def test_the_trainer_decides_when_to_save_where_the_job_states_no_interval() -> None:
    for every, decides, saves_after in ((7, False, 7), (None, True, 1)):
        parsed = typed(spec({"checkpoint": {"everySteps": every}}))
        made = LAUNCHER(parsed).job_config(IDENTITY, parsed, 1)
        assert (made.auto_saves, made.overrides["trainer.save_freq"]) == (decides, saves_after)
