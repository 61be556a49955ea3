"""Valid manifests, each with something that a check inspects."""

from builders import judged

from corpus import command, separate
from corpus.bad import group, key, megatron, merged, override, saved, template, trainer, volume

VLLM = "+actor_rollout_ref.rollout.engine_kwargs.vllm"
TRANSFORMER = "+actor_rollout_ref.actor.megatron.override_transformer_config"
CORRECTION = "algorithm.rollout_correction"
ENDS = {"num_layers_in_first_pipeline_stage": 23, "num_layers_in_last_pipeline_stage": 23}
UNEVEN = megatron({"pipeline": 4}, layers=94)
PATTERNS = [r"HCCL\w+ failed", r"(?i)[a)(?=]+\\", "(ab?c)+", "[]a]{2,5}x{3}(y*)?", r"[^\]](a|b{2,})", "a??b*?"]

GOOD = {
    "the least": {},
    "trainer and rollout apart": separate.separate(trainer(miniBatchSize=8), rollout={"nodes": 3}),
    "sizes of each group": separate.wide(
        3,
        2,
        {
            "trainer": {"backend": "Megatron", "parallelism": {"tensor": 4, "pipeline": 3}, "globalBatchSize": 32},
            "rollout": {"parallelism": {"tensor": 8, "data": 4}},
            "scheduling": {"topology": {"nodesPerSuperPodBlock": 1}, "gang": "Volcano"},
        },
    ),
    "updates of weights on the host in bypass mode": separate.separate(
        trainer(miniBatchSize=8, offload={"parameters": True}, **{"async": {"correction": "None"}}),
        key(f"{CORRECTION}.bypass_mode", True),
    ),
    "one update of weights on the host": separate.separate(trainer(offload={"parameters": True})),
    "updates of Megatron's weights on the host": separate.wide(
        1, 1, trainer(backend="Megatron", miniBatchSize=8, offload={"parameters": True})
    ),
    "volumes of the same name": separate.separate(
        {"checkpoint": {"path": "/data/checkpoints", "everySteps": 5}},
        trainer={"template": volume()},
        rollout={"template": volume("/data", persistentVolumeClaim={"claimName": "cache"})},
    ),
    "an engine of one's own where no weights are sent by it": key(
        "actor_rollout_ref.rollout.checkpoint_engine", {"backend": "nixl", "update_weights_bucket_megabytes": 512}
    ),
    "an adapter": trainer(lora={"rank": 8}),
    "an adapter with all settings, evaluated": merged(
        saved(),
        trainer(lora={"rank": 8, "alpha": 16, "targets": ["q_proj"], "path": "/data/adapter"}),
        {"evaluation": {}},
    ),
    "an adapter of Megatron": merged(megatron({}), trainer(lora={"rank": 8})),
    "an adapter whose merged weights are sent between prompts": trainer(mode="ColocateAsync", lora={"rank": 8}),
    "batches": trainer(miniBatchSize=16, microBatchSizePerDevice=4),
    "a batch that its mini batch does not divide": trainer(miniBatchSize=12),
    "a mini batch of more than the batch, by tokens": trainer(miniBatchSize=64, maxTokensPerDevice=2048),
    "a lonely sample": trainer(samplesPerPrompt=1),
    "no clipping in Megatron": merged(megatron({}), trainer(gradientClip="0")),
    "ratios of other losses": {"algorithm": {"clipRatioLow": "10", "clipRatioHigh": "0", "discount": "0"}},
    "a tensor group over two nodes": merged(group({"nodes": 2}), {"rollout": {"parallelism": {"tensor": 4}}}),
    "a batch of Ulysses": {"accelerator": {"class": "atlas-a3-superpod"}}
    | trainer(parallelism={"sequence": 2}, maxTokensPerDevice=1024, globalBatchSize=3),
    "Ulysses on CPUs that pack": merged(
        trainer(parallelism={"sequence": 2}), key("actor_rollout_ref.model.use_remove_padding", True)
    ),
    "a volume": template(volume()),
    "a mount of another template's path": merged(template(volume()), {"head": {"template": volume("/data/")}}),
    "tolerations": template({"tolerations": [{}, {"key": "a", "operator": "Equal", "value": "b"}]}),
    "overrides": override(trainer__balance_batch=False, data__shuffle=[True, None], ray_kwargs={}),
    "overrides that only verl's code reads": key("+reward.reward_kwargs", {"deep": 1.5}),
    "arguments that verl passes on": key(f"{VLLM}.model_impl", "auto"),
    "a key of the dataclass of a section": key("+actor_rollout_ref.actor.use_remove_padding", True),
    "tokens that are no secrets": {
        "verl": {
            "overrides": {
                "+data.mm_processor_kwargs.pad_token": "<pad>",
                "+data.mm_processor_kwargs.password": "",
            }
        }
    },
    "data of all formats": {"data": {"train": ["/d/a.json", "/d/b.jsonl"], "validation": ["/d/c.parquet"]}},
    "a dataset class of one's own": {"data": {"train": ["/d/a.csv"]}} | key("+data.custom_cls.path", "/code/data.py"),
    "a dataset class as a map": {"data": {"train": ["/d/a.csv"]}} | override(data__custom_cls={"path": "/c/d.py"}),
    "long prompts that are cut": {"data": {"overlong": "Truncate"}},
    "a switch with the name of a secret": template({"env": [{"name": "HF_HUB_DISABLE_IMPLICIT_TOKEN", "value": "1"}]}),
    "a secret from a Secret": template(
        {"env": [{"name": "HF_TOKEN", "valueFrom": {"secretKeyRef": {"name": "hub", "key": "k"}}}, {"name": "EMPTY"}]}
    ),
    "secrets as variables": {
        "secretRefs": [{"name": "hub", "items": [{"key": "a", "env": "A"}, {"key": "b", "env": "B"}]}, {"name": "all"}]
    },
    "checkpoints with all that is needed": merged(
        saved(),
        {
            "verl": {
                "overrides": {
                    "actor_rollout_ref.actor.checkpoint.save_contents": ["hf_model", "model", "optimizer"],
                    "actor_rollout_ref.actor.checkpoint.load_contents": ["model"],
                    "critic.checkpoint.save_contents": "[model, optimizer]",
                    "critic.checkpoint.load_contents": None,
                }
            }
        },
    ),
    "a critic that nobody trains": merged(saved(), key("critic.checkpoint.save_contents", ["model"])),
    "a warm-up of no share": merged(
        saved(),
        override(
            **{
                "actor_rollout_ref.actor.optim.lr_warmup_steps_ratio": None,
                "actor_rollout_ref.actor.checkpoint.save_contents": ["model", "optimizer"],
            }
        ),
    ),
    "weights without a schedule": merged(
        saved(), key("actor_rollout_ref.actor.checkpoint.save_contents", ["model", "optimizer"])
    ),
    "contents of checkpoints that nobody saves": key("actor_rollout_ref.actor.checkpoint.save_contents", ["extra"]),
    "experts at rest": merged(
        key(f"{VLLM}.additional_config", {"enable_kv_nz": False, "weight_nz_mode": 0}),
        template({"env": [{"name": "VLLM_ASCEND_ENABLE_NZ", "value": "0"}]}),
    ),
    "one die": group({"devicesPerNode": 1}) | {"accelerator": {"class": "atlas-a3-superpod"}},
    "a key of the transformer that is none of stages": merged(
        megatron({"pipeline": 2}, layers=4), key(f"{TRANSFORMER}.moe_permute_fusion", True)
    ),
    "uneven ends": merged(UNEVEN, key(TRANSFORMER, ENDS | {"use_fused_swiglu": True})),
    "uneven stages in Megatron's words": merged(UNEVEN, key(f"{TRANSFORMER}.pipeline_model_parallel_layout", "Et*94L")),
    "an end of no number": merged(UNEVEN, key(f"{TRANSFORMER}.num_layers_in_first_pipeline_stage", "many")),
    "two ends": merged(
        megatron({"pipeline": 2}, layers=5),
        key(TRANSFORMER, {"num_layers_in_first_pipeline_stage": 2, "num_layers_in_last_pipeline_stage": 3}),
    ),
    "even stages": megatron({"pipeline": 4, "tensor": 2}, layers=96, attentionHeads=64, experts=128)
    | override(data__shuffle=False),
    "a replica over whole nodes": merged(megatron({}, nodes=4), {"rollout": {"parallelism": {"tensor": 4, "data": 8}}}),
    "graphs": {"rollout": {"captureSizes": [64, 128], "maxSequences": 128, "speculative": {"method": "Suffix"}}},
    "drafts from the past": {
        "rollout": {
            "speculative": {"method": "Suffix", "maxSequences": 64, "history": "Enabled", "historyMemory": "64Gi"}
        }
    },
    "graphs without a bound": {"rollout": {"captureSizes": [5], "topK": "0", "topP": "1.0"}},
    "a whole prompt in a pass": {"rollout": {"chunkedPrefill": False, "maxBatchedTokens": 2048}},
    "a pass for a shorter context": merged(
        {"rollout": {"chunkedPrefill": False, "maxBatchedTokens": 2048}},
        key("actor_rollout_ref.rollout.max_model_len", 2048),
    ),
    "a context": key("actor_rollout_ref.rollout.max_model_len", 1025),
    "arguments of vLLM": key(
        VLLM, {"max_num_batched_tokens": 2048, "enable_chunked_prefill": False, "gpu_memory_utilization": 1.0}
    ),
    "sampling of validations": key(
        "actor_rollout_ref.rollout.val_kwargs", {"temperature": 1.0, "top_p": 0.7, "top_k": 0, "do_sample": True}
    ),
    "recomputation": merged(
        megatron({"pipeline": 2, "tensor": 2}),
        {
            "algorithm": {"name": "PPO"},
            "verl": {
                "overrides": {
                    TRANSFORMER: {
                        "recompute_granularity": "full", "recompute_method": "uniform", "recompute_num_layers": 1,
                    },
                    "actor_rollout_ref.actor.megatron.virtual_pipeline_model_parallel_size": 2,
                    "actor_rollout_ref.actor.megatron.sequence_parallel": False,
                    "critic.megatron.override_transformer_config.recompute_granularity": "selective",
                    "critic.ppo_mini_batch_size": 16,
                }
            },
        },
    ),
    "passes of their own sizes": merged(
        trainer(microBatchSizePerDevice=4), key("actor_rollout_ref.rollout.log_prob_micro_batch_size_per_gpu", 8)
    ),
    "passes of their own tokens": merged(
        trainer(maxTokensPerDevice=2048), key("actor_rollout_ref.ref.log_prob_max_token_len_per_gpu", 4096)
    ),
    "CPUs": merged(megatron({}), group({"devicesPerNode": 16, "template": {"cpu": "64"}}))
    | override(data__shuffle=False),
    "CPUs for one storage unit": merged(
        megatron({}),
        group({"devicesPerNode": 2, "template": {"cpu": "8"}}),
        ) | key("transfer_queue.backend.SimpleStorage.num_data_storage_units", 1),
    "PPO": {"algorithm": {"name": "PPO", "gaeLambda": "0.95"}, "critic": {"learningRate": "1e-5"}}
    | trainer(samplesPerPrompt=1, globalBatchSize=32, steps=40),
    "DAPO": {"algorithm": {"name": "DAPO", "groupFilter": {}, "clipRatioHigh": "0.28"}},
    "an evaluation after the last step only": trainer(evaluateEverySteps=41),
    "checkpoints after the last step only": saved({"everySteps": 41}),
    "a window of more than a batch": trainer(
        mode="ColocateAsync", **{"async": {"prefetchBatches": "2.5", "maxStaleness": 3, "stale": "Drop"}}
    ),
    "a judge": judged({"tensor": 2}),
    "a judge of prompts in flight": merged(judged(), trainer(mode="ColocateAsync")),
    "the engine's log-probabilities as the old ones": merged(
        trainer(mode="ColocateAsync", **{"async": {"correction": "None"}}), key(f"{CORRECTION}.bypass_mode", True)
    ),
    "a correction of a synchronous job": override(
        **{f"{CORRECTION}.rollout_is": "token", "actor_rollout_ref.rollout.calculate_log_probs": True}
    ),
    "tools": {"rollout": {"agent": {"tools": "/code/tools.yaml", "format": "Qwen3Coder", "maxTurns": 4}}},
    "tools of a loop of one's own": key("actor_rollout_ref.rollout.multi_turn.function_tool_path", "/code/tools.py"),
    "an evaluation": trainer(mode="Evaluate", samplesPerPrompt=1, evaluateEverySteps=99),
    "checkpoints": merged(
        saved({"volume": "data", "resume": "Required", "from": {"path": "/old"}}),
        {"restart": {"maxRestarts": 2, "rules": [{"name": "a", "onReason": "Stalled", "action": "Restart"}]}},
    ),
    "a checkpoint to continue with other data": saved({"data": "NewEpoch", "from": {"job": "other"}}),
    "checkpoints of another job": saved({"from": {"job": "other"}}, hostPath={"path": "/mnt/shared"}),
    "exports": merged(
        saved(), {"export": {"when": "EveryCheckpoint", "to": {"path": "/data/models"}, "memory": "8Gi"}}
    ),
    "evaluations": merged(
        saved(), {"evaluation": {"every": 2, "validation": ["/data/aime.parquet"], "memory": "8Gi"}}
    ),
    "a checkpoint to start from as a model": merged(
        saved(),
        {
            "initializers": [
                {
                    "name": "model",
                    "type": "Conversion",
                    "conversion": {"format": "Checkpoint", "from": "/data/old", "step": 20, "to": "/data/start"},
                }
            ]
        },
    ),
    "exports to a claim": merged(
        saved(),
        {"export": {"to": {"type": "PVC", "persistentVolumeClaim": {"claimName": "models", "subPath": "team"}}}},
    ),
    "exports to a hub": merged(
        saved(),
        {
            "export": {
                "when": "Best",
                "to": {
                    "type": "HuggingFace",
                    "huggingFace": {
                        "repository": "team/sums", "endpoint": "https://hub.example", "secretRef": {"name": "hub"},
                    },
                },
            }
        },
    ),
    "patterns": {
        "restart": {
            "rules": [{"name": f"p{n}", "onLogPattern": text, "action": "Fail"} for n, text in enumerate(PATTERNS)]
        }
    },
    "stop rules": {
        "stopRules": [
            {"name": "nan", "metric": "critic/score/mean", "condition": "IsNaN"},
            {"name": "goal", "metric": "critic/score/mean", "condition": "Above", "threshold": "0.9", "forSteps": 3},
        ]
    },
    "leftovers": {"cleanup": {"clusterAfterSeconds": 60, "keepOnFailure": True}},
    "a queue": {"scheduling": {"queueName": "team", "gang": "Kueue", "workloadPriorityClassName": "high"}},
    "a queue with a long name": {"scheduling": {"queueName": f"team-1.{'q' * 50}.cards"}},
    "a queue of Volcano": {"scheduling": {"queueName": "team", "gang": "Volcano", "priorityClassName": "high"}},
    # Ports of a shared service are its own; so is the name of its container.
    "shared services": {
        "services": [
            {"name": "sandbox", "image": "x", "port": 8265, "placement": "Shared", "replicas": 3},
            {"name": "proxy", "image": "x", "port": 8265, "placement": "Shared"},
        ]
    }
    | template({"sidecars": [{"name": "proxy", "image": "x"}]}),
    "helpers": {"services": [{"name": "sandbox", "image": "x", "port": 8999}]}
    | template(
        {
            "labels": {"team": "", "example.com/team": "a.b"},
            "annotations": {"example.com/note": "any text at all"},
            "memory": "2Gi",
            "sharedMemory": "1.5Gi",
            "securityContext": {"runAsNonRoot": True, "runAsUser": 1000},
            "sidecars": [{"name": "proxy", "image": "x", "args": ["--port", "8888"], "env": [{"name": "A"}]}],
        }
    ),
    "texts of other forms": {
        "verl": {"overrides": "{data.shuffle: false}"},
        "model": {"config": "# to be written"},
        "podSpecPatch": {"head": "", "workers": '{"schedulerName": "volcano"}'},
    },
    "a container with all that it may have": template(
        {
            "volumes": [{"name": "v", "emptyDir": {}}],
            "initContainers": [{"name": "warm", "image": "x", "command": ["sh", "-c", "true"], "workingDir": "/tmp"}],
            "sidecars": [
                {
                    "name": "proxy",
                    "image": "x",
                    "imagePullPolicy": "Always",
                    "envFrom": [{"secretRef": {"name": "all"}}],
                    "ports": [{"containerPort": 8888, "name": "http", "protocol": "TCP"}],
                    "resources": {
                        "requests": {"cpu": "1", "memory": "1Gi", "ephemeral-storage": "1Gi"},
                        "limits": {"hugepages-2Mi": "64Mi"},
                    },
                    "volumeMounts": [{"name": "v", "mountPath": "/v", "subPath": "a", "readOnly": True}],
                    "securityContext": {
                        "runAsUser": 1000,
                        "runAsNonRoot": True,
                        "allowPrivilegeEscalation": False,
                        "readOnlyRootFilesystem": True,
                        "capabilities": {"drop": ["ALL"]},
                        "seccompProfile": {"type": "RuntimeDefault"},
                    },
                    "startupProbe": {"exec": {"command": ["true"]}, "periodSeconds": 5},
                    "readinessProbe": {"httpGet": {"port": 8888, "path": "/healthz"}},
                    "livenessProbe": {"tcpSocket": {"port": 8888}, "failureThreshold": 3},
                }
            ],
        }
    ),
    "a patch": {
        "podSpecPatch": {
            "head": {
                "dnsPolicy": "ClusterFirst",
                "volumes": [
                    {"name": "more", "emptyDir": {}},
                    {"name": "old", "$patch": "delete"},
                    {"name": "both", "projected": {"sources": [{"configMap": {"name": "c"}}]}},
                ],
                "tolerations": [{"key": "a"}],
                "securityContext": {"fsGroup": 7, "seccompProfile": {"type": "RuntimeDefault"}},
            },
            "workers": {
                "containers": [
                    {
                        "name": "ray-worker",
                        "env": [{"name": "A", "value": "b"}],
                        "volumeMounts": [{"name": "more", "mountPath": "/more"}],
                        "resources": {"limits": {"cpu": "64"}},
                    }
                ]
            },
        }
    },
}  # fmt: skip

GOOD |= command.GOOD
