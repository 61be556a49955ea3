"""`rljob completion`: print what a shell evaluates to complete commands, options and names."""

from __future__ import annotations

import argparse

from rljob.cli.arguments import Commands, Parser

SHELLS = ("bash", "zsh", "fish")


def add(commands: Commands[Parser]) -> None:
    """Add the command."""
    made = commands.add_parser(
        "completion",
        help="print the completion code of a shell; `kubectl rljob` is completed without it",
        description="Print what a shell evaluates to complete commands, options, and names of jobs and recipes.",
    )
    made.examples = (
        ("completion bash >> ~/.bashrc", "complete in every new bash"),
        ("completion fish > ~/.config/fish/completions/rljob.fish", "complete in every new fish"),
    )
    made.set_defaults(parser=made, run=_completion, reads_spec=False)
    made.add_argument("shell", choices=SHELLS, metavar="SHELL", help="bash, zsh or fish")


def _completion(chosen: argparse.Namespace) -> int:
    from rljob.cli.completion import shell_code

    print(shell_code(chosen.shell).strip())
    return 0
