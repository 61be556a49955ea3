"""`rljob logs --collect`: let a running job copy the logs of all its nodes, and its stacks, to its log volume.

The runtime's own command does it, by exec in the head pod (rljob_runtime/collection/command.py). It needs no right
beyond those of `rljob report`, and the run continues. After a failure the launcher has done the same already.
"""

from __future__ import annotations

from typing import Any

from rljob.cli import kubectl
from rljob.cli.errors import UsageError
from rljob.cli.live_pods import live_head, no_pod, place_of
from rljob.reading.job_pods import CONTAINERS, HEAD, identity
from rljob.render.injection import CODE
from rljob_runtime.contract import Collection, ContractError

SCRIPT = f'PYTHONPATH="{CODE}${{PYTHONPATH:+:$PYTHONPATH}}" exec python -m rljob_runtime collect --live --seconds "$0"'
"""Where the runtime is injected, only shells of Ray know its folder; elsewhere the folder does not exist."""
SECONDS = 120
"""Exporting the devices' logs takes up to a minute for a node; all nodes work in parallel."""
MARGIN_SECONDS = 30.0
"""For starting the command, and for its answer."""


def collect(name: str, place: kubectl.Place, seconds: int = SECONDS) -> Collection:
    """Collect the logs of a job that runs. Raise UsageError if it does not, or if nothing was collected."""
    job = kubectl.get_job(name, place)
    own = place_of(job, place)
    head = live_head(identity(job), own)
    if head is None:
        why = no_pod(job, HEAD, own)
        if isinstance(why, kubectl.MissingKindError):
            raise why
        raise kubectl.NotFoundError(
            f"{name} has no running head pod, so nothing can be collected; the logs of a failed attempt were collected "
            "when it failed, and `rljob status` shows where they are"
        )
    words = ["exec", head["metadata"]["name"], "--container", CONTAINERS[HEAD], "--", "sh", "-c", SCRIPT, str(seconds)]
    said = kubectl.run(words, own, seconds=seconds + MARGIN_SECONDS)
    try:
        return Collection.from_json(said.strip().rpartition("\n")[2])
    except ContractError as error:
        raise UsageError(
            f"{head['metadata']['name']} printed no result ({error}); its image has another runtime than this rljob: "
            "`rljob version`"
        ) from error


def describe(done: Collection) -> str:
    """Return what was collected, one line per node, and what was not."""
    lines = [
        f"{done.folder}: {_count(done.files, 'file')} of {_count(len(done.nodes), 'node')} in {done.seconds:.0f} s"
    ]
    for node in done.nodes:
        left = f", {node.left_out} left out" if node.left_out else ""
        lines.append(f"  {node.node}: {_count(node.files, 'file')}, {node.bytes / 1e6:.1f} MB{left}")
        lines += [f"    note: {note}" for note in node.notes]
    lines += [f"  {address}: no answer in time" for address in done.silent]
    lines += [f"  stacks of {_count(done.stacks, 'process', 'es')}: {done.folder}/stacks"] if done.stacks else []
    lines += [f"  ascend-fd: {done.diagnosis}"] if done.diagnosis else []
    return "\n".join([*lines, *(f"  note: {note}" for note in done.notes)])


def document(done: Collection) -> dict[str, Any]:
    """Return the same as data."""
    return {
        "folder": done.folder,
        "attempt": done.attempt,
        "seconds": done.seconds,
        "nodes": [
            {"node": n.node, "files": n.files, "bytes": n.bytes, "leftOut": n.left_out, "notes": list(n.notes)}
            for n in done.nodes
        ],
        "silent": list(done.silent),
        "stacks": done.stacks,
        "diagnosis": done.diagnosis,
        "notes": list(done.notes),
    }


def _count(number: int, word: str, plural: str = "s") -> str:
    return f"{number} {word}{'' if number == 1 else plural}"
