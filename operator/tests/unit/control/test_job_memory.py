"""What is remembered of a job between its rounds."""

from __future__ import annotations

from builders import SUBMISSION_ID, answer, at, job

from rljob.control.job_memory import CONFIG_MAP_BYTES, REFUSALS_KEPT, JobMemories, JobMemory
from rljob.core.observed import UNSEEN, RayJob, RayJobState, Refusal, RefusalCause, Silence, Unseen

RUNNING = RayJob(SUBMISSION_ID, RayJobState.RUNNING)
FEW = Refusal("Secret", "c1", "exceeded quota, used: 5", RefusalCause.DENIED)
MORE = Refusal("Secret", "c1", "exceeded quota, used: 6", RefusalCause.DENIED)
WRONG = Refusal("Secret", "c1", "no such field", RefusalCause.INVALID)


def test_a_head_is_mute_from_rays_first_silence_after_its_last_answer_on() -> None:
    memory = JobMemory()

    def look(now: int, ray_job: RayJob | Unseen | None) -> Silence | None:
        return memory.hear(at(now), UNSEEN, ray_job, asked=True)

    assert [look(0, UNSEEN), look(1, UNSEEN)] == [Silence(at(0), at(0))] * 2
    assert [look(2, RUNNING), look(3, None)] == [Silence(at(0), None)] * 2
    assert [look(4, UNSEEN), look(5, UNSEEN)] == [Silence(at(0), at(4))] * 2


def test_an_answer_of_the_exporter_or_no_question_ends_the_silence() -> None:
    for asked, progress in ((True, answer()), (False, UNSEEN)):
        memory = JobMemory()
        memory.hear(at(0), UNSEEN, UNSEEN, asked=True)
        assert memory.hear(at(1), progress, UNSEEN, asked=asked) is None
        assert memory.hear(at(2), UNSEEN, UNSEEN, asked=True) == Silence(at(2), at(2))


def test_the_first_refusal_of_a_child_is_kept_until_it_is_permitted() -> None:
    memory, subject = JobMemory(), job()
    for refusal in (FEW, MORE, WRONG):
        memory.refuse(subject, refusal)
    assert memory.refusals(subject) == (FEW, WRONG)
    memory.permit("Secret", "c1")
    memory.refuse(subject, MORE)
    assert memory.refusals(subject) == (MORE,)


def test_an_edited_job_gets_a_new_chance() -> None:
    memory, edited = JobMemory(), job(generation=2)
    memory.refuse(job(), FEW)
    assert memory.refusals(edited) == ()
    memory.refuse(edited, MORE)
    assert memory.refusals(edited) == (MORE,)


def test_refusals_are_bounded() -> None:
    memory = JobMemory()
    for number in range(REFUSALS_KEPT + 1):
        memory.refuse(job(), Refusal("Job", f"j{number}", "quota"))
    assert [each.name for each in memory.refusals(job())] == [f"j{number + 1}" for number in range(REFUSALS_KEPT)]


def test_of_a_job_that_was_never_listed_no_config_map_is_known() -> None:
    memory = JobMemory()
    memory.add_config_map({"metadata": {"name": "c1"}})
    assert memory.config_map("c1") is UNSEEN
    memory.list_config_maps([{"metadata": {"name": "c1"}}])
    assert memory.config_map("c1") == {"metadata": {"name": "c1"}}
    assert memory.config_map("c2") is None
    memory.forget_config_maps()
    assert memory.config_map("c1") is UNSEEN


def test_memories_of_jobs_that_are_gone_are_dropped() -> None:
    memories = JobMemories()
    memories.of(job()).pods_listed = at(0)
    assert memories.of(job()).pods_listed == at(0)
    memories.keep_only(set())
    assert memories.by_uid == {}


def test_a_large_config_map_is_asked_for_again() -> None:
    large = {
        "metadata": {"name": "code"},
        "data": {"a.py": "#" * (CONFIG_MAP_BYTES // 2), "b.py": "#" * (CONFIG_MAP_BYTES // 2)},
    }
    small = {"metadata": {"name": "c1"}, "data": {"a.py": "#" * (CONFIG_MAP_BYTES // 2), "b.py": "#"}}
    memory = JobMemory()
    memory.list_config_maps([large])
    memory.add_config_map(small)
    memory.add_config_map(
        {"metadata": {"name": "wide"}, "data": {"a.py": "#" * (CONFIG_MAP_BYTES // 4) + "\U0001f600"}}
    )
    assert memory.config_map("code") is UNSEEN
    assert memory.config_map("wide") is UNSEEN
    assert memory.config_map("c1") == small
