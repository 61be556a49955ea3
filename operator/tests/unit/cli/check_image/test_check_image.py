"""`rljob check-image`: what it prints and how it exits, for everything that can happen to its pod."""

from __future__ import annotations

import json
import signal
from typing import Any

import pytest
from unit.cli.check_image.conftest import Cluster

from rljob.cli.check_image import check_image, follow, result
from rljob.cli.main import main

IMAGE = "x.example/verl:1"
FOUND = {
    "launchers": {
        "Verl": {"verdict": "degraded", "headline": "degraded", "reasons": ["cann: its release cannot be read"]},
        "Command": {"verdict": "fits", "headline": "fits", "reasons": []},
    },
    "injectsVerl": False,
    "rows": [
        {"subject": "bash", "seen": "/bin/bash", "verdicts": {"Verl": "fits", "Command": "fits"}, "message": ""},
        {"subject": "verl:run", "seen": "there", "verdicts": {"Verl": "fits"}, "message": ""},
        {"subject": "cann", "seen": "absent", "verdicts": {"Verl": "degraded"}, "message": "its release"},
    ],
}
PLAIN: dict[str, Any] = {
    "launchers": {name: {"verdict": "fits", "headline": "fits", "reasons": []} for name in ("Verl", "Command")},
    "rows": [{"subject": "bash", "seen": "/bin/bash", "verdicts": {"Verl": "fits", "Command": "fits"}, "message": ""}],
}


def container(name: str, **state: object) -> dict[str, Any]:
    return {"name": name, "ready": False, "state": state}


def ended(code: int, **fields: object) -> dict[str, Any]:
    return {"phase": "Failed", "containerStatuses": [container("check", terminated={"exitCode": code, **fields})]}


def pulling(name: str, kind: str = "initContainerStatuses") -> dict[str, Any]:
    waiting = {"reason": "ImagePullBackOff", "message": "not found"}
    return {"phase": "Pending", kind: [container(name, waiting=waiting)]}


STARTING = {"phase": "Pending", "containerStatuses": [container("check", waiting={"reason": "PodInitializing"})]}
UNSCHEDULABLE = {
    "phase": "Pending",
    "conditions": [
        {
            "type": "PodScheduled",
            "status": "False",
            "reason": "Unschedulable",
            "message": "0/2 nodes are available: 2 Insufficient cpu.",
        }
    ],
}


@pytest.fixture(autouse=True)
def clock(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let a poll take no time, and a wait as long as it says."""
    passed = [0.0]
    played = follow.Clock(lambda: passed[0], lambda seconds: passed.append(passed.pop() + seconds))
    monkeypatch.setattr(check_image, "Clock", lambda: played)
    monkeypatch.setattr(follow, "POLL_SECONDS", 15.0)


def check(cluster: Cluster, *words: str) -> int:  # noqa: ARG001 - the command asks its kubectl
    return main(["check-image", IMAGE, *words])


def test_the_result_is_a_table_and_the_exit_code_that_of_the_launcher(
    cluster: Cluster, capsys: pytest.CaptureFixture[str]
) -> None:
    cluster.states = [STARTING, ended(3)]
    cluster.log = "a warning of the image {\n" + json.dumps(FOUND, indent=2) + "\nbye"
    assert check(cluster) == 3
    told = capsys.readouterr()
    assert "x.example/verl:1 on node n1, with the runtime of x.example/operator:9" in told.out
    assert "1 seams are as expected" in told.out
    assert "launcher Verl: degraded\n  - cann: its release cannot be read" in told.out
    assert "importing torch_npu and what else a run imports: --deep does" in told.out
    assert "waits for check" in told.err
    assert cluster.calls[-1].startswith("delete pod check-image-")
    assert check(cluster, "--launcher", "Command") == 0


def test_a_deep_check_shows_what_is_imported_and_what_to_install(
    cluster: Cluster, capsys: pytest.CaptureFixture[str]
) -> None:
    refused = {
        "verdict": "refused",
        "headline": "refused",
        "reasons": ["ray: absent"],
        "install": ["ray[default]>=2.52.0"],
    }
    running = {"phase": "Running", "containerStatuses": [container("check", running={})]}
    cluster.states = [running, running, ended(64)]
    found = {**FOUND, "launchers": {**PLAIN["launchers"], "Verl": refused}}
    hidden = "rljob: \x1b[2J (1 of 2)\nrljob: importing vllm.v1 (9 of 99)\nFutureWarning: a warning\n"
    cluster.log = hidden + json.dumps(found, indent=2)
    assert check(cluster, "--deep", "-n", "team") == 64
    told = capsys.readouterr()
    assert told.err.count("rljob: importing vllm.v1 (9 of 99)\n") == 1
    assert "\x1b" not in told.err
    assert "  - ray: absent\n  pip install 'ray[default]>=2.52.0'\n" in told.out
    assert "what else a run imports" not in told.out
    spec = cluster.created["spec"]
    assert spec["activeDeadlineSeconds"] == 1200
    assert spec["containers"][0]["command"][-1].endswith("check-image -o json --deep\n")


def test_the_pod_is_as_the_options_say(cluster: Cluster, capsys: pytest.CaptureFixture[str]) -> None:
    cluster.states, cluster.log = [ended(0)], json.dumps(PLAIN, indent=2)
    options = ["-n", "team", "--timeout", "2m", "--image-pull-secret", "a", "--run-as-user", "7", "-o", "json"]
    assert check(cluster, *options, "--runtime-image", "x.example/mine:1", "--class", "cpu") == 0
    spec = cluster.created["spec"]
    assert (spec["activeDeadlineSeconds"], spec["securityContext"]["runAsUser"]) == (120, 7)
    assert spec["initContainers"][0]["image"] == "x.example/mine:1"
    found = json.loads(capsys.readouterr().out)
    assert (found["image"], found["class"], found["node"], found["notChecked"]) == (IMAGE, "cpu", "n1", [])
    assert all(call.endswith("--namespace team") for call in cluster.calls)


def test_an_image_without_npu_packages_is_refused_for_a_class_with_npus(
    cluster: Cluster, capsys: pytest.CaptureFixture[str]
) -> None:
    cluster.states, cluster.log = [ended(0)], json.dumps(PLAIN, indent=2)
    assert check(cluster, "--class", "atlas-a3") == 64
    assert "class atlas-a3: has NPUs, but the image has none of torch_npu" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("state", "log", "told"),
    [
        (ended(128, reason="StartError", message='exec: "/bin/bash": stat: no such file'), "", "bash: pods start Ray"),
        (ended(97), "", "python: there is no program python on PATH"),
        (ended(98), "Python 3.8.18", "3.8.18"),
    ],
)
def test_an_image_in_which_the_check_cannot_start_is_refused(
    cluster: Cluster, capsys: pytest.CaptureFixture[str], state: dict[str, Any], log: str, told: str
) -> None:
    cluster.states, cluster.log = [state], log
    assert check(cluster) == 64
    assert told in capsys.readouterr().out
    assert cluster.calls[-1].startswith("delete pod")


COPY_FAILED = {"phase": "Failed", "initContainerStatuses": [container("rljob-runtime", terminated={"exitCode": 1})]}


@pytest.mark.parametrize(
    ("states", "told"),
    [
        ([pulling("check", "containerStatuses")], "x.example/verl:1 cannot be pulled"),
        ([pulling("rljob-runtime")], "x.example/operator:9 cannot be pulled"),
        ([UNSCHEDULABLE], "none of 2 nodes can run it: 2 with too little cpu free; the check needs no device"),
        ([STARTING], "did not end within 300 s"),
        ([{"phase": "Failed", "reason": "DeadlineExceeded"}], "allow more with --timeout"),
        ([{"phase": "Failed", "reason": "Evicted", "message": "low on memory"}], "Evicted: low on memory"),
        ([COPY_FAILED], "the runtime cannot be copied from x.example/operator:9"),
        (["Error from server (NotFound): pods"], "was deleted before it ended"),
        (["Unable to connect to the server"], "check that the cluster runs"),
        ([ended(1)], "ended with exit code 1 and without a result"),
        ([ended(255, message="exec /bin/bash: exec format error")], "is not for the CPU architecture of node n1"),
        ([ended(128, reason="StartError", message='exec: "/bin/bash": permission denied')], "permission denied"),
    ],
)
def test_what_keeps_the_check_from_ending_is_named_and_the_pod_is_deleted(
    cluster: Cluster, capsys: pytest.CaptureFixture[str], states: list[Any], told: str
) -> None:
    cluster.states = states
    assert check(cluster) == (6 if "Unable to connect" in str(states) else 2)
    assert told in capsys.readouterr().err
    assert cluster.calls[-1].startswith("delete pod check-image-")


def test_a_problem_or_an_outage_that_passes_ends_nothing(cluster: Cluster) -> None:
    outage = "Unable to connect to the server"
    cluster.states = [UNSCHEDULABLE, outage, pulling("check", "containerStatuses"), STARTING, ended(0)]
    cluster.log = json.dumps(PLAIN, indent=2)
    assert check(cluster) == 0


@pytest.mark.parametrize(
    ("error", "told"),
    [
        ("(Forbidden): pods is forbidden: exceeded quota: team, requested: cpu=1", "ResourceQuota"),
        ("(Forbidden): pods is forbidden: violates PodSecurity: x", "a rule of the cluster refuses it"),
        ('admission webhook "x" denied the request: no', "a rule of the cluster refuses it"),
    ],
)
def test_a_refused_pod_says_who_refuses_it(
    cluster: Cluster, capsys: pytest.CaptureFixture[str], error: str, told: str
) -> None:
    cluster.errors = {"create": f"Error from server {error}"}
    assert check(cluster) == 2
    assert told in capsys.readouterr().err


def test_an_interruption_deletes_the_pod(cluster: Cluster, capsys: pytest.CaptureFixture[str]) -> None:
    cluster.states = ["interrupt"]
    # A shell starts a background process with SIGINT ignored, and its children inherit that.
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        assert check(cluster) == 130
    finally:
        signal.signal(signal.SIGINT, before)
    assert cluster.calls[-1].startswith("delete pod check-image-")
    assert "interrupted" in capsys.readouterr().err


def test_a_pod_that_cannot_be_deleted_is_named(cluster: Cluster, capsys: pytest.CaptureFixture[str]) -> None:
    cluster.states, cluster.log = [ended(0)], json.dumps(PLAIN, indent=2)
    cluster.errors = {"delete": "Unable to connect to the server"}
    assert check(cluster) == 0
    assert "could not be deleted" in capsys.readouterr().err


def test_without_an_operator_its_image_must_be_named(cluster: Cluster, capsys: pytest.CaptureFixture[str]) -> None:
    cluster.errors = {"get deployments": "Error from server (Forbidden): deployments"}
    assert check(cluster) == 5
    assert "may not be listed" in (told := capsys.readouterr().err)
    assert "with --runtime-image" in told


def test_a_pod_that_was_not_created_is_not_reported_as_left_over(
    cluster: Cluster, capsys: pytest.CaptureFixture[str]
) -> None:
    refused = "Error from server (Forbidden): pods is forbidden"
    cluster.errors = {"create": refused, "delete": refused}
    assert check(cluster) == 5
    assert capsys.readouterr().err.count("\n") == 1
    assert cluster.calls[-1].startswith("delete pod check-image-")


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["--timeout", "5"], "'5' must be a time from 1s to 6h"),
        (["--timeout", "7h"], "must be a time from 1s to 6h"),
        (["--run-as-user", "-1"], "--run-as-user"),
        (["--run-as-user", "4294967296"], "must be a user ID"),
    ],
)
def test_wrong_arguments_are_refused(
    cluster: Cluster, capsys: pytest.CaptureFixture[str], words: list[str], told: str
) -> None:
    with pytest.raises(SystemExit) as error:
        check(cluster, *words)
    assert error.value.code == 2
    assert told in capsys.readouterr().err


def test_an_unknown_class_is_refused(cluster: Cluster, capsys: pytest.CaptureFixture[str]) -> None:
    assert check(cluster, "--class", "atlas") == 2
    assert "--class atlas: there is no such class; choose one of" in capsys.readouterr().err


@pytest.mark.parametrize("words", [["X.example/Verl"], [IMAGE, "--runtime-image", "a b"]])
def test_what_is_no_image_is_refused_before_a_pod_is_created(
    cluster: Cluster, capsys: pytest.CaptureFixture[str], words: list[str]
) -> None:
    assert main(["check-image", *words]) == 2
    assert "write [REGISTRY/]NAME[:TAG]" in capsys.readouterr().err
    assert not cluster.created


@pytest.mark.parametrize(
    "change",
    [
        {"rows": {"subject": "bash"}},
        {"rows": {}},
        {"rows": [7]},
        {"rows": [{**PLAIN["rows"][0], "seen": 3}]},
        {"rows": [{**PLAIN["rows"][0], "verdicts": {}}]},
        {"rows": [{**PLAIN["rows"][0], "verdicts": ["fits"]}]},
        {"rows": [{**PLAIN["rows"][0], "verdicts": {"Verl": "great"}}]},
        {"launchers": []},
        {"launchers": {"Verl": PLAIN["launchers"]["Verl"]}},
        {"launchers": {**PLAIN["launchers"], "Other": PLAIN["launchers"]["Verl"]}},
        {"launchers": {**PLAIN["launchers"], "Verl": {"verdict": [], "headline": "", "reasons": []}}},
    ],
)
def test_json_of_another_form_is_no_result(
    cluster: Cluster, capsys: pytest.CaptureFixture[str], change: dict[str, Any]
) -> None:
    cluster.states, cluster.log = [ended(0)], json.dumps({**PLAIN, **change}, indent=2)
    assert check(cluster) == 2
    assert "without a result" in capsys.readouterr().err


def test_deep_json_of_the_image_is_passed_over(cluster: Cluster) -> None:
    cluster.states, cluster.log = [ended(0)], '{\n"a": ' + "[" * 200_000 + "\n" + json.dumps(PLAIN, indent=2)
    assert check(cluster) == 0


def test_texts_of_an_image_do_not_control_the_terminal(cluster: Cluster, capsys: pytest.CaptureFixture[str]) -> None:
    row = {**PLAIN["rows"][0], "seen": "/bin/\x1b[2Jbash"}
    cluster.states, cluster.log = [ended(0)], json.dumps({**PLAIN, "rows": [row]}, indent=2)
    assert check(cluster) == 0
    assert "/bin/\\u001b[2Jbash" in capsys.readouterr().out


def test_lines_of_the_image_around_the_result_do_not_matter_and_are_bounded() -> None:
    plain = json.dumps(PLAIN)
    assert result.find(f"ERROR: ld.so: cannot be preloaded\n{plain}\nbye") == PLAIN
    assert result.find("{\n" * (result.OBJECTS_MAX - 1) + plain) == PLAIN
    assert result.find("{\n" * result.OBJECTS_MAX + plain) is None
