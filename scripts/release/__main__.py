"""Build, describe, sign and push a release: `python -m scripts.release --registry REGISTRY --version VERSION`.

It prints the commands, for any CI to run, and writes nothing; `--run` runs them one after the other and stops at the
first that fails, with exit code 1. The exit code 2 says that none was run, because something that they need is wrong
or missing. Images are built for each platform by buildah, which needs qemu's binfmt handlers for the platforms of
other machines. docs/releasing.md is its manual.
"""

from __future__ import annotations

import argparse
import re
import shlex
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

from scripts.artifact_hub import SignKey
from scripts.release import arguments, checks
from scripts.release.images import OWN, ROOT
from scripts.release.plan import Provenance, Release, Step, steps

STEP_SECONDS = 4 * 3600
FINGERPRINT = re.compile(r"[0-9A-Fa-f]{40}")


def parser() -> argparse.ArgumentParser:
    """Return the parser of the command line."""
    made = argparse.ArgumentParser(prog="python -m scripts.release", description=__doc__)
    made.add_argument("--registry", required=True, help="registry, or a folder of it, such as registry.example.com/rl")
    made.add_argument("--version", required=True, help="version of the release, such as 0.2.0")
    names = [image.name for image in OWN]
    made.add_argument("--image", action="append", choices=names, help="image to build; default: all; repeatable")
    made.add_argument("--build-args", type=Path, metavar="FILE", help="TOML with arguments of the builds")
    made.add_argument("--sign", default="", metavar="KEY", help="cosign's key file or KMS URI, or keyless")
    made.add_argument("--chart-key", metavar="NAME", help="OpenPGP key that signs the package of the chart")
    made.add_argument("--keyring", metavar="FILE", help="keyring with the chart's key, in GnuPG's old format")
    made.add_argument("--passphrase-file", default="", metavar="FILE", help="passphrase of the chart's key")
    words = ("FINGERPRINT", "URL")
    made.add_argument("--public-key", nargs=2, metavar=words, help="the chart's key, for Artifact Hub")
    made.add_argument("--source", default="", metavar="URL", help="where the source of the release is")
    made.add_argument("--dist", type=Path, default=Path("dist"), help="folder for what is built; default: %(default)s")
    made.add_argument("--run", action="store_true", help="run the commands instead of printing them")
    return made


def parse(words: Sequence[str] | None) -> tuple[Release, bool]:
    """Parse the command line."""
    reader = parser()
    chosen = reader.parse_args(words)
    try:
        stated = arguments.parse(chosen.build_args.read_text()) if chosen.build_args else {}
    except (OSError, ValueError) as error:
        reader.error(f"--build-args {chosen.build_args}: {error}")
    if bool(chosen.chart_key) != bool(chosen.keyring):
        reader.error("--chart-key and --keyring name a key together; add the other")
    if chosen.public_key and not chosen.chart_key:
        reader.error("--public-key describes the key of --chart-key; add that")
    if chosen.public_key and not FINGERPRINT.fullmatch(chosen.public_key[0]):
        reader.error(f"--public-key {chosen.public_key[0]}: a fingerprint has 40 hexadecimal digits")
    provenance = None
    if chosen.chart_key:
        shown = SignKey(*chosen.public_key) if chosen.public_key else None
        provenance = Provenance(chosen.chart_key, chosen.keyring, chosen.passphrase_file, shown)
    made = Release(
        chosen.registry.rstrip("/"),
        chosen.version,
        tuple(chosen.image or [image.name for image in OWN]),
        stated,
        chosen.sign,
        provenance,
        chosen.source,
        chosen.dist,
    )
    return made, chosen.run


def main(words: Sequence[str] | None = None) -> int:
    """Print or run the commands."""
    release, run = parse(words)
    wrong = list(checks.of_names(release))
    try:
        wrong += [] if wrong else checks.of_tree(release.version)
        wrong += checks.of_machine(release) if run else []
        planned = list(steps(release))
    except ValueError as error:
        wrong.append(str(error))
    for line in wrong:
        print(f"rljob release: {line}", file=sys.stderr)
    if wrong:
        return 2
    for number, step in enumerate(planned, 1):
        print(shlex.join(step.command), flush=True)
        if run and (failure := failed(step)):
            print(f"rljob release: step {number} of {len(planned)}, {step.title}: {failure}", file=sys.stderr)
            return 1
    return 0


def failed(step: Step) -> str:
    """Run a step and return why it failed, or nothing."""
    try:
        code = subprocess.run(step.command, cwd=ROOT, check=False, timeout=STEP_SECONDS).returncode
    except subprocess.TimeoutExpired:
        return f"not done within {STEP_SECONDS} s"
    except OSError as error:
        return f"{step.command[0]} cannot be started: {error.strerror}"
    return f"{step.command[0]} ended with exit code {code}; its output is above" if code else ""


if __name__ == "__main__":
    sys.exit(main())
