"""verl's agent loop with tools, as our workers run it: what the model reads, what is trained, and which calls count.

The engine says what a test has it say; tokenizer, parser, tools and the loop itself are verl's.
"""

from __future__ import annotations

import asyncio
import importlib
from pathlib import Path
from typing import Any

import pytest

from rljob_runtime.input_checks import tools_probe
from rljob_runtime.input_checks.reward_probe import ProblemError
from rljob_runtime.input_checks.tools import ToolSettings
from rljob_runtime.input_checks.user_file import ImportCheck
from rljob_runtime.outcomes import RefusedError
from rljob_runtime.spool.tool_metrics import FIELD

RESPONSE = 1024
TOOLS = """
from __future__ import annotations
from dataclasses import dataclass
from verl.tools.function_tool import function_tool

@dataclass
class Numbers:
    a: int

@function_tool
def add(a: int, b: int) -> str:
    \"\"\"Add two numbers.

    Args:
        a: The first.
        b: The second.
    \"\"\"
    if a == b:
        raise ConnectionError("the sandbox is down")
    return str(a + b)
"""


def call(name: str, arguments: str) -> str:
    return f'<tool_call>{{"name": "{name}", "arguments": {arguments}}}</tool_call>'


@pytest.fixture(scope="module")
def tools(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a file of tools, which verl registers once in a process."""
    path = tmp_path_factory.mktemp("tools") / "tools.py"
    path.write_text(TOOLS)
    return path


class Engine:
    """Answers each request with the next of the texts."""

    def __init__(self, tokenizer: Any, texts: list[str]) -> None:
        self.tokenizer, self.texts = tokenizer, list(texts)
        self.prompts: list[tuple[str, str]] = []
        self.room: list[int] = []
        """Tokens that each turn may write."""

    async def generate(self, request_id: str, prompt_ids: list[int], sampling_params: dict[str, Any], **_: Any) -> Any:
        from verl.workers.rollout.replica import TokenOutput

        self.room.append(sampling_params["max_tokens"])
        self.prompts.append((request_id, self.tokenizer.decode(prompt_ids)))
        ids = [*self.tokenizer(self.texts.pop(0))["input_ids"], self.tokenizer.eos_token_id]
        return TokenOutput(token_ids=ids, extra_fields={"min_global_steps": 1, "max_global_steps": 1})


@pytest.fixture
def tokenizer(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    from transformers import AutoTokenizer

    monkeypatch.syspath_prepend(Path(__file__).parent)
    importlib.import_module("real_training").write_tokenizer(tmp_path / "model")
    return AutoTokenizer.from_pretrained(tmp_path / "model")


def run(tokenizer: Any, tools: Path, texts: list[str], **turns: Any) -> tuple[Any, Engine]:
    """Return the output of the loop, and what its engine was asked."""
    from hydra.utils import instantiate
    from omegaconf import OmegaConf
    from verl.experimental.agent_loop import agent_loop
    from verl.experimental.agent_loop.agent_loop import DictConfigWrap, ToolListWrap
    from verl.tools.tool_registry import load_all_tools
    from verl.utils.dataset.rl_dataset import RLHFDataset

    from rljob_runtime.verl_plugin.router import tool_agent

    multi_turn = {
        "max_user_turns": None,
        "max_assistant_turns": None,
        "max_parallel_calls": 1,
        "max_tool_response_length": 16,
        "tool_response_truncate_side": "right",
        "format": "hermes",
        **turns,
    }
    rollout = {"multi_turn": multi_turn, "prompt_length": 64, "response_length": RESPONSE, "full_determinism": False}
    config = OmegaConf.create({"actor_rollout_ref": {"rollout": rollout}, "data": {}})
    engine = Engine(tokenizer, texts)

    async def conversation() -> Any:
        tool_agent.register()
        loop = instantiate(
            agent_loop._agent_loop_registry["tool_agent"],
            trainer_config=DictConfigWrap(config),
            server_manager=engine,
            tokenizer=tokenizer,
            processor=None,
            dataset_cls=RLHFDataset,
            data_config=DictConfigWrap(config.data),
            tools=ToolListWrap(load_all_tools(tool_config_path=None, function_tool_path=str(tools))),
        )
        return await loop.run({}, raw_prompt=[{"role": "user", "content": "3+4="}])

    return asyncio.run(conversation()), engine


def test_calls_are_executed_and_only_what_the_model_wrote_is_trained(tokenizer: Any, tools: Path) -> None:
    texts = [
        call("add", '{"a": 3, "b": 4}'),
        call("add", '{"a": 2, "b": 2}'),
        call("search", "{}"),
        call("add", '"3 and 4"'),
        "7",
    ]
    output, engine = run(tokenizer, tools, texts)
    assert output.extra_fields[FIELD] == {"succeeded": 1, "failed": 2, "invalid": 0, "unknown": 1}
    assert output.extra_fields["min_global_steps"] == 1
    assert len({request for request, _ in engine.prompts}) == 1, "all turns of a response go to one replica"
    assert "<tool>7" in engine.prompts[1][1]
    assert "<tool>Error executing " in engine.prompts[2][1], "cut after 16 characters"
    assert engine.room[0] == RESPONSE
    assert sorted(engine.room, reverse=True) == engine.room, "a turn has what the turns before have left"
    assert engine.room[-1] < RESPONSE - sum(map(len, texts[:-1]))
    said = [token for token, own in zip(output.response_ids, output.response_mask, strict=True) if own]
    assert tokenizer.decode(said, skip_special_tokens=True).startswith("".join(texts))


def test_a_response_ends_with_its_last_turn(tokenizer: Any, tools: Path) -> None:
    output, engine = run(tokenizer, tools, [call("add", '{"a": 3, "b": 4}')] * 2, max_assistant_turns=2)
    assert len(engine.prompts) == 2
    assert output.extra_fields[FIELD]["succeeded"] == 1


def test_tools_are_loaded_before_the_models(tmp_path: Path) -> None:
    tools = tmp_path / "tools.py"
    tools.write_text(TOOLS)
    ImportCheck(ToolSettings(str(tools))).require()
    tools.write_text(TOOLS.replace("a: int, b: int", "a, b"))
    with pytest.raises(RefusedError, match="its import raises TypeHintParsingException") as error:
        ImportCheck(ToolSettings(str(tools))).require()
    assert error.value.reason == "ToolsInvalid"


@pytest.mark.parametrize(
    ("source", "problem"),
    [
        ("def add(a: int) -> int: ...", "has no tool; decorate its functions with `@function_tool`"),
        ("import nowhere", "install the package in the image, or deliver it with spec.code"),
    ],
)
def test_a_file_without_tools_is_named(
    source: str, problem: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from verl.tools import function_tool

    tools = tmp_path / "tools.py"
    tools.write_text(source)
    monkeypatch.setattr(function_tool, "FUNCTION_TOOL_REGISTRY", {})
    with pytest.raises(ProblemError, match=problem):
        tools_probe.check({"path": str(tools)})
