"""The measurements are correct: waiting times, requests and their owners, processes, settings, virtual heads."""

from __future__ import annotations

import json
import os
import re
from dataclasses import replace
from pathlib import Path

import pytest

from rljob_runtime.contract import ExitCode, Outcome, Phase
from tests.cluster.paths import State
from tests.scale import report
from tests.scale.figures import Request, Traffic, buckets, quantile, series, total, traffic, usage
from tests.scale.heads import Head
from tests.scale.objects import nodes, rayjobs, rljobs
from tests.scale.plane import KUBERAY, OPERATOR, ROOT, Plane, take_network
from tests.scale.plays import ENDLESS, START_SECONDS, Book, Failure, Play, Run
from tests.scale.run import Outcome as Side
from tests.scale.settings import Settings, read_settings

PAGE = """
# TYPE waited histogram
waited_bucket{le="0.1"} 50.0
waited_bucket{le="1.0"} 90.0
waited_bucket{le="+Inf"} 100.0
waited_count 100.0
"""


def request(user: str, verb: str, resource: str, **fields: object) -> Request:
    known = {"group": "", "name": "x", "time": 10.0, "code": 201} | fields
    return Request(user=user, verb=verb, resource=resource, **known)  # type: ignore[arg-type]


def test_a_quantile_lies_linearly_within_its_bucket() -> None:
    waited = buckets(PAGE, "waited")
    assert quantile(0.5, waited) == pytest.approx(0.1)
    assert quantile(0.7, waited) == pytest.approx(0.1 + 0.9 / 2)


def test_waits_of_several_lanes_are_added_up_or_distinguished() -> None:
    page = 'waited_bucket{lane="a",le="1.0"} 2.0\nwaited_bucket{lane="b",le="1.0"} 3.0\n'
    assert buckets(page, "waited") == {1.0: 5.0}
    assert buckets(page, "waited", 'lane="b"') == {1.0: 3.0}
    page += 'waited_bucket{lane="c",le="1.0"} 7.0\n'
    assert buckets(page, "waited", some=('lane="a"', 'lane="c"')) == {1.0: 9.0}


def test_series_are_the_lines_that_are_no_comments() -> None:
    assert series(PAGE) == 4


def test_a_total_is_of_all_label_sets_of_that_metric_alone() -> None:
    page = 'depth{name="a"} 2\ndepth{name="b"} 1.5\ndepth_most 7\n# depth 9\nbare 4\n'
    assert total(page, "depth") == 3.5
    assert total(page, "bare") == 4
    assert total(page, "none") == 0


def test_a_quantile_beyond_the_last_bound_is_that_bound() -> None:
    assert quantile(0.99, buckets(PAGE, "waited")) == 1.0


def test_a_quantile_of_a_span_leaves_out_what_was_before() -> None:
    before = {0.1: 50.0, 1.0: 50.0, float("inf"): 50.0}
    assert quantile(0.5, buckets(PAGE, "waited"), before) == pytest.approx(0.1 + 0.9 * 25 / 40)
    assert quantile(0.5, before, before) is None


@pytest.mark.parametrize(
    ("seen", "own"),
    [
        (request(KUBERAY, "update", "rayjobs/status"), True),
        (request(KUBERAY, "create", "rayclusters"), True),
        (request(KUBERAY, "create", "events", about="RayJob"), True),
        (request(KUBERAY, "create", "events", about="RayCluster"), False),
        (request(KUBERAY, "update", "rayclusters/status"), False),
        (request(KUBERAY, "create", "pods"), False),
        (request(OPERATOR, "create", "events", about="RLJob"), True),
        (request(OPERATOR, "update", "leases", group="coordination.k8s.io"), False),
    ],
    ids=lambda value: f"{value.user} {value.verb} {value.resource} {value.about}" if isinstance(value, Request) else "",
)
def test_a_request_belongs_to_the_jobs_controller_or_to_that_of_clusters(seen: Request, *, own: bool) -> None:
    assert seen.about_a_job is own


def test_a_write_that_was_refused_is_none() -> None:
    seen = Traffic((request(OPERATOR, "create", "pods"), request(OPERATOR, "create", "pods", code=409)))
    assert seen.writes() == {"create pods": 1}


def test_each_job_is_charged_until_it_is_ready() -> None:
    about = {"run-0001": 10.0, "run-0001-0a1b2-1": 9.0, "run-0002-0c3d4-1": 11.0, "run-0003": 1.0, "kuberay": 1.0}
    blank = request(OPERATOR, "create", "things")
    seen = Traffic(tuple(replace(blank, subject=name, time=moment) for name, moment in about.items()))
    kept = seen.until({"run-0001": 9.5, "run-0002": 11.0})
    assert [found.subject for found in kept.requests] == ["run-0001-0a1b2-1", "run-0002-0c3d4-1"]


def test_the_audit_log_is_read_without_watches_and_without_its_unfinished_line(tmp_path: Path) -> None:
    entry = {
        "user": {"username": OPERATOR},
        "verb": "create",
        "objectRef": {"resource": "events", "apiGroup": "events.k8s.io"},
        "requestObject": {"regarding": {"kind": "RLJob", "name": "run-0001"}},
        "requestReceivedTimestamp": "2026-01-01T12:00:00.250000Z",
        "responseStatus": {"code": 201},
    }
    status = {"objectRef": {"resource": "rljobs", "subresource": "status", "name": "a"}, "verb": "patch"}
    status["requestObject"] = {}
    log = tmp_path / "audit.log"
    lines = [json.dumps(line) for line in (entry, entry | {"verb": "watch"}, entry | status)]
    log.write_text("\n".join([*lines, lines[0][:50]]))
    seen = traffic(log).requests
    assert [(item.verb, item.resource, item.about, item.subject) for item in seen] == [
        ("create", "events", "RLJob", "run-0001"),
        ("patch", "rljobs/status", "", "a"),
    ]
    start = seen[0].time
    assert len(traffic(log).between(start, start + 1)) == 2
    assert len(traffic(log).between(start - 1, start)) == 0


def test_the_resource_use_of_a_process_is_read() -> None:
    used = usage(os.getpid())
    assert used.cpu_seconds > 0
    assert used.peak_rss_mib >= used.rss_mib > 1


def test_settings_come_from_the_environment_and_refuse_what_is_no_number() -> None:
    settings = read_settings({"SCALE_JOBS": "30", "SCALE_WORKERS": "2", "SCALE_STEP_SECONDS": ""})
    assert (settings.jobs, settings.workers, settings.pods) == (30, 2, 90)
    assert settings.jobs_per_second is None
    assert read_settings({"SCALE_JOBS_PER_SECOND": "3"}).jobs_per_second == 3
    with pytest.raises(SystemExit, match="SCALE_JOBS is '-1'"):
        read_settings({"SCALE_JOBS": "-1"})


def test_nodes_have_room_for_every_worker_and_every_head() -> None:
    for settings in (Settings(jobs=1000, workers=19), Settings(jobs=1000, workers=1), Settings(jobs=1, workers=1)):
        made = list(nodes(settings))
        devices = sum(int(node["status"]["allocatable"]["huawei.com/Ascend910"]) for node in made)
        assert devices >= settings.jobs * settings.workers * 2
        assert len(made) * 110 >= settings.pods


def test_both_sides_ask_for_the_same_pods() -> None:
    settings = Settings(jobs=2, workers=3)
    ray_job = next(iter(rayjobs(settings)))
    group = ray_job["spec"]["rayClusterSpec"]["workerGroupSpecs"][0]
    assert group["replicas"] == 3
    assert next(iter(rljobs(settings)))["spec"]["workerGroups"][0]["nodes"] == 3
    assert [job["metadata"]["name"] for job in rayjobs(settings)] == ["run-0000", "run-0001"]


def test_a_virtual_run_continues_with_time_and_never_reports_another_pods_name() -> None:
    head = Head("127.64.0.1", "uid-1", "token")
    assert head.progress(0.0).phase is Phase.IDLE
    head.runs["run-1"] = Run("uid-1", "run-1", 1, 100.0, Play(ENDLESS, 10.0), head.book)
    began = 100.0 + START_SECONDS
    assert head.progress(began + 9).phase is Phase.STARTING
    progress = head.progress(began + 25)
    assert (progress.pod_uid, progress.submission_id, progress.step, progress.observed_time) == (
        "uid-1",
        "run-1",
        2,
        began + 20,
    )


def test_a_virtual_run_that_is_cut_off_is_taken_up_where_it_was() -> None:
    book, play = Book(), Play(5, 10.0)
    Run("uid-1", "run-1", 1, 0.0, play, book).progress(START_SECONDS + 35)
    progress = Run("uid-2", "run-2", 2, 100.0, play, book).progress(100 + START_SECONDS + 20)
    assert (progress.resumed_from_step, progress.step, progress.phase) == (3, 5, Phase.ENDED)
    assert progress.outcome == Outcome(0, "Completed", "trained 5 steps", last_step=5)


def test_a_virtual_run_fails_once_as_requested() -> None:
    book, play = Book(), Play(4, 10.0, Failure(ExitCode.FAILED, at_step=2))
    first = Run("uid-1", "run-1", 1, 0.0, play, book)
    assert first.progress(START_SECONDS + 15).outcome is None
    for _ in range(2):
        outcome = first.progress(START_SECONDS + 99).outcome
        assert outcome is not None
        assert (outcome.exit_code, outcome.reason, outcome.last_step) == (1, "RunFailed", 2)
    again = Run("uid-1", "run-2", 2, 200.0, play, book).progress(200 + START_SECONDS + 99).outcome
    assert again is not None
    assert (again.exit_code, again.last_step) == (0, 4)


def test_a_virtual_run_that_is_asked_to_stop_ends_after_its_step() -> None:
    run = Run("uid-1", "run-1", 1, 0.0, Play(9, 10.0), Book())
    run.stop(START_SECONDS + 25)
    outcome = run.progress(START_SECONDS + 25).outcome
    assert outcome is not None
    assert (outcome.exit_code, outcome.last_step) == (ExitCode.STOPPED, 2)


def test_two_planes_of_a_machine_have_pods_of_their_own_addresses(tmp_path: Path) -> None:
    with take_network() as one, take_network() as other:
        networks = [Plane(State(tmp_path, tmp_path), 0, 0, mark).pod_network for mark in (one, other)]
    assert networks[0] != networks[1]
    assert all(re.fullmatch(r"127\.\d+\.0\.0/16", network) for network in networks)


def test_the_report_is_written_below_build_and_names_the_command(tmp_path: Path) -> None:
    settings = Settings(jobs=20, workers=2, jobs_per_second=3)
    side = Side(settings, OPERATOR, [1.0], 1.0, [0.1], [2.0], clusters=20, submissions=[1] * 20)
    written = report.keep(settings, [("RLJob", side)], tmp_path / "scale")
    assert written.name == "report-20x2-3-a-second.md"
    assert "`SCALE_JOBS_PER_SECOND=3 SCALE_JOBS=20 SCALE_WORKERS=2 " in written.read_text()
    assert "| RayClusters | 20 | one per job |" in written.read_text()
    assert report.REPORTS.relative_to(ROOT).parts[0] == "build", "a benchmark must not write to tracked folders"
