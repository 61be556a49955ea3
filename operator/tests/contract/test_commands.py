"""Every command that talks to a cluster, against clusters on which it cannot work: one line with the cause and the fix.

A command is a row of COMMANDS; what it does on a site is the site's row of OUTCOMES, unless EXCEPTIONS has its own.
All commands run on what kubectl answered when it was recorded (`recorded_answers`); a few of them ask the real servers,
whose answers must be the recorded ones. This line records all of them again:

    RLJOB_WRITE_GOLDEN=1 .venv/bin/pytest -m integration operator/tests/contract/test_commands.py
"""

from __future__ import annotations

import asyncio
import json
import os
import secrets
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import pytest
from contract.recorded_answers import REWRITE, SUFFIX, Calls, Player, Recorder, read, write
from contract.wrong_clusters import DELETED, ENDED, FORCED, WAITING, Site, Sites, job_manifest, kubectl_folder, sites

from rljob.cli import bounded_process, completion
from rljob.cli.arguments import subcommands
from rljob.cli.bounded_process import run as ask
from rljob.cli.main import build_parser, main

pytestmark = pytest.mark.timeout(180)
integration = pytest.mark.integration

COMMANDS = {
    "validate": "validate -f recipe.json --cluster",
    "render": "render -f recipe.json --cluster",
    "explain": "explain -f recipe.json --cluster",
    "diff": "diff -f job.json",
    "plan memory": "plan memory -f recipe.json --cluster",
    "plan rollout": "plan rollout -f recipe.json --cluster",
    "plan report": "plan report -f recipe.json --cluster",
    "apply": "apply -f job.json",
    "list": "list",
    "status": f"status {WAITING}",
    "status --watch": f"status {ENDED} --watch",
    "top": "top --once",
    "describe": f"describe {WAITING}",
    "events": f"events {WAITING}",
    "logs": f"logs {WAITING}",
    "logs --follow": f"logs {WAITING} -f",
    "logs --collect": f"logs {WAITING} --collect",
    "steps": f"steps {WAITING}",
    "samples": f"samples {WAITING}",
    "trace": f"trace {WAITING}",
    "dashboard": f"dashboard {WAITING} --port 0",
    "exec": f"exec {WAITING} -- true",
    "exec --tty": f"exec {WAITING} --tty -- true",
    "report": f"report {WAITING}",
    "export": f"export {WAITING} --to /data/export",
    "suspend": f"suspend {WAITING}",
    "resume": f"resume {WAITING}",
    "restart": f"restart {WAITING}",
    "stop": f"stop {WAITING}",
    "delete": f"delete {DELETED} --timeout 20s",
    "delete --force": f"delete {FORCED} --force --timeout 20s",
    "recipes list": "recipes list",
    "recipes show": "recipes show short",
    "recipes diff": "recipes diff short long",
    "quota": "quota",
    "usage": "usage",
    "doctor": "doctor",
    "check-image": "check-image registry.example/a:1",
    "check-image --runtime-image": "check-image registry.example/a:1 --runtime-image registry.example/b:1 --timeout 1s",
    "conformance": "conformance",
    "version": "version",
}
PROGRAMS = Path(sys.executable).parent
WITHOUT_CLUSTER = {"run", "plan experts", "completion"}
COMPLETION = "kubectl_complete"
"""The name of what a completer asks, beside the commands."""


@dataclass(frozen=True)
class Outcome:
    """How a command ends: its exit code, and words of standard error, or of standard output if the command answers."""

    code: int
    words: tuple[str, ...] = ()
    answers: bool = False


def error(code: int, *words: str) -> Outcome:
    return Outcome(code, words)


def answer(code: int, *words: str) -> Outcome:
    return Outcome(code, words, answers=True)


NO_JOBS = error(7, "the cluster has no RLJobs: install the chart rljob-operator")
FORBIDDEN = error(5, "is forbidden: User ", "ask an administrator of the cluster for this permission")
NO_KUBERAY = error(7, 'resource type "rayclusters"', "install KubeRay in the cluster")
NO_KUEUE = error(7, 'resource type "clusterqueues"', "install Kueue in the cluster")
NO_OPERATOR = error(7, "no operator with an image is installed", "--runtime-image")
NO_NAMESPACE = error(4, 'namespaces "absent" not found', "check -n; `kubectl get namespaces` lists those that exist")
LATE = error(2, "the check did not end within 1 s")
OUTCOMES = {
    Site.NO_KUBECONFIG: error(6, "kubectl knows no cluster: there is no kubeconfig", "set KUBECONFIG to"),
    Site.UNREACHABLE: error(6, "refused", "check that the cluster runs"),
    Site.OTHER_AUTHORITY: error(6, "x509: certificate signed by unknown authority", "get a new kubeconfig"),
    Site.EXPIRED: error(5, "asked for the client to provide credentials", "log in to the cluster again"),
    Site.PLUGIN_FAILS: error(5, "executable false failed with exit code 1", "log in to the cluster again"),
    Site.PLUGIN_ABSENT: error(5, "executable rljob-no-such-login not found", "install this program"),
    Site.NO_CONTEXT: error(2, "context", "`kubectl config get-contexts` lists those to pass with --context"),
    Site.NO_RIGHTS: FORBIDDEN,
    Site.JOBS_ONLY: FORBIDDEN,
    Site.NO_CRDS: NO_JOBS,
    Site.NO_KUBERAY: answer(0),
    Site.NO_NAMESPACE: NO_NAMESPACE,
}
UNLISTED = error(5, "Deployments of other namespaces may not be listed", "--runtime-image")
SEEN_BY_ALL = {
    # Anybody may ask for the API's groups and versions.
    "quota": NO_KUEUE,
    "version": answer(0, "not readable: ask an administrator"),
    "doctor": answer(1, "rights", "ask an administrator"),
    "check-image": UNLISTED,
}
NOT_STARTED = error(2, "has not started, so nothing is frozen yet", "rljob explain")
NO_ANSWER = error(2, "no answer is recorded (the job has not started)", "observability.samples says which steps")
NO_ATTEMPT = error(2, "no attempt is recorded yet", "wait until it trains")
NO_PLAN = error(2, "new: class cpu uses the host's memory")
"""What these commands say about the job of this test, after they have read its recipe."""
EXCEPTIONS: dict[Site, dict[str, Outcome]] = {
    Site.NO_RIGHTS: SEEN_BY_ALL | {"conformance": answer(1, "you may not list")},
    Site.JOBS_ONLY: SEEN_BY_ALL
    | {
        "conformance": answer(1, "you may not list"),
        "diff": NOT_STARTED,
        "list": answer(0, WAITING),
        "status": answer(0, "KubeRay is absent"),
        "status --watch": answer(1, "the reward raised an error"),
        "top": answer(0, WAITING),
        "describe": answer(0, "KubeRay is absent"),
        "steps": answer(0, "the job has not started"),
        "samples": NO_ANSWER,
        "trace": NO_ATTEMPT,
        "report": answer(0, "the job has not started"),
        "usage": answer(0, "CARD HOURS"),
    },
    Site.NO_CRDS: {
        "quota": NO_KUEUE,
        "version": answer(0, "operator not found in the cluster"),
        "doctor": answer(1, "rljobs.rljob.dev", "install or upgrade the chart rljob-operator"),
        "check-image": NO_OPERATOR,
        "check-image --runtime-image": LATE,
        "conformance": answer(1, "the cluster has no rljobs.rljob.dev", "install the chart rljob-operator"),
    },
    Site.NO_KUBERAY: {
        **dict.fromkeys(("plan memory", "plan report"), NO_PLAN),
        "diff": NOT_STARTED,
        "samples": NO_ANSWER,
        "trace": NO_ATTEMPT,
        "status --watch": answer(1, "the reward raised an error"),
        **dict.fromkeys(("logs", "logs --follow", "logs --collect", "dashboard", "exec", "exec --tty"), NO_KUBERAY),
        "recipes diff": answer(1, "1000"),
        "quota": NO_KUEUE,
        "doctor": answer(1, "no RayCluster is served", "install KubeRay"),
        "check-image": NO_OPERATOR,
        "check-image --runtime-image": LATE,
        "conformance": answer(1, "no Deployment of KubeRay", "install KubeRay"),
    },
    Site.NO_NAMESPACE: {
        **dict.fromkeys(("validate", "render", "explain", "plan rollout"), answer(0)),
        **dict.fromkeys(("plan memory", "plan report"), NO_PLAN),
        "recipes show": answer(0, "trainer.steps"),
        "delete": error(4, 'rljobs.rljob.dev "deleted" not found', "check the name, and the namespace with -n"),
        "recipes diff": answer(1, "1000"),
        "quota": NO_KUEUE,
        "version": answer(0),
        "doctor": answer(1, "no RayCluster is served"),
        "check-image": NO_OPERATOR,
        "conformance": answer(1, "no Deployment of KubeRay"),
    },
}
PROGRESS_LINES = {"conformance": 2}
"""Lines that a command writes to standard error before it asks the cluster anything."""
NOTES = ("rljob: only Prometheus has", "# ")
LINE_CHARACTERS = 1000


REALLY_ASKED = ("apply", "status", "doctor")
"""Commands that ask the real servers: together they write, read objects, and ask for versions, kinds and fields."""
COMPLETES = (Site.JOBS_ONLY, Site.NO_KUBERAY)
"""Sites on which a shell that completes is given the names of jobs."""
by_name = pytest.mark.parametrize("site", Site, ids=lambda site: site.name.lower())


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Sites]:
    """Yield the sites, whose servers run until the end of the module."""
    with asyncio.Runner() as runner:
        running = sites(tmp_path_factory.mktemp("sites"))
        found = runner.run(running.__aenter__())
        try:
            yield found
        finally:
            runner.run(running.__aexit__(None, None, None))


@pytest.fixture
def files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, site: Site) -> None:
    """Put the files that the commands name into the current folder, and make the names of pods known."""
    for name in ("KUBERNETES_SERVICE_HOST", "KUBERNETES_SERVICE_PORT"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(secrets, "token_hex", lambda _: SUFFIX)
    monkeypatch.chdir(tmp_path)
    recipe = {
        "recipeRef": {"kind": "ClusterRLRecipe", "name": "short"},
        "model": {"path": "/data/model", "architecture": "Qwen2.5-0.5B"},
    }
    for file, job in (("job.json", job_manifest(WAITING)), ("recipe.json", job_manifest("new", recipe))):
        if site is Site.NO_NAMESPACE:
            job["metadata"].pop("namespace")
        (tmp_path / file).write_text(json.dumps(job))


@pytest.fixture
def at(made: Sites, monkeypatch: pytest.MonkeyPatch, site: Site, files: None) -> Site:
    """Make the real site the one of this process."""
    del files
    monkeypatch.setenv("PATH", f"{kubectl_folder()}:{os.environ['PATH']}")
    monkeypatch.setenv("HOME", str(made.folder))
    monkeypatch.setenv("KUBECONFIG", str(made.kubeconfig(site)))
    return site


@pytest.fixture
def play(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, site: Site, files: None) -> Callable[[str], None]:
    """Return what makes kubectl answer a command as it has on the site."""
    del files
    # A command asks for its answers through bounded_process.run only, and looks whether there is a program.
    (tmp_path / "kubectl").write_text("#!/bin/sh\necho 'this answer is not recorded' >&2; exit 1\n")
    (tmp_path / "kubectl").chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")

    def answer_to(command: str) -> None:
        player = Player(recorded(site)[command])
        monkeypatch.setattr(bounded_process, "run", player.run)

    return answer_to


@cache
def recorded(site: Site) -> Mapping[str, Calls]:
    return read(site.name.lower())


def words_of(command: str, site: Site) -> list[str]:
    """Return the arguments, with the option that makes the site what it is before what is passed to a pod."""
    words = COMMANDS[command].split()
    more = {Site.NO_CONTEXT: ["--context", "absent"], Site.NO_NAMESPACE: ["-n", "absent"]}.get(site, [])
    end = words.index("--") if "--" in words else len(words)
    return [*words[:end], *more, *words[end:]]


def completed(site: Site) -> list[str]:
    """Return the names of jobs that the completer finds, without argcomplete, which takes a file of this process."""
    return list(completion._jobs(build_parser().parse_args(words_of("status", site))))


def judge(command: str, site: Site, capsys: pytest.CaptureFixture[str]) -> None:
    """Run the command, and compare how it ends with its row."""
    wanted = EXCEPTIONS.get(site, {}).get(command, OUTCOMES[site])
    code = main(words_of(command, site))
    told = capsys.readouterr()
    assert code == wanted.code, told
    where = told.out if wanted.answers else told.err
    assert all(word in " ".join(where.split()) for word in wanted.words), told
    assert "Traceback" not in told.err
    if not wanted.answers:
        *before, last = told.err.splitlines()
        assert len(before) <= PROGRESS_LINES.get(command, 2 if wanted is LATE else 0), told.err
        assert last.startswith("rljob: "), told.err
        assert len(last) < LINE_CHARACTERS, last
        assert told.out == ""


def test_every_command_that_uses_a_cluster_has_a_row() -> None:
    known = {name for name, _ in subcommands(build_parser())} - WITHOUT_CLUSTER
    assert known == {name.partition(" --")[0] for name in COMMANDS}
    assert {name for rows in EXCEPTIONS.values() for name in rows} <= set(COMMANDS)


@pytest.mark.parametrize("command", COMMANDS)
@by_name
def test_it_ends_with_the_cause_and_the_fix(
    play: Callable[[str], None], site: Site, command: str, capsys: pytest.CaptureFixture[str]
) -> None:
    play(command)
    judge(command, site, capsys)


@by_name
def test_completion_prints_names_or_nothing(
    play: Callable[[str], None], site: Site, capsys: pytest.CaptureFixture[str]
) -> None:
    """What a completer writes to standard error would stand in the middle of the line that the user types."""
    play(COMPLETION)
    assert (WAITING in completed(site)) == (site in COMPLETES)
    assert capsys.readouterr() == ("", "")


@integration
@by_name
def test_the_recorded_answers_are_those_of_kubectl(
    at: Site, made: Sites, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    rewrite = bool(os.environ.get("RLJOB_WRITE_GOLDEN"))
    found = {}
    # Names are completed first, because commands delete jobs.
    for command in (COMPLETION, *(COMMANDS if rewrite else REALLY_ASKED)):
        recorder = Recorder(made.folder)
        monkeypatch.setattr(bounded_process, "run", recorder.run)
        if command == COMPLETION:
            completed(at)
        else:
            judge(command, at, capsys)
        found[command] = recorder.kept()
    if rewrite:
        write(at.name.lower(), found)
        recorded.cache_clear()
    assert found == {command: recorded(at)[command] for command in found}, REWRITE


@integration
@pytest.mark.parametrize("site", [Site.EXPIRED, Site.NO_CRDS], ids=lambda site: site.name.lower())
def test_the_installed_program_does_the_same(at: Site) -> None:
    done = subprocess.run([PROGRAMS / "kubectl-rljob", "list"], capture_output=True, text=True, timeout=60, check=False)
    wanted = OUTCOMES[at]
    assert (done.returncode, done.stdout, done.stderr.count("\n")) == (wanted.code, "", 1), done.stderr
    assert all(word in done.stderr for word in wanted.words)


@integration
@pytest.mark.parametrize("site", [Site.EXPIRED, Site.JOBS_ONLY], ids=lambda site: site.name.lower())
def test_the_installed_completer_does_the_same(at: Site) -> None:
    words = [str(PROGRAMS / "kubectl_complete-rljob"), "status", ""]
    done = subprocess.run(words, capture_output=True, text=True, timeout=60, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    assert (WAITING in done.stdout.splitlines()) == (at in COMPLETES)


@integration
@pytest.mark.parametrize("site", [Site.UNREACHABLE])
def test_a_server_that_never_answers_is_given_up(
    at: Site, made: Sites, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        told = json.loads(made.kubeconfig(at).read_text())
        told["clusters"][0]["cluster"]["server"] = f"https://127.0.0.1:{silent.getsockname()[1]}"
        (tmp_path / "silent.kubeconfig").write_text(json.dumps(told))
        monkeypatch.setenv("KUBECONFIG", str(tmp_path / "silent.kubeconfig"))
        monkeypatch.setattr(bounded_process, "run", lambda words, text, _: ask(words, text, 1.0))
        assert main(["list"]) == 6
    said = capsys.readouterr().err
    assert said.count("\n") == 1
    assert "within" in said
    assert "check that the cluster is reachable" in said
