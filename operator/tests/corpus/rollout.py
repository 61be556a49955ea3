"""Replicas, tokens, graphs and CPUs."""

from corpus.bad import Bad, group, key, megatron, merged, template
from corpus.memory import CONFIG

ROLLOUT = "actor_rollout_ref.rollout"
VLLM = f"+{ROLLOUT}.engine_kwargs.vllm"
NPU = {"accelerator": {"class": "atlas-a3-superpod"}, "trainer": {"globalBatchSize": 64}}


def sizes(**values: int) -> dict[str, object]:
    return {"rollout": {"parallelism": values}}


def capture(*listed: int, **values: object) -> dict[str, object]:
    return {"rollout": {"captureSizes": list(listed), **values}}


def agent(**settings: object) -> dict[str, object]:
    return {"rollout": {"agent": {"tools": "/code/tools.py", **settings}}}


BAD = {
    "tools of another form": Bad(
        agent(tools="/code/tools.json"),
        "spec.rollout.agent.tools",
        "/code/tools.json is neither a Python file nor a YAML file; name a file that ends in .py",
    ),
    "one turn for calls": Bad(
        agent(maxTurns=1),
        "spec.rollout.agent.maxTurns",
        "1 ends a response before its first call is executed; use at least 2, or remove rollout.agent",
    ),
    "a key of the agent's": Bad(
        merged(agent(), key(f"{ROLLOUT}.multi_turn.format", "kimi")),
        f"spec.verl.overrides[{ROLLOUT}.multi_turn.format]",
        "is set by spec.rollout.agent.format",
    ),
    "responses held back between turns": Bad(
        merged(agent(), {"optimizations": {"loadBalancer": "LateBinding"}}),
        "spec.optimizations.loadBalancer",
        "LateBinding, but with rollout.agent a response has several requests, and late binding learns the lengths of "
        "responses when requests end; use Auto",
    ),
    "drafts from earlier turns": Bad(
        merged(agent(), {"rollout": {"speculative": {"method": "Suffix", "history": "Enabled"}}}),
        "spec.rollout.speculative.history",
        "Enabled, but with rollout.agent each turn continues a longer prompt, of which the history knows nothing",
    ),
    "a replica over nodes": Bad(
        sizes(tensor=3),
        "spec.rollout.parallelism.tensor",
        "3 does not divide workerGroups[0].devicesPerNode 2, so replicas would share nodes; use one of 1, 2 or a "
        "multiple of 2",
    ),
    "a replica over nodes that do not divide": Bad(
        merged(group({"nodes": 3}), sizes(tensor=4) | {"trainer": {"globalBatchSize": 24}}),
        "spec.rollout.parallelism.tensor",
        "4 does not divide 6 devices (workerGroups[0].nodes 3 × devicesPerNode 2); use one of 1, 2, 3, 6",
    ),
    "tensor groups over nodes in a replica": Bad(
        merged(group({"nodes": 4}), sizes(tensor=4, data=2)),
        "spec.rollout.parallelism.tensor",
        "4 does not divide workerGroups[0].devicesPerNode 2, so replicas would share nodes; use one of 1, 2",
    ),
    "replicas beyond the devices": Bad(
        sizes(tensor=2, data=2),
        "spec.rollout.parallelism.data",
        "tensor 2 × data 2 = 4 does not divide 2 devices (workerGroups[0].nodes 1 × devicesPerNode 2); use one of 1",
    ),
    "replicas across nodes by halves": Bad(
        merged(
            group({"devicesPerNode": 4, "nodes": 3}), sizes(tensor=1, data=6) | {"trainer": {"globalBatchSize": 24}}
        ),
        "spec.rollout.parallelism.data",
        "tensor 1 × data 6 = 6 neither divides workerGroups[0].devicesPerNode 4 nor is a multiple of it",
    ),
    "half an expert domain": Bad(
        merged(megatron({}), sizes(tensor=2, data=8, expert=8)),
        "spec.rollout.parallelism.expert",
        "8 is neither 1 nor tensor 2 × data 8 = 16; use one of them",
    ),
    "heads over tensor": Bad(
        merged(megatron({}, attentionHeads=12), sizes(tensor=8)),
        "spec.rollout.parallelism.tensor",
        "use one of 1, 2, 4 on 16 devices",
    ),
    "fewer tokens than sequences": Bad(
        {"rollout": {"maxSequences": 256, "maxBatchedTokens": 128}},
        "spec.rollout.maxBatchedTokens",
        "128 tokens per pass are fewer than the 256 sequences of a pass; set spec.rollout.maxBatchedTokens to 256 or",
    ),
    "fewer tokens than sequences by default": Bad(
        {"rollout": {"maxBatchedTokens": 64}},
        "spec.rollout.maxBatchedTokens",
        "64 tokens per pass are fewer than the 128 sequences of a pass by default; set spec.rollout.maxB",
    ),
    "more sequences than tokens by default": Bad(
        key(f"{VLLM}.max_num_seqs", 8193),
        f"spec.verl.overrides[{VLLM}.max_num_seqs]",
        "8192 tokens per pass are fewer than the 8193 sequences of a pass; set",
    ),
    "fewer tokens than sequences, past verl": Bad(
        merged(key(f"{VLLM}.max_num_batched_tokens", 128), {"rollout": {"maxSequences": 256}}),
        f"spec.verl.overrides[{VLLM}.max_num_batched_tokens]",
        "128 tokens per pass are fewer than the 256 sequences",
    ),
    "a sequence longer than a pass": Bad(
        {"rollout": {"chunkedPrefill": False}, "data": {"maxResponseTokens": 32768}},
        "spec.rollout.chunkedPrefill",
        "8192 tokens per pass cannot hold a sequence of 33792, but chunked prefill is off; set "
        "spec.rollout.maxBatchedTokens to 33792 or more, or turn it on",
    ),
    "a sequence longer than a pass, past verl": Bad(
        merged(key(VLLM, {"enable_chunked_prefill": False}), {"data": {"maxResponseTokens": 32768}}),
        f"spec.verl.overrides[{VLLM}]",
        "8192 tokens per pass cannot hold a sequence of 33792, but chunked prefill is off",
    ),
    "a model longer than a pass": Bad(
        {
            "rollout": {"chunkedPrefill": False, "maxBatchedTokens": 4096},
            "model": {"config": CONFIG | {"max_position_embeddings": 40960}},
        },
        "spec.rollout.maxBatchedTokens",
        "4096 tokens per pass cannot hold a sequence of 40960",
    ),
    "a context without room for a response": Bad(
        key(f"{ROLLOUT}.max_model_len", 1024),
        f"spec.verl.overrides[{ROLLOUT}.max_model_len]",
        "1024 leaves no token to answer a prompt of data.maxPromptTokens 1024",
    ),
    "more graphs than streams": Bad(
        merged(
            NPU,
            {"model": {"layers": 409}},
            capture(4, 8, 16, 32, 64),
            key(f"{VLLM}.compilation_config.cudagraph_mode", "PIECEWISE"),
        ),
        "spec.rollout.captureSizes",
        "5 sizes × (model.layers 409 + 1) pieces of the model = 2050 graphs, but an Ascend device has 2048 streams",
    ),
    "more graphs than streams by an argument of vLLM": Bad(
        merged(
            NPU,
            {"model": {"layers": 409}},
            key(f"{VLLM}.compilation_config", '{"cudagraph_capture_sizes": [4, 8, 16, 32, 64]}'),
        ),
        f"spec.verl.overrides[{VLLM}.compilation_config]",
        "2050 graphs",
    ),
    "graphs in eager mode": Bad(capture(4, eager=True), "spec.rollout.captureSizes", "no graphs are captured"),
    "a mode of no engine": Bad(
        key(f"{VLLM}.compilation_config.cudagraph_mode", "FULL_DECODE_ONY"),
        f"spec.verl.overrides[{VLLM}.compilation_config.cudagraph_mode]",
        "'FULL_DECODE_ONY' is no compilation_config.cudagraph_mode; use one of NONE, PIECEWISE, FULL, FULL_DECODE_ONLY",
    ),
    "sizes that are no numbers": Bad(
        key(f"{VLLM}.cudagraph_capture_sizes", [8, True, "16", 0]),
        f"spec.verl.overrides[{VLLM}.cudagraph_capture_sizes]",
        "3 of the sizes are no numbers from 1 to 1048576",
    ),
    "sizes twice": Bad(
        merged(capture(8), key(f"{VLLM}.cudagraph_capture_sizes", [8])),
        f"spec.verl.overrides[{VLLM}.cudagraph_capture_sizes]",
        "the sizes are also set by rollout.captureSizes; remove one",
    ),
    "more graphs than streams by vLLM's own argument": Bad(
        merged(
            NPU,
            {"model": {"layers": 409}},
            key(f"{VLLM}.cudagraph_capture_sizes", [4, 8, 16, 32, 64]),
            key(f"{VLLM}.compilation_config.cudagraph_mode", "PIECEWISE"),
        ),
        f"spec.verl.overrides[{VLLM}.cudagraph_capture_sizes]",
        "2050 graphs",
    ),
    "graphs in a mode without any": Bad(
        merged(capture(4), key(f"{VLLM}.compilation_config.cudagraph_mode", "NONE")),
        "spec.rollout.captureSizes",
        "compilation_config.cudagraph_mode is NONE, so no graphs are captured",
    ),
    "graphs that leave no room for drafts": Bad(
        capture(30, 64, speculative={"method": "NGram"}),
        "spec.rollout.captureSizes",
        "30: with speculative.tokens 3 sizes must be multiples of 3 + 1 = 4; use 32",
    ),
    "history without suffix trees": Bad(
        {"rollout": {"speculative": {"method": "NGram", "history": "Enabled"}}},
        "spec.rollout.speculative.history",
        "method NGram proposes nothing from earlier responses; set method to Suffix, or remove history",
    ),
    "a history without a bound": Bad(
        {"rollout": {"speculative": {"method": "Suffix", "history": "Enabled", "historyMemory": "1Ti"}}},
        "spec.rollout.speculative.historyMemory",
        "1Ti is not between 64Mi and 64Gi; use 1Gi",
    ),
    "a history that holds nothing": Bad(
        {"rollout": {"speculative": {"method": "Suffix", "historyMemory": "1Mi"}}},
        "spec.rollout.speculative.historyMemory",
        "1Mi is not between 64Mi and 64Gi; use 1Gi",
    ),
    "fewer than all tokens": Bad({"rollout": {"topK": "-2"}}, "spec.rollout.topK", "use -1 or 0 for all"),
    "half a token": Bad({"rollout": {"topK": "1.5"}}, "spec.rollout.topK", "1.5 is not a number of tokens"),
    "too few CPUs for Ray": Bad(
        merged(NPU, group({"devicesPerNode": 16, "template": {"cpu": "48"}})),
        "spec.workerGroups[0].template.cpu",
        "48 gives Ray 48 CPUs a node, but verl reserves 3 × devicesPerNode 16 = 48, and 2 + 1 over 1 nodes for "
        "TransferQueue; with fewer the run hangs; set it to 64 or more",
    ),
    "thousandths of CPUs": Bad(
        merged(NPU, template({"cpu": "500m"})), "spec.workerGroups[0].template.cpu", "500m gives Ray 1 CPUs a node"
    ),
}
