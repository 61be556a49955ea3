"""Which Megatron-Core can change the size of context-parallel groups."""

from rljob_runtime.planning.dynamic_context import missing


def test_the_parameter_decides() -> None:
    assert missing(["context_parallel_size", "dynamic_context_parallel"]) is None
    without = missing(["context_parallel_size", "hybrid_context_parallel"])
    assert without is not None
    assert "NVIDIA/Megatron-LM#5154" in without
