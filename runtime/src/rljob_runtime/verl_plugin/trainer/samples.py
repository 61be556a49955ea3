"""Record some answers of a step, with their scores: what `rljob samples` shows.

Nothing is generated for it. Answers of the trained batch are read from TransferQueue before verl clears them: scores of
at most `CANDIDATES`, texts of those that are recorded. Answers of a validation are those that verl has decoded for its
own logs. Keys are <uid of the prompt>_<session>_<turn> (verl/trainer/ppo/v1/agent_loop_tq.py, 0.9.1).
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import transfer_queue as tq

from rljob_runtime.contract import Finish, Sample, SampleSource
from rljob_runtime.contract.samples import PART_CHARACTERS, shortened
from rljob_runtime.spool.sample_choice import by_score, final_answers, parts_of, same_prompts

if TYPE_CHECKING:
    from omegaconf import DictConfig
    from verl.trainer.ppo.v1.replay_buffer import KVBatchMeta, ReplayBuffer

    from rljob_runtime.training_attempt import TrainingAttempt

CANDIDATES = 256
"""Answers of which the scores are read, in the random order of their prompts' uids."""
FIELDS = ["prompts", "responses", "reward_model", "data_source", "extra_fields", "num_turns"]


class Sampler:
    """Records samples of one attempt."""

    def __init__(self, run: TrainingAttempt, config: DictConfig) -> None:
        self._run, self._settings = run, run.job.samples
        self._longest = int(config.data.max_response_length)
        self._recorded = self._failed = False
        self._lengths: list[int] = []
        self._validated: tuple[Sequence[str], Sequence[str], Sequence[float]] = ((), (), ())

    def watch(self, buffer: ReplayBuffer) -> None:
        """Remember the lengths of a validation's answers, which verl does not pass on."""
        sample = buffer.sample

        def remember(*rest: Any, **options: Any) -> Any:  # noqa: ANN401 - verl's
            batch, metrics = sample(*rest, **options)
            if batch.partition_id == "val":
                self._lengths += [int(tag["response_len"]) for tag in final_answers(batch.keys, batch.tags).values()]
            return batch, metrics

        buffer.sample = remember

    def is_due(self, step: int, *, last: bool) -> bool:
        """Return whether the answers of this step are recorded."""
        every = self._settings.every_steps
        return every > 0 and (not self._recorded or last or step % every == 0)

    def after_step(self, step: int, batch: KVBatchMeta, tokenizer: Any, *, last: bool) -> None:  # noqa: ANN401 - transformers'
        """Record answers of the batch that was trained."""
        if self.is_due(step, last=last):
            self._recorded = True
            self._record(SampleSource.ROLLOUT, lambda: self._trained(step, batch, tokenizer))

    def validated(self, prompts: Sequence[str], answers: Sequence[str], scores: Sequence[float]) -> None:
        """Remember what verl has decoded of a validation, until its metrics are known."""
        self._validated = (prompts, answers, scores)

    def after_validation(self, step: int, parts: Mapping[str, Sequence[Any]]) -> None:
        """Record answers of a validation: those to the same prompts every time."""
        (prompts, answers, scores), self._validated = self._validated, ((), (), ())
        lengths, self._lengths = self._lengths, []
        if self._settings.every_steps > 0:
            found = lambda: self._of_validation(step, prompts, answers, scores, parts, lengths)  # noqa: E731
            self._record(SampleSource.VALIDATION, found)

    def _record(self, source: SampleSource, read: Any) -> None:  # noqa: ANN401 - a function
        try:
            self._run.record_samples(source, read())
        except Exception as error:  # noqa: BLE001 - samples must not end the training
            if not self._failed:
                self._failed = True
                self._run.note(f"samples of the {source.value} cannot be recorded: {error!r}")

    def _trained(self, step: int, batch: KVBatchMeta, tokenizer: Any) -> list[Sample]:  # noqa: ANN401 - as above
        final = final_answers(batch.keys, batch.tags)
        candidates = sorted(final)[:CANDIDATES]
        if not candidates:
            return []
        scores = tq.kv_batch_get(keys=candidates, partition_id=batch.partition_id, select_fields=["rm_scores"])
        values = [float(row.sum()) for row in scores["rm_scores"].unbind()]
        score_of = dict(zip(candidates, values, strict=True))
        longest = max(final, key=lambda key: int(final[key].get("response_len", 0)))
        chosen = by_score(score_of, longest, self._settings.per_step)
        if longest not in score_of:
            found = tq.kv_batch_get(keys=[longest], partition_id=batch.partition_id, select_fields=["rm_scores"])
            score_of[longest] = float(found["rm_scores"].unbind()[0].sum())
        data = tq.kv_batch_get(keys=chosen, partition_id=batch.partition_id, select_fields=FIELDS)
        columns = {name: _column(data.get(name), len(chosen)) for name in FIELDS[2:]}
        texts = {name: [self._text(tokenizer, ids) for ids in data[name].unbind()] for name in FIELDS[:2]}
        return [
            Sample(
                step=step,
                source=SampleSource.ROLLOUT,
                prompt=texts["prompts"][index],
                answer=texts["responses"][index],
                score=_finite(score_of[key]),
                parts=parts_of(_dict(_dict(columns["extra_fields"][index]).get("reward_extra_info"))),
                reference=_short(_dict(columns["reward_model"][index]).get("ground_truth")),
                data_source=_short(columns["data_source"][index]),
                tokens=int(final[key]["response_len"]),
                prompt_tokens=int(final[key]["prompt_len"]),
                finish=self._finish(int(final[key]["response_len"])),
                turns=_turns(columns["num_turns"][index]),
            )
            for index, key in enumerate(chosen)
        ]

    def _of_validation(
        self,
        step: int,
        prompts: Sequence[str],
        answers: Sequence[str],
        scores: Sequence[float],
        parts: Mapping[str, Sequence[Any]],
        lengths: Sequence[int],
    ) -> list[Sample]:
        limit, known = self._settings.max_characters, len(lengths) == len(answers)
        extra = {name: values for name, values in parts.items() if len(values) == len(answers) and name != "reward"}
        return [
            Sample(
                step=step,
                source=SampleSource.VALIDATION,
                prompt=shortened(prompts[place], limit),
                answer=shortened(answers[place], limit),
                score=_finite(float(scores[place])),
                parts=parts_of({name: values[place] for name, values in extra.items()}),
                tokens=lengths[place] if known else None,
                finish=self._finish(lengths[place]) if known else None,
            )
            for place in same_prompts(prompts, self._settings.per_step)
        ]

    def _text(self, tokenizer: Any, ids: Any) -> str:  # noqa: ANN401 - untyped libraries
        return shortened(tokenizer.decode(ids, skip_special_tokens=True), self._settings.max_characters)

    def _finish(self, tokens: int) -> Finish:
        return Finish.LENGTH if tokens >= self._longest else Finish.STOP


def _column(values: Any, count: int) -> list[Any]:  # noqa: ANN401 - a tensor or tensordict's list
    return [None] * count if values is None else list(values.tolist())


def _dict(value: object) -> dict[str, Any]:
    return value if isinstance(value, dict) else {}


def _short(value: object) -> str | None:
    return None if value is None else shortened(str(value), PART_CHARACTERS)


def _finite(value: float) -> float | None:
    return value if math.isfinite(value) else None


def _turns(value: object) -> int | None:
    return int(value) if isinstance(value, (int, float)) else None
