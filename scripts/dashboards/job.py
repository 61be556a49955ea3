"""The board of one job: does it learn, where does the time go, and does it still run."""

from __future__ import annotations

from scripts.dashboards.parts import Board, DashboardRow, Query, Text, figure, graph, timeline
from scripts.dashboards.queries import ATTEMPTS, CHECKPOINTS, JOB, NAMESPACES, ONE_JOB, WHOSE, of_jobs, rate_of

NOT_LOGGED = "verl does not log this for the job"
NO_RAY = "Ray is not scraped"
NO_CHECKPOINT = "No checkpoint yet"
PER_CARD, PER_DIE = 'tokens="prompt_and_response",per="card"', 'tokens="prompt_and_response",per="die"'
STEP_SECONDS = of_jobs("rljob_stage_seconds", 'stage="step"')

NOW = DashboardRow(
    "Now",
    (
        figure(Text("Step", "none", "Last complete step."), Query(of_jobs("rljob_step")), width=3),
        figure(Text("Of steps", "none", "Steps that the job trains."), Query(of_jobs("rljob_total_steps")), width=3),
        figure(Text("Attempt", "none", "Which of the job's attempts runs."), Query(of_jobs("rljob_attempt")), width=3),
        figure(Text("Cards", "none", "A card of Atlas A3 has two dies."), Query(of_jobs("rljob_cards")), width=3),
        figure(
            Text("Still to go", "s", "Steps that are left, times the median step, saving and validation included."),
            Query(
                f"({of_jobs('rljob_total_steps')} - {of_jobs('rljob_step')}) * {of_jobs('rljob_median_step_seconds')}"
            ),
        ),
        figure(
            Text("Since the last step", "s", "Or the last change of phase."),
            Query(f"time() - {of_jobs('rljob_observed_timestamp_seconds')}"),
        ),
        figure(
            Text("Since the checkpoint", "s", "What a lost node would cost.", NO_CHECKPOINT),
            Query(f"time() - {of_jobs('rljob_checkpoint_timestamp_seconds')}"),
        ),
        timeline(
            Text("Phase", "none", "What the attempt does; a gap is a time without a head pod."),
            Query(of_jobs("rljob_phase", by=("phase",)), "{{phase}}"),
        ),
    ),
)
LEARNING = DashboardRow(
    "Does it learn?",
    (
        graph(
            Text("Score", "short", "Of the step's answers, before any KL penalty."),
            Query(of_jobs("rljob_score", by=("stat",)), "{{stat}}"),
        ),
        graph(
            Text("Validation", "short", "Mean of all answers, and verl's core figures.", "Not validated in this time"),
            Query(of_jobs("rljob_validation_score"), "all answers"),
            Query(
                of_jobs("rljob_validation", 'kind="core"', ("source", "variable", "estimate")),
                "{{source}} {{variable}} {{estimate}}",
            ),
        ),
        graph(
            Text("Length of answers", "short", "Tokens of an answer: mean, longest, shortest."),
            Query(of_jobs("rljob_response_tokens", by=("stat",)), "{{stat}}"),
        ),
        graph(
            Text(
                "Answers that were cut or empty",
                "percentunit",
                "Cut: as long as the longest of the batch. More than a fifth of them at the limit, and the reward "
                "judges unfinished answers.",
            ),
            Query(of_jobs("rljob_response_clipped_ratio"), "cut"),
            Query(of_jobs("rljob_response_aborted_ratio"), "empty"),
            top=1,
        ),
        graph(
            Text("Entropy", "short", "Of the policy. At a tenth of where it began, it no longer explores.", NOT_LOGGED),
            Query(of_jobs("rljob_entropy"), "entropy"),
        ),
        graph(
            Text(
                "KL", "short", "Policy: before against during the step's updates. Loss: to the reference.", NOT_LOGGED
            ),
            Query(of_jobs("rljob_policy_kl"), "policy"),
            Query(of_jobs("rljob_kl_loss"), "loss"),
        ),
        graph(
            Text(
                "Trainer against rollout engine",
                "short",
                "Differences of the probabilities that both give the same tokens: the first thing to look at when "
                "precision is suspected.",
                "The engine's probabilities are not asked for (rollout.calculate_log_probs)",
            ),
            Query(of_jobs("rljob_rollout_probability_difference", 'stat=~"mean|max"', ("stat",)), "{{stat}}"),
            Query(of_jobs("rljob_rollout_mismatch", 'figure="kl"'), "KL"),
        ),
        graph(
            Text("Gradient", "short", "Norm, by model."),
            Query(of_jobs("rljob_gradient_norm", by=("model",)), "{{model}}"),
        ),
        graph(
            Text("Clipped ratios", "percentunit", "Share of the tokens whose ratio met the upper or lower bound."),
            Query(of_jobs("rljob_policy_clipped_ratio", by=("bound",)), "{{bound}}"),
        ),
        graph(
            Text("Learning rate", "sci", "Of the step's updates, by model."),
            Query(of_jobs("rljob_learning_rate", by=("model",)), "{{model}}"),
        ),
    ),
)
TIME = DashboardRow(
    "Where does the time go?",
    (
        graph(
            Text("Time of a step by stage", "s", "Stages follow each other; other is what none of them accounts for."),
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
            Text("Time of a step", "s", "The last one, and the attempt's median with saving and validation."),
            Query(STEP_SECONDS, "step"),
            Query(of_jobs("rljob_median_step_seconds"), "median"),
            width=8,
            height=10,
        ),
        graph(
            Text("Tokens per second per card", "short", "Prompts and answers of the trained batch, by stage."),
            Query(of_jobs("rljob_tokens_per_second", PER_CARD, ("stage",)), "{{stage}}"),
        ),
        graph(
            Text("Tokens per second per die", "short", "The same by die; verl's perf/throughput is that of the step."),
            Query(of_jobs("rljob_tokens_per_second", PER_DIE, ("stage",)), "{{stage}}"),
        ),
        graph(
            Text("Idle in the rollout", "percentunit", "First DP: the replica that finished first. Cluster: all."),
            Query(of_jobs("rljob_first_dp_idle_ratio"), "first DP"),
            Query(of_jobs("rljob_cluster_idle_ratio"), "cluster"),
            Query(of_jobs("rljob_rollout_tail_ratio"), "after 90 % of the answers"),
            top=1,
        ),
        graph(
            Text(
                "Work for nothing",
                "percentunit",
                "Rows made up so that a batch divides, padding were it dense, tokens of answers that were thrown away.",
            ),
            Query(of_jobs("rljob_padded_rows_ratio"), "made-up rows"),
            Query(of_jobs("rljob_dense_padding_ratio"), "dense padding"),
            Query(of_jobs("rljob_discarded_tokens_ratio"), "thrown away"),
            top=1,
        ),
        graph(
            Text("Shares of a step", "percentunit", "Weight sync, checkpoint, reward and reference alone."),
            Query(
                of_jobs("rljob_stage_share_ratio", 'stage=~"update_weights|save_checkpoint|reward|ref"', ("stage",)),
                "{{stage}}",
            ),
        ),
        graph(
            Text(
                "Model FLOPs utilization", "percentunit", "Of the updates, by model, as verl computes it.", NOT_LOGGED
            ),
            Query(of_jobs("rljob_mfu_ratio", by=("model",)), "{{model}}"),
        ),
        graph(
            Text("Saving", "s", "How long the trainer stood still for the newest checkpoint.", NO_CHECKPOINT),
            Query(of_jobs("rljob_checkpoint_seconds"), "checkpoint"),
            width=8,
        ),
        graph(
            Text("Size of the checkpoint", "bytes", "Of the newest one.", NO_CHECKPOINT),
            Query(of_jobs("rljob_checkpoint_bytes"), "checkpoint"),
            width=8,
        ),
        graph(
            Text(
                "Tokens per card, all in all",
                "short",
                "Trained tokens a second of wall-clock time: starts, saving and validation count.",
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
    "Memory and balance",
    (
        graph(
            Text("Device memory", "bytes", "Most that the trainer's first rank ever had.", NOT_LOGGED),
            Query(of_jobs("rljob_device_memory_max_bytes", by=("model", "state")), "{{model}} {{state}}"),
            width=8,
        ),
        graph(
            Text("Host memory", "bytes", "In use on the node of the trainer's first rank.", NOT_LOGGED),
            Query(of_jobs("rljob_host_memory_used_bytes", by=("model",)), "{{model}}"),
            width=8,
        ),
        graph(
            Text(
                "Tokens of a rank",
                "short",
                "As they came and as they were balanced; ranks wait for the gap that is left.",
                NOT_LOGGED,
            ),
            Query(of_jobs("rljob_rank_tokens", by=("stat",)), "{{stat}}"),
            width=8,
        ),
    ),
)
NODES = DashboardRow(
    "Nodes",
    (
        graph(
            Text("Memory of the nodes", "bytes", "As Ray sees it, by pod.", NO_RAY),
            Query(of_jobs("ray_node_mem_used", by=("pod",)), "{{pod}}"),
            width=8,
        ),
        graph(
            Text("CPU of the nodes", "percent", "As Ray sees it, by pod.", NO_RAY),
            Query(of_jobs("ray_node_cpu_utilization", by=("pod",)), "{{pod}}"),
            width=8,
        ),
        graph(
            Text("Object store", "bytes", "What Ray's objects take, by place.", NO_RAY),
            Query(f"sum by (Location) (ray_object_store_memory{{{JOB}}})", "{{Location}}"),
            width=8,
        ),
        graph(
            Text("Checks before the run", "none", "Nodes that did not pass, by check.", "Every node passed"),
            Query(
                of_jobs("rljob_preflight_nodes", 'result=~"failed|warned"', ("check", "result")) + " > 0",
                "{{check}} {{result}}",
            ),
        ),
        graph(
            Text(
                "Processes and their CPUs",
                "none",
                "Which keep to the CPUs of their plan, and which stray.",
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
    about="One job: does it learn, where does the time go, and does it still run.",
    rows=(NOW, LEARNING, TIME, BALANCE, NODES),
    variables=(NAMESPACES, ONE_JOB),
    annotations=(ATTEMPTS, CHECKPOINTS),
)
