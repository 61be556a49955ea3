"""What a start is doing, in words."""

from __future__ import annotations

import pytest
from builders import NOW, answer, at
from hypothesis import given
from hypothesis import strategies as st

from rljob.api.status import RLJobStatus
from rljob.api.under_way import StartStatus
from rljob.core.attempts.sanitize import STEP_MAX, plausible
from rljob.core.start_message import WORDS, detail, live, message, words
from rljob.core.transitions.start_stages import with_reported, with_stage
from rljob_runtime.contract import PassedStage, Phase, Progress, StartProgress, StartStage

starts = st.builds(
    StartProgress,
    stage=st.sampled_from([*StartStage, "Unknown", "", "x" * 3000]),
    begun=st.floats(),
    done=st.none() | st.integers(),
    total=st.none() | st.integers(),
    passed=st.lists(
        st.builds(PassedStage, st.sampled_from([*StartStage, "Unknown", "x" * 3000]), st.floats()), max_size=40
    ).map(tuple),
)


def kept_start(start: StartProgress) -> StartProgress | None:
    return plausible(answer({"start": start, "phase": Phase.STARTING}), NOW).start


def test_every_stage_has_words() -> None:
    assert list(WORDS) == list(StartStage)
    assert len({words for words, _ in WORDS.values()}) == len(StartStage)


@pytest.mark.parametrize(
    ("start", "text"),
    [
        (StartProgress("LoadingModel", 0.0, 3, 16), "loading the model: 3 of 16 ranks are done"),
        (StartProgress("LoadingCheckpoint", 0.0), "loading the checkpoint"),
        (StartProgress("StartingReplicas", 0.0, 0, 4), "starting the rollout replicas: 0 of 4 serve"),
        (StartProgress("FirstRollout", 0.0), "first rollout"),
    ],
)
def test_the_status_holds_how_long_a_stage_had_lasted(start: StartProgress, text: str) -> None:
    begun = StartProgress(start.stage, at(-45).timestamp(), start.done, start.total)
    assert message(begun, NOW) == f"{text} (45 s at 2026-01-01T12:00:00Z)"
    assert live(words(begun.stage, detail(begun)), at(-45), at(12)) == f"{text} (57 s)"


@pytest.mark.parametrize("stage", ["Pods", "Training", "WarmingUp", ""])
def test_a_stage_that_no_run_of_this_version_reports_has_no_words(stage: str) -> None:
    assert words(stage, "3 of 4") == ""


@pytest.mark.parametrize(
    ("start", "kept"),
    [
        (StartProgress("WarmingUp", 5.0, 1, 2), None),
        (StartProgress("LoadingModel", float("nan"), 1, 2), None),
        (StartProgress("LoadingModel", -5.0, 1, 2), None),
        (StartProgress("LoadingModel", 5.0, 1, 2), StartProgress("LoadingModel", 5.0, 1, 2)),
        (StartProgress("LoadingModel", 5.0, None, 2), StartProgress("LoadingModel", 5.0)),
        (StartProgress("LoadingModel", 5.0, 1), StartProgress("LoadingModel", 5.0)),
        (StartProgress("LoadingModel", 5.0, 3, 2), StartProgress("LoadingModel", 5.0)),
        (StartProgress("LoadingModel", 5.0, -1, 2), StartProgress("LoadingModel", 5.0)),
        (StartProgress("LoadingModel", 5.0, 1, STEP_MAX + 1), StartProgress("LoadingModel", 5.0)),
        (
            StartProgress("LoadingModel", 5.0, 2, 2, (PassedStage("Unknown", 1.0), PassedStage("LoadingData", 4.0))),
            StartProgress("LoadingModel", 5.0, 2, 2, (PassedStage("LoadingData", 4.0),)),
        ),
        (
            StartProgress("LoadingModel", 5.0, passed=(PassedStage("LoadingData", -4.0),)),
            StartProgress("LoadingModel", 5.0),
        ),
        (StartProgress("LoadingModel", 4e9), StartProgress("LoadingModel", NOW.timestamp())),
    ],
)
def test_only_a_stage_that_this_version_knows_is_kept(start: StartProgress, kept: StartProgress | None) -> None:
    assert kept_start(start) == kept


@given(starts)
def test_whatever_a_pod_reports_is_bounded_and_fits_the_status(start: StartProgress) -> None:
    known = kept_start(start)
    assert known is None or len(message(known, NOW)) < 128
    status = with_reported(with_stage(RLJobStatus(), "Pods", "2026-01-01T11:00:00Z"), known, NOW).start
    assert status is not None
    assert StartStatus.model_validate(status.model_dump()) == status
    assert status.stages[-1].name == status.stage


@pytest.mark.parametrize("phase", sorted(set(Phase) - {Phase.STARTING}))
def test_an_attempt_that_no_longer_starts_has_no_stage(phase: Phase) -> None:
    assert plausible(answer({"start": StartProgress("FirstRollout", 5.0), "phase": phase}), NOW).start is None


def test_an_answer_without_a_stage_says_nothing() -> None:
    older = b'{"attempt":1,"phase":"Starting","podUid":"p"}'
    assert Progress.from_json(older).start is None


def test_an_answer_of_a_newer_image_is_read_without_its_stage() -> None:
    newer = b'{"attempt":1,"phase":"Starting","podUid":"p","start":{"begun":5.0,"heat":3,"stage":"WarmingUp"}}'
    assert plausible(Progress.from_json(newer), NOW).start is None
