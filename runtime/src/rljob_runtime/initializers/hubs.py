"""The files of a repository, as Hugging Face and ModelScope list them.

The paths are those of the hubs' own clients: huggingface_hub 1.33, hf_api.py (`repo_info`, `list_repo_tree`) and
file_download.py (`hf_hub_url`); modelscope 1.28, hub/api.py:861-895 (models), 1019-1046 (data sets), 1190 and
hub/file_download.py:369-382. A mirror serves the same paths under another URL. A listing is foreign: its size, its
number of files and each path are bounded and checked before anything is written.

The clients themselves are not used. The program runs in the image of any job, or in one that only initializes, and
neither has to contain them; huggingface_hub 1.33 compares the size of what it downloaded and not its digest
(file_download.py:442), and what is missing for a bounded, verified download is most of `transfer.py`.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import PurePosixPath
from typing import Any
from urllib.parse import quote, urlsplit

from rljob_runtime.contract import ExitCode
from rljob_runtime.contract.downloads import Hub
from rljob_runtime.initializers.error import RequestError
from rljob_runtime.initializers.web import Client

FILES_MAX = 20_000
PATH_MAX = 1024
PAGES_MAX = 1000
PAGE_SIZE = 100
"""Files that a page of a ModelScope data set has."""
ENDPOINTS = {Hub.HUGGING_FACE: "https://huggingface.co", Hub.MODEL_SCOPE: "https://www.modelscope.cn"}
REVISIONS = {Hub.HUGGING_FACE: "main", Hub.MODEL_SCOPE: "master"}
DIGEST = re.compile(r"[0-9a-f]{64}|[0-9a-f]{40}")
NEXT_PAGE = re.compile(r'<([^<>]+)>\s*;\s*rel="next"')


@dataclass(frozen=True)
class RemoteFile:
    """A file of a repository."""

    path: str
    size: int
    place: str
    """Path and query below the endpoint, or a path of a folder."""
    sha256: str = ""
    """What the source states; empty if it states nothing."""
    git_blob: str = ""
    """Git's SHA-1 of the content, which Hugging Face states of small files."""

    @property
    def identity(self) -> str:
        """Return what distinguishes this content from an earlier one of the same path."""
        return self.sha256 or self.git_blob or f"{self.place}#{self.size}"


@dataclass(frozen=True)
class Repository:
    """A repository of a hub."""

    hub: Hub
    name: str
    revision: str
    is_dataset: bool

    def files(self, client: Client) -> list[RemoteFile]:
        """Return all files. Raises RequestError for a listing that cannot be used."""
        listing = self._hugging_face(client) if self.hub is Hub.HUGGING_FACE else self._model_scope(client)
        found: dict[str, RemoteFile] = {}
        for file in listing:
            require_path(file.path)
            found[file.path] = file
            if len(found) > FILES_MAX:
                raise _unreadable(f"{self.name} has more than {FILES_MAX} files; name those you need with include")
        if not found:
            raise RequestError(ExitCode.BAD_CONFIG, f"{self.name} at revision {self.revision} has no files; correct it")
        return list(found.values())

    def _hugging_face(self, client: Client) -> Iterator[RemoteFile]:
        kind = "datasets" if self.is_dataset else "models"
        info, _ = client.json(f"/api/{kind}/{self.name}/revision/{quote(self.revision, safe='')}")
        # The branch may move between this try and the next one.
        commit = _text(info, "sha")
        page = f"/api/{kind}/{self.name}/tree/{quote(commit, safe='')}?recursive=true"
        for _ in range(PAGES_MAX):
            entries, headers = client.json(page)
            for entry in _list(entries):
                if entry.get("type") == "file":
                    yield self._file_of_hugging_face(entry, commit)
            following = NEXT_PAGE.search(headers.get("Link", ""))
            if following is None:
                return
            # A mirror may pass on the hub's own URL.
            parts = urlsplit(following[1])
            page = f"{parts.path}?{parts.query}"
        raise _unreadable(f"the listing of {self.name} has more than {PAGES_MAX} pages")

    def _file_of_hugging_face(self, entry: Mapping[str, Any], commit: str) -> RemoteFile:
        path, large = _text(entry, "path"), entry.get("lfs")
        prefix = "/datasets" if self.is_dataset else ""
        return RemoteFile(
            path,
            _size(entry, "size"),
            f"{prefix}/{self.name}/resolve/{quote(commit, safe='')}/{quote(path)}",
            sha256=_digest(large.get("oid")) if isinstance(large, dict) else "",
            git_blob="" if isinstance(large, dict) else _digest(entry.get("oid")),
        )

    def _model_scope(self, client: Client) -> Iterator[RemoteFile]:
        revision = quote(self.revision, safe="")
        if not self.is_dataset:
            answer, _ = client.json(f"/api/v1/models/{self.name}/repo/files?Revision={revision}&Recursive=True")
            for entry in _files(answer):
                yield from self._file_of_model_scope(entry, f"/api/v1/models/{self.name}/repo?Revision={revision}")
            return
        about, _ = client.json(f"/api/v1/datasets/{self.name}")
        number = quote(str(_member(about, "Data").get("Id", "")), safe="")
        tree = f"/api/v1/datasets/{number}/repo/tree?Revision={revision}&Recursive=True&Root=/&PageSize={PAGE_SIZE}"
        for page in range(1, PAGES_MAX + 1):
            answer, _ = client.json(f"{tree}&PageNumber={page}")
            entries = _files(answer)
            for entry in entries:
                place = f"/api/v1/datasets/{self.name}/repo?Source=SDK&Revision={revision}"
                yield from self._file_of_model_scope(entry, place)
            if len(entries) < PAGE_SIZE:
                return
        raise _unreadable(f"the listing of {self.name} has more than {PAGES_MAX} pages")

    def _file_of_model_scope(self, entry: Mapping[str, Any], place: str) -> Iterator[RemoteFile]:
        if entry.get("Type") == "tree":
            return
        path = _text(entry, "Path")
        yield RemoteFile(
            path, _size(entry, "Size"), f"{place}&FilePath={quote(path, safe='')}", _digest(entry.get("Sha256"))
        )


def require_path(path: str) -> None:
    """Raise RequestError for a path that would leave its folder, or that no file of a repository has."""
    parts = PurePosixPath(path).parts
    plain = path == "/".join(parts) and path.isprintable() and "\\" not in path
    if not plain or not parts or path.startswith("/") or ".." in parts or len(path) > PATH_MAX:
        raise _unreadable(f"the path {path[:100]!r} is no path of a file below a folder")
    if parts[0] == ".rljob":
        raise _unreadable(f"the path {path[:100]!r} is in the folder of the download's own records")


def _member(value: object, name: str) -> Mapping[str, Any]:
    found = value.get(name) if isinstance(value, dict) else None
    if not isinstance(found, dict):
        raise _unreadable(f"the answer has no {name}; is it a hub of this kind?")
    return found


def _files(answer: object) -> list[Mapping[str, Any]]:
    return _list(_member(answer, "Data").get("Files"))


def _list(value: object) -> list[Mapping[str, Any]]:
    if not isinstance(value, list) or not all(isinstance(entry, dict) for entry in value):
        raise _unreadable("the answer is no list of files; is it a hub of this kind?")
    return value


def _text(entry: object, name: str) -> str:
    value = entry.get(name) if isinstance(entry, dict) else None
    if not isinstance(value, str) or not value:
        raise _unreadable(f"the answer has no {name}; is it a hub of this kind?")
    return value


def _size(entry: Mapping[str, Any], name: str) -> int:
    value = entry.get(name)
    if not isinstance(value, int) or isinstance(value, bool) or value < 0:
        raise _unreadable(f"a file has no {name}; is it a hub of this kind?")
    return value


def _digest(value: object) -> str:
    text = str(value or "").removeprefix("sha256:").lower()
    return text if DIGEST.fullmatch(text) else ""


def _unreadable(problem: str) -> RequestError:
    return RequestError(ExitCode.ENVIRONMENT, problem)
