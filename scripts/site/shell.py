"""Check the commands of a shell block against the programs that they name, without running them.

`rljob` is checked by its own parser, `make` by the Makefile, `helm` by the chart: its folder, and the values that
`--set` names. Options of kubectl and helm are checked where these programs exist (`options`).
"""

from __future__ import annotations

import contextlib
import io
import itertools
import re
import shlex
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any

import yaml

from rljob.cli.arguments import read
from rljob.cli.main import build_parser
from scripts.site.pages import ROOT

SUBSTITUTION = re.compile(r"\$\(([^()]*)\)")
SEPARATORS = frozenset({";", "&&", "||", "|", "&", "(", ")", ";;"})
PREFIXES = frozenset({"sudo", "env", "time", "exec", "then", "do", "if", "while", "!"})
TARGET = re.compile(r"^([a-z][a-z-]*):", re.MULTILINE)
HEREDOC = re.compile(r"<<-?\s*['\"]?(\w+)['\"]?.*?\n.*?^\s*\1$", re.DOTALL | re.MULTILINE)
COMMENT = re.compile(r"""'[^']*'|"(?:\\.|[^"\\])*"|(?:^|(?<=\s))#.*$""", re.MULTILINE)
"""A comment, or quoted text, in which `#` begins no comment."""
RLJOB = ("rljob", ".venv/bin/rljob")
CHART = "charts/rljob-operator"


def syntax_error(text: str) -> str:
    """Return what bash says about the syntax of a text, or nothing."""
    done = subprocess.run(["bash", "-n"], input=text, capture_output=True, text=True, check=False, timeout=20)
    return done.stderr.strip()


def commands(text: str) -> Iterator[list[str]]:
    """Return the simple commands of a text as words, those in substitutions included."""
    text = text.replace("\\\n", " ")
    while inner := SUBSTITUTION.search(text):
        yield from commands(inner[1])
        text = text.replace(inner[0], "SUBSTITUTED")
    lexer = shlex.shlex(text.replace("\n", " ; "), posix=True, punctuation_chars=";|&()<>")
    lexer.whitespace_split, lexer.commenters = True, ""
    words: list[str] = []
    for word in lexer:
        if word in SEPARATORS:
            yield from _simple(words)
            words = []
        else:
            words.append(word)
    yield from _simple(words)


def _simple(words: list[str]) -> Iterator[list[str]]:
    redirected = next((index for index, word in enumerate(words) if set(word) <= {"<", ">"}), len(words))
    words = words[:redirected]
    while words and (words[0] in PREFIXES or re.fullmatch(r"\w+=.*", words[0], re.DOTALL)):
        words = words[1:]
    if words:
        yield words


def without_comments(text: str) -> str:
    """Return a text without its here-documents and comments."""
    return COMMENT.sub(lambda match: match[0] if match[0][0] in "'\"" else "", HEREDOC.sub("", text))


def problems(text: str) -> list[str]:
    """Return what is wrong with the commands of a block."""
    if error := syntax_error(text):
        return [error]
    return [problem for words in commands(without_comments(text)) for problem in _problems(words)]


def _problems(words: Sequence[str]) -> Iterator[str]:
    name, rest = words[0], list(words[1:])
    if name == "kubectl" and rest[:1] == ["rljob"]:
        name, rest = "rljob", rest[1:]
    if name in RLJOB:
        yield from _rljob(rest)
    elif name == "make":
        targets = set(TARGET.findall((ROOT / "Makefile").read_text()))
        named = [word for word in rest if not word.startswith("-") and "=" not in word]
        yield from (f"make {word}: the Makefile has no such target" for word in named if word not in targets)
    elif name == "helm":
        yield from _helm(rest)
    elif name.startswith("scripts/") and not (ROOT / name).exists():
        yield f"{name} does not exist"


def _rljob(words: list[str]) -> Iterator[str]:
    said = io.StringIO()
    with contextlib.redirect_stderr(said), contextlib.redirect_stdout(io.StringIO()):
        try:
            read(build_parser(), [str(word) for word in words])
        except SystemExit as end:
            if end.code:
                yield f"rljob {' '.join(words)}: {said.getvalue().strip()}"


def _helm(words: list[str]) -> Iterator[str]:
    yield from (f"{word} is no chart" for word in words if word.startswith("charts/") and not (ROOT / word).is_dir())
    if not any(word.endswith("rljob-operator") for word in words):
        return
    for option, value in itertools.pairwise(words):
        if option in {"--set", "--set-string"}:
            keys = [each.partition("=")[0] for each in value.split(",") if "=" in each]
            yield from (f"helm --set {key}: the chart has no such value" for key in keys if not _is_value(key))


@cache
def _values() -> Mapping[str, Any]:
    values: Mapping[str, Any] = yaml.safe_load((ROOT / CHART / "values.yaml").read_text())
    return values


def _is_value(key: str) -> bool:
    place: Any = _values()
    for part in key.split("."):
        if not isinstance(place, dict):
            return False
        if not place:
            return True  # a map that the site fills
        if part not in place:
            return False
        place = place[part]
    return True


def options(program: Path, words: Sequence[str]) -> frozenset[str]:
    """Return the options that a command of kubectl or helm has, by its own help."""
    plain = [word for word in words if not word.startswith("-")]
    shown = ""
    # The command may stand behind options with values, and consist of up to three words.
    for start in range(len(plain)):
        if shown := _longest_help(program, plain[start : start + 3]):
            break
    if program.name == "kubectl":
        shown += _printed(program, "options")
    return frozenset(re.findall(r"(?<![\w-])(--?[a-zA-Z][\w-]*)", shown))


def _longest_help(program: Path, words: Sequence[str]) -> str:
    """Return the help of the longest command at the start of the words; nothing if the first one is none."""
    shown = ""
    for count in range(1, len(words) + 1):
        more = _printed(program, *words[:count], "--help")
        if f"{program.name} {' '.join(words[:count])}" not in more:
            break
        shown = more
    return shown


@cache
def _printed(program: Path, *words: str) -> str:
    done = subprocess.run([program, *words], capture_output=True, text=True, check=False, timeout=30)
    return done.stdout if done.returncode == 0 else ""


def unknown_options(program: Path, text: str) -> list[str]:
    """Return the options in a text that the program does not have, each with its command."""
    found = []
    for words in commands(without_comments(text)):
        if words[0] != program.name or words[1:2] == ["rljob"]:
            continue
        inside = words[1 : words.index("--")] if "--" in words else words[1:]
        used = {word.partition("=")[0] for word in inside if re.match(r"--?[a-zA-Z]", word)}
        if unknown := {_short(word) for word in used} - options(program, inside):
            found.append(f"{' '.join(words)}: {program.name} has no {', '.join(sorted(unknown))}")
    return found


def _short(option: str) -> str:
    """Return `-i` for `-it`, and `-n` for `-nteam-a`: one letter is an option of its own."""
    return option if option.startswith("--") else option[:2]
