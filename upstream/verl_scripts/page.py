"""The generated page on verl's scripts: docs/reference/verl-scripts.md. Pure, except for reading the tables."""

from __future__ import annotations

from collections import Counter

from scripts.reference import HEADER, table
from upstream.verl_scripts.stand_ins import TEXT
from upstream.verl_scripts.table import COMMIT, REPOSITORY, load_scripts, scripts_without_table
from upstream.verl_scripts.verdicts import REASONS, Verdict, judge

INTRODUCTION = f"""\
The training scripts in the repository of verl ({REPOSITORY}, commit `{COMMIT[:12]}`) that are written for Ascend NPUs,
or have a branch for them, translated into RLJobs and checked as the operator checks a job. Keys with a field become the
field, found through the launcher's own table ([verl-keys.md](verl-keys.md)); the others become `verl.overrides`.
The flags are in `upstream/verl_scripts`, and a test fails if a verdict changes. Nothing on this page has been run on an
NPU (`rljob conformance`: `trains`).
"""


def verl_scripts_page() -> str:
    """Return the page."""
    verdicts = [judge(script) for script in load_scripts()]
    accepted = sum(not verdict.violations for verdict in verdicts)
    parts = [
        HEADER,
        "# verl's scripts for Ascend as RLJobs\n",
        INTRODUCTION,
        TEXT,
        f"{accepted} of {len(verdicts)} scripts are accepted.\n",
        table(("script", "verdict"), [(f"`{verdict.script.path}`", _word(verdict)) for verdict in verdicts]),
        "## Reasons for refusals\n",
        table(
            ("reason", "why, and what to do", "source"), [(name, row.why, row.source) for name, row in REASONS.items()]
        ),
        "## Warnings of accepted scripts\n",
        table(("warning", "scripts"), _warnings(verdicts)),
        "## What a job leaves out\n",
        table(("key", "why"), _dropped(verdicts)),
        "## Scripts that are not translated\n",
        "These scripts start another trainer, or verl's trainer through another script:\n",
        "\n".join(f"- `{path}`" for path in scripts_without_table()) + "\n",
    ]
    return "\n".join(parts)


def _dropped(verdicts: list[Verdict]) -> list[tuple[str, str]]:
    """Return the keys that no job has, grouped by the reason."""
    keys: dict[str, dict[str, None]] = {}
    for verdict in verdicts:
        for key, why in verdict.job.dropped.items():
            keys.setdefault(why, {})[f"`{key}`"] = None
    return [(", ".join(sorted(found)), why) for why, found in keys.items()]


def _word(verdict: Verdict) -> str:
    if verdict.violations:
        return f"refused: {', '.join(verdict.reasons)}"
    return "accepted, with warnings" if verdict.warnings else "accepted"


def _warnings(verdicts: list[Verdict]) -> list[tuple[str, str]]:
    """Return the warnings of accepted scripts, with the number of scripts that get each."""
    accepted = (verdict for verdict in verdicts if not verdict.violations)
    counts = Counter(message for verdict in accepted for message in {warning.message for warning in verdict.warnings})
    return [(message, str(count)) for message, count in sorted(counts.items(), key=lambda row: (-row[1], row[0]))]
