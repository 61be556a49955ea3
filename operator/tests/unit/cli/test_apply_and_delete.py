"""`rljob apply` passes on what it has checked, also from standard input; `delete` tells what it deleted as data too."""

from __future__ import annotations

import io
import json
from pathlib import Path

import pytest
import yaml
from builders import Json, small_spec
from corpus.bad import group

from rljob.cli import output
from rljob.cli.arguments import subcommands
from rljob.cli.main import build_parser, main

SCRIPT = """#!/bin/sh
cd "$(dirname "$0")"
echo "$@" >>words
case "$*" in
apply*"--filename -"*) [ ! -f denied ] || { cat denied >&2; exit 1; }; cat >given; cat answer ;;
"get nodes"*) cat nodes ;;
"get persistentvolumeclaims"*) cat claims ;;
get*) cat job ;;
*) cat answer ;;
esac
"""


LOOKS = "get nodes --output json\nget persistentvolumeclaims --output json --namespace default\n"


def job(name: str, spec: Json | None = None) -> str:
    document = {"apiVersion": "rljob.dev/v1alpha1", "kind": "RLJob", "metadata": {"name": name}}
    return yaml.safe_dump({**document, "spec": spec or small_spec()})


@pytest.fixture
def cluster(kubectl: Path) -> Path:
    """A kubectl that keeps what it is given."""
    (kubectl / "kubectl").write_text(SCRIPT)
    (kubectl / "answer").write_text("rljob.rljob.dev/sums created\n")
    (kubectl / "nodes").write_text('{"items": []}')
    (kubectl / "claims").write_text('{"items": []}')
    return kubectl


def test_standard_input_is_checked_and_passed_on_as_it_is(
    cluster: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    text = f"# a comment\n{job('sums')}---\n" + yaml.safe_dump(
        {"apiVersion": "v1", "kind": "ConfigMap", "data": {"ü": "é"}}
    )
    monkeypatch.setattr("sys.stdin", io.StringIO(text))
    assert main(["apply", "-f", "-", "--dry-run"]) == 0
    assert capsys.readouterr().out == "rljob.rljob.dev/sums created\n"
    assert (cluster / "given").read_text(encoding="utf-8") == text
    assert (cluster / "words").read_text() == LOOKS + "apply --filename - --dry-run=server\n"


def test_what_no_node_of_the_cluster_has_is_a_warning(
    cluster: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (cluster / "nodes").write_text('{"items": [{"metadata": {"name": "n"}}]}')
    monkeypatch.setattr("sys.stdin", io.StringIO(job("sums")))
    assert main(["apply", "-f", "-"]) == 0
    assert "sums: warning: spec.accelerator.class: no node of the cluster fits class cpu" in capsys.readouterr().err
    # Most users of a shared cluster may not list its nodes.
    (cluster / "kubectl").write_text(
        '#!/bin/sh\necho "Error from server (Forbidden): nodes is forbidden" >&2\nexit 1\n'
    )
    (cluster / "job.yaml").write_text(job("sums"))
    assert main(["validate", "--cluster", "-f", str(cluster / "job.yaml")]) == 0
    assert capsys.readouterr().err == ""


def test_a_claim_that_neither_the_cluster_nor_the_files_have_is_a_warning(
    cluster: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    names = ("there", "made", "lost")
    volumes = [{"name": name, "persistentVolumeClaim": {"claimName": name}} for name in names]
    (cluster / "claims").write_text(json.dumps({"items": [{"metadata": {"name": "there"}}]}))
    made = yaml.safe_dump({"apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": {"name": "made"}})
    text = job("sums", small_spec(group({"template": {"volumes": volumes}}))) + f"---\n{made}"
    monkeypatch.setattr("sys.stdin", io.StringIO(text))
    assert main(["validate", "--cluster", "-f", "-"]) == 0
    (warning,) = (line for line in capsys.readouterr().err.splitlines() if "Claim" in line)
    field = "spec.workerGroups[trainer].template.volumes[lost]"
    assert (
        f"warning: {field}: the namespace has no PersistentVolumeClaim lost; create it, or correct the name" in warning
    )


def test_a_policy_that_refuses_a_job_makes_it_invalid_and_a_missing_permission_does_not(
    cluster: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    for says, code in (("denied request: devices 16 are more than 8", 1), ("alice cannot create resource rljobs", 0)):
        (cluster / "denied").write_text(f"Error from server (Forbidden): {says}")
        monkeypatch.setattr("sys.stdin", io.StringIO(job("sums")))
        assert main(["validate", "--cluster", "-f", "-"]) == code
        assert ("the API server refuses it" in capsys.readouterr().err) is bool(code)


def test_a_job_that_has_ended_is_named_and_warnings_of_the_api_server_are_passed_on(
    cluster: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (cluster / "kubectl").write_text(
        SCRIPT.replace("cat >given;", "cat >given; echo Warning: old >&2; echo other >&2;")
    )
    (cluster / "answer").write_text("rljob.rljob.dev/sums configured\n")
    (cluster / "job").write_text(json.dumps({"metadata": {"name": "sums"}, "status": {"state": "Failed"}}))
    monkeypatch.setattr("sys.stdin", io.StringIO(job("sums")))
    assert main(["apply", "-f", "-"]) == 0
    warning, ended = capsys.readouterr().err.splitlines()
    assert warning == "Warning: old"
    assert ended.startswith("default/sums has ended as Failed: of its spec, only cleanup, export, evaluation are still")
    assert "`rljob delete default/sums`" in ended
    (cluster / "answer").write_text("rljob.rljob.dev/sums unchanged\npersistentvolumeclaim/sums created\n")
    monkeypatch.setattr("sys.stdin", io.StringIO(job("sums")))
    assert main(["apply", "-f", "-"]) == 0
    assert "has ended as Failed" in capsys.readouterr().err


def test_a_file_and_standard_input_are_applied_together(cluster: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (cluster / "job.yaml").write_text(job("other"))
    (cluster / "answer").write_text("rljob.rljob.dev/sums created\nrljob.rljob.dev/other created\n")
    monkeypatch.setattr("sys.stdin", io.StringIO(job("sums")))
    assert main(["apply", "-f", str(cluster / "job.yaml"), "-f", "-", "-n", "a"]) == 0
    assert (cluster / "words").read_text().endswith("job.yaml --filename - --namespace a\n")
    assert (cluster / "given").read_text() == job("sums")


@pytest.mark.parametrize(
    ("text", "code", "told"),
    [
        ("", 2, "-: contains no RLJob; found nothing"),
        (job("sums", small_spec({"trainer": {"steps": -1}})), 1, "-: sums: spec.trainer.steps"),
        ("a: [", 2, "-: not YAML: line 1"),
    ],
)
def test_what_is_wrong_in_standard_input_is_not_applied(
    cluster: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    text: str,
    code: int,
    told: str,
) -> None:
    monkeypatch.setattr("sys.stdin", io.StringIO(text))
    assert main(["apply", "-f", "-"]) == code
    assert told in capsys.readouterr().err
    assert not (cluster / "words").exists()


def test_a_deleted_job_is_data(cluster: Path, capsys: pytest.CaptureFixture[str]) -> None:
    known = {"metadata": {"name": "sums", "namespace": "a"}, "status": {"state": "Training", "restarts": 2}}
    (cluster / "job").write_text(json.dumps(known))
    (cluster / "answer").write_text('rljob.rljob.dev "sums" deleted\n')
    assert main(["delete", "sums", "-o", "json"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert told == {"namespace": "a", "job": "sums", "state": "Training", "restarts": 2, "deleted": True}
    assert main(["delete", "sums", "-o", "name"]) == 0
    assert capsys.readouterr().out == "rljob.rljob.dev/sums\n"
    # Without -o, the right to read the job is not needed.
    (cluster / "words").unlink()
    assert main(["delete", "sums"]) == 0
    assert capsys.readouterr().out == 'rljob.rljob.dev "sums" deleted\n'
    assert (cluster / "words").read_text() == "delete rljobs.rljob.dev sums --timeout 600s\n"


def test_rendered_objects_are_a_table_too(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "job.yaml").write_text(job("sums"))
    words = ["render", "-f", str(tmp_path / "job.yaml")]
    assert main([*words, "-o", "table"]) == 0
    told = capsys.readouterr()
    assert [line.split() for line in told.out.splitlines()] == [["KIND", "NAME"], ["RayCluster", "sums-00000-1"]]
    assert "state it by --runtime-image" in told.err
    assert main([*words, "-o", "wide"]) == 0
    assert capsys.readouterr().out.splitlines()[1].split() == ["RayCluster", "sums-00000-1", "default", "ray.io/v1"]


@pytest.mark.parametrize("name", [name for name, _ in subcommands(build_parser())])
def test_every_command_with_formats_has_all_of_them(name: str) -> None:
    found = [action for action in dict(subcommands(build_parser()))[name]._actions if "-o" in action.option_strings]
    for action in found:
        choices = set(action.choices or output.FORMS)
        assert choices >= set(output.FORMS)
        assert choices - set(output.FORMS) <= {output.CSV}


def test_logs_of_a_job_that_is_gone_say_how_its_records_are_read(
    cluster: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (cluster / "kubectl").write_text(
        "#!/bin/sh\necho 'Error from server (NotFound): rljobs.rljob.dev \"x\" not found' >&2; exit 1\n"
    )
    for words in ("logs", "steps", "report"):
        assert main([words, "team/x"]) == 4
        told = capsys.readouterr().err
        assert told.endswith(f"is mounted: `rljob {words} x -n team --records FOLDER`\n")
        assert told.count("\n") == 1
