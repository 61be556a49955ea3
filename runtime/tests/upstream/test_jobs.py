"""job.json of every example, as rendered by the operator, against verl's real schema and verl's own checks.

scripts.in_image renders them on the host into the folder RLJOB_JOBS.
"""

from __future__ import annotations

import dataclasses
import os
from pathlib import Path

import pytest

from rljob_runtime import hydra_config, launcher_overrides
from rljob_runtime.contract import JobConfig, OverrideValue, Platform
from rljob_runtime.spool.spool import Spool

FOLDER = Path(os.environ.get("RLJOB_JOBS", "/nowhere"))
JOBS = sorted(FOLDER.glob("*.json"))
SPOOL, SCRATCH = Spool(Path("/spool")), Path("/scratch")


MODEL_KEYS = ("actor_rollout_ref.model.path", "critic.model.path")


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> str:
    """Return a folder with the files that verl reads of a critic's model before a run: configuration and tokenizer."""
    from tokenizers import Tokenizer
    from tokenizers.models import WordLevel
    from transformers import PreTrainedTokenizerFast, Qwen2Config

    folder = str(tmp_path_factory.mktemp("model"))
    words = WordLevel({"<pad>": 0, "<eos>": 1}, unk_token="<pad>")
    PreTrainedTokenizerFast(
        tokenizer_object=Tokenizer(words), pad_token="<pad>", eos_token="<eos>", unk_token="<pad>"
    ).save_pretrained(folder)
    Qwen2Config(architectures=["Qwen2ForCausalLM"], vocab_size=2, hidden_size=8, num_hidden_layers=1).save_pretrained(
        folder
    )
    return folder


def read(path: Path) -> JobConfig:
    return JobConfig.from_json(path.read_bytes())


@pytest.mark.skipif(not os.environ.get("RLJOB_JOBS"), reason="RLJOB_JOBS names no folder; scripts.in_image renders one")
def test_there_are_jobs_of_every_kind() -> None:
    jobs = [read(path) for path in JOBS]
    assert {job.overrides["algorithm.adv_estimator"] for job in jobs} >= {"grpo", "gae", "rloo", "remax"}
    assert any(launcher_overrides.only_evaluates(job) for job in jobs)


@pytest.mark.parametrize("path", JOBS, ids=lambda path: path.stem)
def test_it_composes_without_an_unknown_key(path: Path) -> None:
    job = read(path)
    config = hydra_config.compose(job, SPOOL, SCRATCH)
    for key, value in job.overrides.items():
        if not hydra_config.is_group(key):
            node = config
            for part in hydra_config.plain(key).split("."):
                node = node[part]
            assert node == value, key


@pytest.mark.parametrize("path", JOBS, ids=lambda path: path.stem)
def test_verls_own_checks_pass(path: Path, model: str, monkeypatch: pytest.MonkeyPatch) -> None:
    from verl.utils import device

    job = read(path)
    here: dict[str, OverrideValue] = {key: model for key in MODEL_KEYS if key in job.overrides}
    job = dataclasses.replace(job, overrides=job.overrides | here)
    if job.platform is Platform.NPU:
        # Without an NPU, verl would set trainer.device to the device that it finds.
        monkeypatch.setattr(device, "auto_set_device", lambda _: None)
    hydra_config.validate(hydra_config.compose(job, SPOOL, SCRATCH))
