"""Environment variables of the published recipes. Data."""

from __future__ import annotations

from collections.abc import Mapping

from upstream.recipe_flags.rows import DAPO, DEEPSEEK, FLAGSHIPS, QWEN32, QWEN235, EnvironmentFlag


def everywhere(value: str) -> Mapping[str, str]:
    """Return the same value for all flagship recipes."""
    return dict.fromkeys(FLAGSHIPS, value)


UNSET: Mapping[str, str] = {}
QWEN_TIMEOUT = {DEEPSEEK: "600", QWEN235: "7200", DAPO: "7200", QWEN32: "7200"}
PATCH = "switch of a patch of the recipe, whose part of verl no longer exists"
WARNED = "`rljob validate` warns of a value on the pods, which every other process would inherit"
KUBERAY = "KubeRay starts Ray and sets its address"
INTERFACE = "network.hccl.socketInterface; without it HCCL uses the pod's address (HCCL_IF_IP)"
CANN_DEFAULT = "also CANN's default"

ENVIRONMENT = (
    *(
        EnvironmentFlag(name, "left out", UNSET, f"verl sets it for each worker; {WARNED}")
        for name in ("MASTER_ADDR", "MASTER_PORT")
    ),
    *(EnvironmentFlag(name, "left out", UNSET, KUBERAY) for name in ("CURRENT_IP", "SOCKET_IFNAME")),
    *(
        EnvironmentFlag(name, "operator", UNSET, INTERFACE)
        for name in ("TP_SOCKET_IFNAME", "HCCL_SOCKET_IFNAME", "GLOO_SOCKET_IFNAME")
    ),
    EnvironmentFlag("NNODES", "left out", UNSET, "workerGroups[].nodes"),
    EnvironmentFlag("NPUS_PER_NODE", "left out", UNSET, "workerGroups[].devicesPerNode"),
    EnvironmentFlag("WORLD_SIZE", "left out", UNSET, f"verl sets it for each worker; {WARNED}"),
    EnvironmentFlag("DIST_CKPT_PATH", "left out", UNSET, "Megatron-Bridge reads the Hugging Face files"),
    EnvironmentFlag("DISTCP_PATH", "left out", UNSET, "Megatron-Bridge reads the Hugging Face files"),
    EnvironmentFlag("HCCL_IF_BASE_PORT", "left out", UNSET, "ignored if HCCL_HOST_SOCKET_PORT_RANGE is set"),
    EnvironmentFlag("HCCL_HOST_SOCKET_PORT_RANGE", "operator", everywhere("auto")),
    EnvironmentFlag("HCCL_NPU_SOCKET_PORT_RANGE", "operator", everywhere("auto")),
    EnvironmentFlag("HCCL_CONNECT_TIMEOUT", "operator", QWEN_TIMEOUT, "network.hccl.connectTimeoutSeconds"),
    EnvironmentFlag("HCCL_EXEC_TIMEOUT", "operator", QWEN_TIMEOUT, "network.hccl.execTimeoutSeconds"),
    EnvironmentFlag("HCCL_BUFFSIZE", "recipe", everywhere("300")),
    EnvironmentFlag("HCCL_OP_EXPANSION_MODE", "recipe", {DEEPSEEK: "AIV"}),
    EnvironmentFlag(
        "PYTORCH_NPU_ALLOC_CONF",
        "left out",
        UNSET,
        "expandable segments and split limits are mutually exclusive, and verl switches the segments around "
        "each rollout; `expandable_segments:True` is refused, because the engine would not start",
    ),
    EnvironmentFlag(
        "TASK_QUEUE_ENABLE",
        "operator",
        {DEEPSEEK: "2", QWEN235: "1", DAPO: "1", QWEN32: "1"},
        "DeepSeek's recipe sets it, and VLLM_ASCEND_TASK_QUEUE_ENABLE=1 for the rollout's graphs",
    ),
    EnvironmentFlag("VLLM_ASCEND_TASK_QUEUE_ENABLE", "recipe", {DEEPSEEK: "1"}, "not published; see above"),
    EnvironmentFlag(
        "LD_PRELOAD",
        "image",
        UNSET,
        "jemalloc: for the Ascend image, which is not built here yet; pods do not read .bashrc",
    ),
    EnvironmentFlag("MALLOC_MMAP_THRESHOLD_", "image", UNSET, "belongs to jemalloc"),
    EnvironmentFlag("LCAL_COMM_ID", "recipe", {DEEPSEEK: "127.0.0.1:27001"}),
    EnvironmentFlag("CUDA_DEVICE_MAX_CONNECTIONS", "operator", everywhere("1"), "with Megatron and MindSpeed"),
    EnvironmentFlag("D2D_DATA_TRANSFER", "left out", UNSET, "tensors are sent through verl's TransferQueue"),
    EnvironmentFlag("VLLM_DP_SIZE", "left out", UNSET, "rollout.parallelism.data; a value other than 1 is refused"),
    EnvironmentFlag("VLLM_ENABLE_EXPERT_PARALLEL", "left out", UNSET, "rollout.parallelism.expert"),
    EnvironmentFlag("VLLM_ENABLE_FIX_ROUTE", "left out", UNSET, PATCH),
    EnvironmentFlag("VLLM_ENABLE_MC2", "left out", UNSET, "vllm-ascend chooses the communication of experts itself"),
    EnvironmentFlag("VLLM_ENABLE_GRAPH_MODE", "left out", UNSET, "rollout.eager"),
    *(
        EnvironmentFlag(name, "left out", UNSET, PATCH)
        for name in (
            "ALL_TO_ALL_RESHARD",
            "NO_ALL_TO_ALL_RESHARD",
            "USE_ALLTOALL_OVERLAP",
            "USE_HDP",
            "VERL_HDP_GROUP_DIR",
        )
    ),
    EnvironmentFlag(
        "VLLM_ENABLE_EPLB", "left out", UNSET, "moving experts corrupts later weight updates (vllm issue 55228)"
    ),
    EnvironmentFlag(
        "ROLLOUT_REBALANCE_ENABLE", "left out", UNSET, "verl gives each sample to the least loaded replica"
    ),
    EnvironmentFlag("VLLM_SPECULATIVE_BATCH_SIZE_THRE", "left out", UNSET, "rollout.speculative.maxSequences"),
    EnvironmentFlag(
        "NPUGRAPH_EX_ENABLE_STATIC_KERNEL",
        "left out",
        UNSET,
        "additional_config.ascend_compilation_config.enable_static_kernel, by verl.overrides",
    ),
    *(
        EnvironmentFlag(name, "left out", UNSET, "not in vllm-ascend 0.23")
        for name in (
            "VLLM_ASCEND_ENABLE_TOPK_OPTIMIZE",
            "VLLM_ASCEND_ACL_OP_INIT_MODE",
            "VLLM_ASCEND_MODEL_EXECUTE_TIME_OBSERVE",
        )
    ),
    EnvironmentFlag("VLLM_VERSION", "left out", UNSET, "for a vLLM built from source under another version"),
    EnvironmentFlag("VLLM_ASCEND_ENABLE_NZ", "operator", everywhere("0"), "with additional_config.weight_nz_mode 0"),
    EnvironmentFlag("VLLM_USE_V1", "left out", UNSET, "vLLM no longer has another engine"),
    EnvironmentFlag("VLLM_LOGGING_LEVEL", "verl", UNSET, "verl sets WARN; a template's env takes precedence"),
    EnvironmentFlag("PROFILE_UPDATE", "left out", UNSET, PATCH),
    EnvironmentFlag("PRINT_MEMORY", "left out", UNSET, PATCH),
    *(
        EnvironmentFlag(name, "left out", UNSET, CANN_DEFAULT)
        for name in ("ASCEND_LAUNCH_BLOCKING", "ASCEND_SLOG_PRINT_TO_STDOUT", "ASCEND_GLOBAL_LOG_LEVEL")
    ),
    EnvironmentFlag("ASCEND_GLOBAL_EVENT_ENABLE", "left out", UNSET, "affects only logs; a template's env may set it"),
    EnvironmentFlag("ASCEND_HOST_LOG_FILE_NUM", "left out", UNSET, "affects only logs; a template's env may set it"),
    EnvironmentFlag(
        "HYDRA_FULL_ERROR", "left out", UNSET, "the launcher composes Hydra's configuration and reports its errors"
    ),
    EnvironmentFlag("RAY_DEDUP_LOGS", "left out", UNSET, "affects only logs; a template's env may set it"),
    EnvironmentFlag("PYTHONUNBUFFERED", "image", UNSET),
    EnvironmentFlag("ulimit -n", "left out", UNSET, "KubeRay raises it to 65536"),
    *(
        EnvironmentFlag(
            name,
            "image",
            UNSET,
            "CANN's set_env.sh, also for Ray's own processes: for the Ascend image, which is not built here yet",
        )
        for name in ("ASCEND_TOOLKIT_HOME", "ASCEND_HOME_PATH", "ASCEND_CUSTOM_OPP_PATH", "LD_LIBRARY_PATH")
    ),
)
