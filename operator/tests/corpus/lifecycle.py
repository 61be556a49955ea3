"""Checkpoints, restarts, stop rules, queues, cleaning up."""

from corpus.bad import Bad, Json, head, key, megatron, merged, saved, template, trainer, volume


def rule(pattern: str) -> Json:
    return {"restart": {"rules": [{"name": "a", "onLogPattern": pattern, "action": "Fail"}]}}


def stop(**values: object) -> Json:
    return {"stopRules": [{"name": "a", "metric": "actor/entropy", "condition": "Below"} | values]}


def profiled(path: str | None, **values: object) -> Json:
    where = {} if path is None else {"logPath": path}
    mounted = template(volume("/data", nfs={"server": "nfs", "path": "/"}))
    return mounted | {"observability": where | {"profile": {"steps": [2]} | values}}


def super_pods(topology: Json, nodes: int) -> Json:
    return merged(megatron({}, nodes=nodes), {"scheduling": {"topology": topology}} | trainer(globalBatchSize=96))


PROFILE = "spec.observability.profile"
PATTERN = "spec.restart.rules[0].onLogPattern"


def exported(target: Json, **more: object) -> Json:
    return {"export": {"to": target} | more}


BAD = {
    "a checkpoint in the pod": Bad(
        {"checkpoint": {"path": "/ckpt", "everySteps": 5}},
        "spec.checkpoint.path",
        "/ckpt is on no volume and would be lost with the pod; mount a volume at or above it in spec.workerGroups[0]",
    ),
    "a checkpoint on a volume that is not there": Bad(
        template({"volumeMounts": [{"name": "data", "mountPath": "/data"}]})
        | {"checkpoint": {"path": "/data/ckpt", "everySteps": 5}},
        "spec.workerGroups[0].template.volumeMounts[0].name",
        "volume data does not exist; volumes are none",
    ),
    "a checkpoint beside the volume": Bad(
        saved({"path": "/database"}), "spec.checkpoint.path", "/database is on no volume"
    ),
    "a checkpoint on scratch space": Bad(
        saved(emptyDir={}), "spec.checkpoint.path", "is on volume data, which does not outlive the pod"
    ),
    "a checkpoint that cannot be written": Bad(
        saved(persistentVolumeClaim={"claimName": "data", "readOnly": True}),
        "spec.checkpoint.path",
        "is mounted read-only; remove readOnly",
    ),
    "a checkpoint on another volume": Bad(
        saved({"volume": "other"}), "spec.checkpoint.volume", "volume other does not exist; the workers"
    ),
    "a checkpoint on the wrong volume": Bad(
        template(
            {
                "volumes": [{"name": name, "nfs": {"server": "nfs", "path": "/"}} for name in ("data", "fast")],
                "volumeMounts": [{"name": "data", "mountPath": "/data"}, {"name": "fast", "mountPath": "/fast"}],
            }
        )
        | {"checkpoint": {"path": "/fast/ckpt", "volume": "data", "everySteps": 5}},
        "spec.checkpoint.path",
        "/fast/ckpt is on volume fast, not on data",
    ),
    "a checkpoint that the head sees elsewhere": Bad(
        merged(
            saved(),
            head(
                {
                    "volumes": [{"name": "mine", "nfs": {"server": "nfs", "path": "/"}}],
                    "volumeMounts": [{"name": "mine", "mountPath": "/data"}],
                }
            ),
        ),
        "spec.checkpoint.path",
        "is on volume data in the workers and on mine in the head; mount the same one",
    ),
    "a source that is not read": Bad(
        saved({"resume": "Never", "from": {"job": "other"}}), "spec.checkpoint.from", "resume is Never"
    ),
    "a source that is the goal": Bad(
        saved({"from": {"path": "/data/checkpoints/"}}), "spec.checkpoint.from.path", "is this job's own path"
    ),
    "two sources": Bad(
        saved({"from": {"job": "other", "path": "/x"}}), "spec.checkpoint.from", "has job and path; set exactly one"
    ),
    "restarts without checkpoint": Bad(
        {"restart": {"maxRestarts": 3}},
        "spec.restart.maxRestarts",
        "requires spec.checkpoint: without it a restart begins",
    ),
    "infrastructure restarts without checkpoint": Bad(
        {"restart": {"maxInfrastructureRestarts": 3}},
        "spec.restart.maxInfrastructureRestarts",
        "requires spec.checkpoint",
    ),
    "a stop that waits for nothing": Bad(
        {"stop": {"requireCheckpoint": True}}, "spec.stop.requireCheckpoint", "requires spec.checkpoint"
    ),
    "a log in the pod": Bad(
        {"observability": {"logPath": "/logs"}}, "spec.observability.logPath", "is on no volume and would be lost with"
    ),
    "a log on scratch space": Bad(
        template(volume("/logs", emptyDir={})) | {"observability": {"logPath": "/logs"}},
        "spec.observability.logPath",
        "does not outlive the pod",
    ),
    "traces without a place": Bad(profiled(None), PROFILE, "requires observability.logPath"),
    "traces in the pods": Bad(
        profiled("/logs"), "spec.observability.logPath", "/logs is on no volume and would be lost with the pod"
    ),
    "traces in the workers' pods": Bad(
        merged(
            profiled("/logs"),
            head(
                {
                    "volumes": [{"name": "logs", "nfs": {"server": "nfs", "path": "/"}}],
                    "volumeMounts": [{"name": "logs", "mountPath": "/logs"}],
                }
            ),
        ),
        "spec.observability.logPath",
        "/logs is on no volume and would be lost with the pod; mount a volume at or above it in spec.workerGroups[0]",
    ),
    "traces of a step after the end": Bad(
        profiled("/data/logs", steps=[2, 41]), f"{PROFILE}.steps", "41 is more than trainer.steps 40; lower it"
    ),
    "traces of a rank that is not there": Bad(
        profiled("/data/logs", ranks=[0, 99]), f"{PROFILE}.ranks", "99 does not exist: "
    ),
    "a rule that restarts nothing": Bad(
        {"restart": {"rules": [{"name": "a", "onExitCodes": [1], "action": "Restart"}]}},
        "spec.restart.rules[0].action",
        "Restart, but maxRestarts and maxInfrastructureRestarts are 0",
    ),
    "a fault that is none": Bad(
        {"restart": {"rules": [{"name": "a", "onFault": "SeperateNPU", "action": "Fail"}]}},
        "spec.restart.rules[0].onFault",
        "SeperateNPU is not a class of faults; did you mean SeparateNPU?",
    ),
    "a fault like no other": Bad(
        {"restart": {"rules": [{"name": "a", "onFault": "x", "action": "Fail"}]}},
        "spec.restart.rules[0].onFault",
        "x is not a class of faults; they are NotHandleFault",
    ),
    "a pattern that is none": Bad(rule("("), PATTERN, "cannot be compiled: missing ), unterminated subpattern"),
    "a pattern of endless numbers": Bad(rule("a{99999999999999999999}"), PATTERN, "cannot be compiled"),
    "a pattern that looks ahead": Bad(rule("a(?=b)"), PATTERN, "(?= is a lookahead, which RE2 does not support"),
    "a pattern that looks back": Bad(rule(r"(a)\1"), PATTERN, r"\1 refers to an earlier group, which RE2 does not"),
    "a pattern that repeats repetitions": Bad(rule("(a+)+$"), PATTERN, "a repetition is repeated, as in (a+)+"),
    "a pattern that repeats too often": Bad(rule("a{1001}"), PATTERN, "{1001} repeats more than 1000 times"),
    "a pattern that possesses": Bad(rule("a++"), PATTERN, "is a possessive repetition"),
    "an end of another language": Bad(rule(r"a\Z"), PATTERN, "use $"),
    "a stop before the beginning": Bad(
        {"stop": {"requested": True}}, "spec.stop.requested", "remove it, and set it on the job to end it"
    ),
    "a comparison with nothing": Bad(stop(), "spec.stopRules[0].threshold", "is required with condition Below"),
    "NaN above one": Bad(
        stop(condition="IsNaN", threshold="1"), "spec.stopRules[0].threshold", "because NaN is not compared"
    ),
    "a threshold without end": Bad(stop(threshold="1e999"), "spec.stopRules[0].threshold", "is too large for a number"),
    "a rule for longer than the run": Bad(
        stop(threshold="0.1", forSteps=41), "spec.stopRules[0].forSteps", "41 is more than trainer.steps 40"
    ),
    **{
        f"a queue named {name!r}": Bad(
            {"scheduling": {"queueName": name}}, "spec.scheduling.queueName", "is no name of a queue; use the name of"
        )
        for name in ("team a", "Team", "team/a", "-team", "a..b", "team_a", "\x1b[2J")
    },
    "Kueue without queue": Bad({"scheduling": {"gang": "Kueue"}}, "spec.scheduling.gang", "set scheduling.queueName"),
    "a place in no queue": Bad(
        {"scheduling": {"workloadPriorityClassName": "high"}},
        "spec.scheduling.workloadPriorityClassName",
        "set scheduling.queueName",
    ),
    "half a block": Bad(
        super_pods({"nodesPerSuperPodBlock": 4}, nodes=6),
        "spec.scheduling.topology.nodesPerSuperPodBlock",
        "4 does not divide workerGroups[0].nodes 6; set it to 3, or nodes to 8",
    ),
    "a block larger than the job": Bad(
        super_pods({"nodesPerSuperPodBlock": 8}, nodes=2),
        "spec.scheduling.topology.nodesPerSuperPodBlock",
        "8 does not divide workerGroups[0].nodes 2; set it to 2, or nodes to 8",
    ),
    "blocks of what has no super-pods": Bad(
        {"scheduling": {"topology": {"nodesPerSuperPodBlock": 1}}},
        "spec.scheduling.topology.nodesPerSuperPodBlock",
        "class cpu has no super-pods; remove it, or let an administrator set superPodLabel",
    ),
    "a level that is no label": Bad(
        {"scheduling": {"topology": {"level": "super pod"}}},
        "spec.scheduling.topology.level",
        "'super pod' is not a label name; use one such as example.com/rack",
    ),
    "a level too long for Kueue": Bad(
        {"scheduling": {"queueName": "cards", "topology": {"level": f"{'a' * 60}.example/rack"}}},
        "spec.scheduling.topology.level",
        "73 characters, but Kueue allows at most 63",
    ),
    "a must of nothing": Bad(
        {"scheduling": {"topology": {"mode": "Required"}}},
        "spec.scheduling.topology.level",
        "is required with mode Required, because class cpu has no super-pods",
    ),
    "a place in a queue of somebody else": Bad(
        {"scheduling": {"gang": "Volcano", "queueName": "team", "workloadPriorityClassName": "high"}},
        "spec.scheduling.workloadPriorityClassName",
        "Volcano uses scheduling.priorityClassName, so set that",
    ),
    "a cluster without job": Bad(
        {"cleanup": {"clusterAfterSeconds": 60, "jobAfterSeconds": 5}}, "spec.cleanup.jobAfterSeconds", "raise it"
    ),
    "a keepsake of nothing": Bad(
        {"cleanup": {"keepOnFailure": True}},
        "spec.cleanup.keepOnFailure",
        "clusterAfterSeconds, which is 0; raise that",
    ),
    "an export without a checkpoint": Bad(
        template(volume()) | exported({"path": "/data/models"}),
        "spec.export",
        "requires spec.checkpoint, from which exports are made; set path and everySteps",
    ),
    "an export of an evaluation": Bad(
        merged(saved(), exported({"path": "/data/models"}), trainer(mode="Evaluate")),
        "spec.export",
        "trainer.mode is Evaluate, which trains nothing to export; remove it",
    ),
    "an evaluation of checkpoints whose interval is not known": Bad(
        merged(saved(), {"checkpoint": {"everySteps": None}, "evaluation": {}}),
        "spec.evaluation.every",
        "spec.checkpoint.everySteps is not set; set it",
    ),
    "an evaluation without a checkpoint": Bad(
        {"evaluation": {}}, "spec.evaluation", "requires spec.checkpoint, whose steps are evaluated; set path"
    ),
    "an evaluation below a path that is as long as allowed": Bad(
        merged(saved({"path": "/data/" + "x" * 1018}), {"evaluation": {}}),
        "spec.evaluation",
        "its jobs would be refused: spec.initializers.0.conversion.to: String should have at most 1024 characters",
    ),
    "an evaluation of an evaluation": Bad(
        merged(saved(), {"evaluation": {}}, trainer(mode="Evaluate")),
        "spec.evaluation",
        "trainer.mode is Evaluate, which saves nothing to evaluate; remove it",
    ),
    "an evaluation on devices that the model does not fit": Bad(
        merged(saved(), {"evaluation": {"devicesPerNode": 1}}, {"rollout": {"parallelism": {"tensor": 2}}}),
        "spec.evaluation",
        "its jobs would be refused: spec.rollout.parallelism",
    ),
    "an evaluation of a LoRA adapter": Bad(
        merged(saved(), {"evaluation": {}}, key("actor_rollout_ref.model.lora_rank", 8)),
        "spec.evaluation",
        "would add the adapter of spec.verl.overrides[actor_rollout_ref.model.lora_rank] to a model in which",
    ),
    "an export into the pod": Bad(
        merged(saved(), exported({"path": "/models"})), "spec.export.to.path", "/models is on no volume"
    ),
    "an export over the checkpoints": Bad(
        merged(saved(), exported({"path": "/data/checkpoints/"})),
        "spec.export.to.path",
        "is checkpoint.path, whose folders have the same names; use /data/checkpoints/export",
    ),
    "an export without its target": Bad(
        merged(saved(), exported({"type": "HuggingFace"})),
        "spec.export.to",
        "type HuggingFace: huggingFace requires type HuggingFace, and vice versa; set both or neither",
    ),
    "an export to a claim with a path": Bad(
        merged(
            saved(),
            exported({"type": "PVC", "path": "/data/models", "persistentVolumeClaim": {"claimName": "models"}}),
        ),
        "spec.export.to",
        "type PVC: path requires type Path, and vice versa; set both or neither",
    ),
    "an export to a repository without an owner": Bad(
        merged(
            saved(),
            exported({"type": "ModelScope", "modelScope": {"repository": "sums", "secretRef": {"name": "hub"}}}),
        ),
        "spec.export.to.modelScope.repository",
        "must be the name of a repository on a hub: owner, '/' and name, such as Qwen/Qwen3-8B",
    ),
    "an export to a server with a password": Bad(
        merged(
            saved(),
            exported({"type": "MLflow", "mlflow": {"trackingUrl": "https://a:b@mlflow", "experiment": "sums"}}),
        ),
        "spec.export.to.mlflow.trackingUrl",
        "contains no user or password (no '@')",
    ),
    "an export that is tried for ever": Bad(
        merged(saved(), exported({"path": "/data/models"}, retries=21)), "spec.export.retries", "20"
    ),
}
