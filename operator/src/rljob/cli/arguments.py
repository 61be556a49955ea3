"""How the commands of `rljob` take arguments: one parser, and the options that mean the same everywhere.

A verb is a module of `rljob.cli.verbs`: its `add` calls `command` or `file_command` with the function that runs it.
"""

from __future__ import annotations

import argparse
import difflib
import math
import re
import sys
import textwrap
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NoReturn

from rljob.api.group import GROUP
from rljob.cli.errors import UsageError
from rljob.cli.exits import Exit

SHORTEST_INTERVAL = 0.5
RESOURCES = frozenset({"rljob", "rljobs", "rlj", f"rljob.{GROUP}", f"rljobs.{GROUP}"})
"""What kubectl writes in front of a name."""
Commands = argparse._SubParsersAction  # noqa: SLF001 - the only name of this type
Run = Callable[[argparse.Namespace], int]
Example = tuple[str, str]
"""Arguments after `rljob`, and what they do."""
NAMESPACE_OF_FILES = "namespace of jobs whose manifest states none; default: default"
NAMESPACE_OF_JOBS = "namespace of the job; default: the namespace of the context"
STAND_IN_UID = "00000000-0000-0000-0000-000000000000"
"""UID of a job that no cluster has."""


class Parser(argparse.ArgumentParser):
    """Reports an error in one line that says what to do."""

    examples: tuple[Example, ...] = ()
    passes_on: bool = False
    """Whether the words after -- are a command for somebody else."""
    exits: Mapping[int, str]
    """Exit codes whose meaning the command states more exactly than the table of all."""

    def __init__(self, **options: Any) -> None:  # noqa: ANN401 - of argparse
        super().__init__(**{"formatter_class": argparse.RawDescriptionHelpFormatter, **options})
        self.exits = {}

    def error(self, message: str) -> NoReturn:
        """Print the line and exit."""
        self.exit(Exit.USAGE, f"{self.prog}: {_with_fix(message)}; `{self.prog} --help` shows all arguments\n")

    def format_help(self) -> str:
        """Return the help text with the examples, which are put together only when they are read."""
        lines = [f"  {self.prog.split()[0]} {words}\n      {does}" for words, does in self.examples]
        self.epilog = "\n".join(["examples:", *lines]) if lines else None
        return super().format_help()


def command(  # noqa: PLR0913 - one for each thing in which commands differ
    commands: Commands[Parser],
    name: str,
    help_text: str,
    run: Run,
    *,
    examples: Sequence[Example],
    exits: Mapping[int, str] | None = None,
    outputs: Sequence[str] = (),
    namespace: str = NAMESPACE_OF_JOBS,
    reads_spec: bool = False,
) -> Parser:
    """Add a command with the options that all commands have; one that reads a spec knows the accelerator classes."""
    made = commands.add_parser(
        name, help=help_text, description=textwrap.fill(f"{help_text[0].upper()}{help_text[1:]}.", 100)
    )
    made.examples, made.exits = tuple(examples), exits or {}
    made.set_defaults(parser=made, run=run, reads_spec=reads_spec)
    made.add_argument("-n", "--namespace", help=namespace)
    made.add_argument("--context", help="context of the kubeconfig to use")
    if reads_spec:
        made.add_argument(
            "--accelerators",
            action="append",
            type=Path,
            metavar="FILE",
            help="file with accelerator classes of the cluster: the operator's ConfigMap, or the chart value of that "
            "name; repeatable",
        )
    if outputs:
        made.add_argument(
            "-o", "--output", choices=outputs, default=outputs[0], help=f"format of the output; default: {outputs[0]}"
        )
    return made


def file_command(
    commands: Commands[Parser],
    name: str,
    help_text: str,
    run: Run,
    *,
    examples: Sequence[Example],
    exits: Mapping[int, str] | None = None,
    outputs: Sequence[str] = (),
    required: bool = True,
) -> Parser:
    """Add a command that reads manifests."""
    made = command(
        commands,
        name,
        help_text,
        run,
        examples=examples,
        exits=exits,
        outputs=outputs,
        namespace=NAMESPACE_OF_FILES,
        reads_spec=True,
    )
    made.add_argument(
        "-f",
        "--file",
        required=required,
        action="append",
        metavar="FILE",
        help="file or folder with jobs and recipes; - for standard input; repeatable",
    )
    made.add_argument(
        "--cluster",
        action="store_true",
        help="read recipes that are not in the files from the cluster; validate also looks there for what jobs need",
    )
    return made


def job_command(
    commands: Commands[Parser],
    name: str,
    help_text: str,
    run: Run,
    *,
    examples: Sequence[Example],
    exits: Mapping[int, str] | None = None,
    outputs: Sequence[str] = (),
    reads_spec: bool = False,
) -> Parser:
    """Add a command about one job of the cluster."""
    made = command(
        commands, name, help_text, run, examples=examples, exits=exits, outputs=outputs, reads_spec=reads_spec
    )
    made.add_argument("name", metavar="NAME", help="name of the RLJob, or NAMESPACE/NAME")
    return made


def add_all_namespaces(made: Parser) -> None:
    """Add -A."""
    made.add_argument("-A", "--all-namespaces", action="store_true", help="the jobs of all namespaces")


def add_interval(made: Parser) -> None:
    """Add --interval."""
    made.add_argument(
        "--interval", type=_interval, default=2.0, metavar="SECONDS", help="seconds between updates; default: 2"
    )


def read(parser: Parser, arguments: Sequence[str] | None) -> argparse.Namespace:
    """Parse the command line, and exit with code 2 if it is wrong."""
    given = sys.argv[1:] if arguments is None else list(arguments)
    # argparse takes the command for a part of the name's place, and would refuse options between them.
    end = given.index("--") if "--" in given and _passes_on(parser, given) else len(given)
    chosen, rest = parser.parse_known_args(given[:end])
    own: Parser = chosen.parser
    if given[end:]:
        chosen.words = [*chosen.words, *given[end + 1 :]]
    if hasattr(chosen, "files"):
        # `plan memory` has always accepted its files without -f too, in any place.
        words = [word for word in rest if word == "-" or not word.startswith("-")]
        rest = [word for word in rest if word not in words]
        chosen.file = [*(chosen.file or []), *chosen.files, *words]
        if not chosen.file:
            own.error("the following arguments are required: -f/--file")
    if rest:
        own.error(_unknown(rest, own))
    return chosen


def _passes_on(parser: Parser, given: Sequence[str]) -> bool:
    words = [word for word in given if not word.startswith("-")]
    return any(name == words[0] and made.passes_on for name, made in subcommands(parser)) if words else False


def subcommands(parser: Parser, name: str = "") -> Iterator[tuple[str, Parser]]:
    """Yield every command that does something, by its words, such as `recipes list`."""
    # argparse has no public way to its subcommands.
    below = [action for action in parser._actions if isinstance(action, argparse._SubParsersAction)]  # noqa: SLF001
    if not below:
        yield name, parser
    for action in below:
        for each, made in action.choices.items():
            yield from subcommands(made, f"{name} {each}".strip())


def split_name(text: str, namespace: str | None) -> tuple[str | None, str]:
    """Return namespace and name of a job, written as `top` and `status` print it or as `kubectl -o name` does."""
    place, slash, name = text.partition("/")
    if not slash or place in RESOURCES:
        return namespace, name or place
    if namespace not in (None, place):
        raise UsageError(f"{text} contradicts --namespace {namespace}; leave out one of them")
    return place, name


def _interval(text: str) -> float:
    return _number(
        text, "seconds, such as 2", lambda number: number >= SHORTEST_INTERVAL, f"at least {SHORTEST_INTERVAL}"
    )


def count(text: str) -> int:
    """Return a number of devices or steps."""
    return int(_number(text, "devices, such as 2", lambda number: number >= 1 and number.is_integer(), "at least 1"))


def step(text: str) -> int:
    """Return the number of a step; a validation before the first one has 0."""
    return int(_number(text, "a step, such as 10", lambda number: number >= 0 and number.is_integer(), "at least 0"))


def hours(text: str) -> float:
    """Return hours."""
    return _number(text, "hours, such as 12", lambda number: number > 0, "more than 0")


USER_MAX = 2**31 - 1
"""kubernetes v1.36.2, pkg/apis/core/validation: a user ID is from 0 to 2147483647."""


def user(text: str) -> int:
    """Return a user ID."""
    if not text.isdecimal() or int(text) > USER_MAX:
        raise argparse.ArgumentTypeError(f"{text!r} must be a user ID, such as 1000")
    return int(text)


_UNITS = {"s": 1, "m": 60, "h": 3600}
TIMEOUT_MAX = 6 * 3600


def seconds(text: str) -> int:
    """Return the seconds of a time such as 5m."""
    found = re.fullmatch(r"(\d{1,5})([smh])", text)
    number = int(found[1]) * _UNITS[found[2]] if found else 0
    if not 1 <= number <= TIMEOUT_MAX:
        raise argparse.ArgumentTypeError(f"{text!r} must be a time from 1s to 6h, such as 90s or 5m")
    return number


def _number(text: str, unit: str, fits: Callable[[float], bool], bound: str) -> float:
    try:
        number = float(text)
    except ValueError:
        number = math.nan
    if not (math.isfinite(number) and fits(number)):
        raise argparse.ArgumentTypeError(f"{text!r} must be a number of {unit}, and {bound}")
    return number


_CHOICE = re.compile(r"(?:argument )?(.*): invalid choice: '(.*)' \(choose from (.*)\)", re.DOTALL)
_REQUIRED = "the following arguments are required: "
_MISSING = {
    "-f/--file": "pass a manifest with -f FILE, or -f - for standard input",
    "NAME": "name the RLJob; `rljob list` lists them",
    "RECIPE": "name the recipe; `rljob recipes list` lists them",
    "SHELL": "name the shell: bash, zsh or fish",
    "IMAGE": "name the image to check",
    "COMMAND": "name a command, such as validate",
    "ACTION": "name what to do with recipes: list, show or diff",
    "TOPIC": "name what to plan: memory, rollout or report",
}


def _with_fix(message: str) -> str:
    """Return an error of argparse with what to do about it (the texts of CPython 3.11 to 3.14, argparse.py)."""
    if found := _CHOICE.fullmatch(message):
        name, given, listed = found.groups()
        known = re.findall(r"[^', ]+", listed)
        near = difflib.get_close_matches(given, known, n=1)
        fix = f"did you mean {near[0]}?" if near else f"choose one of {', '.join(known)}"
        return f"{name} {given!r} is not known; {fix}"
    if message.startswith(_REQUIRED):
        missing = [name.strip() for name in message.removeprefix(_REQUIRED).split(",")]
        fixes = [_MISSING[name] for name in missing if name in _MISSING]
        return "; ".join([f"{', '.join(missing)} is missing", *fixes])
    return message


def _unknown(rest: Sequence[str], parser: Parser) -> str:
    """Return what to do about arguments that a command does not have."""
    known = [option for action in parser._actions for option in action.option_strings]  # noqa: SLF001 - no other way
    word = rest[0].partition("=")[0]
    near = difflib.get_close_matches(word, known, n=1) if word.startswith("-") else []
    if near:
        return f"unknown argument {rest[0]}; did you mean {near[0]}?"
    if "-f" in known and not word.startswith("-"):
        return f"unexpected argument {rest[0]}; pass files with -f, as in -f {rest[0]}"
    return f"unknown argument {rest[0]}; leave it out"
