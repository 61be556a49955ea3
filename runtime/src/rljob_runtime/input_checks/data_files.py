"""The data files of a run: whether verl can read them, and whether a row has what the run needs of it.

Only the schema and the first row of each file are read. A dataset class of the user's own (data.custom_cls) knows its
files better, so nothing is checked then. Sources, verl 0.9.1:

- utils/dataset/rl_dataset.py:173-181 reads Parquet and JSON by the suffix and concatenates the files;
- utils/dataset/rl_dataset.py:370-390 and experimental/agent_loop/single_turn_agent_loop.py render the messages of
  data.prompt_key with the tokenizer's chat template;
- experimental/reward_loop/reward_manager/*.py read data_source, reward_model.ground_truth and extra_info;
- trainer/ppo/v1/trainer_base.py:450,765 divides by the number of whole batches.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rljob_runtime.contract import ExitCode, quoted
from rljob_runtime.input_checks.deadline import within
from rljob_runtime.outcomes import RefusedError

if TYPE_CHECKING:
    from omegaconf import DictConfig

READ_SECONDS = 120.0
"""Time for all files together: at most 128, of which only the footer and one row are read."""
JSON_BYTES = 16 * 1024 * 1024
"""How much of a JSON file is read to find its first row. A longer first row is not judged."""
COLUMNS_SHOWN = 16
NAME_SHOWN = 64
TYPE_SHOWN = 120
SCORED_BY = frozenset({"naive", "dapo", "gdpo", "rate_limited", "remote"})
"""verl's reward managers, all of which read the same columns. One of the user's own may read others."""
DATA_SOURCE, REWARD_MODEL, GROUND_TRUTH, EXTRA_INFO = "data_source", "reward_model", "ground_truth", "extra_info"
ADVICE = "add the column when the data is prepared"
MESSAGES = 'a list of messages such as [{"role": "user", "content": "1+1?"}]'


@dataclass(frozen=True)
class DataSettings:
    """The keys of verl's configuration that decide how its data is read."""

    train: tuple[str, ...]
    validation: tuple[str, ...]
    prompt_key: str
    scored: bool
    """Whether a reward manager of verl's scores the responses."""
    batch: int | None
    """Prompts of a step; None for a run that trains nothing."""
    train_max: int | None = None
    """Prompts that verl takes of data.train; None for all."""

    @classmethod
    def of(cls, config: DictConfig) -> DataSettings | None:
        """Return the settings of a run; None if a dataset class of the user's own reads the files."""
        data, manager = config.data, config.reward.reward_manager
        if (data.get("custom_cls") or {}).get("path") is not None:
            return None
        limit = data.get("train_max_samples", -1)
        return cls(
            train=paths(data.train_files),
            validation=paths(data.val_files),
            prompt_key=str(data.get("prompt_key", "prompt")),
            scored=manager.source == "register" and manager.name in SCORED_BY,
            batch=None if config.trainer.get("val_only", False) else int(data.train_batch_size),
            train_max=limit if isinstance(limit, int) and limit > 0 else None,
        )

    def files(self) -> Iterator[tuple[str, str]]:
        """Yield the field and the path of each file, once: one that is named twice is read once."""
        seen: set[str] = set()
        for field, paths in (("data.train", self.train), ("data.validation", self.validation)):
            for index, path in enumerate(paths):
                if path not in seen:
                    seen.add(path)
                    yield f"{field}[{index}]", path


@dataclass(frozen=True)
class Head:
    """What was read of one file."""

    field: str
    path: str
    columns: tuple[str, ...]
    row: Mapping[str, Any]
    """The first row, without columns that nothing here judges; empty once it is judged, because it may be large."""
    rows: int | None = None
    """Number of rows; None if the format does not record it."""
    features: Mapping[str, Any] | None = None
    """Types of the columns as the library datasets sees them, if files must be compared."""

    @property
    def name(self) -> str:
        """How messages name the file."""
        return f"{self.field} {self.path}"


class UnreadableError(ValueError):
    """A file is not in the format that its suffix promises, or holds nothing."""


def require(settings: DataSettings) -> None:
    """Raise RefusedError for files that cannot be trained on (exit 64), or that cannot be read now (exit 65)."""
    try:
        heads, problems = within(READ_SECONDS, lambda: read(settings))
    except OSError as error:  # TimeoutError is one
        raise RefusedError(
            ExitCode.ENVIRONMENT,
            "DataUnreadable",
            f"data.train and data.validation: {error}; look at the volume; another attempt reads them again",
        ) from error
    problems += disagreements(heads, settings)
    if problems:
        raise RefusedError(ExitCode.BAD_CONFIG, "DataInvalid", "; ".join(problems))
    require_a_batch(heads, settings)


def read(settings: DataSettings) -> tuple[list[Head], list[str]]:
    """Return the head of each file that can be read, judged and without its row, and all problems. Raises OSError."""
    heads: list[Head] = []
    problems: list[str] = []
    compare = max(len(settings.train), len(settings.validation)) > 1
    for field, path in settings.files():
        try:
            head = read_head(field, path, settings.prompt_key, compare=compare)
        except UnreadableError as error:
            problems.append(f"{field} {path}: {error}")
            continue
        problems += judge(head, settings)
        heads.append(replace(head, columns=(), row={}))
    return heads, problems


def read_head(field: str, path: str, prompt_key: str, *, compare: bool = False) -> Head:
    """Read schema and first row of a file. Raises UnreadableError, or OSError for the volume."""
    judged = (prompt_key, DATA_SOURCE, REWARD_MODEL, EXTRA_INFO)
    if path.endswith(".parquet"):
        return _read_parquet(field, path, judged, compare=compare)
    if path.endswith((".json", ".jsonl")):
        return _read_json(field, path, judged)
    raise UnreadableError("ends with none of .parquet, .json, .jsonl, and verl 0.9.1 reads no other files; convert it")


def judge(head: Head, settings: DataSettings) -> Iterator[str]:
    """Yield what is wrong with a file's columns and with its first row."""
    if not head.columns:
        return  # Its first row was too long to be read.
    wanted = [(settings.prompt_key, f"data.prompt_key names it; it holds {MESSAGES}")]
    if settings.scored:
        wanted += [
            (DATA_SOURCE, "verl's reward manager passes it to the reward function"),
            (REWARD_MODEL, f"verl's reward manager reads its {GROUND_TRUTH}"),
        ]
    for column, why in wanted:
        if column not in head.columns:
            yield f"{head.name} has no column {column}: {why}; {ADVICE} (columns: {_listed(head.columns)})"
    if settings.prompt_key in head.columns and (said := prompt_problem(head.row.get(settings.prompt_key))):
        yield f"{head.name}, column {settings.prompt_key}: the first row {said}, expected {MESSAGES}"
    if settings.scored:
        yield from _scoring_problems(head)


def _scoring_problems(head: Head) -> Iterator[str]:
    if REWARD_MODEL in head.columns:
        value = head.row.get(REWARD_MODEL)
        if not isinstance(value, Mapping):
            yield f"{head.name}, column {REWARD_MODEL}: the first row is {_kind(value)}, expected {{{GROUND_TRUTH}: …}}"
        elif GROUND_TRUTH not in value:
            yield (
                f"{head.name}, column {REWARD_MODEL}: the first row has no {GROUND_TRUTH} "
                f"(it has {_listed(tuple(map(str, value)))}); {ADVICE}"
            )
    extra = head.row.get(EXTRA_INFO)
    if extra is not None and not isinstance(extra, Mapping):
        yield f"{head.name}, column {EXTRA_INFO}: the first row is {_kind(extra)}, expected an object or null"


def prompt_problem(value: object) -> str | None:
    """Return what is wrong with a prompt; None if a chat template can render it."""
    if not isinstance(value, Sequence) or isinstance(value, (str, bytes)):
        return f"is {_kind(value)}"
    if not value:
        return "holds no message"
    for index, message in enumerate(value):
        if not isinstance(message, Mapping):
            return f"has {_kind(message)} as message {index}"
        if not isinstance(message.get("role"), str):
            return f"has no text as role of message {index}"
        if "content" not in message:
            return f"has no content in message {index}"
    return None


def disagreements(heads: Sequence[Head], settings: DataSettings) -> Iterator[str]:
    """Yield columns whose types differ between files that verl concatenates."""
    for paths in (settings.train, settings.validation):
        known: dict[str, tuple[Any, Head]] = {}
        for head in heads:
            for column, kind in (head.features or {}).items() if head.path in paths else ():
                other = known.setdefault(column, (kind, head))
                if other[0] != kind and not _concatenates(other[0], kind):
                    yield (
                        f"{head.name}, column {column}: its type {_cut(kind)} does not go with {_cut(other[0])} in "
                        f"{other[1].path}, and verl concatenates the files; write both with the same type"
                    )


def require_a_batch(heads: Sequence[Head], settings: DataSettings) -> None:
    """Refuse a training on fewer prompts than one step takes: verl drops a batch that is not whole.

    verl concatenates a file as often as it is named (utils/dataset/rl_dataset.py:173-181, 0.9.1).
    """
    if settings.batch is None or not settings.train:
        return
    rows, count = {head.path: head.rows for head in heads}, 0
    for path in settings.train:
        of_file = rows.get(path)
        if of_file is None:
            return
        count += of_file
    taken = min(count, settings.train_max or count)
    if taken < settings.batch:
        limited = f", of which data.train_max_samples takes {taken}" if taken < count else ""
        raise too_small(f"data.train has {count} rows{limited}", settings.batch)


def too_small(seen: str, batch: int) -> RefusedError:
    """Return the error for too few prompts."""
    return RefusedError(
        ExitCode.BAD_CONFIG,
        "DataTooSmall",
        f"{seen}, fewer than the {batch} prompts of a step (trainer.globalBatchSize), and verl trains on whole batches "
        "only; add prompts or lower it",
    )


def _read_parquet(field: str, path: str, columns: tuple[str, ...], *, compare: bool) -> Head:
    import pyarrow as pa
    from pyarrow import parquet

    try:
        with parquet.ParquetFile(path) as file:
            names, rows = tuple(file.schema_arrow.names), int(file.metadata.num_rows)
            if rows == 0:
                raise UnreadableError("holds no rows; verl needs at least one prompt of each file")
            wanted = [name for name in columns if name in names]
            batch = next(file.iter_batches(batch_size=1, columns=wanted), None) if wanted else None
            row = batch.to_pylist()[0] if batch is not None and batch.num_rows else {}
            features = _features(file.schema_arrow) if compare else None
    except (OSError, pa.ArrowException) as error:
        # Errors of the volume have a number. Without one, the content is damaged ("Couldn't deserialize thrift").
        if isinstance(error, OSError) and error.errno is not None:
            raise
        raise UnreadableError(f"is no Parquet file that can be read: {_first_line(error)}") from error
    return Head(field, path, names, row, rows, features)


def _features(schema: Any) -> Mapping[str, Any] | None:  # noqa: ANN401 - pyarrow ships no types
    try:
        from datasets import Features
    except ImportError:
        return None
    features: Mapping[str, Any] = Features.from_arrow_schema(schema)
    return features


def _read_json(field: str, path: str, judged: tuple[str, ...]) -> Head:
    """Read the first object of JSON Lines, or of a list of objects."""
    with Path(path).open("rb") as file:
        data = file.read(JSON_BYTES)
    try:
        # A cut within a character leaves an incomplete end, which the decoder of JSON never reaches.
        text = data.decode("utf-8-sig", errors="strict" if len(data) < JSON_BYTES else "ignore").lstrip()
    except UnicodeDecodeError as error:
        raise UnreadableError(f"is not UTF-8: {error.reason} at byte {error.start}") from error
    listed = text.startswith("[")
    text = text[1:].lstrip() if listed else text
    if not text or (listed and text.startswith("]")):
        raise UnreadableError("holds no rows; verl needs at least one prompt of each file")
    try:
        row, _ = json.JSONDecoder().raw_decode(text)
    except ValueError as error:
        if len(data) == JSON_BYTES:
            return Head(field, path, (), {})
        raise UnreadableError(f"is no JSON: {_first_line(error)}") from error
    except RecursionError:
        raise UnreadableError("nests its first row too deeply to be read; write flat rows") from None
    if not isinstance(row, dict):
        raise UnreadableError(f"holds {_kind(row)} as its first row, expected an object")
    return Head(field, path, tuple(row), {name: row[name] for name in judged if name in row})


def _concatenates(first: Any, second: Any) -> bool:  # noqa: ANN401 - types of the library datasets
    """Report whether verl could concatenate columns of two types: null goes with all, objects may differ in fields."""
    from datasets import Dataset, Features, concatenate_datasets

    try:
        concatenate_datasets([Dataset.from_dict({"x": [None]}, Features({"x": kind})) for kind in (first, second)])
    except (ValueError, TypeError):
        return False
    return True


def paths(value: object) -> tuple[str, ...]:
    """Return the files that a value of verl's configuration names: one, a list, or none."""
    return (value,) if isinstance(value, str) else tuple(str(path) for path in value or ())  # type: ignore[attr-defined]


def _cut(kind: object) -> str:
    text = " ".join(repr(kind).split())
    return text if len(text) <= TYPE_SHOWN else f"{text[:TYPE_SHOWN]}…"


def _kind(value: object) -> str:
    """Name the type of a value in words of JSON, with the start of a text."""
    if isinstance(value, str):
        return f"the text {quoted(value)}"
    names = {type(None): "null", dict: "an object", list: "a list", bool: "a boolean", bytes: "bytes"}
    return names.get(type(value), "a number" if isinstance(value, (int, float)) else type(value).__name__)


def _listed(columns: Sequence[str]) -> str:
    more = f" and {len(columns) - COLUMNS_SHOWN} more" if len(columns) > COLUMNS_SHOWN else ""
    return ", ".join(name[:NAME_SHOWN] for name in columns[:COLUMNS_SHOWN]) + more


def _first_line(error: Exception) -> str:
    return (str(error).splitlines() or [type(error).__name__])[0]
