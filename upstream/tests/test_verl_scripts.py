"""verl's scripts for Ascend: how they are recorded and translated, and what the operator says of each."""

from __future__ import annotations

import functools
import re
import subprocess
from collections import Counter
from pathlib import Path

import pytest
import yaml

from rljob.launchers.verl.baseline import LEFT_OUT, ROWS
from rljob.launchers.verl.rows import ACTOR, MODEL, ROLLOUT
from rljob.launchers.verl.table import TABLE
from rljob.launchers.verl.unread_keys import UNREAD
from rljob_runtime.planning import verl
from upstream.verl_scripts import record as recorder
from upstream.verl_scripts.__main__ import write_tables
from upstream.verl_scripts.hydra_value import FlagError, Value, parse_value
from upstream.verl_scripts.record import record
from upstream.verl_scripts.stand_ins import STEPS
from upstream.verl_scripts.table import COMMIT, FOLDER, Script, load_scripts, script_of, scripts_without_table
from upstream.verl_scripts.translate import DECIDED, Translation, parsed, translate
from upstream.verl_scripts.verdicts import REASONS, REFUSED, Verdict, judge

SCRIPTS = load_scripts()
each_script = pytest.mark.parametrize("script", SCRIPTS, ids=[script.path for script in SCRIPTS])


@functools.cache
def verdict_of(path: str) -> Verdict:
    return judge(next(script for script in SCRIPTS if script.path == path))


def call(text: str, name: str = "run.sh") -> Script:
    (found,) = record(name, text)
    return script_of(name, found)


def flags_of(*pairs: str) -> Translation:
    return translate(Script("run.sh", dict(pair.split("=", 1) for pair in pairs), {}))


def test_bash_evaluates_what_a_script_computes() -> None:
    found = call(
        """
        set -xeuo pipefail
        DEVICE=$(python3 -c 'import torch_npu' 2>/dev/null && echo npu || echo gpu)
        export HCCL_BUFFSIZE=300
        EXTRA=()
        case "${DEVICE}" in npu) EXTRA+=(a.tokens=$((1024 * 2))) ;; *) EXTRA+=(a.tokens=1) ;; esac
        python3 -m verl.trainer.main_ppo --config-name='other.yaml' "${EXTRA[@]}" \\
            data.train_files="['$HOME/a', '$HOME/b']" x.y=1 x.y=2 2>&1 | tee log.txt
        """
    )
    assert found.environment == {"HCCL_BUFFSIZE": "300"}
    assert found.flags == {
        "--config-name": "other.yaml",
        "a.tokens": "2048",
        "data.train_files": "['/shared/a', '/shared/b']",
        "x.y": "2",
    }


def test_a_variable_before_the_command_is_one_of_the_environment() -> None:
    assert call("LEVEL=2 python -m verl.trainer.main_ppo a=1").environment == {"LEVEL": "2"}


def test_nothing_that_a_script_calls_is_executed(tmp_path: Path) -> None:
    made = tmp_path / "made"
    text = f"""
        pip install verl; mkdir {made}; /bin/mkdir {made}; echo x > {made}; cd {tmp_path}; source {made}
        PATH=/bin; touch {made}
        bash -c 'touch {made}'
        """
    assert record("run.sh", text) == ()
    assert not made.exists()


def test_another_trainer_is_not_recorded() -> None:
    assert record("run.sh", "python3 -m verl.trainer.sft_trainer a=1; python3 train.py") == ()
    assert len(record("run.sh", "for i in 1 2; do python3 -m verl.trainer.main_ppo a=$i; done")) == 2


def test_a_script_that_waits_is_ended(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(recorder, "SECONDS", 0.2)
    with pytest.raises(TimeoutError, match=r"run\.sh: still running after 0\.2 s"):
        record("run.sh", "while true; do :; done")


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("True", True),
        ("null", None),
        ("", ""),
        ("-1", -1),
        ("1e-6", 1e-6),
        ("0.5", 0.5),
        ("-5.", -5.0),
        ("1.2.3", "1.2.3"),
        ("left", "left"),
        ("'1'", "1"),
        ('["console","wandb"]', ["console", "wandb"]),
        ("['/a/b', c d]", ["/a/b", "c d"]),
        ("[1,[2.0,true],]", [1, [2.0, True]]),
        ("[]", []),
        ("{'a': 1, b: {c: [x]}}", {"a": 1, "b": {"c": ["x"]}}),
        ("a,b", "a,b"),
        ("Et|tt*2|L", "Et|tt*2|L"),
    ],
)
def test_a_value_is_read_as_hydra_reads_it(text: str, value: Value) -> None:
    assert parse_value(text) == value
    assert type(parse_value(text)) is type(value)


@pytest.mark.parametrize("text", ["[1", "'a", "['a' 1]", "{a}", "{a: 1", "[1]x"])
def test_an_unclosed_value_is_an_error(text: str) -> None:
    with pytest.raises(FlagError):
        parse_value(text)


def test_a_key_with_a_row_becomes_its_field() -> None:
    job = flags_of(
        f"{ACTOR}.optim.lr=5e-7",
        f"{ROLLOUT}.top_k=-1",
        "data.train_files=/shared/a.parquet",
        "trainer.total_training_steps=15",
        'trainer.logger=["console","wandb"]',
    )
    assert job.spec["trainer"] == {"steps": 15, "globalBatchSize": 1024, "learningRate": "5e-07"}
    assert job.spec["rollout"] == {"topK": "-1"}
    assert job.spec["data"]["train"] == ["/shared/a.parquet"]
    assert job.spec["observability"] == {"trackers": ["wandb"]}
    assert (job.overrides, job.dropped) == ({}, {})


def test_one_field_of_two_keys_follows_the_first_row() -> None:
    assert flags_of(f"{ACTOR}.use_kl_loss=True", f"{ACTOR}.kl_loss_coef=0.01").spec["algorithm"] == {
        "klCoefficient": "0.01"
    }
    without = flags_of(f"{ACTOR}.use_kl_loss=False", f"{ACTOR}.kl_loss_coef=0.01")
    assert "algorithm" not in without.spec
    assert without.dropped == {f"{ACTOR}.kl_loss_coef": "spec.algorithm.klCoefficient sets 0.0"}


def test_dynamic_batches_without_a_bound_take_that_of_verl() -> None:
    assert flags_of(f"{ACTOR}.use_dynamic_bsz=True").spec["trainer"]["maxTokensPerDevice"] == 16384
    off = flags_of(f"{ACTOR}.use_dynamic_bsz=False", f"{ACTOR}.ppo_max_token_len_per_gpu=4096")
    assert "maxTokensPerDevice" not in off.spec["trainer"]


def test_the_engine_decides_the_backend_and_its_sizes() -> None:
    megatron = flags_of("--config-name=ppo_megatron_trainer.yaml", f"{ACTOR}.megatron.tensor_model_parallel_size=4")
    assert megatron.spec["trainer"]["backend"] == "MindSpeed"
    assert megatron.spec["trainer"]["parallelism"] == {"tensor": 4}
    first = flags_of(f"{ACTOR}.strategy=fsdp", f"{ACTOR}.megatron.tensor_model_parallel_size=4")
    assert first.dropped[f"{ACTOR}.strategy"].endswith("RLJob trains with FSDP2")
    assert first.dropped[f"{ACTOR}.megatron.tensor_model_parallel_size"] == (
        "takes effect only with: Megatron, MindSpeed"
    )


def test_what_a_field_cannot_say_is_left_to_the_validation() -> None:
    job = flags_of(f"{ROLLOUT}.name=sglang")
    assert (job.unsayable, "rollout" in job.spec) == ({"rollout.engine": "sglang"}, False)
    assert job.manifest["rollout"] == {"engine": "sglang"}
    assert parsed(job.manifest) is None


def test_what_verl_or_the_launcher_decides_is_left_out_with_a_reason() -> None:
    job = flags_of("trainer.use_v1=True", "reward_model.reward_manager=dapo", "trainer.resume_mode=auto", "a.b=1")
    assert list(job.dropped) == ["trainer.use_v1", "reward_model.reward_manager", "trainer.resume_mode"]
    assert job.overrides == {"a.b": 1}


def test_a_key_that_verl_removed_is_left_out_and_any_other_is_left_to_the_validation() -> None:
    job = flags_of(f"{ACTOR}.megatron.grad_offload=True", f"{ACTOR}.megatron.grad_offloading=True")
    assert job.dropped == {f"{ACTOR}.megatron.grad_offload": DECIDED[f"{ACTOR}.megatron.grad_offload"]}
    assert f"{ACTOR}.megatron.grad_offloading" in job.overrides


def test_paths_are_on_the_shared_volume() -> None:
    job = flags_of(f"{MODEL}.path=Qwen/Qwen3-32B", "trainer.default_local_dir=/data/x", "trainer.save_freq=5")
    assert job.spec["model"] == {"path": "/shared/Qwen/Qwen3-32B", "architecture": "Qwen3-32B"}
    assert job.spec["checkpoint"] == {"path": "/shared/data/x", "everySteps": 5}


def test_variables_go_to_the_pods_or_to_their_field() -> None:
    job = translate(Script("run.sh", {}, {"HCCL_CONNECT_TIMEOUT": "1500", "RAY_TMPDIR": "/tmp/r", "A": "b"}))
    assert job.spec["network"]["hccl"]["connectTimeoutSeconds"] == 1500
    assert job.spec["workerGroups"][0]["template"]["env"] == [{"name": "A", "value": "b"}]
    assert list(job.dropped) == ["RAY_TMPDIR"]


def test_tables_are_written_from_a_clone_and_old_ones_removed(tmp_path: Path) -> None:
    clone, folder, others = tmp_path / "verl", tmp_path / "flags", tmp_path / "others.yaml"
    scripts = {
        "examples/a/npu.sh": "python3 -m verl.trainer.main_ppo a=1",
        "examples/gpu.sh": "# not for an NPU\npython3 -m verl.trainer.main_ppo input=1",
        "tests/special_npu/other.sh": "python3 -m verl.trainer.sft_trainer a=1",
        "tests/other/npu.sh": "python3 -m verl.trainer.main_ppo a=1",
    }
    for name, text in scripts.items():
        (clone / name).parent.mkdir(parents=True, exist_ok=True)
        (clone / name).write_text(text)
    for words in (("init", "-q"), ("add", "."), ("-c", "user.name=a", "-c", "user.email=a@b", "commit", "-qm", "a")):
        subprocess.run(("git", "-C", clone, *words), check=True)
    folder.mkdir()
    (folder / "old.yaml").write_text("")
    write_tables(clone, "HEAD", folder, others)
    assert [path.name for path in folder.iterdir()] == ["examples__a__npu.yaml"]
    assert load_scripts(folder) == (Script("examples/a/npu.sh", {"a": "1"}, {}),)
    assert yaml.safe_load(others.read_text()) == ["tests/special_npu/other.sh"]


def test_the_tables_are_of_one_commit_and_many() -> None:
    documents = [yaml.safe_load(path.read_text()) for path in FOLDER.glob("*.yaml")]
    assert {(found["repository"], found["commit"]) for found in documents} == {("verl-project/verl", COMMIT)}
    assert len(documents) >= 40
    assert not {script.path for script in SCRIPTS} & set(scripts_without_table())


@each_script
def test_a_script_is_accepted_or_refused_for_the_reasons_in_the_table(script: Script) -> None:
    verdict = verdict_of(script.path)
    assert verdict.unexplained == ()
    assert verdict.reasons == tuple(name for name in REASONS if name in REFUSED.get(script.path, ()))


def test_every_reason_is_used_and_has_a_source() -> None:
    assert {name for names in REFUSED.values() for name in names} == set(REASONS)
    assert set(REFUSED) <= {script.path for script in SCRIPTS}
    assert all(row.why and row.source for row in REASONS.values())


def test_steps_have_a_stand_in_where_a_script_counts_epochs() -> None:
    job = flags_of("trainer.total_epochs=15")
    assert job.spec["trainer"]["steps"] == STEPS
    assert list(job.dropped) == ["trainer.total_epochs"]


MANY = 5
"""Scripts; what fewer set belongs to one model or one machine."""
OF_A_RUN = re.compile(
    r"^(trainer|data|algorithm|reward|global_profiler|ray_kwargs)\.|^--|"
    r"\.(profiler|policy_loss|val_kwargs|optim|override_transformer_config|checkpoint)\.|"
    r"\.(clip_ratio_c|fsdp_size|\w*parallel_size|log_prob_\w+|use_dynamic_bsz|use_mbridge|\w*offload\w*|\w*dist_checkp\w+)$"
)
"""Keys by which a script states its task, its model, its sizes and its files, and no setting of the hardware."""


def test_what_most_ascend_scripts_set_is_set_by_the_class_or_left_out_with_a_reason() -> None:
    counts: Counter[str] = Counter()
    known = {**verl.keys(megatron=True), **verl.keys(megatron=False)}
    for script in SCRIPTS:
        for key, text in script.flags.items():
            plain = key.lstrip("+")
            if not OF_A_RUN.search(plain) and str(known.get(plain)).lower() != text.lower():
                counts[plain] += 1
    decided = [row.plain for row in ROWS] + [row.name for row in LEFT_OUT] + [*UNREAD] + [row.key for row in TABLE]
    names = {key.rpartition(".")[2] for key in decided}
    assert {key: n for key, n in counts.items() if n >= MANY and key.rpartition(".")[2] not in names} == {}
