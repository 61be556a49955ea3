"""`rljob dashboard`: reach the Ray dashboard of a job from this machine."""

from __future__ import annotations

import argparse
import base64
import binascii
import re
import subprocess
import sys
import tempfile
import time
import webbrowser
from collections.abc import Mapping
from typing import Any

from rljob.cli import kubectl
from rljob.cli.arguments import Commands, Parser, job_command
from rljob.cli.errors import UsageError

DASHBOARD_PORT = 8265
"""ray 2.60, ray/_private/ray_constants.py: DEFAULT_DASHBOARD_PORT."""
READY_SECONDS = 30
LOOK_SECONDS = 0.1
ANNOUNCED = re.compile(r"Forwarding from (127\.0\.0\.1:\d+) ->")
"""kubectl v1.36, k8s.io/client-go/tools/portforward/portforward.go."""


def add(commands: Commands[Parser]) -> None:
    """Add the command."""
    made = job_command(
        commands,
        "dashboard",
        "forward a port of this machine to the Ray dashboard of a job until Ctrl-C, and print its URL and token",
        _dashboard,
        examples=(
            ("dashboard sums", "print the URL, and the token that the dashboard asks for"),
            ("dashboard sums --port 9000 --open", "open a browser at port 9000"),
        ),
    )
    made.add_argument("--port", type=_port, default=DASHBOARD_PORT, metavar="PORT", help="local port; default: 8265")
    made.add_argument("--open", action="store_true", help="open the URL in the browser")
    made.add_argument(
        "--show-token", action="store_true", help="print the token although standard output is not a terminal"
    )


def _port(text: str) -> int:
    if not (text.isascii() and text.isdecimal() and 0 <= int(text[:6]) <= 65535):
        raise argparse.ArgumentTypeError(f"{text[:16]!r} must be a port from 0 (any free one) to 65535")
    return int(text[:6])


def _dashboard(chosen: argparse.Namespace) -> int:
    from rljob.cli.live_pods import live_head, no_pod, place_of
    from rljob.reading.job_pods import HEAD, cluster_of, identity
    from rljob.render.labels import UNAUTHENTICATED_RAY

    place = kubectl.Place(chosen.namespace, chosen.context)
    job = kubectl.get_job(chosen.name, place)
    own = place_of(job, place)
    head = live_head(identity(job), own)
    if head is None:
        raise no_pod(job, HEAD, own)
    checks_tokens = UNAUTHENTICATED_RAY not in head["metadata"].get("labels", {})
    token = _token(cluster_of(head), own) if checks_tokens else ""
    words = ["port-forward", f"pod/{head['metadata']['name']}", f"{chosen.port or ''}:{_container_port(head)}"]
    with tempfile.TemporaryFile() as errors:
        command = kubectl.command_line([*words, "--address", "127.0.0.1"], own)
        with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=errors) as process:
            try:
                address = _address(process)
                if address is None:
                    process.kill()
                    errors.seek(0)
                    raise kubectl.error_of(errors.read(kubectl.ERROR_BYTES).decode(errors="replace"))
                _announce(chosen, f"http://{address}", token)
                process.wait()
            finally:
                process.terminate()
    raise UsageError(f"the connection to {head['metadata']['name']} has ended; run the command again")


def _container_port(head: Mapping[str, Any]) -> int:
    """Return the port of the dashboard, which is the job's own with network.mode Host."""
    ports = (port for container in head["spec"]["containers"] for port in container.get("ports") or ())
    return next((int(port["containerPort"]) for port in ports if port.get("name") == "dashboard"), DASHBOARD_PORT)


def _token(cluster: str, place: kubectl.Place) -> str | None:
    """Return the token that the dashboard asks for, from the Secret of the cluster; None if it may not be read."""
    try:
        data = kubectl.get_secret(cluster, place).get("data") or {}
        return base64.b64decode(data["auth_token"], validate=True).decode()
    except (kubectl.UnreadableError, kubectl.NotFoundError, KeyError, binascii.Error, UnicodeDecodeError):
        return None


def _address(process: subprocess.Popen[bytes]) -> str | None:
    """Return the local address once kubectl listens; None if it ended before."""
    import os
    import select

    deadline, said = time.monotonic() + READY_SECONDS, ""
    assert process.stdout is not None  # noqa: S101 - opened as a pipe
    while time.monotonic() < deadline:
        if select.select([process.stdout], [], [], LOOK_SECONDS)[0]:
            piece = os.read(process.stdout.fileno(), 4096)
            if not piece:
                return None
            said += piece.decode(errors="replace")
        if found := ANNOUNCED.search(said):
            return found[1]
    return None


def _announce(chosen: argparse.Namespace, url: str, token: str | None) -> None:
    print(url)
    if token == "":
        print("the dashboard asks for no token: the job's Ray cannot check one")
    elif token is None:
        print("the dashboard asks for a token, which you may not read: it is in the Secret of the RayCluster")
    elif chosen.show_token or sys.stdout.isatty():
        print(f"token: {token}")
    else:
        print("the dashboard asks for a token; pass --show-token to print it here")
    sys.stdout.flush()
    if chosen.open:
        webbrowser.open(url)
