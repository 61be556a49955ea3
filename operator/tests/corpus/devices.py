"""Nodes, devices and the sizes of training parallelism."""

from corpus.bad import Bad, group, key, megatron, merged, trainer

A3 = {"accelerator": {"class": "atlas-a3-superpod"}}
TRANSFORMER = "+actor_rollout_ref.actor.megatron.override_transformer_config"

BAD = {
    "too many nodes": Bad(
        merged(group({"nodes": 8192}), trainer(globalBatchSize=2048)), "spec.workerGroups[0].nodes", "at most 5000"
    ),
    "too many devices": Bad(
        group({"devicesPerNode": 32}), "spec.workerGroups[0].devicesPerNode", "a node of class cpu has 16"
    ),
    "a split card": Bad(
        merged(
            {"accelerator": {"class": "atlas-a3-superpod"}, "trainer": {"globalBatchSize": 33}},
            group({"devicesPerNode": 3}),
        ),
        "spec.workerGroups[0].devicesPerNode",
        "3 devices split a card: class atlas-a3-superpod has 2 dies per card; use a multiple of 2",
    ),
    "tensor with FSDP2": Bad(
        trainer(parallelism={"tensor": 2}),
        "spec.trainer.parallelism.tensor",
        "2, but trainer.backend FSDP2 shards weights over all devices and has no tensor parallelism",
    ),
    "context with FSDP2": Bad(
        trainer(parallelism={"context": 2}), "spec.trainer.parallelism.context", "use sequence for long sequences"
    ),
    "expert tensor with FSDP2": Bad(
        trainer(parallelism={"expertTensor": 2}), "spec.trainer.parallelism.expertTensor", "remove it"
    ),
    "Ulysses with Megatron": Bad(
        megatron({"tensor": 2, "sequence": 2}), "spec.trainer.parallelism.sequence", "use context instead"
    ),
    "Ulysses over too many": Bad(
        A3 | trainer(parallelism={"sequence": 3}),
        "spec.trainer.parallelism.sequence",
        "3 does not divide 2 devices (workerGroups[0].nodes 1 × devicesPerNode 2); use one of 1, 2",
    ),
    "sizes beyond the devices": Bad(
        megatron({"tensor": 4, "pipeline": 4, "context": 4}, nodes=3),
        "spec.trainer.parallelism",
        "tensor 4 × pipeline 4 × context 4 = 64 does not divide 48 devices (workerGroups[0].nodes 3 × devicesPerNode "
        "16); set workerGroups[0].nodes to 4, or lower a size",
    ),
    "experts beyond the devices": Bad(
        megatron({"tensor": 4, "expert": 8}),
        "spec.trainer.parallelism.expert",
        "expert 8 × expertTensor 4 (defaults to tensor) × pipeline 1 = 32 does not divide 16 devices",
    ),
    "tensor ranks of experts beyond the devices": Bad(
        megatron({"expertTensor": 3}),
        "spec.trainer.parallelism.expertTensor",
        "expert 1 × expertTensor 3 × pipeline 1 = 3 does not divide 16 devices (workerGroups[0].nodes 1 × "
        "devicesPerNode 16); set expertTensor to 1",
    ),
    "experts shared unevenly": Bad(
        megatron({"expert": 16}, experts=24),
        "spec.trainer.parallelism.expert",
        "16 does not divide model.experts 24; use one of 1, 2, 4, 8 on 16 devices",
    ),
    "more stages than layers": Bad(
        megatron({"pipeline": 16}, layers=8),
        "spec.trainer.parallelism.pipeline",
        "stages are more than model.layers 8",
    ),
    "stages of unequal layers": Bad(
        megatron({"pipeline": 4}, layers=94),
        "spec.trainer.parallelism.pipeline",
        "4 stages do not divide model.layers 94; use one of 1, 2 on 16 devices",
    ),
    "ends that leave a rest": Bad(
        merged(
            megatron({"pipeline": 4}, layers=94),
            key(TRANSFORMER, {"num_layers_in_first_pipeline_stage": 23, "num_layers_in_last_pipeline_stage": 24}),
        ),
        f"spec.verl.overrides[{TRANSFORMER}.num_layers_in_first_pipeline_stage]",
        "first and last stage hold 47 of model.layers 94; the other 47 do not divide over the other 2 stages",
    ),
    "heads over tensor": Bad(
        megatron({"tensor": 16}, attentionHeads=40),
        "spec.trainer.parallelism.tensor",
        "does not divide model.attention",
    ),
    "heads over Ulysses": Bad(
        merged(A3 | trainer(parallelism={"sequence": 2}), {"model": {"attentionHeads": 7}}),
        "spec.trainer.parallelism.sequence",
        "2 does not divide model.attentionHeads 7; use one of 1 on 2 devices",
    ),
}
