"""When a rollout engine drafts tokens, and what it remembers for that, as decided by the operator.

job.json carries it to the launcher, and a variable of the environment to the engines' processes.
"""

from __future__ import annotations

from dataclasses import dataclass

from rljob_runtime.contract import codec

DRAFTS_VARIABLE = "RLJOB_DRAFTS"
"""The settings as JSON. If it is not set, engines draft as vLLM does."""


@dataclass(frozen=True)
class Drafts:
    """Settings of drafts."""

    max_sequences: int
    """Most sequences of an engine with which it drafts. With more, verifying drafts costs more than it saves."""
    history_bytes: int = codec.added(default=0)
    """Memory of an engine for responses of earlier steps, from which it drafts for the same prompt; 0 for none."""
    needs_suffix_trees: bool = codec.added(default=False)
    """Whether the image must have arctic-inference."""

    def to_variable(self) -> str:
        """Return the value of DRAFTS_VARIABLE."""
        return codec.dumps(self).decode()

    @classmethod
    def from_variable(cls, text: str) -> Drafts:
        """Read one. Raises ContractError."""
        return codec.loads(cls, text)
