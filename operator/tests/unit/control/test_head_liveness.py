"""Since when a head is asked in vain: its exporter, and Ray's job API with it."""

from __future__ import annotations

from builders import SUBMISSION_ID, answer, at

from rljob.control.head_liveness import Silences
from rljob.core.observed import UNSEEN, RayJob, RayJobState, Silence, Unseen
from rljob.core.requirements import Requirements

ASKED = Requirements(progress=True)
RUNNING = RayJob(SUBMISSION_ID, RayJobState.RUNNING)


def test_a_head_is_mute_from_rays_first_silence_after_its_last_answer_on() -> None:
    silences = Silences()

    def look(now: int, ray_job: RayJob | Unseen | None) -> Silence | None:
        return silences.take("uid", at(now), ASKED, UNSEEN, ray_job)

    assert [look(0, UNSEEN), look(1, UNSEEN)] == [Silence(at(0), at(0))] * 2
    assert [look(2, RUNNING), look(3, None)] == [Silence(at(0), None)] * 2
    assert [look(4, UNSEEN), look(5, UNSEEN)] == [Silence(at(0), at(4))] * 2


def test_an_answer_of_the_exporter_or_no_question_ends_the_silence() -> None:
    for needs, progress in ((ASKED, answer()), (Requirements(), UNSEEN)):
        silences = Silences()
        silences.take("uid", at(0), ASKED, UNSEEN, UNSEEN)
        assert silences.take("uid", at(1), needs, progress, UNSEEN) is None
        assert silences.by_uid == {}
        assert silences.take("uid", at(2), ASKED, UNSEEN, UNSEEN) == Silence(at(2), at(2))
