"""What an engine drafts from: suffix trees of running requests, of its own responses, and of rewarded ones of the past.

A suffix tree (arctic-inference) answers what followed the last tokens of a text. For each running request three are
asked, and the most probable continuation becomes the draft:

- its own: the prompt and its response so far,
- the shared one: responses of this engine, of other requests too and of earlier steps,
- that of the past: responses to the same prompt of earlier steps, which the trainer sends with a preference for high
  rewards. It is shared by all requests with the prompt.

Drafts change nothing but speed: the engine verifies each of them. They pay while few sequences run, when a forward pass
waits for weights and verifies some tokens more at no cost. With more than `max_sequences` nothing is drafted, and only
the shared tree grows. Each step inserts a limited number of tokens, so that a gate that opens late does not stop the
engine for seconds; what remains follows in the next steps. All memory has a bound, and an ended request leaves nothing
but its response in the shared tree.
"""

from __future__ import annotations

import enum
import functools
import hashlib
from collections import OrderedDict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from rljob_runtime.contract import Drafts

BYTES_PER_TOKEN = 330
"""Memory of one token in a suffix tree: estimate_memory() of arctic-inference 0.1.1 gives 258 to 329 for texts of 8,192
tokens at depth 24 (benchmarks/drafts.py)."""
STORED_BYTES_PER_TOKEN = 4
OPEN_TOKENS = 512
"""Most tokens that a step inserts while drafts are made, besides those just sampled: about 1 ms, at 1 to 2 µs each
(benchmarks/drafts.py), of a step that takes tens. 32 responses of 8,192 tokens are known after 1,000 steps."""
CLOSED_TOKENS = 128
"""Most tokens that a step inserts while no drafts are made."""
CLOSED_CHUNK = 32
"""Fewest tokens of a request that are worth a call while no drafts are made."""
SHARED_BYTES = 256 << 20
OWN_TREES_KEPT = 2
"""While no drafts are made, own trees are kept up to this many times `max_sequences` running requests, in case the
number of requests goes up and down around the limit."""


class Tree(Protocol):
    """A suffix tree of arctic-inference (csrc/suffix_decoding/bindings.cc, 0.1.1)."""

    def extend_ndarray(self, seq_id: int, tokens: Any, /) -> None:  # noqa: ANN401 - an array of int32
        """Append to one text."""

    def remove(self, seq_id: int, /) -> None:
        """Forget a text."""

    def speculate_ndarray(self, *arguments: Any) -> Any:  # noqa: ANN401
        """Return the continuation of a context."""


class Batch(Protocol):
    """The requests that run, as vLLM's InputBatch has them (v1/worker/gpu_input_batch.py, 0.23.0)."""

    @property
    def req_ids(self) -> Sequence[str]:
        """Names by index."""

    @property
    def req_id_to_index(self) -> Mapping[str, int]:
        """Indices by name."""

    @property
    def num_prompt_tokens(self) -> Any:  # noqa: ANN401 - an array
        """By index: [requests]."""

    @property
    def num_tokens_no_spec(self) -> Any:  # noqa: ANN401 - an array
        """By index, with the tokens just sampled: [requests]."""

    @property
    def token_ids_cpu(self) -> Any:  # noqa: ANN401 - an array
        """By index, int32: [requests, tokens]."""


class Source(enum.StrEnum):
    """Where a draft comes from."""

    OWN = "own"
    SHARED = "shared"
    HISTORY = "history"


@dataclass(frozen=True)
class Limits:
    """The engine's settings of drafts (vllm/config/speculative.py:167-182, 0.23.0)."""

    tokens: int
    """Most tokens of a draft."""
    depth: int
    """Most tokens of a context with its continuation."""
    factor: float
    """Most tokens of a draft for each token of the context that matches."""
    probability: float
    """Least estimated probability of a drafted token."""
    model_length: int


@dataclass(frozen=True)
class Record:
    """A response of an earlier step."""

    prompt: bytes
    """`key_of` the prompt."""
    text: bytes
    """The end of the prompt and the response, as int32."""


@dataclass
class Counts:
    """Counts since they were last taken."""

    drafted: dict[Source, int] = field(default_factory=lambda: dict.fromkeys(Source, 0))
    """Tokens that the engine verified."""
    accepted: dict[Source, int] = field(default_factory=lambda: dict.fromkeys(Source, 0))
    verified: int = 0
    """Drafts."""
    open_steps: int = 0
    """Engine steps in which drafts could be made."""
    closed_steps: int = 0

    def plain(self, history_bytes: int) -> dict[str, int]:
        """Return the counts as numbers by name."""
        tokens = {f"drafted_{source}": count for source, count in self.drafted.items()}
        tokens |= {f"accepted_{source}": count for source, count in self.accepted.items()}
        steps = {"verified": self.verified, "open_steps": self.open_steps, "closed_steps": self.closed_steps}
        return {**tokens, **steps, "history_bytes": history_bytes}


@dataclass
class Draft:
    """A draft that the engine has not verified yet."""

    source: Source
    tokens: int


class Text:
    """A text that enters a tree piece by piece."""

    def __init__(self, tree: Tree, identifier: int) -> None:
        self.tree, self.identifier, self.known = tree, identifier, 0

    def grow(self, tokens: Any, most: int) -> int:  # noqa: ANN401 - an array of int32
        """Insert the missing tokens of a text, at most `most`, and return how many were inserted."""
        piece = tokens[self.known : self.known + most]
        if len(piece):
            self.tree.extend_ndarray(self.identifier, piece)
            self.known += len(piece)
        return len(piece)


@dataclass
class Past:
    """The tree of one prompt's earlier responses."""

    tree: Tree
    texts: list[tuple[Text, Any]]
    tokens: int

    def grow(self, most: int) -> int:
        """Insert at most `most` tokens and return how many were inserted."""
        used = 0
        for text, tokens in self.texts:
            used += text.grow(tokens, most - used)
        return used


@dataclass
class Request:
    """A running request."""

    shared: Text | None
    """Its response in the shared tree; None if that has no room."""
    own: Text | None = None
    past: Past | None = None
    prompt: bytes | None = None
    waiting: Draft | None = None


def key_of(prompt: bytes) -> bytes:
    """Return what identifies a prompt, given as int32."""
    return hashlib.blake2b(prompt, digest_size=16).digest()


class History:
    """Responses of earlier steps by prompt, those of the prompt used longest ago forgotten first.

    Half of the memory is for the responses, half for the trees of the prompts that are running.
    """

    def __init__(self, most_bytes: int, grow_tree: Callable[[], Tree]) -> None:
        self._half, self._tree = most_bytes // 2, grow_tree
        self._texts: OrderedDict[bytes, list[bytes]] = OrderedDict()
        self._pasts: dict[bytes, Past] = {}
        self._stored = self._in_trees = 0

    @property
    def used_bytes(self) -> int:
        """Return the memory in use."""
        return self._stored + self._in_trees * BYTES_PER_TOKEN

    def replace(self, records: Iterable[Record]) -> None:
        """Store the responses of one step in place of earlier ones to the same prompts."""
        fresh: dict[bytes, list[bytes]] = {}
        for record in records:
            fresh.setdefault(record.prompt, []).append(record.text)
        for prompt, texts in fresh.items():
            self._forget(prompt)
            self._texts[prompt] = texts
            self._stored += sum(map(len, texts))
            while self._stored > self._half:
                self._forget(next(iter(self._texts)))

    def of(self, prompt: bytes) -> Past | None:
        """Return the tree of a prompt, which grows from its responses as `Past.grow` is called."""
        if (found := self._pasts.get(prompt)) is not None:
            return found
        texts = self._texts.get(prompt)
        if texts is None:
            return None
        self._texts.move_to_end(prompt)
        tokens = sum(map(len, texts)) // STORED_BYTES_PER_TOKEN
        if (self._in_trees + tokens) * BYTES_PER_TOKEN > self._half:
            return None
        import numpy as np

        tree = self._tree()
        # Copies, because the extension takes no array that is read-only.
        made = [(Text(tree, number), np.frombuffer(text, dtype=np.int32).copy()) for number, text in enumerate(texts)]
        self._in_trees += tokens
        self._pasts[prompt] = Past(tree, made, tokens)
        return self._pasts[prompt]

    def keep_trees(self, prompts: set[bytes]) -> None:
        """Release the trees of all other prompts."""
        for prompt in self._pasts.keys() - prompts:
            self._in_trees -= self._pasts.pop(prompt).tokens

    def _forget(self, prompt: bytes) -> None:
        self._stored -= sum(map(len, self._texts.pop(prompt, ())))


class SharedTree:
    """The responses of this engine. A full tree takes no more until `make_room` is called between two rollouts."""

    def __init__(self, tree: Tree, most_bytes: int = SHARED_BYTES) -> None:
        self._tree, self._most = tree, most_bytes // BYTES_PER_TOKEN
        self._texts: OrderedDict[int, Text] = OrderedDict()
        self._tokens = self._next = 0

    @property
    def tree(self) -> Tree:
        """Return the tree, to be asked."""
        return self._tree

    @property
    def tokens(self) -> int:
        """Return the number of tokens in it."""
        return self._tokens

    @property
    def texts(self) -> int:
        """Return the number of responses that it knows, also of those without tokens."""
        return len(self._texts)

    def begin(self) -> Text | None:
        """Return a new text, or None if the tree is full."""
        if self._tokens >= self._most:
            return None
        self._next += 1
        self._texts[self._next] = Text(self._tree, self._next)
        return self._texts[self._next]

    def grow(self, text: Text, tokens: Any, most: int) -> int:  # noqa: ANN401 - an array of int32
        """Insert at most `most` tokens of a text and return how many were inserted."""
        used = text.grow(tokens, min(most, self._most - self._tokens))
        self._tokens += used
        return used

    def make_room(self, running: set[int]) -> None:
        """Forget ended requests without tokens, and the oldest others until half of the tree is free."""
        for number, text in [(number, text) for number, text in self._texts.items() if number not in running]:
            if not text.known:
                del self._texts[number]
            elif self._tokens > self._most // 2:
                del self._texts[number]
                self._tokens -= text.known
                self._tree.remove(number)


class DraftStore:
    """Makes the drafts of one engine."""

    def __init__(self, settings: Drafts, limits: Limits, new_tree: Callable[[int], Tree]) -> None:
        self._settings, self._limits = settings, limits
        self._new_tree: Callable[[], Tree] = functools.partial(new_tree, limits.depth)
        self._requests: dict[str, Request] = {}
        self._shared = SharedTree(self._new_tree())
        self._history = History(settings.history_bytes, self._new_tree)
        self._counts = Counts()
        self._first = 0

    @property
    def requests(self) -> Mapping[str, Request]:
        """Return the state of running requests."""
        return self._requests

    def exchange(self, records: Iterable[Record]) -> dict[str, int]:
        """Between two rollouts: take in responses, make room, and return the counts since the last call."""
        self._history.replace(records)
        self._shared.make_room({request.shared.identifier for request in self._requests.values() if request.shared})
        counts, self._counts = self._counts, Counts()
        return counts.plain(self._history.used_bytes)

    def propose(self, batch: Batch, sampled: Sequence[Sequence[int]]) -> list[list[int]]:
        """Return a draft, which may be empty, for each request. `sampled` are the tokens of this step, [requests]."""
        self._end_absent(batch)
        for name, tokens in zip(batch.req_ids, sampled, strict=False):
            self._count(name, tokens)
        running = len(batch.req_id_to_index)
        if running > self._settings.max_sequences:
            self._counts.closed_steps += 1
            self._remember(batch, sampled, running)
            return [[] for _ in sampled]
        self._counts.open_steps += 1
        return self._draft_all(batch, sampled)

    def _end_absent(self, batch: Batch) -> None:
        for name in [name for name in self._requests if name not in batch.req_id_to_index]:
            del self._requests[name]
        self._history.keep_trees({request.prompt for request in self._requests.values() if request.prompt is not None})

    def _count(self, name: str, tokens: Sequence[int]) -> None:
        """Count the draft that the engine has just verified: it returns the accepted tokens and one of its own."""
        request = self._requests.get(name)
        if request is None or request.waiting is None or not tokens:
            return
        draft, request.waiting = request.waiting, None
        self._counts.verified += 1
        self._counts.drafted[draft.source] += draft.tokens
        self._counts.accepted[draft.source] += min(len(tokens) - 1, draft.tokens)

    def _request(self, name: str) -> Request:
        if name not in self._requests:
            self._requests[name] = Request(self._shared.begin())
        return self._requests[name]

    def _in_turn(self, batch: Batch, sampled: Sequence[Sequence[int]]) -> Iterator[tuple[int, Request]]:
        """Return the requests that decode, from another one each time, so that a limit does not favour the first."""
        count = len(sampled)
        self._first = (self._first + 1) % max(count, 1)
        for place in range(count):
            index = (self._first + place) % count
            if sampled[index]:
                yield index, self._request(batch.req_ids[index])

    def _remember(self, batch: Batch, sampled: Sequence[Sequence[int]], running: int) -> None:
        """Let the shared tree grow while no drafts are made."""
        left, drop = CLOSED_TOKENS, running > OWN_TREES_KEPT * self._settings.max_sequences
        for index, request in self._in_turn(batch, sampled):
            if drop:
                request.own = request.past = request.prompt = None
            text = request.shared
            if text is None or left <= 0:
                continue
            response = _response(batch, index)
            if len(response) - text.known >= CLOSED_CHUNK:
                left -= self._shared.grow(text, response, left)

    def _draft_all(self, batch: Batch, sampled: Sequence[Sequence[int]]) -> list[list[int]]:
        drafts: list[list[int]] = [[] for _ in sampled]
        left = OPEN_TOKENS
        for index, request in self._in_turn(batch, sampled):
            # Those just sampled are free: they are few, and a draft continues them.
            left -= self._grow(batch, index, request, left + len(sampled[index])) - len(sampled[index])
            drafts[index] = self._draft(batch, index, request)
        return drafts

    def _grow(self, batch: Batch, index: int, request: Request, most: int) -> int:
        """Insert the tokens that the trees lack, at most `most`, and return how many were inserted."""
        length = int(batch.num_tokens_no_spec[index])
        if request.own is None:
            request.own = Text(self._new_tree(), 0)
        used = request.own.grow(batch.token_ids_cpu[index, :length], most)
        if request.shared is not None:
            used += self._shared.grow(request.shared, _response(batch, index), most - used)
        if self._settings.history_bytes:
            if request.prompt is None:
                request.prompt = key_of(batch.token_ids_cpu[index, : int(batch.num_prompt_tokens[index])].tobytes())
                request.past = self._history.of(request.prompt)
            if request.past is not None:
                used += request.past.grow(most - used)
        return used

    def _draft(self, batch: Batch, index: int, request: Request) -> list[int]:
        length = int(batch.num_tokens_no_spec[index])
        tokens = min(self._limits.tokens, self._limits.model_length - length - 1)
        if tokens <= 0:
            return []
        context = batch.token_ids_cpu[index, max(0, length - self._limits.depth) : length]
        best, best_source = None, Source.OWN
        for source, tree in self._trees(request):
            draft = tree.speculate_ndarray(
                context,
                tokens,
                self._limits.factor,
                0.0,
                self._limits.probability,
                False,  # noqa: FBT003
            )
            # The first wins of equal ones.
            if best is None or draft.score > best.score:
                best, best_source = draft, source
        found: list[int] = [] if best is None else best.token_ids
        if found:
            request.waiting = Draft(best_source, len(found))
        return found

    def _trees(self, request: Request) -> Iterator[tuple[Source, Tree]]:
        """Return the trees to ask, the most specific one first."""
        if request.past is not None:
            yield Source.HISTORY, request.past.tree
        if request.own is not None:
            yield Source.OWN, request.own.tree
        yield Source.SHARED, self._shared.tree


def _response(batch: Batch, index: int) -> Any:  # noqa: ANN401 - an array of int32
    prompt, length = int(batch.num_prompt_tokens[index]), int(batch.num_tokens_no_spec[index])
    return batch.token_ids_cpu[index, prompt:length]
