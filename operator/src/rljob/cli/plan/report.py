"""`rljob plan report`: which layouts of a job fit, how long a step takes, and which mode and switch helps most.

`rljob.planner.layouts`, `modes` and `switches` compute; this module formats. Every number says whether it is measured,
published or modelled.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

from rljob.api.v1alpha1 import RLJobSpec
from rljob.cli.errors import UsageError
from rljob.cli.plan.rollout import Lengths, trace_of
from rljob.planner.layouts import ERROR, Candidate, Job, candidates
from rljob.planner.modes import COLOCATE_ASYNC, SEPARATE_ASYNC, SYNC, ModeStep
from rljob.planner.placements import Comparison, Placed, compare, devices_text
from rljob.planner.rollout.traces import Trace
from rljob.planner.switches import Effect, effects
from rljob.render.accelerators import facts_of

HEAD = (
    f"{'':<4}{'rollout':<16}{'trainer':<22}{'memory':>9}{'rollout':>9}{'log-probs':>11}{'update':>8}{'other':>7}{'step':>8}"
    f"{'tokens/s/card':>15}{'idle':>7}  evidence"
)
BELOW = f"{'':<4}{'tensor/data/exp':<16}{'tensor/pipe/ctx/exp':<22}{'':>9}{'s':>9}{'s':>11}{'s':>8}{'s':>7}{'s':>8}"
MODES = (
    f"{'trainer.mode':<34}{'rollout s':>10}{'training s':>12}{'weights s':>11}{'step s':>8}{'tokens/s/card':>15}"
    f"{'staleness':>11}"
)


OVERLAPPING = (
    "rollout and training overlap: a step takes the longer one and the transfer of the weights; memory is that of the "
    "trainer's and of the rollout's fullest die"
)


@dataclass(frozen=True)
class Report:
    """What is known of a job before it runs."""

    job: Job
    accelerator: str
    trace: Trace
    found: Sequence[Candidate]
    """Layouts that fit, best first."""
    effects: Sequence[Effect]
    """Of the best layout."""
    comparison: Comparison
    """Of the modes, with the best layout of each placement."""

    @property
    def own_place(self) -> int | None:
        """Return the place of the job's own layout, from 1; None if it does not fit."""
        return next((place for place, one in enumerate(self.found, 1) if one.own), None)

    def tokens_per_card_second(self, seconds: float) -> float:
        """Return the prompt and response tokens per second and card of a step that takes so long."""
        tokens = sum(request.tokens + request.prompt_tokens for request in self.trace.requests)
        return tokens / seconds / (self.job.devices / self.job.setup.dies_per_card)


def with_cards(name: str, spec: RLJobSpec, cards: int | None) -> RLJobSpec:
    """Return the spec with as many nodes as a number of cards needs, the groups in the proportion of the job.

    Raise UsageError if it is no number of nodes.
    """
    if cards is None:
        return spec
    dies, groups = cards * facts_of(spec).dies_per_card, spec.worker_groups
    counts = [Fraction(group.nodes * dies, spec.devices) for group in groups]
    if len(groups) == 1 and counts[0].denominator > 1:
        raise UsageError(
            f"{name}: {cards} cards have {dies} devices, which are no whole nodes of workerGroups[0].devicesPerNode "
            f"{groups[0].devices_per_node}; choose another number of cards"
        )
    if any(count.denominator > 1 for count in counts):
        shares = " to ".join(str(group.devices) for group in groups)
        raise UsageError(
            f"{name}: {cards} cards have {dies} devices, which are no whole nodes of both worker groups at {shares}; "
            "choose another number of cards"
        )
    changed = [group.model_copy(update={"nodes": int(n)}) for group, n in zip(groups, counts, strict=True)]
    return spec.model_copy(update={"worker_groups": changed})


def plan_report(name: str, spec: RLJobSpec, job: Job | None, lengths: Lengths) -> Report:
    """Plan the layouts of a job. Raise UsageError if its dies' memory is unknown, or nothing fits."""
    if job is None:
        raise UsageError(
            f"{name}: class {spec.accelerator.class_} uses the host's memory; set accelerator.class to an Atlas class"
        )
    trace = trace_of(job.setup, lengths)
    found = candidates(job, trace)
    if not found:
        raise UsageError(
            f"{name}: no layout fits into {devices_text(job)}; `rljob plan memory` shows what fills them: use "
            "more nodes, or offload and recompute more"
        )
    return Report(
        job, spec.accelerator.class_, trace, found, effects(job, found[0], trace), compare(job, found[0], trace)
    )


def report_table(name: str, report: Report, top: int) -> str:
    """Return the report of a job as text."""
    setup, trace, best = report.job.setup, report.trace, report.found[0]
    cards = report.job.devices // setup.dies_per_card
    step = setup.engine.step_time
    batch = f"{report.job.shape.name}, {len(trace.requests):,} responses a step"
    lines = [
        f"{name}: {batch} on {devices_text(report.job)} ({cards} cards of {report.accelerator})",
        f"lengths ({trace.origin.value}): mean {trace.mean:,.0f}, longest {trace.longest:,} tokens: {trace.source}",
        f"step time of the job's layout ({step.origin.value}): {step.source}",
        *([f"note: {setup.caveat}"] if setup.caveat else []),
        "",
        HEAD,
        BELOW,
    ]
    lines += [_line(report, place, one) for place, one in enumerate(report.found[:top], 1)]
    own = report.own_place
    if own is None:
        lines.append("the layout of the job does not fit; `rljob plan memory` shows why")
    elif own > top:
        lines.append(_line(report, own, report.found[own - 1]))
    share = getattr(best.seconds, best.seconds.bottleneck.replace(" ", "_")) / best.seconds.total
    lines += [
        "",
        f"seconds, memory, tokens/s and idle are modelled; {_near(report)}",
        *([OVERLAPPING] if report.job.apart else []),
        f"bottleneck of layout 1 (modelled): {best.seconds.bottleneck}, {share:.0%} of the step",
        "",
        *_mode_lines(report),
        "",
        f"{'switch, for layout 1':<34}{'saves s':>9}  origin",
        *(_effect_line(effect) for effect in report.effects),
        "savings do not add up",
    ]
    return "\n".join(lines)


def _mode_lines(report: Report) -> Iterator[str]:
    """Yield the table of the modes, and what the placements have beyond it."""
    comparison = report.comparison
    yield MODES
    for placed in comparison.placed:
        for one in placed.steps:
            yield (
                f"{f'{one.mode}, {devices_text(placed.job)}':<34}{one.rollout:>10,.0f}{one.train:>12,.0f}"
                f"{one.transfer:>11,.0f}{one.total:>8,.0f}{report.tokens_per_card_second(one.total):>15.1f}"
                f"{one.staleness:>11.1f}"
            )
    for placed in comparison.placed:
        yield _placed_line(report, placed)
    if comparison.missing:
        other = f"{SYNC}, {COLOCATE_ASYNC}" if report.job.apart else SEPARATE_ASYNC
        yield f"{other}: not shown, because {comparison.missing}"
    yield "modes are modelled by a coarser simulation than layouts: compare them with each other only"


def _placed_line(report: Report, placed: Placed) -> str:
    """Return the layout of a placement and its memory; of one apart also how long each side works."""
    names = ", ".join(one.mode for one in placed.steps)
    layout = "layout 1" if placed.job is report.job else "rollout {}, trainer {}".format(*_sizes(placed.layout))
    said = f"{names} (modelled): {layout}, memory {_memory(placed.layout)}"
    step = placed.steps[0]
    if step.generation is None:
        return said
    return f"{said} of trainer and rollout; generates for {_of_step(step.generation, step)}, trains for " + _of_step(
        step.train, step
    )


def _of_step(seconds: float, step: ModeStep) -> str:
    return f"{seconds:,.0f} s ({seconds / step.total:.0%})"


def _near(report: Report) -> str:
    best = min(one.seconds.total for one in report.found)
    near = sum(one.seconds.total <= best * (1 + ERROR) for one in report.found)
    return (
        f"{near} layouts are within the model's error of {ERROR:.0%} of the fastest; "
        "among them, those of published runs come first"
    )


def _sizes(one: Candidate) -> tuple[str, str]:
    """Return the sizes of rollout and trainer, as the table shows them."""
    rollout, trainer = one.layout.rollout, one.layout.trainer
    return (
        f"{rollout.tensor}/{rollout.data}/{rollout.expert}",
        f"{trainer.tensor}/{trainer.pipeline}/{trainer.context}/{trainer.expert}",
    )


def _memory(one: Candidate) -> str:
    """Return the share of a die; of one of the trainer and of the rollout where they stand apart."""
    return "/".join(f"{share:.0%}" for share in one.role_shares or (one.memory_share,))


def _line(report: Report, place: int, one: Candidate) -> str:
    seconds = one.seconds
    sizes, split = _sizes(one)
    seen = f"published: {one.published_seconds:,.0f} s" if one.published_seconds else "published layout"
    marks = [seen if one.published else "modelled", *(["this job"] if one.own else [])]
    return (
        f"{place:>3} {sizes:<16}{split:<22}{_memory(one):>9}{seconds.rollout:>9,.0f}"
        f"{seconds.log_probabilities:>11,.0f}{seconds.update:>8,.0f}{seconds.other:>7,.0f}{seconds.total:>8,.0f}"
        f"{report.tokens_per_card_second(one.seconds.total):>15.1f}{one.outcome.idle:>7.1%}  {', '.join(marks)}"
    )


def _effect_line(effect: Effect) -> str:
    state = " (on)" if effect.enabled else ""
    saved = f"{effect.saved:,.0f}" if effect.saved >= 0.5 else "-"
    return f"{effect.field + state:<34}{saved:>9}  {effect.origin.value}: {effect.reason}"


def report_document(namespace: str, name: str, report: Report, top: int) -> dict[str, Any]:
    """Return the same as data."""
    setup, trace = report.job.setup, report.trace
    shown = [(place, one) for place, one in enumerate(report.found, 1) if place <= top or one.own]
    return {
        "namespace": namespace,
        "job": name,
        "model": report.job.shape.name,
        "devices": report.job.devices,
        "cards": report.job.devices // setup.dies_per_card,
        "lengths": {
            "origin": trace.origin.value,
            "source": trace.source,
            "responses": len(trace.requests),
            "meanTokens": round(trace.mean, 2),
            "longestTokens": trace.longest,
        },
        "stepTime": {"origin": setup.engine.step_time.origin.value, "source": setup.engine.step_time.source},
        "notes": [setup.caveat] if setup.caveat else [],
        "modelError": ERROR,
        "layouts": [_layout_document(report, place, one) for place, one in shown],
        "ownLayoutFits": report.own_place is not None,
        "bottleneck": {"origin": "modelled", "stage": report.found[0].seconds.bottleneck},
        "modes": [_mode_document(report, placed, one) for placed in report.comparison.placed for one in placed.steps],
        "modesNotShown": report.comparison.missing or None,
        "switches": [
            {
                "field": effect.field,
                "enabled": effect.enabled,
                "savedSeconds": round(effect.saved, 1),
                "origin": effect.origin.value,
                "reason": effect.reason,
            }
            for effect in report.effects
        ],
    }


def _mode_document(report: Report, placed: Placed, one: ModeStep) -> dict[str, Any]:
    job = placed.job
    return {
        "mode": one.mode,
        "origin": "modelled",
        "devices": {"trainer": job.trainer.devices, "rollout": job.setup.devices},
        "layout": _split_document(placed.layout),
        **_memory_document(placed.layout),
        "seconds": {
            "rollout": round(one.rollout, 1),
            "training": round(one.train, 1),
            "weights": round(one.transfer, 1),
            "generation": None if one.generation is None else round(one.generation, 1),
        },
        "stepSeconds": round(one.total, 1),
        "tokensPerSecondPerCard": round(report.tokens_per_card_second(one.total), 2),
        "staleness": round(one.staleness, 2),
    }


def _memory_document(one: Candidate) -> dict[str, Any]:
    shares: dict[str, Any] = {"memoryShare": round(one.memory_share, 4)}
    if one.role_shares:
        shares["memoryShares"] = {
            role: round(share, 4) for role, share in zip(("trainer", "rollout"), one.role_shares, strict=True)
        }
    return shares


def _split_document(one: Candidate) -> dict[str, Any]:
    rollout, trainer = one.layout.rollout, one.layout.trainer
    return {
        "rollout": {"tensor": rollout.tensor, "data": rollout.data, "expert": rollout.expert},
        "trainer": {
            "tensor": trainer.tensor,
            "pipeline": trainer.pipeline,
            "context": trainer.context,
            "expert": trainer.expert,
        },
    }


def _layout_document(report: Report, place: int, one: Candidate) -> dict[str, Any]:
    seconds = one.seconds
    return {
        "place": place,
        "own": one.own,
        "published": one.published or None,
        "publishedStepSeconds": one.published_seconds,
        **_split_document(one),
        "origin": one.origin.value,
        **_memory_document(one),
        "seconds": {
            "rollout": round(seconds.rollout, 1),
            "logProbabilities": round(seconds.log_probabilities, 1),
            "update": round(seconds.update, 1),
            "other": round(seconds.other, 1),
            **({} if seconds.transfer is None else {"weights": round(seconds.transfer, 1)}),
            "step": round(seconds.total, 1),
        },
        "tokensPerSecondPerCard": round(report.tokens_per_card_second(one.seconds.total), 2),
        "idle": round(one.outcome.idle, 4),
        "firstDpIdle": round(one.outcome.first_idle, 4),
    }
