"""The part of job.json that does not depend on what trains."""

from __future__ import annotations

from rljob.api.v1alpha1 import RLJobSpec
from rljob.launchers.node_needs import binds_cores, node_needs
from rljob.render.accelerators import facts_of
from rljob.render.names import JobIdentity, cluster_name
from rljob.render.roles import role_of
from rljob_runtime.contract import (
    CONTRACT_VERSION,
    JobConfig,
    LogRule,
    NodeGroup,
    ResumeData,
    ResumeMode,
    ResumeSource,
    RuleCondition,
    SampleSettings,
    StopRule,
)


def common_config(job: JobIdentity, spec: RLJobSpec, generation: int, earlier_path: str | None = None) -> JobConfig:
    """Return job.json of a cluster generation without the settings of what trains.

    `earlier_path` is the checkpoint folder of the job that `checkpoint.from.job` names. Without it such a job begins at
    step 0.
    """
    facts, samples = facts_of(spec), spec.observability.samples
    return JobConfig(
        version=CONTRACT_VERSION,
        namespace=job.namespace,
        name=job.name,
        uid=job.uid,
        cluster_name=cluster_name(job, generation),
        cluster_generation=generation,
        platform=facts.platform,
        nodes=spec.nodes,
        devices=spec.devices,
        dies_per_card=facts.dies_per_card,
        total_steps=spec.total_steps or 0,
        overrides={},
        checkpoint_path=spec.checkpoint.path if spec.checkpoint else None,
        log_path=spec.observability.log_path,
        samples=SampleSettings(samples.every_steps, samples.per_step, samples.max_characters),
        resume=ResumeMode(spec.checkpoint.resume) if spec.checkpoint else ResumeMode.AUTO,
        resume_from=_resume_source(spec, earlier_path),
        resume_data=ResumeData(spec.checkpoint.data) if spec.checkpoint else ResumeData.SAME,
        stop_rules=_stop_rules(spec),
        log_rules=tuple(
            LogRule(rule.name, rule.on_log_pattern) for rule in spec.restart.rules if rule.on_log_pattern is not None
        ),
        core_binding=binds_cores(spec),
        needs=node_needs(spec),
        groups=_groups(spec),
    )


def _groups(spec: RLJobSpec) -> tuple[NodeGroup, ...]:
    """Return the groups of a job whose groups have different roles."""
    found = ((group, role_of(spec, group)) for group in spec.worker_groups)
    return tuple(NodeGroup(group.name, role, group.nodes, group.devices) for group, role in found if role is not None)


def _resume_source(spec: RLJobSpec, earlier_path: str | None) -> ResumeSource | None:
    source = spec.checkpoint.from_ if spec.checkpoint else None
    path = source.path or earlier_path if source else None
    return ResumeSource(path, source.step) if source and path else None


def _stop_rules(spec: RLJobSpec) -> tuple[StopRule, ...]:
    return tuple(
        StopRule(
            name=rule.name,
            metric=rule.metric,
            condition=RuleCondition(rule.condition),
            threshold=None if rule.threshold is None else float(rule.threshold),
            for_steps=rule.for_steps,
            succeeds=rule.result == "Succeeded",
        )
        for rule in spec.stop_rules
    )
