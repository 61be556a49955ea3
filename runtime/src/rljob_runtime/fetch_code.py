"""Fetch one commit of a Git repository into a folder: the init container of pods whose code is in Git.

Nothing is trusted but the commit's hash: every object on the way from it to a file is hashed again before it is
written. Tries are repeated with growing pauses until the time is up; what no further try can mend ends at once with
exit code 64. dulwich speaks the protocol, since runtime images hold no git; credentials come through the environment
and go only to the host that the URL names (dulwich drops them on a redirect to another).
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
SAY_SECONDS = 2.0
"""Shortest time between two lines that repeat what the server says."""
HOPELESS_STATUS = ("http resp 401", "http resp 403", "http resp 404", "http resp 410")
"""dulwich's words for answers (client.py, AbstractHttpGitClient) that the next try would get too."""
NO_SUCH_OBJECT = "not our ref"
"""git's upload-pack about a hash that it does not have, or does not give out."""


@dataclass(frozen=True)
class CodeRequest:
    """What to fetch, and where to."""

    url: str
    revision: str
    """Full hash of the commit."""
    folder: Path
    """Exists; what it holds is replaced."""
    sub_path: str = ""
    """Folder in the repository; empty: its root."""
    seconds: float = 600.0
    """Bound on all tries together."""


class HopelessError(Exception):
    """No further try can mend it."""


@dataclass
class Voice:
    """Prints progress, not more often than anybody can read."""

    last: float = field(default=-SAY_SECONDS)
    rest: bytes = b""

    def say(self, text: str) -> None:
        """Print a line."""
        sys.stdout.write(f"fetch-code: {text}\n")
        sys.stdout.flush()

    def repeat(self, text: bytes) -> None:
        """Print the last line of what the server says, now and then."""
        *lines, self.rest = (self.rest[-200:] + text).replace(b"\r", b"\n").split(b"\n")
        said = next((line for line in reversed(lines) if line.strip()), b"")
        if said and time.monotonic() - self.last >= SAY_SECONDS:
            self.last = time.monotonic()
            self.say(" ".join(said.decode(errors="replace").split())[:200])


def fetch_code(request: CodeRequest, environment: Mapping[str, str]) -> int:
    """Fetch, and give the exit code: 0, 64 (the commit is not to be had) or 65 (the place or the network)."""
    voice = Voice()
    end = time.monotonic() + request.seconds
    # A server may send a byte a minute for ever: no timeout of a socket ends that.
    watchdog = threading.Timer(request.seconds + 5, _give_up, (request.seconds,))
    watchdog.daemon = True
    watchdog.start()
    try:
        return _try_until(end, request, environment, voice)
    except HopelessError as error:
        voice.say(bounded(str(error)))
        return int(ExitCode.BAD_CONFIG)
    finally:
        watchdog.cancel()


def _give_up(seconds: float) -> None:
    Voice().say(f"not done after {seconds:g} s")
    os._exit(int(ExitCode.ENVIRONMENT))


def _try_until(end: float, request: CodeRequest, environment: Mapping[str, str], voice: Voice) -> int:
    pause, tries = FIRST_PAUSE_SECONDS, 0
    while True:
        tries += 1
        voice.say(f"try {tries}: commit {request.revision} of {request.url}")
        try:
            _fetch(request, environment, voice)
        except HopelessError:
            raise
        except Exception as error:  # noqa: BLE001 - whatever a network or a server comes up with: try again
            voice.say(bounded(f"{type(error).__name__}: {error}"))
        else:
            return int(ExitCode.DONE)
        if time.monotonic() + pause >= end:
            voice.say(f"given up after {tries} tries in {request.seconds:g} s; is the repository reachable from here?")
            return int(ExitCode.ENVIRONMENT)
        time.sleep(pause)
        pause = min(2 * pause, LONGEST_PAUSE_SECONDS)


def _fetch(request: CodeRequest, environment: Mapping[str, str], voice: Voice) -> None:
    from dulwich.repo import Repo

    # On the volume, which has the room that a container's own layer may not have.
    with (
        tempfile.TemporaryDirectory(prefix=".fetch-", dir=request.folder) as scratch,
        Repo.init_bare(scratch) as repo,
    ):
        _receive(request, environment, repo, voice.repeat)
        tree = _tree(repo, request)
        files, size = _verify(repo, tree)
        _clear(request.folder, keep=Path(scratch).name)
        _write(repo, tree, request.folder, Path(scratch))
    voice.say(f"wrote {files} files, {size} bytes, of commit {request.revision} to {request.folder}")


def _receive(
    request: CodeRequest, environment: Mapping[str, str], repo: Repo, progress: Callable[[bytes], None]
) -> None:
    from dulwich.client import HTTPUnauthorized, get_transport_and_path_from_url
    from dulwich.errors import GitProtocolError, NotGitRepository

    password = environment.get(PodVariable.CODE_PASSWORD)
    # Hosts that take tokens want any name beside them; git itself sends none without a name.
    username = (environment.get(PodVariable.CODE_USERNAME) or "git") if password else None
    client, path = get_transport_and_path_from_url(request.url, username=username, password=password, quiet=True)
    wanted = _object_id(request.revision)
    try:
        # The one commit, without its history.
        client.fetch(path, repo, lambda _, depth=None: [wanted], progress, depth=1)  # noqa: ARG005 - called by keyword
    except (NotGitRepository, HTTPUnauthorized) as error:
        raise HopelessError(_refused(request, error, with_password=bool(password))) from error
    except (GitProtocolError, KeyError) as error:
        if any(words in str(error) for words in HOPELESS_STATUS):
            raise HopelessError(_refused(request, error, with_password=bool(password))) from error
        if not isinstance(error, KeyError) and NO_SUCH_OBJECT not in str(error):
            raise
        _receive_all(client, path, repo, progress)
    if wanted not in repo.object_store:
        raise HopelessError(f"there is no commit {request.revision} in {request.url}; was it pushed?")


def _receive_all(client: GitClient, path: str, repo: Repo, progress: Callable[[bytes], None]) -> None:
    """Fetch all branches: an old server gives out only what a branch or tag points to."""
    if getattr(client, "protocol_version", 2) != 2:
        client.fetch(path, repo, lambda refs, depth=None: [sha for sha in refs.values() if sha], progress)  # noqa: ARG005


def _refused(request: CodeRequest, error: Exception, *, with_password: bool) -> str:
    hint = "the Secret that spec.code.git.secretRef names is wrong" if with_password else "it may need a secretRef"
    return f"{request.url} is no repository that may be read: {type(error).__name__}: {error}; {hint}"


def _object_id(text: str) -> ObjectID:
    from dulwich.objects import ObjectID

    return ObjectID(text.encode())


def _tree(repo: Repo, request: CodeRequest) -> ObjectID:
    """Give the hash of the wanted folder's tree."""
    from dulwich.objects import Commit, Tree

    commit = repo.object_store[_object_id(request.revision)]
    if not isinstance(commit, Commit):
        raise HopelessError(f"{request.revision} is a {commit.type_name.decode()}, not a commit")
    _check(commit.type_name, commit.as_raw_string(), _object_id(request.revision))
    found: ObjectID = commit.tree
    for part in (part for part in request.sub_path.split("/") if part not in ("", ".")):
        folder = repo.object_store[found]
        _check(folder.type_name, folder.as_raw_string(), found)
        if not isinstance(folder, Tree) or part.encode() not in folder:
            raise HopelessError(f"there is no {request.sub_path} in commit {request.revision}")
        mode, sha = folder[part.encode()]
        found = _object_id(sha.decode())
        if not stat.S_ISDIR(mode):
            raise HopelessError(f"{request.sub_path}: {part} is no folder in commit {request.revision}")
    return found


def _verify(repo: Repo, tree: ObjectID) -> tuple[int, int]:
    """Hash everything below a tree again; gives the number of files and their bytes."""
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
    # SHA-1 because Git's names of objects are that; what is compared is the name that the user wrote.
    found = hashlib.sha1(kind + b" " + str(len(data)).encode() + b"\0" + data, usedforsecurity=False).hexdigest()
    if found.encode() != wanted:
        raise ValueError(f"{kind.decode()} {wanted.decode()} came as {found}: damaged on the way")


def _clear(folder: Path, *, keep: str) -> None:
    """Remove what an earlier life of this pod wrote."""
    for old in folder.iterdir():
        if old.name == keep:
            continue
        if old.is_dir() and not old.is_symlink():
            shutil.rmtree(old)
        else:
            old.unlink()


def _write(repo: Repo, tree: ObjectID, folder: Path, scratch: Path) -> None:
    from dulwich.index import build_index_from_tree

    # dulwich refuses .git, .. and paths through links that the tree itself made.
    build_index_from_tree(str(folder), str(scratch / "written"), repo.object_store, tree)
