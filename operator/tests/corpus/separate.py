"""Trainer and rollout on nodes of their own: roles of the groups, and what belongs to which group."""

from __future__ import annotations

from builders import apart

from corpus.bad import Bad, Json, group, key, merged, trainer, volume

GROUPS = "spec.workerGroups"
ROLLOUT = "actor_rollout_ref.rollout"
ENGINE = f"{ROLLOUT}.checkpoint_engine"
FSDP = "actor_rollout_ref.actor.fsdp_config"
WITH = "with trainer.mode SeparateAsync"
A2: Json = {"accelerator": {"class": "atlas-a2"}}
A3: Json = {"accelerator": {"class": "atlas-a3-superpod"}}
SEPARATE: Json = {"trainer": {"mode": "SeparateAsync"}}
MINI: Json = trainer(miniBatchSize=8)
SAVED: Json = {"checkpoint": {"path": "/data/checkpoints", "everySteps": 5}}
ONLY_ONE = (
    "trainer.mode Sync needs one group with the roles Trainer and Rollout, but there are train: Trainer; generate: "
    "Rollout; keep one group without roles, or set trainer.mode to SeparateAsync"
)


def separate(*changes: Json, **groups: Json) -> Json:
    """Change a job whose groups, `trainer` and `rollout`, are given as changes of the smallest ones."""
    return merged(apart(groups.get("trainer"), groups.get("rollout")), *changes)


def wide(nodes: int, rollout: int, *changes: Json) -> Json:
    """Change a job on whole nodes of Atlas A3."""
    trains, generates = ({"nodes": count, "devicesPerNode": 16} for count in (nodes, rollout))
    return separate(A3, *changes, trainer=trains, rollout=generates)


BAD = {
    "one group for both": Bad(
        SEPARATE,
        GROUPS,
        "trainer.mode SeparateAsync needs one group with role Trainer and one with role Rollout, but there are "
        "trainer: Trainer, Rollout; set roles: [Trainer] in one group and roles: [Rollout] in another one",
    ),
    "two groups that train": Bad(
        separate(rollout={"roles": ["Trainer"]}), GROUPS, "but there are train: Trainer; generate: Trainer; set roles"
    ),
    "a group of both beside one": Bad(
        separate(rollout={"roles": None}), GROUPS, "but there are train: Trainer; generate: Trainer, Rollout; set roles"
    ),
    "groups apart in a synchronous job": Bad(separate(trainer(mode="Sync")), GROUPS, ONLY_ONE),
    "groups apart in turns": Bad(
        separate(trainer(mode="ColocateAsync")), GROUPS, ONLY_ONE.replace("Sync", "ColocateAsync", 1)
    ),
    "groups apart in an evaluation": Bad(
        separate(trainer(mode="Evaluate")), GROUPS, ONLY_ONE.replace("Sync", "Evaluate", 1)
    ),
    "two groups for both": Bad(
        {"workerGroups": [{"name": "a", "devicesPerNode": 2}, {"name": "b", "devicesPerNode": 2}]},
        GROUPS,
        "needs one group with the roles Trainer and Rollout, but there are a: Trainer, Rollout; b: Trainer, Rollout",
    ),
    "a group that only trains": Bad(group({"roles": ["Trainer"]}), GROUPS, "but there are trainer: Trainer; keep one"),
    "a role twice": Bad(
        separate(rollout={"roles": ["Rollout", "Rollout"]}),
        f"{GROUPS}[1].roles",
        "Rollout is listed twice; remove one",
    ),
    "a model that only the trainer has": Bad(
        separate(trainer={"template": volume()}),
        "spec.model.path",
        "/data/model is on volume data of spec.workerGroups[0].template and on none of spec.workerGroups[1].template; "
        "mount the volume in both",
    ),
    "a model that only the rollout has": Bad(
        separate(rollout={"template": volume()}),
        "spec.model.path",
        "/data/model is on volume data of spec.workerGroups[1].template and on none of spec.workerGroups[0].template",
    ),
    "a volume of the other group": Bad(
        separate(
            trainer={"template": volume()},
            rollout={"template": {"volumeMounts": [{"name": "data", "mountPath": "/data"}]}},
        ),
        f"{GROUPS}[1].template.volumeMounts[0].name",
        "volume data does not exist; volumes are none",
    ),
    "a volume that only the rollout shares": Bad(
        separate(
            {"model": {"path": "/model"}, "head": {"template": {"volumeMounts": volume()["volumeMounts"]}}},
            rollout={"template": volume()},
        ),
        "spec.head.template.volumeMounts[0].name",
        "volume data does not exist; volumes are none",
    ),
    "checkpoints on the rollout's volume": Bad(
        separate(SAVED, {"model": {"path": "/model"}}, rollout={"template": volume()}),
        "spec.checkpoint.path",
        "is on no volume and would be lost with the pod; mount a volume at or above it in spec.workerGroups[0]",
    ),
    "wheels that one group lacks": Bad(
        separate(
            {
                "model": {"path": "/model"},
                "runtime": {
                    "packages": {"requirements": [f"a==1 --hash=sha256:{'0' * 64}"], "wheelhouse": "/data/wheels"}
                },
            },
            trainer={"template": volume()},
        ),
        "spec.runtime.packages.wheelhouse",
        "/data/wheels is on no volume of spec.workerGroups[1].template; mount one there",
    ),
    "half a mini batch": Bad(
        separate(trainer(miniBatchSize=12)),
        "spec.trainer.miniBatchSize",
        f"12 does not divide trainer.globalBatchSize 32, and {WITH} a step has whole mini batches only; use one of 1",
    ),
    "a mini batch larger than the batch": Bad(
        separate(trainer(miniBatchSize=64)),
        "spec.trainer.miniBatchSize",
        "64 does not divide trainer.globalBatchSize 32",
    ),
    "a mini batch that the trainer cannot share": Bad(
        separate(trainer(miniBatchSize=4, samplesPerPrompt=2), trainer={"devicesPerNode": 16}),
        "spec.trainer.miniBatchSize",
        "over 16 data-parallel ranks: 16 devices (workerGroups[0].nodes 1 × devicesPerNode 16) / 1 that share",
    ),
    "passes larger than a mini batch": Bad(
        separate(MINI, key(f"{ROLLOUT}.log_prob_micro_batch_size_per_gpu", 64)),
        f"spec.verl.overrides[{ROLLOUT}.log_prob_micro_batch_size_per_gpu]",
        "64 does not divide a device's 32 samples of a mini batch; use one of 1, 2, 4, 8, 16, 32",
    ),
    "replicas that do not fill the rollout": Bad(
        separate({"rollout": {"parallelism": {"tensor": 4}}}, rollout={"nodes": 3}),
        "spec.rollout.parallelism.tensor",
        "4 does not divide 6 devices (workerGroups[1].nodes 3 × devicesPerNode 2); use one of 1, 2, 3, 6",
    ),
    "replicas that share nodes": Bad(
        separate(
            {"rollout": {"parallelism": {"data": 6}}},
            trainer={"devicesPerNode": 4},
            rollout={
                "nodes": 3,
                "devicesPerNode": 4,
            },
        ),
        "spec.rollout.parallelism.data",
        "tensor 1 × data 6 = 6 neither divides workerGroups[1].devicesPerNode 4 nor is a multiple of it",
    ),
    "a trainer that its sizes do not divide": Bad(
        wide(3, 4, {"trainer": {"backend": "Megatron", "parallelism": {"pipeline": 16, "context": 2}}}),
        "spec.trainer.parallelism",
        "tensor 1 × pipeline 16 × context 2 = 32 does not divide 48 devices (workerGroups[0].nodes 3 × devicesPerNode "
        "16); set workerGroups[0].nodes to 4, or lower a size",
    ),
    "half a block of the rollout": Bad(
        wide(4, 6, {"scheduling": {"topology": {"nodesPerSuperPodBlock": 4}}}),
        "spec.scheduling.topology.nodesPerSuperPodBlock",
        "4 does not divide workerGroups[1].nodes 6; set it to 2, or nodes to 8",
    ),
    "two halves of a node": Bad(
        separate(A2, trainer={"devicesPerNode": 8}, rollout={"devicesPerNode": 4}),
        f"{GROUPS}[1].devicesPerNode",
        "4 on 2 nodes, but a pod must take a whole node: class atlas-a2 has 8 devices per node; use that",
    ),
    "too few CPUs for the replicas": Bad(
        separate(A2, trainer={"devicesPerNode": 8}, rollout={"devicesPerNode": 8, "template": {"cpu": "8"}}),
        f"{GROUPS}[1].template.cpu",
        "8 gives Ray 8 CPUs a node, but verl reserves 2 × devicesPerNode 8 = 16; with fewer the run hangs; set it to "
        "16 or more",
    ),
    "other devices than the rollout has": Bad(
        separate(
            A2,
            trainer={"devicesPerNode": 8},
            rollout={"devicesPerNode": 8, "template": {"env": [{"name": "ASCEND_RT_VISIBLE_DEVICES", "value": "0,1"}]}},
        ),
        f"{GROUPS}[1].template.env[0]",
        "'0,1' names other devices than the pod's 0 to 7; Ray would not start; remove it",
    ),
    "a profile of the rollout's devices": Bad(
        separate(
            {"observability": {"logPath": "/data/logs", "profile": {"steps": [1], "ranks": [2]}}},
            trainer={"template": volume()},
            rollout={"template": volume()},
        ),
        "spec.observability.profile.ranks",
        "2 does not exist: 2 devices have ranks from 0; lower it",
    ),
    **{
        f"an override of {name.removeprefix('+')}": Bad(
            separate(key(name, value)), f"spec.verl.overrides[{name}]", f"is set by spec.{field}; set it there"
        )
        for name, value, field in (
            ("trainer.v1.separate_async.parameter_sync_step", 4, "trainer.miniBatchSize"),
            ("trainer.v1.separate_async.num_warmup_batches", 2, "trainer.async.prefetchBatches"),
            ("actor_rollout_ref.hybrid_engine", True, "trainer.mode"),
            (f"{ROLLOUT}.nnodes", 2, "workerGroups[].nodes"),
            (f"{ROLLOUT}.n_gpus_per_node", 4, "workerGroups[].devicesPerNode"),
            (f"{ENGINE}.backend", "nixl", "accelerator.class"),
            (f"{ENGINE}.custom_backend_module", "mine", "accelerator.class"),
        )
    },
    "a group of HCCL that stays": Bad(
        separate(
            A2,
            key(f"+{ENGINE}.engine_kwargs.nccl.rebuild_group", False),
            trainer={"devicesPerNode": 8},
            rollout={"devicesPerNode": 8},
        ),
        f"spec.verl.overrides[+{ENGINE}.engine_kwargs.nccl.rebuild_group]",
        "is set by spec.accelerator.class; set it there",
    ),
    "an adapter beside the weights": Bad(
        separate(key("actor_rollout_ref.model.lora_rank", 8)),
        "spec.verl.overrides[actor_rollout_ref.model.lora_rank]",
        f"trains a LoRA adapter that is sent beside the weights, which {WITH} is not supported",
    ),
    "a command with two groups": Bad(
        {
            **dict.fromkeys(("model", "data", "reward")),
            "workerGroups": apart()["workerGroups"],
            "trainer": {"steps": 40, "globalBatchSize": None},
            "launcher": {"type": "Command", "command": {"args": ["train"]}},
        },
        GROUPS,
        "launcher.type Command needs one group with the roles Trainer and Rollout, but there are train: Trainer; "
        "generate: Rollout; keep one group without roles",
    ),
}
