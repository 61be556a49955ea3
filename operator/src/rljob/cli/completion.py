"""Shell completion: argcomplete asks the parser itself, so names of jobs come from the cluster.

`rljob completion SHELL` prints what a shell evaluates. For `kubectl rljob`, kubectl runs
`kubectl_complete-rljob`, which is this module too (https://kubernetes.io/docs/tasks/extend-kubectl/kubectl-plugins/).
"""

from __future__ import annotations

import argparse
import io
import os
import sys
from collections.abc import Iterator
from typing import NoReturn

from rljob.api.group import GROUP
from rljob.cli import kubectl
from rljob.cli.arguments import Parser
from rljob.cli.errors import UsageError

ACTIVE = "_ARGCOMPLETE"
"""Variable that argcomplete's shell code sets."""
SECONDS = 3.0
"""A shell that waits for TAB is blocked."""
KEEP_ORDER_WITHOUT_FILES = ":4"
"""cobra v1.10, completions.go: ShellCompDirectiveNoFileComp, which kubectl reads on the last line."""


class _Ended(Exception):  # noqa: N818 - not an error
    """Raised in place of the exit of argcomplete."""


def complete(parser: Parser) -> None:
    """Answer the shell and exit, if it asks."""
    if ACTIVE in os.environ:
        import argcomplete  # noqa: PLC0415 - only for a shell that asks

        _add_completers(parser)
        argcomplete.autocomplete(parser)


def shell_code(shell: str) -> str:
    """Return what a shell evaluates."""
    from argcomplete.shell_integration import shellcode  # noqa: PLC0415 - as above

    code: str = shellcode(["rljob"], shell=shell)
    return code


def kubectl_main() -> int:
    """Answer kubectl, which passes the words after `kubectl rljob`, the last one unfinished."""
    from rljob.cli.main import build_parser  # noqa: PLC0415 - main imports this module

    print("\n".join(candidates(build_parser(), sys.argv[1:])))
    print(KEEP_ORDER_WITHOUT_FILES)
    return 0


def candidates(parser: Parser, words: list[str]) -> list[str]:
    """Return how the last word may continue."""
    import argcomplete  # noqa: PLC0415 - as above

    line, out = " ".join(["rljob", *words]), io.StringIO()
    asked = {ACTIVE: "1", "COMP_LINE": line, "COMP_POINT": str(len(line.encode())), "_ARGCOMPLETE_IFS": "\n"}
    asked["_ARGCOMPLETE_SUPPRESS_SPACE"] = "1"
    before = {name: os.environ.get(name) for name in asked}
    os.environ.update(asked)
    try:
        _add_completers(parser)
        argcomplete.autocomplete(parser, exit_method=_end, output_stream=out)
    except _Ended:
        pass
    finally:
        for name, value in before.items():
            os.environ.pop(name, None)
            if value is not None:
                os.environ[name] = value
    return [line for line in out.getvalue().split("\n") if line]


def _end(code: int = 0) -> NoReturn:
    raise _Ended(code)


def _add_completers(parser: argparse.ArgumentParser) -> None:
    """Let names of jobs and recipes come from the cluster."""
    for action in parser._actions:  # noqa: SLF001 - argparse has no other way
        if isinstance(action, argparse._SubParsersAction):  # noqa: SLF001 - as above
            for below in action.choices.values():
                _add_completers(below)
        elif action.metavar in _COMPLETERS:
            action.completer = _COMPLETERS[action.metavar]  # type: ignore[attr-defined] # argcomplete's protocol


def _jobs(parsed_args: argparse.Namespace, **_: object) -> Iterator[str]:
    yield from _names("rljobs", parsed_args)


def _recipes(parsed_args: argparse.Namespace, **_: object) -> Iterator[str]:
    for kind in ("rlrecipes", "clusterrlrecipes"):
        yield from _names(kind, parsed_args)


def _names(kind: str, chosen: argparse.Namespace) -> Iterator[str]:
    place = kubectl.Place(getattr(chosen, "namespace", None), getattr(chosen, "context", None))
    try:
        listed = kubectl.run(["get", f"{kind}.{GROUP}", "--output", "name"], place, seconds=SECONDS)
    except UsageError:
        # A shell has no place for an error.
        return
    for line in listed.splitlines():
        yield line.rpartition("/")[2]


_COMPLETERS = {"NAME": _jobs, "RECIPE": _recipes}
"""Completers by the name of the argument in the help text."""
