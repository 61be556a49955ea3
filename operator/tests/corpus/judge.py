"""A judge: its group, its model and its devices."""

from __future__ import annotations

from builders import apart, judged

from corpus.bad import Bad, Json, key, merged, volume

GROUPS = "spec.workerGroups"
MODEL = "reward.reward_model"
ALONE: Json = {"workerGroups": [{"name": "trainer", "devicesPerNode": 2}]}
TWO_GROUPS = (
    "reward.judge needs two groups, one with roles: [Judge] and one without roles, which trains and generates, but "
)

BAD = {
    "no group": Bad(merged(judged(), ALONE), GROUPS, TWO_GROUPS + "there are trainer: Trainer, Rollout; set them so"),
    "a group whose role is missing": Bad(judged(None, {"roles": ["Trainer", "Rollout"]}), GROUPS, TWO_GROUPS),
    "only the judge": Bad(
        merged(judged(), {"workerGroups": [{"name": "judge", "roles": ["Judge"], "devicesPerNode": 2}]}),
        GROUPS,
        TWO_GROUPS,
    ),
    "a group without a judge": Bad(
        merged(judged(), {"reward": {"judge": None}}),
        f"{GROUPS}[1].roles",
        "Judge, but the job has no reward.judge; set reward.judge, or remove the group",
    ),
    "a group that also generates": Bad(judged(None, {"roles": ["Judge", "Rollout"]}), GROUPS, TWO_GROUPS),
    "a judge beside trainer and rollout": Bad(
        merged(judged(), {"workerGroups": apart()["workerGroups"], "trainer": {"mode": "SeparateAsync"}}),
        "spec.reward.judge",
        "is not supported with trainer.mode SeparateAsync, whose trainer and rollout take both worker groups; set",
    ),
    "a model that the trainer lacks": Bad(
        judged({"path": "/data/judge"}, {"template": volume()}),
        "spec.reward.judge.path",
        "/data/judge is on volume data of spec.workerGroups[1].template and on none of spec.workerGroups[0].template; "
        "mount the volume in both",
    ),
    "no function": Bad(
        judged() | {"reward": {"path": None, "builtin": "GSM8K", "judge": {"path": "/judge", "maxTokens": 4096}}},
        "spec.reward.judge",
        "builtin GSM8K asks no judge; set reward.path to a function that does, or remove judge",
    ),
    "replicas that do not fill a node": Bad(
        judged({"tensor": 4}),
        "spec.reward.judge.tensor",
        "4 does not divide devicesPerNode 2 of group judge; use one of",
    ),
    "replicas of another size": Bad(
        merged(judged(), key(f"{MODEL}.rollout.data_parallel_size", 2)),
        f"spec.verl.overrides[{MODEL}.rollout.data_parallel_size]",
        "2: a replica of the judge has spec.reward.judge.tensor devices; remove it",
    ),
    "more than all memory": Bad(
        judged({"memoryFraction": "1.5"}), "spec.reward.judge.memoryFraction", "1.5 must be at most 1; 0.8 is usual"
    ),
    "too few CPUs": Bad(
        merged(
            {"accelerator": {"class": "atlas-a2"}},
            judged(None, {"devicesPerNode": 8, "template": {"cpu": "16"}}, {"name": "trainer", "devicesPerNode": 8}),
        ),
        f"{GROUPS}[1].template.cpu",
        "16 gives Ray 16 CPUs a node, but verl reserves 3 × devicesPerNode 8 = 24; with fewer the run hangs",
    ),
    "a pool without devices": Bad(
        key(
            MODEL,
            {
                "enable": True,
                "enable_resource_pool": True,
                "model_path": "/judge",
                "nnodes": 1,
                "n_gpus_per_node": 8,
            },
        ),
        f"spec.verl.overrides[{MODEL}]",
        "true, but no devices are left for the pool: trainer and rollout take all 2; use reward.judge and one more "
        "worker group with roles: [Judge]",
    ),
    "a teacher without devices": Bad(
        key("distillation.enabled", True),
        "spec.verl.overrides[distillation.enabled]",
        "true, but no devices are left for the teacher's pool: trainer and rollout take all 2",
    ),
    "an override of the judge's model": Bad(
        merged(judged(), key(f"{MODEL}.model_path", "/other")),
        f"spec.verl.overrides[{MODEL}.model_path]",
        "is set by spec.reward.judge.path; set it there",
    ),
    "a judge of a command": Bad(
        {
            **dict.fromkeys(("model", "data", "reward")),
            "workerGroups": judged()["workerGroups"],
            "trainer": {"steps": 40, "globalBatchSize": None},
            "launcher": {"type": "Command", "command": {"args": ["train"]}},
        },
        f"{GROUPS}[1].roles",
        "Judge, but the job has no reward.judge; remove the group",
    ),
}
