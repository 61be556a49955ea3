"""Fetch one commit of a Git repository into a folder: the init container of pods whose code is in Git.

Only the commit's hash is trusted: every object from the commit down to each file is hashed again before it is written.
Attempts are repeated with growing pauses until the time is up. An error that another attempt cannot resolve ends the
program at once with exit code 64. dulwich implements the protocol, because runtime images contain no git. Credentials
come from the environment and are sent only to the host in the URL (dulwich drops them on a redirect to another host).
"""

from __future__ import annotations

import hashlib
import os
import shutil
import stat
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from rljob_runtime.contract import ExitCode, PodVariable
from rljob_runtime.outcomes import bounded

if TYPE_CHECKING:
    from dulwich.client import GitClient
    from dulwich.objects import ObjectID
    from dulwich.repo import Repo

FIRST_PAUSE_SECONDS = 1.0
LONGEST_PAUSE_SECONDS = 30.0
PROGRESS_SECONDS = 2.0
"""Minimum time between two lines of the server's progress output."""
PERMANENT_STATUS = ("http resp 401", "http resp 403", "http resp 404", "http resp 410")
"""dulwich's messages for responses (client.py, AbstractHttpGitClient) that do not change with another attempt."""
NO_SUCH_OBJECT = "not our ref"
"""Message of git's upload-pack for a hash that it does not have or does not serve."""


@dataclass(frozen=True)
class CodeRequest:
    """What to fetch and where to write it."""

    url: str
    revision: str
    """Full hash of the commit."""
    folder: Path
    """Must exist. Its contents are replaced."""
    sub_path: str = ""
    """Folder in the repository; empty for its root."""
    seconds: float = 600.0
    """Time limit for all attempts together."""


class PermanentError(Exception):
    """An error that another attempt cannot resolve."""


@dataclass
class ProgressLog:
    """Prints progress at a readable rate."""

    last: float = field(default=-PROGRESS_SECONDS)
    rest: bytes = b""

    def write(self, text: str) -> None:
        """Print a line."""
        sys.stdout.write(f"fetch-code: {text}\n")
        sys.stdout.flush()

    def relay(self, text: bytes) -> None:
        """Print the last line of the server's progress output, at most every PROGRESS_SECONDS."""
        *lines, self.rest = (self.rest[-200:] + text).replace(b"\r", b"\n").split(b"\n")
        line = next((text for text in reversed(lines) if text.strip()), b"")
        if line and time.monotonic() - self.last >= PROGRESS_SECONDS:
            self.last = time.monotonic()
            self.write(" ".join(line.decode(errors="replace").split())[:200])


def fetch_code(request: CodeRequest, environment: Mapping[str, str]) -> int:
    """Fetch the code and return the exit code: 0, 64 (no such commit or no access) or 65 (environment or network)."""
    log = ProgressLog()
    end = time.monotonic() + request.seconds
    # No socket timeout ends a transfer from a server that sends a byte per minute.
    watchdog = threading.Timer(request.seconds + 5, _exit_on_timeout, (request.seconds,))
    watchdog.daemon = True
    watchdog.start()
    try:
        return _try_until(end, request, environment, log)
    except PermanentError as error:
        log.write(bounded(str(error)))
        return int(ExitCode.BAD_CONFIG)
    finally:
        watchdog.cancel()


def _exit_on_timeout(seconds: float) -> None:
    ProgressLog().write(f"not finished after {seconds:g} s; is the server too slow?")
    os._exit(int(ExitCode.ENVIRONMENT))


def _try_until(end: float, request: CodeRequest, environment: Mapping[str, str], log: ProgressLog) -> int:
    pause, attempts = FIRST_PAUSE_SECONDS, 0
    while True:
        attempts += 1
        log.write(f"attempt {attempts}: fetching commit {request.revision} of {request.url}")
        try:
            _fetch(request, environment, log)
        except PermanentError:
            raise
        except Exception as error:  # noqa: BLE001 - any error of the network or the server: try again
            log.write(bounded(f"{type(error).__name__}: {error}"))
        else:
            return int(ExitCode.DONE)
        if time.monotonic() + pause >= end:
            log.write(f"failed after {attempts} attempts in {request.seconds:g} s; is it reachable from this pod?")
            return int(ExitCode.ENVIRONMENT)
        time.sleep(pause)
        pause = min(2 * pause, LONGEST_PAUSE_SECONDS)


def _fetch(request: CodeRequest, environment: Mapping[str, str], log: ProgressLog) -> None:
    from dulwich.repo import Repo

    # On the volume, because the container's own layer may not have enough space.
    with (
        tempfile.TemporaryDirectory(prefix=".fetch-", dir=request.folder) as scratch,
        Repo.init_bare(scratch) as repo,
    ):
        _receive(request, environment, repo, log.relay)
        tree = _tree(repo, request)
        files, size = _verify(repo, tree)
        _clear(request.folder, keep=Path(scratch).name)
        _write(repo, tree, request.folder, Path(scratch))
    log.write(f"wrote {files} files, {size} bytes, of commit {request.revision} to {request.folder}")


def _receive(
    request: CodeRequest, environment: Mapping[str, str], repo: Repo, progress: Callable[[bytes], None]
) -> None:
    from dulwich.client import HTTPUnauthorized, get_transport_and_path_from_url
    from dulwich.errors import GitProtocolError, NotGitRepository

    password = environment.get(PodVariable.CODE_PASSWORD)
    # Hosts that accept tokens expect some user name; git itself sends no credentials without one.
    username = (environment.get(PodVariable.CODE_USERNAME) or "git") if password else None
    client, path = get_transport_and_path_from_url(request.url, username=username, password=password, quiet=True)
    wanted = _object_id(request.revision)
    try:
        # Only the one commit, without its history.
        client.fetch(path, repo, lambda _, depth=None: [wanted], progress, depth=1)  # noqa: ARG005 - called by keyword
    except (NotGitRepository, HTTPUnauthorized) as error:
        raise PermanentError(_refused(request, error, with_password=bool(password))) from error
    except (GitProtocolError, KeyError) as error:
        if any(words in str(error) for words in PERMANENT_STATUS):
            raise PermanentError(_refused(request, error, with_password=bool(password))) from error
        if not isinstance(error, KeyError) and NO_SUCH_OBJECT not in str(error):
            raise
        _receive_all(client, path, repo, progress)
    if wanted not in repo.object_store:
        raise PermanentError(f"{request.url} has no commit {request.revision}; was it pushed?")


def _receive_all(client: GitClient, path: str, repo: Repo, progress: Callable[[bytes], None]) -> None:
    """Fetch all branches: old servers serve only commits that a branch or tag points to."""
    if getattr(client, "protocol_version", 2) != 2:
        client.fetch(path, repo, lambda refs, depth=None: [sha for sha in refs.values() if sha], progress)  # noqa: ARG005


def _refused(request: CodeRequest, error: Exception, *, with_password: bool) -> str:
    fix = (
        "check the Secret in spec.code.git.secretRef"
        if with_password
        else "a private one needs spec.code.git.secretRef"
    )
    return f"cannot read the repository {request.url}: {type(error).__name__}: {error}; {fix}"


def _object_id(text: str) -> ObjectID:
    from dulwich.objects import ObjectID

    return ObjectID(text.encode())


def _tree(repo: Repo, request: CodeRequest) -> ObjectID:
    """Return the hash of the requested folder's tree."""
    from dulwich.objects import Commit, Tree

    commit = repo.object_store[_object_id(request.revision)]
    if not isinstance(commit, Commit):
        raise PermanentError(f"{request.revision} is a {commit.type_name.decode()}, not a commit")
    _check(commit.type_name, commit.as_raw_string(), _object_id(request.revision))
    found: ObjectID = commit.tree
    for part in (part for part in request.sub_path.split("/") if part not in ("", ".")):
        folder = repo.object_store[found]
        _check(folder.type_name, folder.as_raw_string(), found)
        if not isinstance(folder, Tree) or part.encode() not in folder:
            raise PermanentError(f"commit {request.revision} has no folder {request.sub_path}")
        mode, sha = folder[part.encode()]
        found = _object_id(sha.decode())
        if not stat.S_ISDIR(mode):
            raise PermanentError(f"{request.sub_path}: {part} is not a folder in commit {request.revision}")
    return found


def _verify(repo: Repo, tree: ObjectID) -> tuple[int, int]:
    """Hash everything below a tree again; return the number of files and their total size."""
    from dulwich.object_store import iter_tree_contents
    from dulwich.objects import S_ISGITLINK

    files = size = 0
    for entry in iter_tree_contents(repo.object_store, tree, include_trees=True):
        if S_ISGITLINK(entry.mode):
            continue  # a submodule: an empty folder
        found = repo.object_store[entry.sha]
        _check(found.type_name, data := found.as_raw_string(), entry.sha)
        if not stat.S_ISDIR(entry.mode):
            files, size = files + 1, size + len(data)
    return files, size


def _check(kind: bytes, data: bytes, wanted: ObjectID) -> None:
    # Git names objects by their SHA-1. The comparison starts from the hash that the user specified.
    found = hashlib.sha1(kind + b" " + str(len(data)).encode() + b"\0" + data, usedforsecurity=False).hexdigest()
    if found.encode() != wanted:
        raise ValueError(f"{kind.decode()} {wanted.decode()} has hash {found}: corrupted in transfer")


def _clear(folder: Path, *, keep: str) -> None:
    """Remove what an earlier run of this init container wrote."""
    for old in folder.iterdir():
        if old.name == keep:
            continue
        if old.is_dir() and not old.is_symlink():
            shutil.rmtree(old)
        else:
            old.unlink()


def _write(repo: Repo, tree: ObjectID, folder: Path, scratch: Path) -> None:
    from dulwich.index import build_index_from_tree

    # dulwich rejects .git, .. and paths through links that the tree itself created.
    build_index_from_tree(str(folder), str(scratch / "written"), repo.object_store, tree)
