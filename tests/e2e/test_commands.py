"""Every command about a job, as users type it, on a job that runs: applied, looked at, changed, stopped and deleted.

The run itself is judged, too: a suspension, a restart on request and a stop save every step, and cost no budget.
"""

from __future__ import annotations

import contextlib
import csv
import io
import json
import os
import re
import shlex
import signal
import subprocess
import sys
import urllib.error
import urllib.request
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest
import yaml

from rljob.cli import output
from rljob.cli.arguments import subcommands
from rljob.cli.main import build_parser
from rljob.reading.job_pods import RAY_LOGS
from tests.e2e import quickstart, runs
from tests.e2e.recorded_run import volume
from tests.kube import Kube, condition, wait_for

pytestmark = [
    pytest.mark.e2e,
    pytest.mark.lifecycle,
    pytest.mark.timeout(1200 * runs.SLOWER),
]

NAMESPACE = "rljob-commands"
NAME = "typed"
STEPS = 2000
"""More than the run makes."""
PROGRAM = Path(sys.executable).with_name("rljob")
START_SECONDS = 300 * runs.SLOWER
REFERENCE = f"rljob.rljob.dev/{NAME}"
LOOKS = {
    "list": "list",
    "top": "top --once",
    "status": f"status {NAME}",
    "describe": f"describe {NAME}",
    "events": f"events {NAME}",
    "steps": f"steps {NAME}",
    "usage": "usage",
    "recipes list": "recipes list",
    "doctor": "doctor",
    "version": "version",
    "export": f"export {NAME} --list",
}
"""Commands that show data, and how they are typed."""
NAMED = {"list", "top", "status", "describe", "steps"}
"""Those whose `-o name` is the job."""


@dataclass(frozen=True)
class Terminal:
    """Runs `rljob` as a user of the namespace would."""

    kube: Kube
    folder: Path

    def environment(self) -> dict[str, str]:
        """Return the variables of the commands: kubectl on the PATH, and the kubeconfig."""
        path = f"{Path(self.kube.kubectl).parent}:{os.environ['PATH']}"
        return {**os.environ, "PATH": path, "KUBECONFIG": self.kube.kubeconfig}

    def words(self, line: str) -> list[str]:
        """Return the command with the namespace, before what is passed to a pod."""
        given = shlex.split(line)
        end = given.index("--") if "--" in given else len(given)
        return [str(PROGRAM), *given[:end], "-n", NAMESPACE, *given[end:]]

    def run(self, line: str, text: str = "", seconds: float = 300) -> subprocess.CompletedProcess[str]:
        """Run a command and return how it ended."""
        return subprocess.run(
            self.words(line),
            input=text,
            capture_output=True,
            text=True,
            timeout=seconds * runs.SLOWER,
            check=False,
            cwd=self.folder,
            env=self.environment(),
        )

    def output(self, line: str, *, code: int = 0, seconds: float = 300) -> str:
        """Run a command that must end with this code, and return its output."""
        done = self.run(line, seconds=seconds)
        assert done.returncode == code, (line, done.stdout[-2000:], done.stderr[-2000:])
        return done.stdout

    @contextlib.contextmanager
    def running(self, line: str) -> Iterator[subprocess.Popen[str]]:
        """Run a command until the end of the block. Ctrl-C reaches it as in a terminal."""
        # A shell starts a background process with SIGINT ignored, and its children inherit that.
        before = signal.signal(signal.SIGINT, signal.default_int_handler)
        with subprocess.Popen(
            self.words(line),
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            cwd=self.folder,
            env=self.environment(),
        ) as process:
            signal.signal(signal.SIGINT, before)
            try:
                yield process
            finally:
                process.kill()


@pytest.fixture(scope="module")
def terminal(admin: Kube, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Terminal]:
    """Yield a terminal with a namespace of its own, and the manifests of the job in its folder."""
    kube, folder = admin.in_namespace(NAMESPACE), tmp_path_factory.mktemp("commands")
    kube.delete("namespace", NAMESPACE)
    kube.run("create", "namespace", NAMESPACE)
    job = runs.variant(
        NAME,
        trainer__steps=STEPS,
        # Whatever is saved was saved because somebody asked.
        checkpoint=runs.saving(NAME, STEPS),
        stop={"graceSeconds": 240},
        restart={"maxRestarts": 0, "maxInfrastructureRestarts": 0},
    )
    documents = [*quickstart.surroundings(), job]
    (folder / "job.yaml").write_text("\n---\n".join(json.dumps(document) for document in documents))
    yield Terminal(kube, folder)
    for found in kube.find("rljobs"):
        kube.delete("rljob", found["metadata"]["name"])
    # The namespace controller takes minutes, for which nothing here waits.
    kube.delete("namespace", NAMESPACE, wait=False)


@pytest.fixture(scope="module")
def trains(terminal: Terminal) -> Terminal:
    """Return the terminal once the job, which `rljob apply` has created, makes steps."""
    applied = terminal.output("apply -f job.yaml")
    created = {line.removesuffix(" created") for line in applied.splitlines()}
    assert created == {"persistentvolumeclaim/quickstart", "configmap/quickstart-code", REFERENCE}

    def step() -> bool:
        status = json.loads(terminal.output(f"status {NAME} -o json"))
        return bool(status["state"] == "Training" and status["progress"]["step"] > 2)

    wait_for("the third step", step, START_SECONDS, every=2)
    return terminal


def state(terminal: Terminal) -> str:
    return str(json.loads(terminal.output(f"status {NAME} -o json"))["state"])


def forms(command: str) -> list[str]:
    """Return the formats that the command offers."""
    parser = dict(subcommands(build_parser()))[command]
    (option,) = (action for action in parser._actions if "--output" in action.option_strings)
    return [str(choice) for choice in option.choices or ()]


def objects(found: Any) -> list[Any]:  # noqa: ANN401 - JSON
    """Return the documents, of which one stands alone."""
    return found if isinstance(found, list) else [found]


@pytest.mark.parametrize("command", LOOKS)
def test_what_is_shown_is_the_same_in_every_format(trains: Terminal, command: str) -> None:
    offered = forms(command)
    assert set(output.FORMS) <= set(offered)
    # Beside each other, because they mostly wait for the cluster.
    with ThreadPoolExecutor(len(output.FORMS)) as pool:
        done = pool.map(lambda form: trains.run(f"{LOOKS[command]} -o {form}"), output.FORMS)
        results = dict(zip(output.FORMS, done, strict=True))
    # `doctor` notes what the local cluster lacks.
    assert {each.returncode for each in results.values()} <= ({0, 1} if command == "doctor" else {0}), results
    assert all("Traceback" not in each.stderr for each in results.values())
    data = objects(json.loads(results["json"].stdout))
    same = list(yaml.safe_load_all(results["yaml"].stdout))
    assert [type(one) for one in same] == [type(one) for one in data]
    if data and isinstance(data[0], dict):
        assert set(same[0]) == set(data[0])
    if command in NAMED:
        assert results["name"].stdout == f"{REFERENCE}\n"
    plain, wide = (results[form].stdout.splitlines() for form in ("table", "wide"))
    assert plain
    assert len(wide[0]) >= len(plain[0])


def test_the_table_says_what_the_job_does(trains: Terminal) -> None:
    head, row = trains.output("list -o wide").splitlines()
    cells = dict(zip(re.split(r" {2,}", head), re.split(r" {2,}", row), strict=False))
    assert (cells["NAME"], cells["STATE"], cells["CLASS"]) == (NAME, "Training", "cpu")
    assert re.fullmatch(rf"\d+/{STEPS}", cells["STEP"])
    assert trains.output("list --state Failed") == "no RLJobs\n"
    assert NAME in trains.output("top --once")
    events = trains.output(f"events {NAME}")
    assert f"rljob/{NAME}" in events


def test_its_steps_are_a_table_for_programs_too(trains: Terminal) -> None:
    head, *rows = csv.reader(io.StringIO(trains.output(f"steps {NAME} --last 3 -o csv")))
    assert head[:3] == ["STEP", "ATTEMPT", "REWARD"]
    numbers = [int(row[0]) for row in rows]
    assert len(numbers) == 3
    assert numbers == list(range(numbers[0], numbers[0] + 3))


def test_logs_of_every_role_are_shown(trains: Terminal) -> None:
    driver = trains.output(f"logs {NAME}").splitlines()
    assert trains.output(f"logs {NAME} --attempt 1 --tail 2").count("\n") == 2
    assert len(driver) > 2
    for role in ("head", "worker"):
        assert trains.output(f"logs {NAME} --role {role} --tail 5").strip()
    refused = trains.run(f"logs {NAME} --attempt 7")
    assert (refused.returncode, refused.stderr.count("\n")) == (2, 1)
    assert "lists the attempts 1;" in refused.stderr


def test_logs_are_followed_until_ctrl_c(trains: Terminal) -> None:
    with trains.running(f"logs {NAME} -f --tail 1") as process:
        assert process.stdout is not None
        assert process.stdout.readline()
        write = f"for log in {RAY_LOGS}/job-driver-{NAME}-*.log; do echo written later >> $log; done"
        trains.output(f"exec {NAME} -- sh -c '{write}'")
        assert process.stdout.readline() == "written later\n"
        process.send_signal(signal.SIGINT)
        assert process.wait(30) == 130


def test_a_command_runs_in_the_pods(trains: Terminal) -> None:
    names = {trains.output(f"exec {NAME} --role {role} -- hostname").strip() for role in ("head", "worker")}
    pods = {pod["metadata"]["name"] for pod in trains.kube.find("pods", f"rljob.dev/job={NAME}")}
    assert len(names) == 2
    assert names <= pods
    assert trains.run(f"exec {NAME} -- sh -c 'exit 7'").returncode == 7
    assert "has 1 running worker pods" in trains.run(f"exec {NAME} --role worker --index 1 -- true").stderr


def test_the_dashboard_answers_until_ctrl_c(trains: Terminal) -> None:
    with trains.running(f"dashboard {NAME} --port 0 --show-token") as process:
        assert process.stdout is not None
        url = process.stdout.readline().strip()
        token = process.stdout.readline().strip().removeprefix("token: ")
        assert re.fullmatch(r"http://127\.0\.0\.1:\d+", url)
        assert "<!doctype html>" in fetch(url, token).lower()
        process.send_signal(signal.SIGINT)
        assert process.wait(30) == 130
    with pytest.raises(urllib.error.URLError):
        fetch(url, token)


def fetch(url: str, token: str) -> str:
    request = urllib.request.Request(url, headers={"Authorization": f"Bearer {token}"})  # noqa: S310 - of kubectl
    with urllib.request.urlopen(request, timeout=20) as answer:  # noqa: S310 - as above
        text: str = answer.read().decode(errors="replace")
    return text


def test_a_report_is_written(trains: Terminal) -> None:
    assert "report.html" in trains.output(f"report {NAME} -o report.html")
    assert NAME in (trains.folder / "report.html").read_text()


def test_a_job_is_suspended_resumed_restarted_stopped_and_deleted(trains: Terminal) -> None:
    """One after another, with a watch beside it that ends with the job; no step that was made is lost."""
    _assert_stages_in_order(status(trains))
    with trains.running(f"status {NAME} --watch") as watch:
        assert trains.output(f"suspend {NAME} --wait") == f"{NAMESPACE}/{NAME} is Suspended\n"
        # `apply` keeps what `suspend` set, so that it is no difference.
        assert trains.output("diff -f job.yaml") == "no difference\n"
        absent = trains.run(f"exec {NAME} -- true")
        assert (absent.returncode, absent.stderr.count("\n")) == (4, 1)
        assert "is Suspended and has no running head pod" in absent.stderr
        # From the volume, read by a pod that is deleted again.
        assert trains.output(f"logs {NAME} --tail 5").strip()
        assert int(trains.output(f"steps {NAME} --last 1 -o csv").splitlines()[1].split(",")[0]) > 2
        assert trains.output(f"resume {NAME} --wait", seconds=START_SECONDS) == f"{NAMESPACE}/{NAME} is Training\n"
        (first,) = clusters(trains)
        assert trains.output(f"restart {NAME} -o name") == f"{REFERENCE}\n"
        saved = _assert_restarted(trains, first)
        assert trains.output(f"logs {NAME} --attempt 1 --tail 1").strip()
        assert trains.output(f"stop {NAME} --wait") == f"{NAMESPACE}/{NAME} is Stopped\n"
        _assert_stopped(trains, saved)
        assert watch.wait(60) == 0
        seen = watch.stdout.read() if watch.stdout else ""
    assert f"{NAMESPACE}/{NAME}  Stopped" in seen
    assert all(word in seen for word in ("Training", "Suspended"))
    again = trains.run(f"suspend {NAME}")
    assert (again.returncode, again.stderr) == (
        2,
        f"rljob: {NAMESPACE}/{NAME} has ended as Stopped, so `rljob suspend` would change nothing; create a new job\n",
    )
    assert trains.output(f"delete {NAME} -o name") == f"{REFERENCE}\n"
    gone = trains.run(f"logs {NAME}")
    assert (gone.returncode, gone.stderr.count("\n")) == (4, 1)
    assert f"`rljob logs {NAME} -n {NAMESPACE} --records FOLDER`" in gone.stderr


def _assert_stages_in_order(found: dict[str, Any]) -> None:
    """Check that the start is recorded from its pods to the first step."""
    stages = found["start"]["stages"]
    names, times = [stage["name"] for stage in stages], [datetime.fromisoformat(stage["since"]) for stage in stages]
    assert (names[0], names[-1]) == ("Pods", "Training")
    # The contract driver may have made its first step before it is asked what it does.
    assert "Submitting" in names
    assert times == sorted(times)
    assert (found["start"]["stage"], found["start"]["since"]) == ("Training", stages[-1]["since"])


def _assert_restarted(trains: Terminal, first: str) -> int:
    """Check that the run continues in a new cluster from the step that it saved, and return the step."""

    def continues() -> dict[str, Any] | None:
        found = status(trains)
        saved = found["checkpoint"]["step"]
        whole = len(found["attempts"]) == 3 and found["state"] == "Training" and found["progress"]["step"] > saved
        return found if whole else None

    found = wait_for("a step of the third attempt", continues, START_SECONDS)
    assert first not in clusters(trains)
    assert [attempt["reason"] for attempt in found["attempts"][:-1]] == ["Suspended", "RestartRequested"]
    saved: int = found["checkpoint"]["step"]
    assert found["attempts"][2]["resumedFromStep"] == saved >= found["attempts"][1]["lastStep"]
    # The job has no budget for restarts, and a request needs none.
    assert (found.get("restarts", 0), bool(found["restartRequest"])) == (0, True)
    return saved


def _assert_stopped(trains: Terminal, saved: int) -> None:
    """Check that the job has ended for good with its last step on the volume, whatever is asked of it later."""
    ended = status(trains)
    last = ended["attempts"][-1]
    finished = condition(trains.kube.get("rljob", NAME), "Finished")
    assert finished is not None
    assert (finished["reason"], last["outcome"], last["reason"]) == ("Stopped", "Stopped", "StopRequested"), ended
    assert ended["checkpoint"]["step"] == last["lastStep"] > saved
    folder = volume(trains.kube) / "checkpoints" / NAME / f"global_step_{last['lastStep']}"
    assert any(folder.iterdir()), "the checkpoint is not on the volume"
    assert ended["usage"]["deviceSeconds"] == sum(attempt["deviceSeconds"] for attempt in ended["attempts"])
    wait_for("no cluster", lambda: not clusters(trains), 120)
    trains.kube.run("patch", "rljob", NAME, "--type=merge", "-p", '{"spec": {"stop": {"requested": false}}}')
    events = trains.kube.events
    wait_for("the warning", lambda: any("has no effect" in event["note"] for event in events(NAME)), 60)
    assert (state(trains), clusters(trains)) == ("Stopped", [])


def clusters(terminal: Terminal) -> list[str]:
    return [found["metadata"]["name"] for found in terminal.kube.find("rayclusters", f"rljob.dev/job={NAME}")]


def status(terminal: Terminal) -> dict[str, Any]:
    found: dict[str, Any] = (terminal.kube.get("rljob", NAME) or {}).get("status", {})
    return found
