"""Settings that follow from the accelerator's class: which apply, and that a spec beats them by whichever spelling."""

from __future__ import annotations

import itertools
import json
from pathlib import Path

import pytest
from builders import Json, merged, small_spec, typed
from hypothesis import given
from hypothesis import strategies as st

from rljob.cli.main import main
from rljob.launchers import LAUNCHER
from rljob.launchers.command.command_launcher import CommandLauncher
from rljob.launchers.verl.baseline import LEFT_OUT, OPTION, ROWS, gears
from rljob.launchers.verl.effective import VLLM, effective
from rljob.launchers.verl.job import overrides
from rljob.launchers.verl.rows import ACTOR, REF, ROLLOUT, TRANSFORMER
from rljob_runtime.planning.ascend import OPTIONS
from rljob_runtime.planning.megatron import known_names

NPU = {"accelerator": {"class": "atlas-a3-superpod"}, "trainer": {"globalBatchSize": 64}}
MODE = f"+{VLLM}.compilation_config.cudagraph_mode"
SIZES = "actor_rollout_ref.rollout.cudagraph_capture_sizes"
ON_NPU = f"+{OPTION}.dp_allreduce_on_npu"
COMPILE = ".use_torch_compile"
EXAMPLES = Path(__file__).resolve().parents[5] / "examples"


def settings(*changes: Json) -> Json:
    """Return the settings that the class adds to a spec."""
    spec = typed(small_spec(merged(*changes)))
    return {row.key: value for row, value in effective(spec).baseline}


def added(*changes: Json) -> Json:
    """Return those of the rollout."""
    return {key: value for key, value in settings(*changes).items() if key.lstrip("+").startswith(ROLLOUT)}


def test_fsdp2_compiles_nothing_on_npus_unless_a_spec_says_so() -> None:
    def compiled(*changes: Json) -> list[str]:
        found = settings(*changes)
        assert all(found[key] is False for key in found if key.endswith(COMPILE))
        return [key.removesuffix(COMPILE) for key in found if key.endswith(COMPILE)]

    actor, ref = f"{ACTOR}.fsdp_config", f"{REF}.fsdp_config"
    assert compiled(NPU) == [actor, ref]
    assert compiled(NPU, {"algorithm": {"name": "PPO"}}) == [actor, ref, "critic.fsdp"]
    assert compiled(NPU, {"verl": {"overrides": {f"{actor}{COMPILE}": True}}}) == [ref]
    assert compiled(NPU, {"trainer": {"backend": "MindSpeed"}}) == compiled({}) == []


def override(**values: object) -> Json:
    return {"verl": {"overrides": {f"+{VLLM}.{key.replace('__', '.')}": value for key, value in values.items()}}}


def test_a_class_without_devices_sets_nothing() -> None:
    assert added({"rollout": {"parallelism": {"data": 2}}}) == {}


def test_an_atlas_class_captures_graphs_of_decoding_only_in_gears() -> None:
    assert added(NPU) == {
        MODE: "FULL_DECODE_ONLY",
        SIZES: [1, 2, 4, 8, 12, 16, 24, 32, 48, 64, 96, 128, 192, 256],
    }
    assert added(NPU, {"rollout": {"maxSequences": 20}})[SIZES] == [1, 2, 4, 8, 12, 16, 20]


def test_ranks_of_a_replica_agree_over_hccl() -> None:
    assert added(NPU, {"rollout": {"parallelism": {"data": 2}}})[ON_NPU] is True


def test_gears_leave_room_for_drafts_and_for_what_flashcomm_captures() -> None:
    drafts = {"rollout": {"maxSequences": 8, "speculative": {"method": "Suffix", "tokens": 3}}}
    assert added(NPU, drafts, override(compilation_config__cudagraph_mode="FULL_DECODE_ONLY"))[SIZES] == [4, 8, 16, 32]
    split = {"rollout": {"maxSequences": 8, "parallelism": {"tensor": 4}}}
    assert added(NPU, split, override(additional_config__enable_flashcomm1=True))[SIZES] == [4, 8, 16, 32]


@pytest.mark.parametrize(
    "change",
    [
        {"rollout": {"eager": True}},
        override(enforce_eager=True),
        override(compilation_config__cudagraph_mode="NONE"),
        override(compilation_config='{"cudagraph_mode": "NONE"}'),
    ],
)
def test_without_graphs_there_is_nothing_to_choose(change: Json) -> None:
    assert added(NPU, change) == {}


@pytest.mark.parametrize(
    ("change", "missing"),
    [
        # Piecewise graphs have sizes of vllm-ascend's own.
        (override(compilation_config__cudagraph_mode="PIECEWISE"), {MODE, SIZES}),
        (override(compilation_config={"cudagraph_mode": "PIECEWISE"}), {MODE, SIZES}),
        (override(compilation_config__cudagraph_mode="full"), {MODE}),
        (override(compilation_config='{"cudagraph_mode": "FULL"}'), {MODE}),
        (override(decode_context_parallel_size=2), {MODE, SIZES}),
        ({"rollout": {"speculative": {"method": "NGram"}}}, {MODE, SIZES}),
        ({"rollout": {"captureSizes": [8]}}, {SIZES}),
        (override(compilation_config__cudagraph_capture_sizes=[8]), {SIZES}),
        (override(cudagraph_capture_sizes=[8]), {SIZES}),
        ({"verl": {"overrides": {SIZES: []}}}, {SIZES}),
        (override(max_num_seqs=2**20 + 1), {SIZES}),
        (override(max_num_seqs="many"), {SIZES}),
        (override(additional_config__dp_allreduce_on_npu=False), {ON_NPU}),
    ],
)
def test_a_spec_beats_the_class_however_it_is_spelt(change: Json, missing: set[str]) -> None:
    everything = merged(NPU, {"rollout": {"parallelism": {"data": 2}}})
    assert set(added(everything)) - set(added(everything, change)) == missing


def test_text_replaces_everything_below_its_key() -> None:
    # Also the mode, so that verl's own applies, which is piecewise.
    assert added(NPU, override(compilation_config='{"level": 3}')) == {}


def test_job_json_has_the_class_settings_below_those_of_the_user() -> None:
    spec = typed(small_spec(merged(NPU, override(compilation_config={"level": 3}))))
    assert next(iter(overrides(spec))) == MODE
    assert overrides(spec)[f"+{VLLM}.compilation_config"] == {"level": 3}


@given(st.integers(1, 4096))
def test_every_full_batch_has_a_graph_and_no_step_pays_for_more_than_half_as_much_again(sequences: int) -> None:
    sizes = gears(sequences)
    assert sizes == sorted(set(sizes))
    assert (sizes[0], sizes[-1]) == (1, sequences)
    assert len(sizes) <= 2 * sequences.bit_length() + 1
    assert all(upper <= 1.5 * lower for lower, upper in itertools.pairwise(sizes) if lower >= 8)


def test_the_released_stack_reads_what_is_set_and_what_is_left_out() -> None:
    options = [row.plain for row in ROWS] + [row.name for row in LEFT_OUT]
    found = {name.removeprefix(f"{OPTION}.").split(".")[0] for name in options if name.startswith(f"{OPTION}.")}
    assert found - OPTIONS == {"rl_config"}
    arguments = {name.removeprefix(f"{TRANSFORMER}.") for name in options if name.startswith(f"{TRANSFORMER}.")}
    assert arguments <= known_names()


def test_explain_shows_them_below_the_fields_of_a_whole_job(capsys: pytest.CaptureFixture[str]) -> None:
    file = str(EXAMPLES / "mindspeed.yaml")
    assert main(["explain", "-f", file]) == 0
    assert f"{MODE.lstrip('+')}  FULL_DECODE_ONLY" in capsys.readouterr().out
    assert main(["explain", "-f", file, "-o", "json"]) == 0
    told = json.loads(capsys.readouterr().out)["classDefaults"]
    assert {"key", "value", "reason"} == set(told[0])
    assert main(["explain", "-f", file, "trainer.steps"]) == 0
    assert "FULL_DECODE_ONLY" not in capsys.readouterr().out


def test_a_command_sets_everything_itself() -> None:
    spec = typed(small_spec(NPU))
    assert CommandLauncher().class_defaults(spec) == ()
    assert [each.key for each in LAUNCHER(spec).class_defaults(spec)] == [*settings(NPU)]
