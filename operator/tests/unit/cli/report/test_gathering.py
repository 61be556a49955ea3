"""`rljob report` from each source: the cluster's pods, a mounted volume, a folder of a local run."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
import recorded
import yaml
from builders import Json

from rljob.api.v1alpha1 import RLJobSpec
from rljob.cli.main import main
from rljob.reading.kept_records import parse_listing, reader_pod
from rljob.render.accelerators import BUILT_IN
from rljob.render.names import JobIdentity
from rljob_runtime.contract import ExitCode, JobConfig, Outcome, OverrideValue, Phase, Platform, Progress

KUBECTL = """#!/bin/sh
cd "$(dirname "$0")" && echo "$@" >>words
case "$*" in
*rljobs*) [ -f job ] && cat job || { echo '(NotFound)' >&2; exit 1; } ;;
*configmaps*) cat snapshot ;;
"get pods"*) cat pods ;;
create*) cat >created ;;
wait*) [ ! -f stuck ] || { cat stuck >&2; exit 1; } ;;
exec*) while [ "$1" != -- ]; do shift; done; shift; exec "$@" ;;
esac
"""
HEAD: Json = {
    "metadata": {
        "name": "head",
        "creationTimestamp": "2026",
        "ownerReferences": [{"kind": "RayCluster", "name": "quickstart-29ae8-1", "uid": "c", "controller": True}],
    },
    "status": {"phase": "Running"},
}


@pytest.fixture
def cluster(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A kubectl with the recorded job and its volume, in which exec really runs the command."""
    (tmp_path / "kubectl").write_text(KUBECTL)
    (tmp_path / "kubectl").chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    logs = tmp_path / "logs"
    attempt = logs / "quickstart-29ae8-1" / "attempt-1"
    attempt.mkdir(parents=True)
    shutil.copy(recorded.FOLDER / "steps.jsonl", attempt)
    recorded.write_samples(attempt)
    other = logs / "quickstart-other-1" / "attempt-1"
    other.mkdir(parents=True)
    (other / "steps.jsonl").write_text(recorded.STEPS.replace('"step": 40', '"step": 99'))
    evaluation = logs / "quickstart-29ae8-e40-0a1b2-1" / "attempt-1"
    shutil.copytree(other, evaluation)
    put(tmp_path, "job", recorded.manifest("rljob"))
    snapshot = recorded.manifest("snapshot")
    spec = json.loads(snapshot["data"]["spec.json"])
    spec["observability"]["logPath"] = str(logs)
    spec["workerGroups"][0]["template"]["volumeMounts"] = [{"name": "data", "mountPath": str(tmp_path)}]
    spec["head"]["template"]["volumeMounts"] = []
    snapshot["data"]["spec.json"] = json.dumps(spec)
    put(tmp_path, "snapshot", snapshot)
    put(tmp_path, "pods", {"items": []})
    monkeypatch.chdir(tmp_path)
    return tmp_path


def put(folder: Path, name: str, content: object) -> None:
    (folder / name).write_text(json.dumps(content))


def words(folder: Path) -> list[str]:
    return [line.split()[0] for line in (folder / "words").read_text().splitlines()]


def test_after_the_run_a_pod_with_its_volume_is_made_read_and_deleted(
    cluster: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["report", "quickstart"]) == 0
    told = capsys.readouterr().out
    assert told.startswith("report.html (")
    assert told.endswith("steps: 40, attempts: 1)\n")
    assert words(cluster) == ["get", "get", "get", "create", "wait", "exec", "exec", "exec", "delete"]
    pod = json.loads((cluster / "created").read_text())
    assert pod["metadata"]["ownerReferences"][0]["name"] == "quickstart"
    assert "labels" not in pod["metadata"]
    text = (cluster / "report.html").read_text()
    assert f"{cluster}/logs on the job&#x27;s volume" in text
    assert 'data-plot="reward" data-points="40"' in text


def test_while_the_head_lives_it_is_asked(cluster: Path) -> None:
    put(cluster, "pods", {"items": [HEAD]})
    assert main(["report", "quickstart", "-o", "out/of/here.html"]) == 0
    assert words(cluster) == ["get", "get", "get", "exec", "exec", "exec"]
    assert "of pod head" in (cluster / "out/of/here.html").read_text()


def test_a_run_is_printed_in_every_format(cluster: Path, capsys: pytest.CaptureFixture[str]) -> None:
    put(cluster, "pods", {"items": [HEAD]})
    assert main(["report", "quickstart", "-o", "json"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert (told["job"], told["state"], told["steps"]) == ("quickstart", "Succeeded", 40)
    (attempt,) = told["attempts"]
    assert (attempt["number"], attempt["outcome"], attempt["lastStep"]) == (1, "Succeeded", 40)
    assert told["settings"]
    assert main(["report", "quickstart", "-o", "yaml"]) == 0
    assert yaml.safe_load(capsys.readouterr().out).keys() == told.keys()
    assert main(["report", "quickstart", "-o", "name"]) == 0
    assert capsys.readouterr().out == "rljob.rljob.dev/quickstart\n"
    assert main(["report", "quickstart", "-o", "wide"]) == 0
    head, row = capsys.readouterr().out.splitlines()
    assert head.endswith("PLACE")
    assert row.split()[:2] == ["1", "Succeeded"]
    assert not (cluster / "report.html").exists()


def test_two_runs_are_compared_on_one_page(cluster: Path, capsys: pytest.CaptureFixture[str]) -> None:
    root = cluster / ".rljob"
    for name, value, lines in (("sums", "0.1", 40), ("other", "<i>", 20)):
        folder = root / name / "spool" / "attempt-1"
        folder.mkdir(parents=True)
        (folder / "steps.jsonl").write_text("".join(recorded.STEPS.splitlines(keepends=True)[:lines]))
        overrides: dict[str, OverrideValue] = {"trainer.nnodes": 1, "lr": value}
        config = JobConfig(1, "default", name, "uid", "local", 1, Platform.CPU, 1, 2, 1, 40, overrides)
        (root / name / "job.json").write_bytes(config.to_json())
    assert main(["report", "sums", "other", "--local"]) == 0
    assert capsys.readouterr().out == "report.html (sums: 40 steps, other: 20 steps)\n"
    text = (cluster / "report.html").read_text()
    assert 'data-plot="reward" data-points="60"' in text
    assert "<td>lr</td><td>0.1</td><td>&lt;i&gt;</td>" in text
    assert "trainer.nnodes" not in text
    assert main(["report", "sums", "other", "--local", "-o", "json"]) == 2
    assert "a comparison is a page" in capsys.readouterr().err
    assert main(["report", "sums", "other", "--records", str(root / "sums" / "spool")]) == 2
    assert "is the folder of one RayCluster" in capsys.readouterr().err


def test_a_reader_pod_that_does_not_start_is_reported_and_deleted(
    cluster: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (cluster / "stuck").write_text("timed out waiting for the condition")
    assert main(["report", "quickstart"]) == 2
    told = capsys.readouterr().err
    assert "timed out waiting" in told
    assert "--records" in told
    assert words(cluster)[-1] == "delete"


def test_a_job_without_records_is_refused_with_the_fix(cluster: Path, capsys: pytest.CaptureFixture[str]) -> None:
    put(cluster, "snapshot", recorded.manifest("snapshot") | {"data": _without_logs()})
    assert main(["report", "quickstart"]) == 2
    assert "set observability.logPath for the next run, or pass --prometheus URL" in capsys.readouterr().err


def _without_logs() -> Json:
    data: Json = dict(recorded.manifest("snapshot")["data"])
    spec = json.loads(data["spec.json"])
    del spec["observability"]["logPath"]
    return data | {"spec.json": json.dumps(spec)}


def edited(folder: Path, change: Callable[[Json], None]) -> None:
    """Change the spec of the snapshot."""
    snapshot = json.loads((folder / "snapshot").read_text())
    spec = json.loads(snapshot["data"]["spec.json"])
    change(spec)
    snapshot["data"]["spec.json"] = json.dumps(spec)
    put(folder, "snapshot", snapshot)


FOREIGN: dict[str, Json] = {
    "no owner": {"ownerReferences": []},
    "another job": {"ownerReferences": [{"kind": "RLJob", "name": "quickstart", "uid": "u-2", "controller": True}]},
    "not the controller": {
        "ownerReferences": [{"kind": "RLJob", "name": "quickstart", "uid": "29ae823b-3191-403d-959e-d31e1b29eb65"}]
    },
}


@pytest.mark.parametrize("metadata", FOREIGN.values(), ids=FOREIGN.keys())
def test_no_pod_is_made_from_a_snapshot_of_somebody_else(
    metadata: Json, cluster: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    snapshot = json.loads((cluster / "snapshot").read_text())
    put(cluster, "snapshot", snapshot | {"metadata": snapshot["metadata"] | metadata})
    main(["report", "quickstart"])
    assert not (cluster / "created").exists()
    assert "was not frozen by the operator for this RLJob" in capsys.readouterr().out


@pytest.mark.parametrize("immutable", [{"immutable": False}, {"immutable": None}])
def test_no_pod_is_made_from_a_snapshot_that_can_be_changed(immutable: Json, cluster: Path) -> None:
    put(cluster, "snapshot", json.loads((cluster / "snapshot").read_text()) | immutable)
    main(["report", "quickstart"])
    assert not (cluster / "created").exists()


def test_a_snapshot_without_a_valid_spec_is_noted(cluster: Path, capsys: pytest.CaptureFixture[str]) -> None:
    put(cluster, "snapshot", json.loads((cluster / "snapshot").read_text()) | {"data": {"spec.json": "[]"}})
    main(["report", "quickstart"])
    assert "contains no valid spec" in capsys.readouterr().out


def hostile(spec: Json) -> None:
    """Give the job all that would be dangerous with the rights of an administrator."""
    template, head = spec["workerGroups"][0]["template"], spec["head"]["template"]
    template["volumes"] += [{"name": "root", "hostPath": {"path": "/"}}]
    template["volumeMounts"] += [{"name": "root", "mountPath": "/root"}]
    head["volumes"] = [{"name": "keys", "configMap": {"name": "keys"}}]
    head["volumeMounts"] = [{"name": "keys", "mountPath": "/keys"}]
    template["sidecars"] = [{"name": "extra", "image": "x"}]
    spec["network"] = {"mode": "Host"}
    spec["runtime"]["serviceAccountName"] = "powerful"


def test_the_reader_has_nothing_of_the_job_but_the_volume_with_the_records(cluster: Path) -> None:
    edited(cluster, hostile)
    assert main(["report", "quickstart"]) == 0
    pod = json.loads((cluster / "created").read_text())["spec"]
    assert [volume["name"] for volume in pod["volumes"]] == ["data"]
    (container,) = pod["containers"]
    assert [mount["name"] for mount in container["volumeMounts"]] == ["data"]
    assert not {"hostNetwork", "serviceAccountName", "hostPID", "hostIPC", "initContainers"} & pod.keys()
    assert pod["automountServiceAccountToken"] is False


@pytest.mark.parametrize(
    "source", [{"hostPath": {"path": "/"}}, {"emptyDir": {}}, {"configMap": {"name": "c"}}], ids=lambda s: next(iter(s))
)
def test_records_on_another_kind_of_volume_make_no_pod(
    source: Json, cluster: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    def moved(spec: Json) -> None:
        spec["workerGroups"][0]["template"]["volumes"] = [{"name": "data", **source}]

    edited(cluster, moved)
    assert main(["report", "quickstart"]) == 2
    assert "creates no pod with a volume of another kind" in capsys.readouterr().err
    assert not (cluster / "created").exists()


def test_a_deeper_mount_with_the_records_is_the_one(cluster: Path) -> None:
    def deeper(spec: Json) -> None:
        head = spec["head"]["template"]
        head["volumes"] = [{"name": "logs", "nfs": {"server": "s", "path": "/logs"}}]
        head["volumeMounts"] = [{"name": "logs", "mountPath": spec["observability"]["logPath"]}]

    edited(cluster, deeper)
    assert main(["report", "quickstart"]) == 0
    pod = json.loads((cluster / "created").read_text())["spec"]
    assert [volume["name"] for volume in pod["volumes"]] == ["logs"]


@pytest.mark.parametrize(
    "owners",
    [
        [],
        [{"kind": "Job", "name": "quickstart-29ae8-1", "uid": "c", "controller": True}],
        [{"kind": "RayCluster", "name": "other-12345-1", "uid": "c", "controller": True}],
        [{"kind": "RayCluster", "name": "quickstart-29ae8-1", "uid": "c"}],
    ],
)
def test_a_pod_with_the_labels_of_the_head_is_not_entered(owners: list[Json], cluster: Path) -> None:
    faked = {**HEAD, "metadata": {**HEAD["metadata"], "ownerReferences": owners}}
    put(cluster, "pods", {"items": [faked]})
    assert main(["report", "quickstart"]) == 0
    assert "create" in words(cluster)


def test_output_of_a_pod_that_is_no_listing_is_passed_over() -> None:
    good = '{"step": 2, "time": 1.0, "metrics": {}}'
    text = f"junk\n==> attempt x\n{good}\n==> attempt {'9' * 5000}\n{good}\n==> attempt 3\n{good}\n"
    assert [(record.attempt, record.step) for record in parse_listing(text)] == [(3, 2)]


def test_the_reader_mounts_the_volumes_read_only_and_holds_no_device() -> None:
    spec = RLJobSpec.model_validate_json(recorded.manifest("snapshot")["data"]["spec.json"], context=BUILT_IN)
    pod = reader_pod(JobIdentity("default", "quickstart", "29ae8"), spec, "reader")["spec"]
    (container,) = pod["containers"]
    assert container["volumeMounts"] == [{"name": "data", "mountPath": "/data", "readOnly": True}]
    assert [volume["name"] for volume in pod["volumes"]] == ["data"]
    assert set(container["resources"]["requests"]) == {"cpu", "memory"}
    assert pod["activeDeadlineSeconds"] > 0


@pytest.mark.parametrize("folder", ["logs", "logs/quickstart-29ae8-1"])
def test_a_mounted_volume_needs_no_pod(cluster: Path, folder: str) -> None:
    assert main(["report", "quickstart", "--records", folder]) == 0
    assert words(cluster) == ["get", "get"]
    assert 'data-plot="reward" data-points="40"' in (cluster / "report.html").read_text()


def test_a_job_that_is_gone_is_reported_from_its_volume(cluster: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (cluster / "job").unlink()
    assert main(["report", "quickstart", "--records", "logs"]) == 0
    assert "note: The RLJob no longer exists in the cluster" in capsys.readouterr().out
    text = (cluster / "report.html").read_text()
    assert 'data-plot="timeline" data-points="40"' in text
    assert main(["report", "quickstart"]) == 4


def test_two_jobs_of_one_name_on_a_volume_are_not_mixed(cluster: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (cluster / "job").unlink()
    shutil.copytree(cluster / "logs/quickstart-29ae8-1", cluster / "logs/quickstart-00000-1")
    assert main(["report", "quickstart", "--records", "logs"]) == 2
    assert "quickstart-00000, quickstart-29ae8" in capsys.readouterr().err


def test_a_folder_without_records_is_an_error(cluster: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["report", "quickstart", "--records", "nowhere"]) == 2
    assert "no such folder" in capsys.readouterr().err
    (cluster / "job").unlink()
    assert main(["report", "unknown", "--records", "logs"]) == 2
    assert "contains no record of it" in capsys.readouterr().err


def test_a_job_that_has_not_begun_has_a_report_without_plots(cluster: Path, capsys: pytest.CaptureFixture[str]) -> None:
    job = recorded.manifest("rljob")
    put(cluster, "job", job | {"status": {"state": "Pending"}})
    assert main(["report", "quickstart"]) == 0
    assert "its configuration is not fixed yet" in capsys.readouterr().out
    assert 'data-plot="reward" data-points="0"' in (cluster / "report.html").read_text()


def test_fields_say_who_set_them_and_which_were_edited_since(cluster: Path) -> None:
    job = recorded.manifest("rljob")
    job["spec"]["trainer"]["learningRate"] = "1e-4"
    put(cluster, "job", job)
    assert main(["report", "quickstart", "--records", "logs"]) == 0
    text = (cluster / "report.html").read_text()
    assert "<td>trainer.learningRate</td><td>1e-3</td><td>job, edited since</td>" in text
    # The other differences are the path of the records and the mount, which the fixture has changed.
    assert text.count("edited since") == 3
    assert "<td>trainer.steps</td><td>40</td><td>job</td>" in text
    assert "<td>rollout.engine</td><td>vLLM</td><td>default</td>" in text


def test_what_the_run_reported_is_shown_and_escaped(cluster: Path) -> None:
    job = recorded.manifest("rljob")
    job["status"]["notes"] = ["3 of 5 prompts <b>of data.train</b> were left out"]
    put(cluster, "job", job)
    assert main(["report", "quickstart", "--records", "logs"]) == 0
    shown = "<p>3 of 5 prompts &lt;b&gt;of data.train&lt;/b&gt; were left out</p>"
    assert shown in (cluster / "report.html").read_text()


def test_evaluations_of_checkpoints_are_a_table_and_data(cluster: Path, capsys: pytest.CaptureFixture[str]) -> None:
    job = recorded.manifest("rljob")
    entry = {"name": "quickstart-29ae8-e20", "step": 20, "state": "Succeeded", "score": "0.8125"}
    lost = {"name": "quickstart-29ae8-e40", "step": 40, "state": "Failed", "message": "it was <deleted>"}
    job["status"]["evaluation"] = {"steps": [entry, lost]}
    put(cluster, "job", job)
    assert main(["report", "quickstart"]) == 0
    text = (cluster / "report.html").read_text()
    assert "<h2>Evaluations</h2>" in text
    assert '<td class="n">0.8125</td><td>quickstart-29ae8-e20</td>' in text
    assert "it was &lt;deleted&gt;" in text
    capsys.readouterr()
    assert main(["report", "quickstart", "-o", "json"]) == 0
    shown = json.loads(capsys.readouterr().out)["evaluations"]
    assert shown[0] == {**entry, "step": "20", "message": ""}


def test_attempts_that_the_status_lists_no_more_are_reckoned_from_the_records(cluster: Path) -> None:
    job = recorded.manifest("rljob")
    (attempt,) = job["status"]["attempts"]
    job["status"]["attempts"] = [attempt | {"number": 2, "submittedTime": "2026-11-22T04:31:00Z", "endTime": None}]
    put(cluster, "job", job)
    assert main(["report", "quickstart", "--records", "logs"]) == 0
    text = (cluster / "report.html").read_text()
    assert "attempt 1: with an unknown outcome, last step 40" in text
    assert "<b>2</b><span>attempts</span>" in text


def test_a_local_run_is_reported_from_its_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    root = tmp_path / ".rljob" / "sums"
    lines = recorded.STEPS.splitlines(keepends=True)
    for number, own in ((1, lines[:20]), (2, lines[15:])):
        folder = root / "spool" / f"attempt-{number}"
        folder.mkdir(parents=True)
        (folder / "steps.jsonl").write_text("".join(own))
    config = JobConfig(1, "default", "sums", "uid", "local", 1, Platform.CPU, 1, 2, 1, 40, {"trainer.nnodes": 1})
    (root / "job.json").write_bytes(config.to_json())
    end = Outcome(ExitCode.DONE, "Completed", "trained 40 steps", last_step=40)
    moment = recorded.run().records[0].time
    progress = Progress(
        "pod", Phase.ENDED, 2, start_time=moment, observed_time=moment + 300, outcome=end, notes=("3 left out",)
    )
    (root / "spool" / "current.json").write_bytes(progress.to_json())
    assert main(["report", "sums", "--local"]) == 0
    text = (tmp_path / "report.html").read_text()
    assert 'data-plot="timeline" data-points="45"' in text
    assert "Succeeded (Completed)" in text
    assert "<p>3 left out</p>" in text
    assert "<td>trainer.nnodes</td><td>1</td>" in text
    assert main(["report", "sums", "--workdir", str(tmp_path)]) == 2


@pytest.mark.parametrize("where", [[], ["--records", "logs"]], ids=["in a pod", "in a folder"])
def test_answers_are_read_where_the_records_are(
    where: list[str], cluster: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["samples", "quickstart", "--step", "20", *where]) == 0
    assert "  prompt  4+4=\n" in capsys.readouterr().out
    assert words(cluster).count("exec") == (0 if where else 2)
    assert main(["report", "quickstart", *where]) == 0
    assert "<h2>Answers of the model</h2>" in (cluster / "report.html").read_text()
