"""What drafts cost an engine between two forward passes: `python -m benchmarks.drafts`, where arctic-inference is.

Texts have a vocabulary of 150,000 tokens by Zipf's law, and phrases that occur in all of them. The printed step is that
of one engine with the default settings: the gate is closed with many sequences and open with few.
"""

from __future__ import annotations

import argparse
import statistics
import time
from types import SimpleNamespace
from typing import Any

import numpy as np
from arctic_inference.suffix_decoding._C import SuffixTree

from rljob_runtime.contract import Drafts
from rljob_runtime.vllm_plugin.draft_store import DraftStore, Limits, Record, key_of

VOCABULARY, PHRASES, PHRASE = 150_000, 200, 24
PROMPT, DEPTH = 1_024, 24
LIMITS = Limits(tokens=3, depth=DEPTH, factor=1.0, probability=0.1, model_length=65_536)


def texts(count: int, tokens: int, seed: int = 0) -> Any:  # noqa: ANN401 - an array
    """Return texts, [count, tokens]; phrases make up a third of each."""
    random = np.random.default_rng(seed)
    phrases = random.zipf(1.3, (PHRASES, PHRASE)) % VOCABULARY
    pieces = -(-tokens // PHRASE)
    plain = random.zipf(1.3, (count, pieces, PHRASE)) % VOCABULARY
    repeated = random.random((count, pieces)) < 1 / 3
    plain[repeated] = phrases[random.integers(0, PHRASES, repeated.sum())]
    return plain.reshape(count, -1)[:, :tokens].astype(np.int32)


def measure_tree(tokens: int) -> None:
    """Print memory and time of a token in a tree."""
    tree, rows = SuffixTree(DEPTH), texts(16, tokens)
    begun = time.perf_counter()
    for number, row in enumerate(rows):
        tree.extend_ndarray(number, row)
    seconds, count = time.perf_counter() - begun, rows.size
    print(f"one tree: {tree.estimate_memory() / count:.0f} bytes and {seconds / count * 1e6:.2f} us a token")


def measure_steps(sequences: int, tokens: int, steps: int, history: int) -> None:
    """Print the time of a step with this many sequences, each of which has generated this many tokens."""
    store = DraftStore(Drafts(32, history), LIMITS, SuffixTree)
    table = texts(sequences, PROMPT + tokens + steps)
    names = [f"request-{number}" for number in range(sequences)]
    if history:
        rows = texts(sequences, tokens, seed=1)
        keys = [key_of(row[:PROMPT].tobytes()) for row in table]
        store.exchange(Record(key, row.tobytes()) for key, row in zip(keys, rows, strict=True))
    batch = SimpleNamespace(
        req_ids=names,
        req_id_to_index={name: index for index, name in enumerate(names)},
        num_prompt_tokens=np.full(sequences, PROMPT),
        num_tokens_no_spec=np.full(sequences, PROMPT + tokens),
        token_ids_cpu=table,
    )
    seconds, drafted = [], 0
    for _ in range(steps):
        batch.num_tokens_no_spec = batch.num_tokens_no_spec + 1
        sampled = [[int(row[end - 1])] for row, end in zip(table, batch.num_tokens_no_spec, strict=True)]
        begun = time.perf_counter()
        drafted += sum(map(len, store.propose(batch, sampled)))
        seconds.append(time.perf_counter() - begun)
    times = f"{statistics.median(seconds) * 1e3:.2f} ms, at most {max(seconds) * 1e3:.2f} ms"
    kept = ", with history" if history else ""
    print(f"{sequences} sequences after {tokens} tokens{kept}: {times}; {drafted / steps:.1f} tokens drafted a step")


def main() -> None:
    """Measure a tree, and steps around the gate."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--tokens", type=int, default=8_192, help="generated before; default: 8192")
    parser.add_argument("--steps", type=int, default=300, help="default: 300")
    asked = parser.parse_args()
    measure_tree(asked.tokens)
    for sequences in (256, 64, 32, 8):
        measure_steps(sequences, asked.tokens, asked.steps, 0)
    measure_steps(32, asked.tokens, asked.steps, 1 << 30)


if __name__ == "__main__":
    main()
