"""Run one request: list, transfer, convert, record. The exit code says whether another try can help.

What exists already is not made again: the container's termination message then begins with `skipped: `, which the
operator shows. The token of a hub is read from the environment and removed from it, before anything is started.
"""

from __future__ import annotations

import fnmatch
import os
import shutil
from collections.abc import Mapping, MutableMapping
from dataclasses import dataclass, replace
from pathlib import Path

from rljob_runtime.contract import ExitCode
from rljob_runtime.contract.downloads import INDEX_VARIABLE, TOKEN_VARIABLE, Hub, InitializerRequest
from rljob_runtime.initializers import datasets, hubs
from rljob_runtime.initializers.error import RequestError
from rljob_runtime.initializers.hubs import RemoteFile, Repository
from rljob_runtime.initializers.sources import folder_files
from rljob_runtime.initializers.target import Target, full, is_full, say, size_text
from rljob_runtime.initializers.transfer import FolderSource, HubSource, Progress, Source, Transfer
from rljob_runtime.initializers.web import Client
from rljob_runtime.outcomes import bounded

TERMINATION_LOG = Path("/dev/termination-log")
RAW = ".rljob/raw"
"""Folder of a data set's files before their conversion."""


@dataclass(frozen=True)
class Origin:
    """Where a download comes from: all its files, and how to read them."""

    files: list[RemoteFile]
    source: Source
    client: Client


def initialize(argument: str, environ: MutableMapping[str, str], termination_log: Path = TERMINATION_LOG) -> int:
    """Run a request. Return 0, 64 (the request cannot be fulfilled) or 65 (hub, network or volume)."""
    token = environ.pop(TOKEN_VARIABLE, "")
    request = InitializerRequest.from_argument(argument)
    try:
        if request.checkpoint:
            from rljob_runtime.initializers.checkpoints import convert_checkpoint

            if not convert_checkpoint(request):
                _skip(request, termination_log)
            return int(ExitCode.DONE)
        target = Target(Path(request.to))
        if target.is_done(argument):
            _skip(request, termination_log)
            return int(ExitCode.DONE)
        if request.convert:
            from rljob_runtime.initializers.convert import convert

            convert(request, target, _index(environ))
        else:
            with target.alone():
                if target.is_done(argument):
                    _skip(request, termination_log)
                else:
                    _download(request, argument, target, token)
    except RequestError as error:
        say(bounded(str(error)))
        return int(error.code)
    except OSError as error:
        refused = full(Path(request.to), "no room is left") if is_full(error) else error
        say(bounded(f"{refused}; look at the volumes"))
        return int(ExitCode.ENVIRONMENT)
    return int(ExitCode.DONE)


def _skip(request: InitializerRequest, termination_log: Path) -> None:
    line = f"skipped: {request.to} is there already"
    say(line)
    if termination_log.exists():
        termination_log.write_text(line)


def _index(environ: Mapping[str, str]) -> int | None:
    text = environ.get(INDEX_VARIABLE, "")
    return int(text) if text.isdecimal() else None


def _download(request: InitializerRequest, argument: str, target: Target, token: str) -> None:
    dataset = datasets.TABLE[request.dataset] if request.dataset is not None else None
    if dataset is not None:
        raw = Target(target.folder / RAW)
        sums, _ = _fill(request, raw, token, dataset)
        outputs = datasets.convert(dataset, raw.folder, target.folder)
        shutil.rmtree(raw.folder)
    else:
        sums, outputs = _fill(request, target, token, None)
    target.finish(argument, outputs)
    say(f"{request.to} is complete; SHA-256 of its list of files: {sums}")


def _fill(
    request: InitializerRequest, target: Target, token: str, dataset: datasets.Dataset | None
) -> tuple[str, list[str]]:
    """Transfer the chosen files. Return the SHA-256 of their list, and their paths."""
    origin = _origin(request, token, dataset)
    chosen = choose(origin.files, request, dataset)
    total = sum(file.size for file in chosen)
    here = sum(file.size for file in chosen if target.known_digest(file.path) is not None)
    begun = sum(_size(target.part(file.path, file.identity)) for file in chosen)
    target.require_room(total - here - begun)
    say(f"{len(chosen)} of {len(origin.files)} files, {size_text(total)}, to {target.folder}")
    Transfer(origin.source, target, origin.client, Progress(total, len(chosen))).run(chosen)
    paths = [file.path for file in chosen]
    sums = target.write_sums(paths)
    if request.sha256 and sums != request.sha256:
        raise RequestError(
            ExitCode.BAD_CONFIG,
            f"the list of files {target.records}/SHA256SUMS has the SHA-256 {sums}, and download.sha256 is "
            f"{request.sha256}; if the files are those that you want, set it to the former",
        )
    return sums, paths


def _origin(request: InitializerRequest, token: str, dataset: datasets.Dataset | None) -> Origin:
    if request.hub is None:
        client = Client(Hub.HUGGING_FACE, request.source)
        return Origin(folder_files(Path(request.source)), FolderSource(), client)
    name = request.repository or (dataset.repositories[request.hub] if dataset is not None else "")
    revision = request.revision or hubs.REVISIONS[request.hub]
    client = Client(request.hub, request.endpoint or hubs.ENDPOINTS[request.hub], token)
    say(f"{name} at {revision} of {client.endpoint}")
    repository = Repository(request.hub, name, revision, is_dataset=dataset is not None)
    return Origin(repository.files(client), HubSource(client), client)


def choose(files: list[RemoteFile], request: InitializerRequest, dataset: datasets.Dataset | None) -> list[RemoteFile]:
    """Return the files that are wanted. Raises RequestError if there are none."""
    include = dataset.patterns if dataset is not None else request.include or ("*",)
    chosen = [
        file
        for file in files
        if any(fnmatch.fnmatchcase(file.path, pattern) for pattern in include)
        and not any(fnmatch.fnmatchcase(file.path, pattern) for pattern in request.exclude)
    ]
    if not chosen:
        shown = ", ".join(sorted(file.path for file in files)[:8])
        raise RequestError(
            ExitCode.BAD_CONFIG,
            f"none of {len(files)} files matches {', '.join(include)}; there are {shown}",
        )
    return [replace(file) for file in chosen]


def _size(path: Path) -> int:
    try:
        return os.stat(path).st_size  # noqa: PTH116 - no exception type of its own
    except OSError:
        return 0
