"""What the deep check imports, in the order in which it does. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from rljob_runtime.contract import Platform as JobPlatform
from rljob_runtime.fork_server import preload
from rljob_runtime.image_check.facts import ImageFacts, Launcher, Verdict
from rljob_runtime.image_check.requirements import TABLE
from rljob_runtime.image_check.seam import Platform, Seam
from rljob_runtime.image_check.seams import TABLE as SEAMS

RUNTIME = "rljob_runtime"
CPU_ONLY = frozenset({"vllm.v1.worker.cpu_worker"})
"""Among what the fork server preloads: it serves jobs on CPUs."""
TORCH_NPU = "torch_npu"
VLLM_ASCEND = {
    "vllm_ascend": "no rollout runs on NPUs",
    "vllm_ascend.worker.worker": "no rollout runs on NPUs",
    "vllm_ascend.vllm_ascend_C": "an engine fails when it is to give its memory to the trainer",
}
"""vllm-ascend itself hides that its compiled part cannot be loaded (0.23.0, device_allocator/camem.py:67)."""
MEGATRON = ("verl.workers.engine.mindspeed", "verl.workers.engine.megatron", "mbridge")
"""Of trainers with the backend Megatron or MindSpeed. verl itself hides that they cannot be imported (verl 0.9.1,
workers/engine/__init__.py:53). MindSpeed patches Megatron as it is imported, so it comes first, and both come last."""


@dataclass(frozen=True)
class Import:
    """A module, and what its failure means."""

    module: str
    consequence: str
    verdict: Verdict = Verdict.REFUSED
    launchers: tuple[Launcher, ...] = (Launcher.VERL,)


def plan(facts: ImageFacts) -> tuple[Import, ...]:
    """Return what to import in this image. A module comes once, with the worst that its failure means."""
    found: dict[str, Import] = {}
    for wanted in (*_distributions(facts), *_parts(facts), *_seams(facts), *_megatron(facts)):
        known = found.get(wanted.module)
        if known is None or list(Verdict).index(wanted.verdict) > list(Verdict).index(known.verdict):
            found[wanted.module] = wanted
    return tuple(found.values())


def environment(facts: ImageFacts, environ: Mapping[str, str]) -> dict[str, str]:
    """Return the variables of a process that imports: those of a run on this platform, where no device is held."""
    added = {"VERL_PLATFORM": "huawei" if facts.on_npu else JobPlatform.CPU.value}
    if facts.on_npu:
        # torch loads torch_npu as it is imported, and would fail with it. The plan has torch_npu by itself.
        added["TORCH_DEVICE_BACKEND_AUTOLOAD"] = "0"
    return {**environ, **added}


def _distributions(facts: ImageFacts) -> Iterator[Import]:
    yield Import("ray", "no job runs", launchers=tuple(Launcher))
    if facts.on_npu:
        # First, as torch itself does on nodes with a driver. Others try to, and leave half of it behind.
        yield Import(TORCH_NPU, "no trainer and no rollout runs on NPUs")
    for row in TABLE:
        yield Import(row.module, f"verl needs it ({row.source})")
    if facts.on_npu:
        yield from (Import(name, consequence) for name, consequence in VLLM_ASCEND.items())


def _parts(facts: ImageFacts) -> Iterator[Import]:
    for name in preload.PARTS:
        if not (facts.on_npu and name in CPU_ONLY):
            yield Import(name, "the processes of a run import it")


def _seams(facts: ImageFacts) -> Iterator[Import]:
    unused = Platform.CPU if facts.on_npu else Platform.NPU
    for seam in SEAMS:
        if seam.platform is not unused:
            yield Import(seam.module, seam.consequence, seam.absent, seam.launchers)
            if (own := _user(seam)) is not None:
                yield Import(own, seam.consequence, seam.absent, seam.launchers)


def _user(seam: Seam) -> str | None:
    """Return the module of the runtime that uses a seam. verl's own use has a file and a line."""
    return None if ":" in seam.used_by else f"{RUNTIME}.{seam.used_by}"


def _megatron(facts: ImageFacts) -> Iterator[Import]:
    if facts.on_npu:
        for name in MEGATRON:
            yield Import(name, "jobs with trainer.backend Megatron or MindSpeed fail", Verdict.DEGRADED)
