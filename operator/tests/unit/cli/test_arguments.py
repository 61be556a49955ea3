"""The command line: the same options everywhere, and errors that say what to do."""

from __future__ import annotations

from pathlib import Path

import pytest
from builders import small_spec

from rljob.api import yaml11
from rljob.cli.arguments import Parser, read, subcommands
from rljob.cli.main import build_parser, main

COMMON = {"-n", "--namespace", "--context", "-h", "--help"}
OF_FILES = {"-f", "--file", "--cluster", "--accelerators"}
WITH_FILES = {"validate", "render", "explain", "diff", "run", "apply", "plan memory", "plan report", "plan rollout"}
WITHOUT_OUTPUT = {"run", "dashboard", "exec", "completion"}


COMMANDS = dict(subcommands(build_parser()))


@pytest.mark.parametrize("name", COMMANDS)
def test_every_command_has_the_common_options(name: str) -> None:
    options = set(COMMANDS[name]._option_string_actions)
    # The code of a shell needs no cluster.
    assert options >= (COMMON if name != "completion" else {"-h", "--help"})
    assert (options >= OF_FILES) == (name in WITH_FILES)
    assert (options >= {"-o", "--output"}) == (name not in WITHOUT_OUTPUT)
    assert isinstance(COMMANDS[name], Parser)


@pytest.mark.parametrize("name", COMMANDS)
def test_every_option_has_a_help_text(name: str) -> None:
    assert all(action.help for action in COMMANDS[name]._actions)
    COMMANDS[name].format_help()


def test_every_kind_of_command_is_there() -> None:
    looks = {"list", "status", "describe", "events", "top", "logs", "steps", "samples", "report", "trace", "dashboard"}
    looks |= {"quota", "usage"}
    changes = {"exec", "export", "suspend", "resume", "stop", "restart", "delete"}
    others = {"recipes list", "recipes show", "recipes diff", "doctor", "check-image", "conformance", "plan experts"}
    assert set(COMMANDS) == {*WITH_FILES, *looks, *changes, *others, "version", "completion"}


@pytest.mark.parametrize(
    ("words", "told"),
    [
        ([], "rljob: COMMAND is missing; name a command, such as validate; `rljob --help`"),
        (["explane"], "rljob: COMMAND 'explane' is not known; did you mean explain?"),
        (["qqqq"], "choose one of validate, render, explain, diff, plan, run, apply"),
        (
            ["validate"],
            "rljob validate: -f/--file is missing; pass a manifest with -f FILE, or -f - for standard",
        ),
        (["validate", "-f", "a", "b.yaml"], "unexpected argument b.yaml; pass files with -f, as in -f b.yaml"),
        (["validate", "-f", "a", "--acelerators=x"], "unknown argument --acelerators=x; did you mean --accelerators?"),
        (["validate", "-f", "a", "--qqqq"], "unknown argument --qqqq; leave it out"),
        (["status", "a", "b"], "rljob status: unknown argument b; leave it out"),
        (["status"], "NAME is missing; name the RLJob; `rljob list` lists them"),
        (["plan"], "rljob plan: TOPIC is missing; name what to plan: memory"),
        (["plan", "memory"], "rljob plan memory: -f/--file is missing; pass a manifest with -f FILE"),
        (["plan", "memory", "a", "--qqqq"], "rljob plan memory: unknown argument --qqqq"),
        (["quota", "-o", "jsn"], "-o/--output 'jsn' is not known; did you mean json?"),
        (["top", "--interval", "x"], "'x' must be a number of seconds, such as 2, and at least 0.5"),
        (["top", "--interval", "inf"], "'inf' must be a number"),
        (["report", "a", "--since", "-1"], "'-1' must be a number of hours, such as 12, and more than 0"),
        (["report", "a", "--local", "--prometheus", "x"], "not allowed with argument"),
    ],
)
def test_a_wrong_command_line_is_one_line_with_the_fix(
    words: list[str], told: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as ended:
        main(words)
    assert ended.value.code == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    assert told in captured.err
    assert captured.err.count("\n") == 1
    assert " --help` shows all arguments\n" in captured.err


def test_files_of_plan_memory_are_accepted_with_and_without_f() -> None:
    for words in (
        ["a", "b"],
        ["-f", "a", "-f", "b"],
        ["-f", "a", "b"],
        ["a", "-o", "json", "b"],
        ["-o", "json", "a", "b"],
    ):
        assert sorted(read(build_parser(), ["plan", "memory", *words]).file) == ["a", "b"]
    assert read(build_parser(), ["plan", "memory", "-"]).file == ["-"]
    assert read(build_parser(), ["plan", "memory", "a", "-o", "json", "-"]).file == ["a", "-"]


def test_versions_are_printed(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main(["--version"])
    assert ended.value.code == 0
    lines = [line.split(maxsplit=1) for line in capsys.readouterr().out.splitlines()]
    assert [name for name, _ in lines] == [
        *("rljob", "API", "verl", "vLLM", "Ray", "vllm-ascend", "torch-npu", "CANN", "MindSpeed", "Megatron-LM")
    ]
    assert ["API", "rljob.dev/v1alpha1"] in lines


def job(folder: Path, name: str, namespace: str | None = None) -> str:
    metadata = {"name": name} | ({"namespace": namespace} if namespace else {})
    path = folder / f"{name}.yaml"
    document = {"apiVersion": "rljob.dev/v1alpha1", "kind": "RLJob", "metadata": metadata, "spec": small_spec()}
    path.write_text(yaml11.dump_all([document]))
    return str(path)


def test_a_namespace_is_that_of_manifests_which_state_none(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    plain, placed = job(tmp_path, "a"), job(tmp_path, "b", "team-a")
    assert main(["render", "-f", plain, "-f", placed, "-n", "team-a"]) == 0
    assert capsys.readouterr().out.count("namespace: team-a") >= 2
    assert main(["render", "-f", placed, "-n", "team-b"]) == 2
    assert "b is in namespace team-a, which contradicts --namespace team-b" in capsys.readouterr().err
    assert main(["render", "-f", plain]) == 0
    assert "namespace: default" in capsys.readouterr().out
    assert main(["render", "-f", plain, "-n", "Bad NS"]) == 2
    assert "--namespace 'Bad NS' must be at most 63 lower-case letters" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("words", "asked"),
    [
        (["sums"], "get rljobs.rljob.dev sums --output json"),
        (["team-a/sums"], "get rljobs.rljob.dev sums --output json --namespace team-a"),
        (["team-a/sums", "-n", "team-a"], "get rljobs.rljob.dev sums --output json --namespace team-a"),
        (["rljob.rljob.dev/sums", "-n", "team-b"], "get rljobs.rljob.dev sums --output json --namespace team-b"),
    ],
)
def test_a_job_is_named_as_it_is_printed(kubectl: Path, words: list[str], asked: str) -> None:
    (kubectl / "answer").write_text('{"metadata": {"name": "sums"}}')
    assert main(["status", *words]) == 0
    assert (kubectl / "words").read_text().strip() == asked


def test_two_namespaces_contradict_each_other(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["status", "team-a/sums", "-n", "team-b"]) == 2
    assert "team-a/sums contradicts --namespace team-b; leave out one of them" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("words", "passed"),
    [
        (["sums", "-n", "a", "--", "ls", "-l"], ["ls", "-l"]),
        (
            ["-n", "a", "sums", "--role", "worker", "--", "sh", "-c", "a -- b", "--", "x"],
            ["sh", "-c", "a -- b", "--", "x"],
        ),
        (["sums", "--namespace=a", "--tty", "--"], []),
        (["sums", "ray", "status", "-n", "a"], ["ray", "status"]),
    ],
)
def test_options_of_exec_may_stand_before_and_after_the_name(words: list[str], passed: list[str]) -> None:
    chosen = read(build_parser(), ["exec", *words])
    assert (chosen.name, chosen.namespace, chosen.words) == ("sums", "a", passed)


def test_two_dashes_end_the_options_of_other_commands() -> None:
    assert read(build_parser(), ["status", "-n", "a", "--", "exec"]).name == "exec"
