"""Batches, algorithms and numbers."""

from corpus.bad import Bad, group, megatron, merged, trainer

A3 = {"accelerator": {"class": "atlas-a3-superpod"}}

BAD = {
    "a mini batch of more than the batch": Bad(
        trainer(miniBatchSize=64),
        "spec.trainer.miniBatchSize",
        "64 is more than trainer.globalBatchSize 32; use one of",
    ),
    "batch over devices": Bad(
        merged(trainer(globalBatchSize=3, samplesPerPrompt=2), group({"nodes": 2})),
        "spec.trainer.globalBatchSize",
        "over 4 devices (workerGroups[0].nodes 2 × devicesPerNode 2); set globalBatchSize to 4",
    ),
    "mini batch over devices": Bad(
        merged(trainer(globalBatchSize=6, miniBatchSize=2, samplesPerPrompt=2), group({"nodes": 3})),
        "spec.trainer.miniBatchSize",
        "2 prompts × trainer.samplesPerPrompt 2 = 4 samples do not divide over 6 data-parallel ranks: 6 devices "
        "(workerGroups[0].nodes 3 × devicesPerNode 2) / 1 that share each sample; set miniBatchSize to 3",
    ),
    "batch over ranks": Bad(
        merged(megatron({"tensor": 4}), trainer(globalBatchSize=1, samplesPerPrompt=6)),
        "spec.trainer.globalBatchSize",
        "over 4 data-parallel ranks: 16 devices (workerGroups[0].nodes 1 × devicesPerNode 16) / 4 that share each "
        "sample; set globalBatchSize to 2",
    ),
    "dynamic batch over ranks": Bad(
        trainer(globalBatchSize=3, samplesPerPrompt=3, maxTokensPerDevice=2048),
        "spec.trainer.globalBatchSize",
        "9 samples do not divide over 2 data-parallel ranks",
    ),
    "batch over Megatron's micro batches": Bad(
        merged(
            megatron({"tensor": 4}),
            trainer(globalBatchSize=12, miniBatchSize=8, samplesPerPrompt=2, microBatchSizePerDevice=4),
        ),
        "spec.trainer.globalBatchSize",
        "12 prompts × trainer.samplesPerPrompt 2 = 24 samples do not divide over 4 data-parallel ranks with micro "
        "batches of 4: 16 devices",
    ),
    "micro batch of the critic": Bad(
        {"algorithm": {"name": "PPO"}, "critic": {"microBatchSizePerDevice": 3}},
        "spec.critic.microBatchSizePerDevice",
        "3 does not divide a device's 128 samples of a mini batch",
    ),
    "micro batch": Bad(
        trainer(microBatchSizePerDevice=3),
        "spec.trainer.microBatchSizePerDevice",
        "3 does not divide a device's 128 samples of a mini batch; use one of 1, 2, 4, 8, 16, 32, 64, 128",
    ),
    "tokens for no sequence": Bad(
        A3 | trainer(maxTokensPerDevice=512, parallelism={"sequence": 2}),
        "spec.trainer.maxTokensPerDevice",
        "512 × parallelism.sequence 2 = 1024 tokens cannot hold data.maxPromptTokens 1024 + maxResponseTokens "
        "1024 = 2048; set it to 1024 or more",
    ),
    "a critic for GRPO": Bad({"critic": {}}, "spec.critic", "requires algorithm.name PPO, but it is GRPO"),
    "a filter for GRPO": Bad({"algorithm": {"groupFilter": {}}}, "spec.algorithm.groupFilter", "requires algorithm.n"),
    "GAE for GRPO": Bad({"algorithm": {"gaeLambda": "0.9"}}, "spec.algorithm.gaeLambda", "remove the field or set PPO"),
    "number without end": Bad(trainer(learningRate="1e999"), "spec.trainer.learningRate", "1e999 is too large"),
    "no learning": Bad(trainer(learningRate="0"), "spec.trainer.learningRate", "0 must be above 0"),
    "no gradients": Bad(trainer(gradientClip="0"), "spec.trainer.gradientClip", "0 must be above 0; 1 is usual"),
    "a discount of more than all": Bad(
        {"algorithm": {"discount": "1.01"}}, "spec.algorithm.discount", "at most 1; 1 is"
    ),
    "greedy responses": Bad({"rollout": {"temperature": "0"}}, "spec.rollout.temperature", "0 must be at least 0.01"),
    "coefficient without end": Bad({"algorithm": {"klCoefficient": "9e999"}}, "spec.algorithm.klCoefficient", "large"),
    "more than all of the memory": Bad(
        {"rollout": {"memoryFraction": "85"}}, "spec.rollout.memoryFraction", "85 must be at most 1; 0.5 to 0.9 is us"
    ),
}
