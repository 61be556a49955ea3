"""The dashboard of one job: learning, step time and health."""

from __future__ import annotations

from scripts.dashboards.parts import Board, DashboardRow, Query, Text, figure, graph, timeline
from scripts.dashboards.queries import ATTEMPTS, CHECKPOINTS, JOB, NAMESPACES, ONE_JOB, WHOSE, of_jobs, rate_of

NOT_LOGGED = "verl does not log this metric for the job"
SHUFFLED = "Nothing was trained yet, or ranks shuffle their samples (actor.shuffle)"
NO_RAY = "Ray is not scraped"
NO_CHECKPOINT = "No checkpoint yet"
PER_CARD, PER_DIE = 'tokens="prompt_and_response",per="card"', 'tokens="prompt_and_response",per="die"'
STEP_SECONDS = of_jobs("rljob_stage_seconds", 'stage="step"')

NOW = DashboardRow(
    "Now",
    (
        figure(Text("Step", "none", "Last completed step."), Query(of_jobs("rljob_step")), width=3),
        figure(
            Text("Total steps", "none", "Number of steps of the job."), Query(of_jobs("rljob_total_steps")), width=3
        ),
        figure(Text("Attempt", "none", "Number of the current attempt."), Query(of_jobs("rljob_attempt")), width=3),
        figure(Text("Cards", "none", "A card of Atlas A3 has two dies."), Query(of_jobs("rljob_cards")), width=3),
        figure(
            Text("Time remaining", "s", "Remaining steps times the median step, including saving and validation."),
            Query(
                f"({of_jobs('rljob_total_steps')} - {of_jobs('rljob_step')}) * {of_jobs('rljob_median_step_seconds')}"
            ),
        ),
        figure(
            Text("Since last step", "s", "Time since the last step or the last change of phase."),
            Query(f"time() - {of_jobs('rljob_observed_timestamp_seconds')}"),
        ),
        figure(
            Text("Since last checkpoint", "s", "The loss of a node would lose the steps of this time.", NO_CHECKPOINT),
            Query(f"time() - {of_jobs('rljob_checkpoint_timestamp_seconds')}"),
        ),
        timeline(
            Text("Phase", "none", "Phase of the attempt. A gap is a time without a head pod."),
            Query(of_jobs("rljob_phase", by=("phase",)), "{{phase}}"),
        ),
    ),
)
LEARNING = DashboardRow(
    "Does it learn?",
    (
        graph(
            Text("Score", "short", "Mean score of the step's responses, before any KL penalty."),
            Query(of_jobs("rljob_score", by=("stat",)), "{{stat}}"),
        ),
        graph(
            Text(
                "Validation",
                "short",
                "Mean over all responses, and verl's core metrics.",
                "No validation in this time range",
            ),
            Query(of_jobs("rljob_validation_score"), "all responses"),
            Query(
                of_jobs("rljob_validation", 'kind="core"', ("source", "variable", "estimate")),
                "{{source}} {{variable}} {{estimate}}",
            ),
        ),
        graph(
            Text("Response length", "short", "Tokens of a response: mean, longest, shortest."),
            Query(of_jobs("rljob_response_tokens", by=("stat",)), "{{stat}}"),
        ),
        graph(
            Text(
                "As long as the longest, and empty",
                "percentunit",
                "Shares of responses: as long as the longest of the batch, and without a token. Where the longest has "
                "reached the limit, the reward scores unfinished responses.",
            ),
            Query(of_jobs("rljob_response_clipped_ratio"), "as long as the longest"),
            Query(of_jobs("rljob_response_aborted_ratio"), "empty"),
            top=1,
        ),
        graph(
            Text(
                "Entropy",
                "short",
                "Entropy of the policy. Below a tenth of its initial value, it no longer explores.",
                NOT_LOGGED,
            ),
            Query(of_jobs("rljob_entropy"), "entropy"),
        ),
        graph(
            Text(
                "KL",
                "short",
                "Policy: before and during the step's updates. Loss: against the reference model.",
                NOT_LOGGED,
            ),
            Query(of_jobs("rljob_policy_kl"), "policy"),
            Query(of_jobs("rljob_kl_loss"), "loss"),
        ),
        graph(
            Text(
                "Trainer and rollout engine",
                "short",
                "Differences between the probabilities that trainer and engine assign to the same tokens. "
                "Check this first if you suspect precision problems.",
                "The engine's probabilities are not requested (rollout.calculate_log_probs)",
            ),
            Query(of_jobs("rljob_rollout_probability_difference", 'stat=~"mean|max"', ("stat",)), "{{stat}}"),
            Query(of_jobs("rljob_rollout_mismatch", 'figure="kl"'), "KL"),
        ),
        graph(
            Text("Gradient", "short", "Norm of the gradient, by model."),
            Query(of_jobs("rljob_gradient_norm", by=("model",)), "{{model}}"),
        ),
        graph(
            Text(
                "Clipped ratios",
                "percentunit",
                "Fraction of tokens whose ratio was clipped at the upper or lower bound.",
            ),
            Query(of_jobs("rljob_policy_clipped_ratio", by=("bound",)), "{{bound}}"),
        ),
        graph(
            Text("Learning rate", "sci", "Loss of the step's updates, by model."),
            Query(of_jobs("rljob_learning_rate", by=("model",)), "{{model}}"),
        ),
    ),
)
TIME = DashboardRow(
    "Step time",
    (
        graph(
            Text(
                "Step time by stage", "s", "Stages run one after another; other is the time that no stage accounts for."
            ),
            Query(
                f"{of_jobs('rljob_stage_share_ratio', by=('stage',))} * on (rljob_namespace, rljob) group_left () "
                f"({STEP_SECONDS})",
                "{{stage}}",
            ),
            width=16,
            height=10,
            stacked=True,
        ),
        graph(
            Text("Step duration", "s", "Last step, and the attempt's median including saving and validation."),
            Query(STEP_SECONDS, "step"),
            Query(of_jobs("rljob_median_step_seconds"), "median"),
            width=8,
            height=10,
        ),
        graph(
            Text(
                "Tokens per second per card",
                "short",
                "Prompt and response tokens of the trained batch, by stage, over all cards. Trainer: "
                "one that stands apart, over its own cards, while it does not wait.",
            ),
            Query(of_jobs("rljob_tokens_per_second", PER_CARD, ("stage",)), "{{stage}}"),
        ),
        graph(
            Text(
                "Tokens per second per die", "short", "The same per die; verl's perf/throughput is the one of the step."
            ),
            Query(of_jobs("rljob_tokens_per_second", PER_DIE, ("stage",)), "{{stage}}"),
        ),
        graph(
            Text("Rollout idle time", "percentunit", "First DP: the first replica to finish. Cluster: all replicas."),
            Query(of_jobs("rljob_first_dp_idle_ratio"), "first DP"),
            Query(of_jobs("rljob_cluster_idle_ratio"), "cluster"),
            Query(of_jobs("rljob_rollout_tail_ratio"), "after 90 % of the responses"),
            top=1,
        ),
        graph(
            Text(
                "Wasted work",
                "percentunit",
                "Rows added to make a batch divisible, padding of a dense batch, and tokens of discarded responses.",
            ),
            Query(of_jobs("rljob_padded_rows_ratio"), "added rows"),
            Query(of_jobs("rljob_dense_padding_ratio"), "dense padding"),
            Query(of_jobs("rljob_discarded_tokens_ratio"), "thrown away"),
            top=1,
        ),
        graph(
            Text(
                "Fractions of a step", "percentunit", "Weight sync, checkpoint, reward and reference model separately."
            ),
            Query(
                of_jobs("rljob_stage_share_ratio", 'stage=~"update_weights|save_checkpoint|reward|ref"', ("stage",)),
                "{{stage}}",
            ),
        ),
        graph(
            Text(
                "Model FLOPs utilization",
                "percentunit",
                "FLOPS utilization of the updates, by model, as verl computes it.",
                NOT_LOGGED,
            ),
            Query(of_jobs("rljob_mfu_ratio", by=("model",)), "{{model}}"),
        ),
        graph(
            Text("Saving", "s", "Time for which training paused to save the newest checkpoint.", NO_CHECKPOINT),
            Query(of_jobs("rljob_checkpoint_seconds"), "checkpoint"),
            width=8,
        ),
        graph(
            Text("Checkpoint size", "bytes", "Size of the newest checkpoint.", NO_CHECKPOINT),
            Query(of_jobs("rljob_checkpoint_bytes"), "checkpoint"),
            width=8,
        ),
        graph(
            Text(
                "Tokens per card, wall-clock",
                "short",
                "Trained tokens per second of wall-clock time, including startup, saving and validation.",
            ),
            Query(
                rate_of("rljob_tokens_total", WHOSE, 'tokens="prompt_and_response"')
                + f" / on (rljob_namespace, rljob) {of_jobs('rljob_cards')}",
                "tokens",
            ),
            width=8,
        ),
    ),
)
BALANCE = DashboardRow(
    "Memory and load balance",
    (
        graph(
            Text("Device memory", "bytes", "Peak memory of the trainer's first rank.", NOT_LOGGED),
            Query(of_jobs("rljob_device_memory_max_bytes", by=("model", "state")), "{{model}} {{state}}"),
            width=8,
        ),
        graph(
            Text("Host memory", "bytes", "Memory in use on the node of the trainer's first rank.", NOT_LOGGED),
            Query(of_jobs("rljob_host_memory_used_bytes", by=("model",)), "{{model}}"),
            width=8,
        ),
        graph(
            Text(
                "Tokens per rank",
                "short",
                "Before and after balancing. Ranks wait for the remaining difference.",
                NOT_LOGGED,
            ),
            Query(of_jobs("rljob_rank_tokens", by=("stat",)), "{{stat}}"),
            width=8,
        ),
        graph(
            Text(
                "Waiting at updates",
                "percentunit",
                "Share of the ranks' time at updates that they wait for the slowest, by the cost of their samples.",
                SHUFFLED,
            ),
            Query(of_jobs("rljob_updates_waiting_ratio"), "all updates"),
            Query(f"max by (rljob_namespace, rljob) (rljob_update_waiting_ratio{{{JOB}}})", "worst update"),
            width=12,
            top=1,
        ),
        graph(
            Text("Tokens per rank and update", "short", "The fewest and the most tokens of a rank.", SHUFFLED),
            Query(of_jobs("rljob_update_rank_tokens", by=("update", "stat")), "update {{update}}: {{stat}}"),
            width=12,
        ),
    ),
)
NODES = DashboardRow(
    "Nodes",
    (
        graph(
            Text("Node memory", "bytes", "As Ray reports it, by pod.", NO_RAY),
            Query(of_jobs("ray_node_mem_used", by=("pod",)), "{{pod}}"),
            width=8,
        ),
        graph(
            Text("Node CPU", "percent", "As Ray reports it, by pod.", NO_RAY),
            Query(of_jobs("ray_node_cpu_utilization", by=("pod",)), "{{pod}}"),
            width=8,
        ),
        graph(
            Text("Object store", "bytes", "Memory of Ray's objects, by location.", NO_RAY),
            Query(f"sum by (Location) (ray_object_store_memory{{{JOB}}})", "{{Location}}"),
            width=8,
        ),
        graph(
            Text("Preflight checks", "none", "Nodes that failed, by check.", "All nodes passed"),
            Query(
                of_jobs("rljob_preflight_nodes", 'result=~"failed|warned"', ("check", "result")) + " > 0",
                "{{check}} {{result}}",
            ),
        ),
        graph(
            Text(
                "Processes and their CPUs",
                "none",
                "Processes that run on the CPUs of their plan, and processes that do not.",
                "CPUs are not bound",
            ),
            Query(of_jobs("rljob_core_binding_processes", by=("state",)), "{{state}}"),
        ),
    ),
    folded=True,
)
JOB_BOARD = Board(
    name="job",
    title="RLJob / Job",
    about="One job: learning, step time and health.",
    rows=(NOW, LEARNING, TIME, BALANCE, NODES),
    variables=(NAMESPACES, ONE_JOB),
    annotations=(ATTEMPTS, CHECKPOINTS),
)
