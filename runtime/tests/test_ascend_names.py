"""The names that our code uses exist in the released vllm-ascend and MindSpeed, and misspelt options are found."""

from __future__ import annotations

import pytest

from rljob_runtime.planning import ascend_names as table
from rljob_runtime.planning.ascend import NODE, unknown_options
from rljob_runtime.planning.flattening import plain_keys
from rljob_runtime.planning.megatron_names import SOURCES


def test_known_options_are_none_of_its_business() -> None:
    overrides = {
        f"+{NODE}.weight_nz_mode": 0,
        f"+{NODE}.eplb_config.dynamic_eplb": False,
        f"{NODE}": {"enable_cpu_binding": True},
        "trainer.nnodes": 1,
    }
    assert unknown_options(plain_keys(overrides)) == {}


@pytest.mark.parametrize(
    ("overrides", "told"),
    [
        (
            {f"+{NODE}.weight_nz_mod": 0},
            "weight_nz_mod is not an option of vllm-ascend 0.23.0; did you mean weight_nz_mode?",
        ),
        (
            {f"+{NODE}": {"refresh": True, "qqqq": 1}},
            "qqqq is not an option of vllm-ascend 0.23.0; see its ascend_config.py",
        ),
        (
            {f"+{NODE}": '{"enable_flashcom1": true, "refresh": true}'},
            "enable_flashcom1 is not an option of vllm-ascend 0.23.0; did you mean enable_flashcomm1?",
        ),
        (
            {f"+{NODE}": {"eplb_confg": {"dynamic_eplb": False, "num_redundant_experts": 1}}},
            "eplb_confg is not an option of vllm-ascend 0.23.0; did you mean eplb_config?",
        ),
    ],
)
def test_a_misspelt_option_gets_the_nearest(overrides: dict[str, object], told: str) -> None:
    assert list(unknown_options(plain_keys(overrides)).values()) == [told]


def test_newer_releases_options_are_not_those_of_this_one() -> None:
    # vllm-ascend after 0.23.0 has rl_config. A job that sets it now would wrongly assume that NZ is off.
    assert list(unknown_options([f"{NODE}.rl_config.enabled"])) == [f"{NODE}.rl_config"]


@pytest.mark.parametrize(
    ("file", "symbol"),
    [
        # vllm-ascend refuses to wake up with weights in NZ layout: the reason for weight_nz_mode 0.
        ("vllm_ascend/worker/worker.py", "NPUWorker.wake_up"),
        ("vllm_ascend/worker/worker.py", "NPUWorker.sleep"),
        ("vllm_ascend/ascend_config.py", "AscendConfig._get_config_value"),
        # Keeps a second copy of MLA's up-projections, which rljob_runtime.planning.weights counts.
        ("vllm_ascend/attention/mla_v1.py", "AscendMLAImpl.process_weights_after_loading"),
        ("vllm_ascend/distributed/parallel_state.py", "init_ascend_model_parallel"),
        ("vllm_ascend/distributed/parallel_state.py", "get_mc2_group"),
    ],
)
def test_a_symbol_that_we_name_is_in_the_wheel(file: str, symbol: str) -> None:
    assert symbol in table.VLLM_ASCEND_SYMBOLS[file].split()


def test_verl_finds_mindspeeds_way_in() -> None:
    assert "repatch" in table.MINDSPEED_SYMBOLS["mindspeed/megatron_adaptor.py"].split()


def test_our_plug_in_and_theirs_share_the_group() -> None:
    assert "ascend_model_loader" in table.VLLM_ASCEND_ENTRY_POINTS["vllm.general_plugins"].split()
    assert table.VLLM_ASCEND_ENTRY_POINTS["vllm.platform_plugins"].split() == ["ascend"]


def test_both_tables_were_read_from_the_same_mindspeed() -> None:
    assert next(s.commit for s in SOURCES if s.repository == "Ascend/MindSpeed") == table.MINDSPEED_COMMIT
    assert len(table.VLLM_ASCEND_SHA256) == 64
