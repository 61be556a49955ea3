"""The commands of `rljob`, also as `kubectl rljob`. They read files, and use a cluster only through kubectl.

Exit codes: 0 success, 1 the job is invalid, failed or (`diff`) different, 2 the command cannot be run, 130 interrupted;
`check-image` as the runtime's command of that name: 0 fits, 3 degraded, 64 refused.
"""

from __future__ import annotations

import argparse
import io
import os
import sys
import textwrap
import time
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from rljob.api import field_path
from rljob.api.training import MemoryCheck
from rljob.api.v1alpha1 import RLJobSpec
from rljob.cli import collect, kubectl, quota, runtime_image, start, usage
from rljob.cli.arguments import parse, split_name
from rljob.cli.check_image.command import check_image
from rljob.cli.conformance.command import conformance
from rljob.cli.describe import why
from rljob.cli.diff import Changes, against_file, against_job
from rljob.cli.errors import UsageError
from rljob.cli.explain import Explained, explain, explain_document, explain_page, read_path
from rljob.cli.export import export
from rljob.cli.frozen import frozen_snapshot, snapshot_name
from rljob.cli.manifests import Files, JobManifest, read_files
from rljob.cli.output import DATA, JSON, data_page
from rljob.cli.plan import read_config
from rljob.cli.plan_topics import TOPICS
from rljob.cli.render import render
from rljob.cli.report.cluster import Sources, cluster_run
from rljob.cli.report.command import write_report
from rljob.cli.report.local import local_run
from rljob.cli.report.prometheus import Server
from rljob.cli.report.run import ReportRun
from rljob.cli.status import describe, failed, status_document
from rljob.cli.terminal import printable_output
from rljob.cli.version import version_page
from rljob.cli.watch import top, watch_status
from rljob.cli.world import read_world
from rljob.control import accelerator_files
from rljob.core.spec.decisions import decide
from rljob.core.spec.recipes import NOT_IN_CLUSTER, Recipes, complete
from rljob.core.validation import launcher_fields
from rljob.core.validation.document import NOT_IN_FILES, validate_document
from rljob.core.validation.validate import Checked, check
from rljob.launchers import LAUNCHER
from rljob.render.accelerator_table import AcceleratorTable
from rljob.render.accelerators import BUILT_IN
from rljob.render.names import JobIdentity

PARAGRAPH_WIDTH = 100
FAILED = 1
USAGE = 2
HOUR = 3600.0
Judged = list[tuple[JobManifest, Checked]]


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command and return its exit code."""
    if isinstance(sys.stdout, io.TextIOWrapper):
        # As on standard error, no character ends a command: a file's name may be no UTF-8, a terminal may be ASCII.
        sys.stdout.reconfigure(errors="replace")
    with printable_output():
        return _run_command(arguments)


def _run_command(arguments: Sequence[str] | None) -> int:
    chosen = parse(arguments, version_page(LAUNCHER.versions))
    try:
        # From here on the table itself, for every command.
        chosen.accelerators = _accelerator_table(chosen.accelerators or [])
        if hasattr(chosen, "name"):
            chosen.namespace, chosen.name = split_name(chosen.name, chosen.namespace)
        return int(_COMMANDS[chosen.command](chosen))
    except UsageError as error:
        print(f"rljob: {error}", file=sys.stderr)
        return USAGE
    except BrokenPipeError:
        # The reader, for example `head`, has closed the pipe.
        sys.stderr.close()
        return 0


def _accelerator_table(paths: list[Path]) -> AcceleratorTable:
    """Return the built-in table with the rows of these files merged over it."""
    try:
        return accelerator_files.read_files(paths) if paths else BUILT_IN
    except accelerator_files.AcceleratorsError as error:
        raise UsageError(str(error)) from error


def _validate(chosen: argparse.Namespace) -> int:
    judged = _judged(_files(chosen), chosen)
    if chosen.output in DATA:
        print(data_page([_verdict(job, checked) for job, checked in judged], chosen.output))
    else:
        _complain(judged)
        for job, checked in judged:
            if checked.spec is not None:
                print(f"{job.source}: {job.name} is valid")
    return 0 if all(checked.spec is not None for _, checked in judged) else FAILED


def _verdict(job: JobManifest, checked: Checked) -> dict[str, Any]:
    return {
        "source": job.source,
        "namespace": job.namespace,
        "job": job.name,
        "valid": checked.spec is not None,
        "violations": [{"field": each.field, "message": each.message} for each in checked.violations],
        "warnings": [{"field": each.field, "message": each.message} for each in checked.warnings],
    }


def _render(chosen: argparse.Namespace) -> int:
    image = chosen.runtime_image or (runtime_image.installed(chosen.context) if chosen.cluster else None)
    if image is not None:
        chosen.accelerators = chosen.accelerators.with_operator_image(image)
    judged = _valid(chosen)
    if judged is None:
        return FAILED
    specs = [(job, checked.spec) for job, checked in judged if checked.spec is not None]
    made = [
        render(JobIdentity(job.namespace, job.name, chosen.uid), spec, chosen.part, LAUNCHER) for job, spec in specs
    ]
    # job.json names no image.
    told = image is not None or chosen.part == "job"
    note = "" if told else runtime_image.note((spec for _, spec in specs), cluster=chosen.cluster)
    if chosen.output == JSON:
        if note:
            print(f"rljob: note: {note}", file=sys.stderr)
        print(data_page([document for each in made for document in each.documents], chosen.output))
    else:
        head = f"# {note}\n" if note else ""
        print(head + "\n---\n".join(each.page for each in made))
    return 0


def _explain(chosen: argparse.Namespace) -> int:
    path = read_path(chosen.path)
    judged = _valid(chosen)
    if judged is None:
        return FAILED
    found = [(job, _explained(checked, checked.spec, path)) for job, checked in judged if checked.spec is not None]
    if chosen.output in DATA:
        print(data_page([explain_document(job.namespace, job.name, told) for job, told in found], chosen.output))
    else:
        several = len(found) > 1
        print("\n\n".join((f"{job.name}:\n" if several else "") + explain_page(told) for job, told in found))
    return 0


def _explained(checked: Checked, spec: RLJobSpec, path: field_path.Path) -> Explained:
    rows = explain(checked, spec, decide(spec, LAUNCHER.questions(spec)), path)
    return Explained(rows) if path else Explained(rows, LAUNCHER.losses(spec), LAUNCHER.class_defaults(spec))


def _diff(chosen: argparse.Namespace) -> int:
    """Compare as `kubectl diff` does: exit code 1 if there is a difference."""
    if chosen.against:
        found = _against_files(chosen)
    else:
        found = [(job, _against_cluster(job, chosen)) for job in _files(chosen).jobs]
    if chosen.output in DATA:
        print(data_page([changes.document(job.namespace, job.name) for job, changes in found], chosen.output))
    else:
        pages = [f"{job.name}:\n{changes.page}" for job, changes in found if changes]
        print("\n\n".join(pages) or "no difference")
    return FAILED if any(changes for _, changes in found) else 0


def _against_files(chosen: argparse.Namespace) -> list[tuple[JobManifest, Changes]]:
    before, after = _judged(_read(chosen.against, chosen), chosen), _judged(_files(chosen), chosen)
    _complain([*before, *after])
    earlier = {(job.namespace, job.name): checked.spec for job, checked in before}
    found = []
    for job, checked in after:
        # A single job on each side is compared whatever the names are.
        old = before[0][1].spec if len(before) == len(after) == 1 else earlier.get((job.namespace, job.name))
        if old is None or checked.spec is None:
            raise UsageError(f"{job.name}: both sides must have a valid RLJob with this name; correct or add it")
        found.append((job, against_file(old, checked.spec)))
    return found


def _against_cluster(job: JobManifest, chosen: argparse.Namespace) -> Changes:
    if not job.is_named:
        raise UsageError(
            f"{job.source}: {job.name} gets its name when it is created, so there is no job to compare with; set "
            "metadata.name, or compare with a file by --against"
        )
    place = kubectl.Place(job.namespace, chosen.context)
    live = kubectl.get_job(job.name, place)
    name = snapshot_name(live)
    if name is None:
        raise UsageError(
            f"{job.name} has not started, so nothing is frozen yet; `rljob explain` shows the spec that it will use"
        )
    frozen = frozen_snapshot(live, name, place, chosen.accelerators)
    # The edit is merged over the recipes that were frozen with the job, as the operator does.
    now, wanted = (
        check(job.name, spec, frozen.recipes, launcher=LAUNCHER, accelerators=chosen.accelerators)
        for spec in (live.get("spec") or {}, job.spec)
    )
    if wanted.spec is None:
        raise UsageError(f"{job.source}: {job.name}: {'; '.join(map(str, wanted.violations))}")
    return against_job(frozen.spec, now.spec or frozen.spec, wanted.spec)


def _plan(chosen: argparse.Namespace) -> int:
    """Estimate what a job needs and how long it takes; exit code 1 if a job is invalid or does not fit."""
    shape = read_config(chosen.model_config) if chosen.model_config else None
    judged = _judged(_files(chosen), chosen, MemoryCheck.WARN)
    _complain(judged, warnings=False)
    if any(checked.spec is None for _, checked in judged):
        return FAILED
    valid = [(job, checked.spec) for job, checked in judged if checked.spec is not None]
    return TOPICS[chosen.topic](chosen, valid, shape, LAUNCHER)


def _status(chosen: argparse.Namespace) -> int:
    place = kubectl.Place(chosen.namespace, chosen.context)
    if chosen.watch:
        if chosen.output in DATA:
            raise UsageError(f"--watch shows text; leave out it or -o {chosen.output}")
        return watch_status(chosen.name, place, chosen.interval)
    job = kubectl.get_job(chosen.name, place)
    if chosen.output in DATA:
        print(data_page([status_document(job)], chosen.output))
    else:
        print(describe(start.with_current(job, datetime.now(UTC))))
    return FAILED if failed(job) else 0


def _top(chosen: argparse.Namespace) -> int:
    place = kubectl.Place(chosen.namespace, chosen.context)
    if chosen.output in DATA:
        jobs = kubectl.list_jobs(place, everywhere=chosen.all_namespaces)
        print(data_page([{"jobs": [status_document(job) for job in jobs]}], chosen.output))
        return 0
    return top(place, everywhere=chosen.all_namespaces, once=chosen.once, interval_seconds=chosen.interval)


def _logs(chosen: argparse.Namespace) -> int:
    done = collect.collect(chosen.name, kubectl.Place(chosen.namespace, chosen.context))
    print(data_page([collect.document(done)], chosen.output) if chosen.output in DATA else collect.describe(done))
    return 0


def _report(chosen: argparse.Namespace) -> int:
    run = _gather(chosen)
    print(write_report(run, chosen.output))
    for note in run.notes:
        print(f"note: {note}")
    return 0


def _gather(chosen: argparse.Namespace) -> ReportRun:
    if chosen.local or chosen.workdir:
        return local_run((chosen.workdir or Path(".rljob") / chosen.name).absolute())
    since = time.time() - chosen.since * HOUR if chosen.since is not None else None
    place = kubectl.Place(chosen.namespace, chosen.context)
    sources = Sources(chosen.records, chosen.prometheus, since)
    return cluster_run(chosen.name, place, sources, LAUNCHER, chosen.accelerators)


def _quota(chosen: argparse.Namespace) -> int:
    """Print the shares of all teams, and the jobs of all namespaces or of one."""
    place = kubectl.Place(chosen.namespace, chosen.context)

    def read(plural: str, *options: str) -> list[dict[str, Any]]:
        return kubectl.list_items(f"{plural}.kueue.x-k8s.io", place, *options)

    where = () if chosen.namespace else ("--all-namespaces",)
    seen = quota.Kueue(
        cluster_queues=read("clusterqueues"),
        local_queues=read("localqueues", *where),
        flavors=read("resourceflavors"),
        workloads=read("workloads", *where),
    )
    print(quota.quota_page(seen, chosen.output))
    return 0


def _usage(chosen: argparse.Namespace) -> int:
    """Print how the cards were used in a month."""
    now = datetime.now(tz=UTC)
    month = usage.read_month(chosen.month or f"{now:%Y-%m}", now)
    place = kubectl.Place(chosen.namespace, chosen.context)
    if chosen.prometheus:
        ask, namespace = Server(chosen.prometheus).query, None if chosen.all_namespaces else chosen.namespace
        if namespace is None and not chosen.all_namespaces:
            raise UsageError("with --prometheus, select a namespace with -n, or all with -A")
        rows = list((usage.job_rows if chosen.by == "job" else usage.queue_rows)(ask, month, namespace))
    else:
        jobs = kubectl.list_jobs(place, everywhere=chosen.all_namespaces)
        rows = list(usage.status_rows(((job, *_placed(job, place, chosen.accelerators)) for job in jobs), month, now))
        print(
            "rljob: only Prometheus has the usage of deleted jobs; pass --prometheus URL to include them",
            file=sys.stderr,
        )
        for job in jobs:
            if (hours := usage.undated_card_hours(job)) > 0:
                name = f"{job['metadata']['namespace']}/{job['metadata']['name']}"
                print(f"rljob: {name}: {hours:.2f} card-hours of early attempts are not included", file=sys.stderr)
    print(usage.usage_page(month, rows, chosen.output))
    return 0


def _placed(job: Mapping[str, Any], place: kubectl.Place, accelerators: AcceleratorTable) -> tuple[str, str]:
    """Return (queue, accelerator class) of a job, from its snapshot if the job uses a recipe."""
    spec, name = job.get("spec") or {}, snapshot_name(job)
    if spec.get("recipeRef") and name:
        try:
            frozen = frozen_snapshot(job, name, place, accelerators).spec
        except UsageError as error:
            # One job must not hide the usage of all others.
            metadata = job["metadata"]
            print(f"rljob: queue and class of {metadata['namespace']}/{metadata['name']}: {error}", file=sys.stderr)
        else:
            return frozen.scheduling.queue_name or "", frozen.accelerator.class_
    return (spec.get("scheduling") or {}).get("queueName", ""), (spec.get("accelerator") or {}).get("class", "")


def _describe(chosen: argparse.Namespace) -> int:
    job = kubectl.get_job(chosen.name, kubectl.Place(chosen.namespace, chosen.context))
    place = kubectl.Place(job["metadata"]["namespace"], chosen.context)
    world = read_world(start.with_current(job, datetime.now(UTC)), place)
    told = why(world)
    if chosen.output in DATA:
        document = status_document(job)
        print(data_page([{key: document[key] for key in ("namespace", "job", "state")} | {"why": told}], chosen.output))
    else:
        print("\n".join(textwrap.wrap(told, PARAGRAPH_WIDTH, break_long_words=False, break_on_hyphens=False)))
    return FAILED if world.status.get("state") in ("Failed", "Invalid") else 0


def _conformance(chosen: argparse.Namespace) -> int:
    return conformance(chosen, LAUNCHER.versions)


def _run(chosen: argparse.Namespace) -> int:
    if not chosen.local:
        raise UsageError("`rljob run` trains on this machine: add --local, or use `kubectl apply` for a cluster")
    # The other commands also run on Windows.
    from rljob.cli.local.command import run_local  # noqa: PLC0415 - see above
    from rljob.cli.local.prepare import LocalOptions  # noqa: PLC0415 - see above

    files = _files(chosen)
    if len(files.jobs) > 1:
        names = ", ".join(job.name for job in files.jobs)
        raise UsageError(f"{len(files.jobs)} RLJobs ({names}); a local run takes a single one, so split the file")
    judged = _judged(files, chosen)
    _complain(judged)
    ((job, checked),) = judged
    if checked.spec is None:
        return FAILED
    volumes = dict(_volume(text) for text in chosen.volume)
    code = chosen.code.absolute() if chosen.code else None
    given = LocalOptions(volumes, code, os.environ, LAUNCHER)
    # A job that gets its name from the cluster keeps its folder between runs, too.
    return run_local(job.name.rstrip("-*"), checked, files.others, chosen.workdir, given)


def _volume(text: str) -> tuple[str, Path]:
    name, _, folder = text.partition("=")
    if not folder:
        raise UsageError(f"--volume {text}: use NAME=FOLDER, such as --volume data=/srv/data")
    return name, Path(folder).absolute()


def _files(chosen: argparse.Namespace) -> Files:
    return _read(chosen.file, chosen)


def _read(sources: Sequence[str], chosen: argparse.Namespace) -> Files:
    files = read_files(sources, chosen.namespace)
    if files.skipped:
        print(f"rljob: note: {files.note}", file=sys.stderr)
    return files


def _valid(chosen: argparse.Namespace) -> Judged | None:
    """Return the jobs of the files, or None if one is invalid; print all violations and warnings."""
    judged = _judged(_files(chosen), chosen)
    _complain(judged)
    return judged if all(checked.spec is not None for _, checked in judged) else None


def _judged(files: Files, chosen: argparse.Namespace, memory_check: MemoryCheck | None = None) -> Judged:
    """Return each job of the files with its merged spec."""
    judged = []
    for job in files.jobs:
        spec = _with_memory_check(job.spec, memory_check) if memory_check else job.spec
        recipes = _recipes(job, files.recipes, chosen)
        checked = validate_document(
            {**job.document, "spec": spec},
            recipes,
            launcher=LAUNCHER,
            accelerators=chosen.accelerators,
            absent=NOT_IN_CLUSTER if chosen.cluster else NOT_IN_FILES,
        )
        judged.append((job, checked))
    return judged


def _complain(judged: Judged, *, warnings: bool = True) -> None:
    """Print the violations of each job, and the warnings of valid ones."""
    for job, checked in judged:
        for violation in checked.violations:
            print(f"{job.source}: {job.name or 'RLJob without a name'}: {violation}", file=sys.stderr)
        for warning in checked.warnings if warnings and checked.spec is not None else ():
            print(f"{job.source}: {job.name}: warning: {warning}", file=sys.stderr)


def _with_memory_check(spec: Mapping[str, Any], check: MemoryCheck) -> dict[str, Any]:
    """Report memory that does not fit as a table instead of a violation; a command has no such plan."""
    if launcher_fields.is_command(spec):
        return dict(spec)
    model = spec.get("model")
    return {**spec, "model": {**(model if isinstance(model, Mapping) else {}), "memoryCheck": check.value}}


def _recipes(job: JobManifest, known: Recipes, chosen: argparse.Namespace) -> Recipes:
    """Add recipes that only the cluster has to the recipes of the files, if the cluster may be read."""
    if not chosen.cluster:
        return known
    place = kubectl.Place(job.namespace, chosen.context)
    return complete(job.spec, known, lambda recipe: kubectl.find_recipe(recipe, place))


_COMMANDS = {
    "validate": _validate,
    "render": _render,
    "explain": _explain,
    "diff": _diff,
    "plan": _plan,
    "status": _status,
    "describe": _describe,
    "quota": _quota,
    "usage": _usage,
    "top": _top,
    "logs": _logs,
    "report": _report,
    "export": export,
    "check-image": check_image,
    "conformance": _conformance,
    "run": _run,
}


if __name__ == "__main__":
    sys.exit(main())
