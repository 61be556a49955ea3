"""Where an attempt begins, and what is refused."""

from __future__ import annotations

import contextlib
from pathlib import Path

import pytest

from rljob_runtime.checkpoints import contents, prompt_ledger, resume
from rljob_runtime.checkpoints.prompt_ledger import PromptLedger
from rljob_runtime.checkpoints.saved_steps import TRACKER_FILE
from rljob_runtime.contract import ExitCode, JobConfig, ResumeMode, ResumeSource, TrainerMode
from rljob_runtime.outcomes import RefusedError, StartGoneError, from_error
from rljob_runtime.preflight import Attempt
from runtime.tests.conftest import MakeJob
from runtime.tests.fenced_save_process import WHOLE_MARK


def make_step(
    folder: Path,
    step: int,
    *,
    devices: int = 2,
    critic: bool = False,
    complete: bool = True,
    kinds: tuple[str, ...] = ("model", "optim", "extra_state"),
) -> Path:
    made = folder / f"global_step_{step}"
    for role in ("actor", "critic") if critic else ("actor",):
        (made / role).mkdir(parents=True)
        for rank in range(devices):
            for kind in kinds:
                (made / role / f"{kind}_world_size_{devices}_rank_{rank}.pt").write_bytes(WHOLE_MARK)
    if complete:
        (made / "data.pt").write_bytes(WHOLE_MARK)
    return made


@pytest.fixture
def own(tmp_path: Path) -> Path:
    folder = tmp_path / "own"
    folder.mkdir()
    return folder


@pytest.fixture
def other(tmp_path: Path) -> Path:
    folder = tmp_path / "other"
    folder.mkdir()
    return folder


def choose(
    job: JobConfig,
    *,
    needs_critic: bool = False,
    only_evaluates: bool = False,
    saved: int | None = None,
    loads: frozenset[str] = contents.DEFAULT,
) -> resume.Start:
    attempt = Attempt(3, "sums-3", "pod", Path("spool"), saved)
    roles = ("actor", "critic") if needs_critic else ("actor",)
    return resume.choose(job, attempt, dict.fromkeys(roles, loads), only_evaluates=only_evaluates)


def refusal(job: JobConfig, *, needs_critic: bool = False, saved: int | None = None) -> RefusedError:
    with pytest.raises(RefusedError) as caught:
        choose(job, needs_critic=needs_critic, saved=saved)
    assert caught.value.code is ExitCode.BAD_CONFIG
    return caught.value


def test_without_checkpoints_a_run_begins_at_step_0(make_job: MakeJob, own: Path) -> None:
    assert choose(make_job()).folder is None
    assert choose(make_job(checkpoint_path=str(own))).folder is None


def test_the_own_last_complete_step_is_taken(make_job: MakeJob, own: Path) -> None:
    make_step(own, 4)
    newest = make_step(own, 10)
    make_step(own, 12, complete=False)
    for mode in (ResumeMode.AUTO, ResumeMode.REQUIRED):
        start = choose(make_job(checkpoint_path=str(own), resume=mode))
        assert start.folder == newest
        assert start.step == 10


def test_a_finished_run_may_be_resumed_at_its_end(make_job: MakeJob, own: Path) -> None:
    make_step(own, 40)
    assert choose(make_job(checkpoint_path=str(own), total_steps=40)).step == 40


def test_a_step_beyond_the_last_one_is_another_jobs_and_no_success(make_job: MakeJob, own: Path) -> None:
    make_step(own, 60)
    error = refusal(make_job(checkpoint_path=str(own), total_steps=40))
    assert error.reason == "CheckpointBeyondEnd"
    assert str(error) == (
        f"checkpoint.path {own} has step 60, which is beyond trainer.steps 40: another job has saved it; give this "
        "one a checkpoint.path of its own, or set trainer.steps to 60 or more"
    )
    assert choose(make_job(checkpoint_path=str(own), total_steps=40), only_evaluates=True).step == 60


def test_required_without_a_checkpoint_names_the_path(make_job: MakeJob, own: Path) -> None:
    make_step(own, 4, complete=False)
    error = refusal(make_job(checkpoint_path=str(own), resume=ResumeMode.REQUIRED))
    assert error.reason == "CheckpointMissing"
    assert str(error).startswith(f"checkpoint.resume is Required, but {own} has no complete checkpoint")


@pytest.mark.parametrize("mode", ResumeMode)
@pytest.mark.parametrize("source", [True, False])
def test_what_the_job_had_saved_is_not_trained_again_because_it_is_gone(
    make_job: MakeJob, own: Path, other: Path, mode: ResumeMode, source: bool
) -> None:
    make_step(other, 10)
    make_step(own, 4, complete=False)
    source_of = ResumeSource(str(other)) if source else None
    error = refusal(make_job(checkpoint_path=str(own), resume=mode, resume_from=source_of), saved=40)
    assert error.reason == "CheckpointGone"
    assert str(error) == (
        f"checkpoint.path {own} has no complete checkpoint of this job, which had saved step 40 there: restore that "
        "folder; to start over, create the job again, or use another checkpoint.path"
    )
    assert (own / "global_step_4").is_dir()


def test_what_cannot_be_read_is_not_gone_and_another_attempt_may_find_it(make_job: MakeJob, own: Path) -> None:
    (make_step(own, 40, complete=False) / "data.pt").symlink_to("/proc/self/mem")
    with pytest.raises(OSError, match=r"global_step_40/data\.pt") as caught:
        choose(make_job(checkpoint_path=str(own)), saved=40)
    assert from_error(caught.value).exit_code == ExitCode.FAILED


def test_while_a_step_is_left_the_job_continues_from_it(make_job: MakeJob, own: Path) -> None:
    make_step(own, 20)
    assert choose(make_job(checkpoint_path=str(own)), saved=40).step == 20
    never = make_job(checkpoint_path=str(own), resume=ResumeMode.NEVER)
    assert refusal(never, saved=40).reason == "CheckpointGone"  # somebody else's
    (own / ".begun").write_text(never.uid)
    assert choose(never, saved=40).step == 20
    assert choose(make_job(), saved=40).folder is None


def test_another_jobs_checkpoint_is_taken_only_as_long_as_there_is_no_own(
    make_job: MakeJob, own: Path, other: Path
) -> None:
    theirs = make_step(other, 10)
    job = make_job(checkpoint_path=str(own), resume_from=ResumeSource(str(other)), resume=ResumeMode.REQUIRED)
    assert choose(job).folder == theirs
    mine = make_step(own, 2)
    assert choose(job).folder == mine


def test_the_source_may_name_a_step_and_else_its_tracker_decides(make_job: MakeJob, own: Path, other: Path) -> None:
    for step in (10, 20, 30):
        make_step(other, step)

    def step_of(source: ResumeSource) -> int:
        return choose(make_job(checkpoint_path=str(own), resume_from=source)).step

    assert step_of(ResumeSource(str(other), 10)) == 10
    assert step_of(ResumeSource(str(other))) == 30
    (other / TRACKER_FILE).write_text("20")
    assert step_of(ResumeSource(str(other))) == 20
    (other / TRACKER_FILE).write_text("25")
    assert step_of(ResumeSource(str(other))) == 30


def test_a_step_that_is_not_there_names_those_that_are(make_job: MakeJob, own: Path, other: Path) -> None:
    for step in (10, 20):
        make_step(other, step)
    make_step(other, 30, complete=False)
    source = ResumeSource(str(other), 30)
    error = refusal(make_job(checkpoint_path=str(own), resume_from=source))
    assert str(error) == f"checkpoint.from.step: {other} has no complete step 30; the complete steps are 10, 20"


def test_many_steps_are_listed_from_their_end(make_job: MakeJob, own: Path, other: Path) -> None:
    for step in range(1, 12):
        make_step(other, step)
    error = refusal(make_job(checkpoint_path=str(own), resume_from=ResumeSource(str(other), 12)))
    assert str(error).endswith("the last complete steps are 4, 5, 6, 7, 8, 9, 10, 11")


def test_an_empty_or_absent_source_is_no_reason_to_begin_at_0(make_job: MakeJob, own: Path, other: Path) -> None:
    error = refusal(make_job(checkpoint_path=str(own), resume_from=ResumeSource(str(other))))
    assert str(error) == f"checkpoint.from: {other} has no complete checkpoint (global_step_<n>)"
    absent = other / "absent"
    error = refusal(make_job(checkpoint_path=str(own), resume_from=ResumeSource(str(absent))))
    assert str(error) == f"checkpoint.from: {absent} is not a folder of this pod"


def test_the_last_step_of_a_source_may_be_evaluated(make_job: MakeJob, own: Path, other: Path) -> None:
    made = make_step(other, 40)
    job = make_job(checkpoint_path=str(own), resume_from=ResumeSource(str(other)), total_steps=40)
    assert choose(job, only_evaluates=True).folder == made


def test_a_source_beyond_the_last_step_is_refused(make_job: MakeJob, own: Path, other: Path) -> None:
    make_step(other, 40)
    error = refusal(make_job(checkpoint_path=str(own), resume_from=ResumeSource(str(other)), total_steps=40))
    assert "step 40 is not before trainer.steps 40" in str(error)


def test_never_sets_earlier_steps_aside_and_deletes_nothing(make_job: MakeJob, own: Path) -> None:
    make_step(own, 4)
    make_step(own, 6, complete=False)
    (own / TRACKER_FILE).write_text("4")
    start = choose(make_job(checkpoint_path=str(own), resume=ResumeMode.NEVER))
    aside = own / "set-aside-by-sums-uid01-1-attempt-3"
    assert start.folder is None
    assert str(aside) in start.message
    assert sorted(entry.name for entry in own.iterdir()) == [".begun", ".owner", aside.name]
    assert sorted(entry.name for entry in aside.iterdir()) == ["global_step_4", "global_step_6", TRACKER_FILE]
    assert (aside / "global_step_4" / "actor" / "model_world_size_2_rank_1.pt").exists()


def test_what_attempts_have_left_on_its_way_aside_is_set_aside_with_the_rest(make_job: MakeJob, own: Path) -> None:
    make_step(own / ".aside-a", 4)
    make_step(own / ".aside-b", 4, devices=3)
    make_step(own, 6)
    choose(make_job(checkpoint_path=str(own), resume=ResumeMode.NEVER))
    aside = own / "set-aside-by-sums-uid01-1-attempt-3"
    names = ["global_step_4", "global_step_4.aside-b", "global_step_6"]
    assert sorted(entry.name for entry in aside.iterdir()) == names
    assert [len(list((aside / name / "actor").iterdir())) for name in names] == [6, 9, 6]
    assert sorted(entry.name for entry in own.iterdir()) == [".begun", ".owner", aside.name]


def test_never_with_nothing_to_set_aside_makes_no_folder_for_it(make_job: MakeJob, own: Path) -> None:
    (own / TRACKER_FILE).write_text("4")
    choose(make_job(checkpoint_path=str(own), resume=ResumeMode.NEVER))
    choose(make_job(resume=ResumeMode.NEVER))
    (retired,) = own.glob(".retired-*")
    assert sorted(entry.name for entry in own.iterdir()) == [".begun", ".owner", retired.name]


def test_a_tracker_without_its_step_is_not_left_to_a_run_that_may_come_to_that_number(
    make_job: MakeJob, own: Path
) -> None:
    (own / TRACKER_FILE).write_text("4")
    assert choose(make_job(checkpoint_path=str(own))).folder is None
    assert not (own / TRACKER_FILE).exists()


def test_never_is_for_what_was_before_the_job_and_not_for_its_own_restarts(make_job: MakeJob, own: Path) -> None:
    make_step(own, 4)
    job = make_job(checkpoint_path=str(own), resume=ResumeMode.NEVER)
    assert choose(job).folder is None
    make_step(own, 6)
    assert choose(job).step == 6
    (own / ".begun").write_text("another job")
    assert choose(job).folder is None


@pytest.mark.parametrize("tracker", ["20", "10", None])
def test_a_step_that_lost_a_part_is_passed_over_and_reported(
    make_job: MakeJob, own: Path, tracker: str | None, capsys: pytest.CaptureFixture[str]
) -> None:
    whole, cut = make_step(own, 10), make_step(own, 20)
    (cut / "actor" / "model_world_size_2_rank_1.pt").write_bytes(b"")
    if tracker is not None:
        (own / TRACKER_FILE).write_text(tracker)
    start = choose(make_job(checkpoint_path=str(own)), saved=20)
    assert (start.folder, start.step, start.message) == (whole, 10, f"the run resumes from step 10 in {own}")
    assert (own / TRACKER_FILE).read_text() == "10"
    said = f"rljob: {own}: step 20 has missing or truncated files: actor/model_world_size_2_rank_1.pt; it is skipped\n"
    assert capsys.readouterr().err == ("" if tracker == "10" else said)
    steps_and_tracker = ["global_step_10", "global_step_20", TRACKER_FILE]
    assert sorted(entry.name for entry in own.iterdir() if entry.name != ".owner") == steps_and_tracker
    assert (cut / "actor" / "model_world_size_2_rank_1.pt").exists()


def test_a_step_that_lost_a_part_sends_a_run_back_before_it_sends_it_on(make_job: MakeJob, own: Path) -> None:
    for step in (10, 20, 30):
        make_step(own, step)
    (own / TRACKER_FILE).write_text("20")  # set back by hand from 30
    (own / "global_step_20" / "actor" / "model_world_size_2_rank_1.pt").unlink()
    assert choose(make_job(checkpoint_path=str(own))).step == 10
    (own / "global_step_10" / "actor" / "model_world_size_2_rank_1.pt").unlink()
    assert choose(make_job(checkpoint_path=str(own))).step == 30


@pytest.mark.parametrize("fails", [True, False])
@pytest.mark.parametrize("goes", [True, False])
def test_a_step_that_disappears_while_it_is_loaded_is_reported(own: Path, goes: bool, fails: bool) -> None:
    made = make_step(own, 10)
    with contextlib.ExitStack() as stack:
        if goes or fails:
            stack.enter_context(pytest.raises(StartGoneError if goes else KeyError, match=r"global_step_10|optim"))
        with resume.loading(made):
            if goes:
                (made / "data.pt").unlink()
            if fails:
                raise KeyError("optim")
    with resume.loading(None):
        pass


@pytest.mark.parametrize("saved", [20, None])
def test_where_no_step_is_whole_nothing_starts_again(
    make_job: MakeJob, own: Path, other: Path, saved: int | None
) -> None:
    make_step(other, 5)
    for step in (10, 20):
        for part in (make_step(own, step, devices=6) / "actor").iterdir():
            part.write_bytes(WHOLE_MARK[:-1])
    job = make_job(checkpoint_path=str(own), devices=6, resume_from=ResumeSource(str(other)))
    error = refusal(job, saved=saved)
    names = ", ".join(f"actor/extra_state_world_size_6_rank_{rank}.pt" for rank in range(4))
    assert error.reason == "CheckpointGone"
    assert str(error) == (
        f"checkpoint.path: no step of {own} is whole: step 20 has missing or truncated files: {names} and 14 more; "
        "restore the files, or start from another folder"
    )


def test_a_source_is_passed_over_step_by_step_unless_one_is_asked_for(
    make_job: MakeJob, own: Path, other: Path
) -> None:
    for step in (10, 20, 30):
        make_step(other, step)
    (other / TRACKER_FILE).write_text("20")
    (other / "global_step_20" / "actor" / "model_world_size_2_rank_0.pt").unlink()

    def of(step: int | None = None) -> JobConfig:
        return make_job(checkpoint_path=str(own), resume_from=ResumeSource(str(other), step))

    assert choose(of()).step == 10
    assert (other / TRACKER_FILE).read_text() == "20", "it is another job's"
    assert choose(of(20)).step == 20
    for step in (10, 30):
        (other / f"global_step_{step}" / "actor" / "model_world_size_2_rank_0.pt").write_bytes(b"")
    error = refusal(of())
    assert error.reason == "CheckpointMissing"
    assert str(error).startswith(
        f"checkpoint.from: no step of {other} is whole: step 20 has missing or truncated files: "
    )


def test_another_number_of_devices_is_refused_with_both_numbers(make_job: MakeJob, own: Path) -> None:
    step = make_step(own, 10, devices=4)
    error = refusal(make_job(checkpoint_path=str(own), devices=2))
    assert error.reason == "CheckpointTopology"
    assert str(error).startswith(f"{step / 'actor'} was written by 4 devices, but this job has 2")


def test_a_checkpoint_without_fsdp_shards_is_left_to_its_engine(make_job: MakeJob, own: Path) -> None:
    make_step(own, 10, devices=0)
    assert choose(make_job(checkpoint_path=str(own), devices=2)).step == 10


def test_a_critic_is_needed_where_one_is_resumed(make_job: MakeJob, own: Path) -> None:
    make_step(own, 10)
    error = refusal(make_job(checkpoint_path=str(own)), needs_critic=True)
    assert error.reason == "CheckpointWithoutCritic"
    make_step(own, 12, critic=True)
    (own / TRACKER_FILE).write_text("12")
    assert choose(make_job(checkpoint_path=str(own)), needs_critic=True).step == 12


@pytest.mark.parametrize(
    ("kinds", "name"),
    [(("model", "extra_state"), "optimizer"), (("optim", "extra_state"), "model"), (("model", "optim"), "extra")],
)
def test_a_step_that_was_saved_without_model_or_optimizer_is_skipped(
    make_job: MakeJob, own: Path, kinds: tuple[str, ...], name: str, capsys: pytest.CaptureFixture[str]
) -> None:
    whole = make_step(own, 10)
    make_step(own, 20, kinds=kinds)
    assert choose(make_job(checkpoint_path=str(own))).folder == whole
    assert (own / TRACKER_FILE).read_text() == "10"
    said = f"rljob: {own}: step 20 was saved without actor {name}; it is skipped\n"
    assert capsys.readouterr().err == said


def test_where_no_step_has_the_model_nothing_is_resumed(make_job: MakeJob, own: Path, other: Path) -> None:
    for folder in (own, other):
        made = make_step(folder, 20, devices=4, kinds=("optim", "extra_state"))
    error = refusal(make_job(checkpoint_path=str(own)), saved=20)
    assert error.reason == "CheckpointIncomplete"
    assert str(error) == (
        f"{own / made.name} was saved without actor model, which the run would load; start from another step or "
        "folder. If the model is there, verl.overrides "
        'actor_rollout_ref.actor.checkpoint.load_contents: ["model"] (and the critic\'s) loads only the weights'
    )
    (own / made.name).rename(own / "aside")
    for source in (ResumeSource(str(other)), ResumeSource(str(other), 20)):
        error = refusal(make_job(checkpoint_path=str(own), resume_from=source))
        assert error.reason == "CheckpointIncomplete"
        assert str(error).startswith(f"{made} was saved without actor model")


def test_a_critic_is_resumed_with_its_model_and_optimizer(make_job: MakeJob, own: Path) -> None:
    made = make_step(own, 10, critic=True)
    for file in (made / "critic").glob("optim*"):
        file.unlink()
    assert choose(make_job(checkpoint_path=str(own))).folder == made
    error = refusal(make_job(checkpoint_path=str(own)), needs_critic=True)
    assert error.reason == "CheckpointIncomplete"
    assert "was saved without critic optimizer" in str(error)


def test_a_run_that_loads_the_weights_alone_needs_no_optimizer(make_job: MakeJob, own: Path) -> None:
    made = make_step(own, 10, kinds=("model",))
    assert choose(make_job(checkpoint_path=str(own)), loads=frozenset({contents.MODEL})).folder == made


def with_prompts(made: Path) -> Path:
    """Give a step two prompts in flight."""
    ledger = PromptLedger()
    for row, uid in enumerate("ab"):
        ledger.fetch(uid, 0, row)
    (made / prompt_ledger.QUEUE_FOLDER).mkdir()
    (made / prompt_ledger.CONTROLLER_FILE).write_text("both")
    prompt_ledger.write(made, ledger, {})
    return made


def test_a_step_whose_prompts_do_not_belong_to_it_is_skipped(
    make_job: MakeJob, own: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    job = make_job(checkpoint_path=str(own), mode=TrainerMode.COLOCATE_ASYNC)
    with_prompts(make_step(own, 4))
    newest = with_prompts(make_step(own, 6))
    assert choose(job).step == 6
    (newest / prompt_ledger.CONTROLLER_FILE).write_text("none")
    assert choose(job, only_evaluates=True).step == 6
    assert choose(job).step == 4
    assert (
        "step 6 has files that are not those of its ledger: transfer_queue/controller_state" in capfd.readouterr().err
    )
    assert (own / TRACKER_FILE).read_text() == "4"


def test_prompts_in_flight_are_neither_skipped_nor_expected_where_there_are_none(make_job: MakeJob, own: Path) -> None:
    with_prompts(make_step(own, 4))
    job = make_job(checkpoint_path=str(own))
    error = refusal(job)
    assert error.reason == "CheckpointMode"
    assert str(error) == (
        f"{own}/global_step_4 has 2 prompts in flight, which trainer.mode Sync would skip; keep the mode, or start "
        "another job from this step with checkpoint.from, which begins with the first prompts of data.train again"
    )
    assert choose(job, only_evaluates=True).step == 4
    (own / "global_step_4" / prompt_ledger.LEDGER_FILE).unlink()
    assert choose(job).step == 4
    error = refusal(make_job(checkpoint_path=str(own), mode=TrainerMode.COLOCATE_ASYNC))
    assert "was saved by trainer.mode Sync, and ColocateAsync counts the data differently; keep" in str(error)


@pytest.mark.parametrize("mode", TrainerMode)
@pytest.mark.parametrize("in_flight", [True, False])
def test_another_job_may_start_from_a_step_of_either_mode(
    make_job: MakeJob, own: Path, other: Path, mode: TrainerMode, in_flight: bool
) -> None:
    made = make_step(other, 4)
    if in_flight:
        with_prompts(made)
    assert choose(make_job(checkpoint_path=str(own), mode=mode, resume_from=ResumeSource(str(other)))).folder == made


def test_a_chosen_step_of_a_source_is_not_started_from_without_its_prompts(
    make_job: MakeJob, own: Path, other: Path
) -> None:
    (with_prompts(make_step(other, 4)) / prompt_ledger.CONTROLLER_FILE).unlink()
    source = ResumeSource(str(other), 4)
    error = refusal(make_job(checkpoint_path=str(own), resume_from=source, mode=TrainerMode.COLOCATE_ASYNC))
    assert error.reason == "CheckpointIncomplete"
    assert str(error).endswith(
        "controller_state.pkl is absent, was of 4 bytes with sha256 ff777205; start from another step"
    )
