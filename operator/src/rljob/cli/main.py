"""`rljob validate`, `render` and `status`, also as `kubectl rljob`.

Exit codes: 0 well, 1 the job is wrong or failed, 2 the command cannot be carried out.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence

from rljob.api.v1alpha1 import RLJobSpec
from rljob.build.names import JobIdentity
from rljob.cli import kubectl
from rljob.cli.errors import UsageError
from rljob.cli.manifests import JobManifest, read_jobs
from rljob.cli.render import STAND_IN_UID, render
from rljob.cli.status import describe
from rljob.core.policies.validation import validate

FAILED = 1
USAGE = 2


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command."""
    chosen = _parser().parse_args(arguments)
    try:
        return int(_COMMANDS[chosen.command](chosen))
    except UsageError as error:
        print(f"rljob: {error}", file=sys.stderr)
        return USAGE
    except BrokenPipeError:
        # The reader, `head` for example, has what it wants.
        sys.stderr.close()
        return 0


def _validate(chosen: argparse.Namespace) -> int:
    code = 0
    for job in read_jobs(chosen.file):
        if _checked(job) is None:
            code = FAILED
        else:
            print(f"{job.source}: {job.name} is valid")
    return code


def _render(chosen: argparse.Namespace) -> int:
    pages = []
    for job in read_jobs(chosen.file):
        spec = _checked(job)
        if spec is None:
            return FAILED
        pages.append(render(JobIdentity(job.namespace, job.name, chosen.uid), spec, chosen.part))
    print("\n---\n".join(pages))
    return 0


def _status(chosen: argparse.Namespace) -> int:
    job = kubectl.get_job(chosen.name, chosen.namespace, chosen.context)
    print(describe(job))
    return FAILED if (job.get("status") or {}).get("state") in ("Failed", "Invalid") else 0


def _checked(job: JobManifest) -> RLJobSpec | None:
    """Validate, and tell all violations."""
    checked = validate(job.name, job.spec)
    for violation in checked.violations:
        print(f"{job.source}: {job.name or 'RLJob without a name'}: {violation}", file=sys.stderr)
    return checked.spec


_COMMANDS = {"validate": _validate, "render": _render, "status": _status}


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="rljob", description="RL training jobs on Kubernetes.")
    commands = parser.add_subparsers(dest="command", required=True)
    check = commands.add_parser("validate", help="check RLJobs as the operator would, all violations at once")
    show = commands.add_parser("render", help="print what the operator would make: RayCluster and job.json")
    for command in (check, show):
        command.add_argument("-f", "--file", required=True, help="manifest; - for standard input")
    show.add_argument("--part", choices=("all", "raycluster", "job"), default="all")
    show.add_argument("--uid", default=STAND_IN_UID, help="uid of the RLJob, which decides the names of its children")
    status = commands.add_parser("status", help="where an RLJob stands; exit code 1 when it failed")
    status.add_argument("name")
    status.add_argument("-n", "--namespace", help="default: that of the context")
    status.add_argument("--context", help="context of the kubeconfig")
    return parser


if __name__ == "__main__":
    sys.exit(main())
