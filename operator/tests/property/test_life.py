"""The life of one job in the whole world: undisturbed, and with a crash or a fault at every single write."""

from collections.abc import Iterator

import pytest
from builders import small_spec
from doubles.fake import fail_write
from property.world import World

from rljob.cluster.errors import ClusterError, Conflict, HeadUnreachable, OutcomeUnknown, Unavailable
from rljob.cluster.kinds import CONFIG_MAP, JOB, POD, RAY_CLUSTER, SECRET

PLAIN_LIFE = [
    "status",  # the intent
    "create ConfigMap",  # the snapshot
    "create Job",  # the initializer
    "status",  # it is running
    "status",  # it is complete
    "create Secret",
    "create ConfigMap",  # job.json and the rendered cluster
    "create RayCluster",
    "status",  # its uid
    "status",  # no pods yet
    "status",  # the intended submission
    "submit",
    "status",  # it is recorded
    "status",  # the first step
    "status",  # the end
    "delete RayCluster",
]


@pytest.fixture
def world() -> Iterator[World]:
    made = World()
    yield made
    made.close()


def settle(world: World) -> None:
    """Let the operator rest, and let it try once more after what a fault put off."""
    world.settle()
    world.clock.advance(5)
    world.settle()


def live(world: World) -> None:
    """Go from creation to success and clean-up."""
    settle(world)
    world.end_initializers()
    settle(world)
    world.make_ready()
    settle(world)
    world.run_driver(steps=1)
    world.clock.advance(10)
    settle(world)
    world.run_driver(steps=39)
    world.end_driver(0)
    world.clock.advance(60)
    settle(world)


def what_is_left(world: World) -> dict[str, object]:
    """Give what must not depend on crashes: every object's name, the submissions and the status without its times."""
    status = world.status
    return {
        "objects": [
            (o["kind"], o["metadata"]["name"]) for k in (CONFIG_MAP, SECRET, JOB) for o in world.cluster.objects(k)
        ],
        "clusters": world.cluster.objects(RAY_CLUSTER),
        "pods": world.cluster.objects(POD),
        "submissions": [submitted.submission_id for submitted in world.ray.submissions],
        "conditions": [(entry.type, entry.status, entry.reason, entry.message) for entry in status.conditions],
        "attempts": [(a.number, a.submission_id, a.outcome, a.last_step) for a in status.attempts],
        "step": status.progress.step if status.progress else None,
    }


@pytest.fixture(scope="module")
def plain() -> dict[str, object]:
    world = World()
    live(world)
    world.close()
    return what_is_left(world)


def test_a_job_lives_from_creation_to_success_by_exactly_these_writes(world: World) -> None:
    live(world)
    assert world.words == PLAIN_LIFE
    assert world.is_finished
    assert world.status.progress is not None
    assert world.status.progress.summary == "40/40"


def test_a_finished_job_is_never_written_again(world: World) -> None:
    live(world)
    before = world.job
    world.stop_operator()
    world.clock.advance(1_000_000)
    settle(world)
    assert world.job == before
    assert len(world.words) == len(PLAIN_LIFE)


def test_a_submission_whose_answer_was_lost_is_not_sent_again(world: World, plain: dict[str, object]) -> None:
    world.ray.lost_answers.append(HeadUnreachable("the answer was lost"))
    live(world)
    assert what_is_left(world) == plain


def test_the_same_manifest_again_is_no_write(world: World) -> None:
    settle(world)
    before = list(world.words)
    world.edit_spec(small_spec({"initializers": [{"name": "prepare", "command": ["true"]}]}))
    settle(world)
    assert world.words == before


@pytest.mark.parametrize("write", range(1, len(PLAIN_LIFE) + 1))
def test_a_crash_after_any_write_changes_nothing_in_the_end(world: World, plain: dict[str, object], write: int) -> None:
    world.crash_in = write
    live(world)
    assert len(world.crashes) == 1
    assert what_is_left(world) == plain


@pytest.mark.parametrize("write", range(1, len(PLAIN_LIFE)))
@pytest.mark.parametrize(
    ("error", "committed"),
    [
        (Unavailable("the server is down"), False),
        (OutcomeUnknown("the answer was lost"), True),
        (Conflict("the object has been modified"), False),
    ],
    ids=["not-done", "done-but-unanswered", "conflict"],
)
def test_one_failed_write_changes_nothing_in_the_end(
    world: World, plain: dict[str, object], write: int, error: ClusterError, *, committed: bool
) -> None:
    world.cluster.faults.append(fail_write(write, error, committed=committed))
    live(world)
    assert what_is_left(world) == plain
