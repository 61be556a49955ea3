"""Settings that vllm-ascend 0.23.0 refuses when the engine starts, on classes with NPUs.

Options come from `additional_config`; some fall back to a variable of the worker pods (ascend_config.py:355).
"""

from __future__ import annotations

from rljob.launchers.verl.checks.upstream.rule import Rule, Table
from rljob.launchers.verl.checks.upstream.settings import Settings
from rljob.launchers.verl.effective import CAPTURE_SIZES, GRAPH_MODE, VLLM
from rljob.launchers.verl.rows import ROLLOUT
from rljob.launchers.verl.variables import worker_value

PLATFORM, CONFIG = "vllm_ascend/platform.py", "vllm_ascend/ascend_config.py"
OPTIONS = f"{VLLM}.additional_config"
TENSOR, SIZES = f"{VLLM}.tensor_parallel_size", f"{VLLM}.{CAPTURE_SIZES}"
FINE_SIZES = ("oproj", "lmhead", "embedding", "mlp", "olora")
DISAGGREGATED = "is for engines that only prefill or only decode, but a rollout does both; remove it"


def option(name: str) -> str:
    """Return the key of an option."""
    return f"{OPTIONS}.{name}"


def _size(s: Settings, name: str, variable: str) -> float:
    """Return a number from an option, or from the variable that stands in for it."""
    default = worker_value(s.spec, variable)
    return s.number(option(name), float(default) if default and default.isdecimal() else 0)


def _flashcomm(s: Settings) -> bool:
    default = worker_value(s.spec, "VLLM_ASCEND_ENABLE_FLASHCOMM1") not in (None, "", "0")
    return s.on(option("enable_flashcomm1"), default=default)


def _oproj(s: Settings) -> float:
    return _size(s, "enable_flashcomm2_parallel_size", "VLLM_ASCEND_FLASHCOMM2_PARALLEL_SIZE")


def _fine(s: Settings, name: str) -> float:
    return s.number(option(f"finegrained_tp_config.{name}_tensor_parallel_size"))


def _graphs(s: Settings) -> bool:
    return not s.on(f"{VLLM}.enforce_eager") and str(s.get(f"{VLLM}.{GRAPH_MODE}")).upper() != "NONE"


def _captures(s: Settings) -> list[int]:
    return [size for size in s.listed(SIZES) if isinstance(size, int)]


def _tensor(s: Settings) -> int:
    return int(s.number(TENSOR, 1))


FLASHCOMM = (
    Rule(
        "flashcomm-tensor",
        f"{PLATFORM}:764",
        TENSOR,
        lambda s: _flashcomm(s) and _tensor(s) == 1,
        "{value}, but enable_flashcomm1 (VLLM_ASCEND_ENABLE_FLASHCOMM1) needs more than 1; raise it, or turn that off",
    ),
    Rule(
        "flashcomm-experts",
        f"{PLATFORM}:768",
        f"{ROLLOUT}.expert_parallel_size",
        lambda s: _flashcomm(s) and _tensor(s) > 1 and s.has_experts is True and s.spec.rollout.parallelism.expert == 1,
        "{value}, but enable_flashcomm1 (VLLM_ASCEND_ENABLE_FLASHCOMM1) needs expert parallelism for a mixture of "
        "experts; set it to tensor × data, or turn that off",
    ),
    Rule(
        "flashcomm-graphs",
        f"{PLATFORM}:557",
        SIZES,
        lambda s: (
            _flashcomm(s)
            and _tensor(s) > 1
            and _graphs(s)
            and bool(_captures(s))
            and all(size % _tensor(s) for size in _captures(s))
        ),
        "{value}: with enable_flashcomm1 only multiples of rollout.parallelism.tensor are captured, and none is one; "
        "add some",
    ),
    Rule(
        "flashcomm2-large",
        "vllm_ascend/utils.py:1327",
        option("enable_flashcomm2_parallel_size"),
        lambda s: 0 < _tensor(s) <= _oproj(s),
        "must be less than rollout.parallelism.tensor (also as VLLM_ASCEND_FLASHCOMM2_PARALLEL_SIZE); lower it, or set "
        "it to 0",
    ),
    Rule(
        "flashcomm2-uneven",
        "vllm_ascend/utils.py:1332",
        option("enable_flashcomm2_parallel_size"),
        lambda s: 0 < _oproj(s) < _tensor(s) and _tensor(s) % _oproj(s) > 0,
        "must divide rollout.parallelism.tensor (also as VLLM_ASCEND_FLASHCOMM2_PARALLEL_SIZE); use a divisor, or 0",
    ),
)

DISAGGREGATION = (
    *(
        Rule(f"disaggregated-{name.replace('_', '-')}", source, option(name), fails, DISAGGREGATED)
        for name, source, fails in (
            ("recompute_scheduler_enable", f"{PLATFORM}:702", lambda s: s.on(option("recompute_scheduler_enable"))),
            ("layer_sharding", f"{PLATFORM}:346", lambda s: bool(s.listed(option("layer_sharding")))),
            ("enable_kv_nz", f"{CONFIG}:276", lambda s: s.on(option("enable_kv_nz"))),
        )
    ),
    *(
        Rule(
            f"disaggregated-{name}",
            f"{CONFIG}:{line}",
            option(f"finegrained_tp_config.{name}_tensor_parallel_size"),
            lambda s, name=name: _fine(s, name) > 0,  # type: ignore[misc]
            DISAGGREGATED,
        )
        for name, line in (("oproj", 558), ("olora", 568), ("embedding", 156))
    ),
)

OTHERS = (
    Rule(
        "fine-dense",
        f"{CONFIG}:591",
        option("finegrained_tp_config.lmhead_tensor_parallel_size"),
        lambda s: s.has_experts is False and _fine(s, "lmhead") > 0,
        "{value}: fine-grained tensor sizes are for mixtures of experts; remove it",
    ),
    Rule(
        "fine-uneven",
        f"{CONFIG}:593",
        option("finegrained_tp_config.lmhead_tensor_parallel_size"),
        lambda s: (
            s.has_experts is not False
            and _fine(s, "lmhead") > 0
            and s.spec.rollout.parallelism.data % _fine(s, "lmhead") > 0
        ),
        "{value} does not divide spec.rollout.parallelism.data; use a divisor, or remove it",
    ),
    Rule(
        "profiling-chunks",
        f"{CONFIG}:70",
        option("profiling_chunk_config.enabled"),
        lambda s: s.on(option("profiling_chunk_config.enabled")),
        "needs pipeline stages of the engine, which verl 0.9.1 does not run; remove it",
    ),
    Rule(
        "static-kernel",
        f"{CONFIG}:659",
        option("ascend_compilation_config.enable_static_kernel"),
        lambda s: (
            s.on(option("ascend_compilation_config.enable_static_kernel"))
            and not s.on(option("ascend_compilation_config.enable_npugraph_ex"), default=True)
        ),
        "needs enable_npugraph_ex, which is false; remove one of the two",
    ),
    Rule(
        "mixed-placement",
        f"{CONFIG}:396",
        option("mix_placement"),
        lambda s: s.on(option("mix_placement")) and s.on(option("multistream_overlap_shared_expert")),
        "excludes multistream_overlap_shared_expert; remove one of the two",
    ),
    Rule(
        "xlite-drafts",
        f"{CONFIG}:690",
        option("xlite_graph_config.enabled"),
        lambda s: (
            s.on(option("xlite_graph_config.enabled"))
            and s.spec.rollout.speculative.method != "None"
            and s.spec.rollout.speculative.tokens != 1
        ),
        "supports one draft token only; set spec.rollout.speculative.tokens to 1, or remove it",
    ),
    Rule(
        "dump-twice",
        f"{CONFIG}:418",
        option("dump_config_path"),
        lambda s: s.get(option("dump_config_path")) is not None and any(s.below(option("dump_config"))),
        "excludes dump_config; remove one of the two",
    ),
    Rule(
        "prefill-context-data",
        f"{PLATFORM}:352",
        f"{VLLM}.prefill_context_parallel_size",
        lambda s: s.number(f"{VLLM}.prefill_context_parallel_size", 1) > 1 and s.spec.rollout.parallelism.data > 1,
        "{value} excludes spec.rollout.parallelism.data above 1; set one of them to 1",
    ),
)

RULES = (*FLASHCOMM, *DISAGGREGATION, *OTHERS)
REFUSED = Table(RULES, lambda s: s.is_npu)
