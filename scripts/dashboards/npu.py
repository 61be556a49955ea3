"""The dashboard of the chips: metrics of MindCluster's npu-exporter, joined to jobs by namespace and pod.

npu-exporter labels a chip with the pod that holds it; the recorded series `rljob:pod:info` (files/rules.yaml) maps pods
to jobs. Metric names: npu-exporter 26.1, https://gitcode.com/Ascend/mind-cluster, component npu-exporter.
"""

from __future__ import annotations

from scripts.dashboards.parts import Board, DashboardRow, Query, Text, figure, graph, heat
from scripts.dashboards.queries import JOB, JOBS, NAMESPACES, RATE, of_jobs

NONE = "npu-exporter is not scraped, or no job holds chips"
DIE = "{{pod_name}} {{id}}"
CHIP = "npu_chip_info_"


def _joined(series: str) -> str:
    """Return a chip metric with the job's labels, for the selected jobs only."""
    return f"{series} * on (namespace, pod_name) group_left (rljob, rljob_namespace) rljob:pod:info{{{JOB}}}"


def _rates(*names: str) -> tuple[Query, ...]:
    """Return the rates of the fabric's counters, summed over all chips of a job."""
    return tuple(
        Query(
            f"sum by (rljob) ({_joined(f'rate({name}[{RATE}])')})", name.removeprefix("npu_chip_").removesuffix("_num")
        )
        for name in names
    )


NOW = DashboardRow(
    "Now",
    (
        figure(
            Text("Chips of jobs", "none", "Chips held by pods of the selected jobs.", NONE),
            Query(f"count({_joined(CHIP + 'health_status')})"),
            width=6,
        ),
        figure(
            Text("Unhealthy chips of jobs", "none", "health_status is not 1.", NONE),
            Query(f"sum({_joined(CHIP + 'health_status')} != bool 1)"),
            width=6,
            limits=((1, "red"),),
        ),
        figure(
            Text("Unhealthy chips of the cluster", "none", "On all nodes, whether a job holds them or not.", NONE),
            Query("sum(machine_unhealthy_npu_nums)"),
            width=6,
            limits=((1, "red"),),
        ),
        figure(
            Text("Power", "watt", "Of all chips of the selected jobs.", NONE),
            Query(f"sum({_joined(CHIP + 'power')})"),
            width=6,
        ),
    ),
)
WORK = DashboardRow(
    "Work",
    (
        heat(
            Text(
                "Utilization by die",
                "percent",
                "Utilization of the AI cores. A long tail of a rollout shows as rows that go cold before the others.",
                NONE,
            ),
            Query(_joined(CHIP + "utilization"), DIE),
            top=100,
        ),
        graph(
            Text(
                "Slowest and median die",
                "percent",
                "The slowest die of a job and the median die. A persistent gap is a straggler.",
                NONE,
            ),
            Query(f"min by (rljob) ({_joined(CHIP + 'utilization')})", "{{rljob}} least"),
            Query(f"quantile by (rljob) (0.5, {_joined(CHIP + 'utilization')})", "{{rljob}} median"),
        ),
        graph(
            Text(
                "Cube units and memory bandwidth",
                "percent",
                "Mean of a job. Cube units limit training, HBM bandwidth limits generation.",
                NONE,
            ),
            Query(f"avg by (rljob) ({_joined(CHIP + 'cube_utilization')})", "{{rljob}} cube"),
            Query(f"avg by (rljob) ({_joined(CHIP + 'hbm_bandwidth_utilization')})", "{{rljob}} HBM bandwidth"),
        ),
        graph(
            Text(
                "HBM in use",
                "percentunit",
                "Used memory divided by total memory. Sleep and wake-up of vLLM show as steps.",
                NONE,
            ),
            Query(_joined(f"{CHIP}hbm_used_memory / {CHIP}hbm_total_memory"), DIE),
            top=1,
        ),
        graph(
            Text("Temperature and clock", "celsius", "A hot chip lowers its clock and slows down its job.", NONE),
            Query(f"max by (rljob) ({_joined(CHIP + 'temperature')})", "{{rljob}} hottest"),
        ),
    ),
)
FABRIC = DashboardRow(
    "Fabric",
    (
        graph(
            Text("RoCE", "MBs", "Mean of a job's chips. Weight updates show as bursts.", NONE),
            Query(f"avg by (rljob) ({_joined(CHIP + 'bandwidth_rx')})", "{{rljob}} received"),
            Query(f"avg by (rljob) ({_joined(CHIP + 'bandwidth_tx')})", "{{rljob}} sent"),
        ),
        graph(
            Text("HCCS", "GBs", "Mean of a job's chips.", NONE),
            Query(f"avg by (rljob) ({_joined(CHIP + 'hccs_bandwidth_info_total_rx')})", "{{rljob}} received"),
            Query(f"avg by (rljob) ({_joined(CHIP + 'hccs_bandwidth_info_total_tx')})", "{{rljob}} sent"),
        ),
        graph(
            Text(
                "Fabric errors",
                "cps",
                "Packets per second: pauses, congestion, retries, errors. None of them should rise for long.",
                NONE,
            ),
            *_rates(
                "npu_chip_mac_rx_pfc_pkt_num",
                "npu_chip_mac_tx_pfc_pkt_num",
                "npu_chip_roce_rx_cnp_pkt_num",
                "npu_chip_roce_new_pkt_rty_num",
                "npu_chip_roce_out_of_order_num",
                "npu_chip_roce_qp_status_err_num",
            ),
        ),
        graph(
            Text("Links", "none", "1 while a link is up, and the number of times that links came up per hour.", NONE),
            Query(f"min by (rljob) ({_joined(CHIP + 'link_status')})", "{{rljob}} all up"),
            Query(f"sum by (rljob) ({_joined('increase(npu_chip_link_up_num[1h])')})", "{{rljob}} came up"),
        ),
    ),
)
HEALTH = DashboardRow(
    "Health",
    (
        graph(
            Text("Health", "none", "1 healthy, 0 unhealthy, by die.", NONE),
            Query(_joined(CHIP + "health_status"), DIE),
            width=8,
            top=1,
        ),
        graph(
            Text(
                "Error codes",
                "none",
                "Error code that the driver reports; 0 is none. Ascend's fault manual lists the codes.",
                NONE,
            ),
            Query(_joined(f"({CHIP}error_code != 0)"), DIE + " {{rljob}}"),
            width=8,
        ),
        graph(
            Text(
                "Double-bit errors of HBM",
                "none",
                "Since the driver was started. Replace the card if there is one.",
                NONE,
            ),
            Query(_joined(CHIP + "hbm_ecc_double_bit_error_cnt"), DIE),
            width=8,
        ),
        graph(
            Text(
                "Processes by die", "none", "In a colocated job, a die runs the trainer and its rollout engine.", NONE
            ),
            Query(_joined(CHIP + "process_info_num"), DIE),
        ),
        graph(
            Text(
                "Cards on the job's nodes",
                "none",
                "NPUs in use and free, as Ray reports them. Does not need npu-exporter.",
                "No Ray node is scraped",
            ),
            Query(of_jobs("ray_resources", 'Name="NPU"', ("State",)), "{{rljob}} {{State}}"),
        ),
    ),
)
NPU = Board(
    name="npu",
    title="RLJob / NPU",
    about="The chips of the jobs: utilization, memory, fabric, health. Requires npu-exporter and the rule "
    "rljob:pod:info.",
    rows=(NOW, WORK, FABRIC, HEALTH),
    variables=(NAMESPACES, JOBS),
)
