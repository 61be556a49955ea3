"""The generated page on verl's scripts: docs/reference/verl-scripts.md. Pure, except for reading the tables."""

from __future__ import annotations

from collections import Counter

from scripts.reference import HEADER, table
from scripts.verl_scripts.hydra_value import Value
from scripts.verl_scripts.stand_ins import TEXT
from scripts.verl_scripts.table import COMMIT, REPOSITORY, load_scripts, scripts_without_table
from scripts.verl_scripts.verdicts import REASONS, Verdict, judge

INTRODUCTION = f"""\
The training scripts in the repository of verl ({REPOSITORY}, commit `{COMMIT[:12]}`) that are written for Ascend NPUs,
or have a branch for them, translated into RLJobs and checked as the operator checks a job. Keys with a field become the
field, found through the launcher's own table ([verl-keys.md](verl-keys.md)); the others become `verl.overrides`.
`make refresh-recipes VERL=<clone>` reads the scripts again, and a test fails if a verdict changes. Nothing on this page
has been run on an NPU (`rljob conformance`: `trains`).
"""
DROPPED_BY_ALL = 40
"""A key that is dropped in at least this many scripts is explained once, not in each."""


def verl_scripts_page() -> str:
    """Return the page."""
    verdicts = [judge(script) for script in load_scripts()]
    dropped = Counter(entry for verdict in verdicts for entry in verdict.job.dropped.items())
    usual = {entry: count for entry, count in dropped.items() if count >= DROPPED_BY_ALL}
    accepted = sum(not verdict.violations for verdict in verdicts)
    parts = [
        HEADER,
        "# verl's scripts for Ascend as RLJobs\n",
        INTRODUCTION,
        TEXT,
        f"{accepted} of {len(verdicts)} scripts are accepted.\n",
        table(("script", "verdict", "fields", "overrides"), [_row(verdict) for verdict in verdicts]),
        "## Reasons for refusals\n",
        table(("reason", "why", "source"), [(name, row.why, row.source) for name, row in REASONS.items()]),
        "## What every RLJob leaves out\n",
        table(("key", "why"), [(f"`{key}`", why) for key, why in usual]),
        "## Without a table\n",
        "These scripts start another trainer, or verl's trainer through another script:\n",
        "\n".join(f"- `{path}`" for path in scripts_without_table()) + "\n",
        "## Script by script\n",
    ]
    return "\n".join([*parts, *(_section(verdict, set(usual)) for verdict in verdicts)])


def _row(verdict: Verdict) -> tuple[str, ...]:
    job = verdict.job
    return (f"`{verdict.script.path}`", _word(verdict), str(len(job.typed)), str(len(job.overrides)))


def _word(verdict: Verdict) -> str:
    if verdict.violations:
        return f"refused: {', '.join(verdict.reasons)}"
    return "accepted, with warnings" if verdict.warnings else "accepted"


def _section(verdict: Verdict, usual: set[tuple[str, str]]) -> str:
    job = verdict.job
    lines = [f"### {verdict.script.path}\n", f"{_word(verdict).capitalize()}.\n"]
    lines += [f"- {line}" for line in _messages(verdict)]
    lines.append(f"- Fields: {', '.join(f'`{name}`' for name in sorted(job.typed))}")
    if job.overrides:
        lines.append(f"- Overrides: {', '.join(f'`{key}={_shown(value)}`' for key, value in job.overrides.items())}")
    rest = [f"`{key}` ({why})" for key, why in job.dropped.items() if (key, why) not in usual]
    if rest:
        lines.append(f"- Left out: {', '.join(rest)}")
    return "\n".join(lines) + "\n"


def _messages(verdict: Verdict) -> list[str]:
    """Return violations and warnings, those with one message for several fields once."""
    found: dict[str, str] = {}
    for violation in verdict.violations:
        found.setdefault(violation.message, f"Refused: `{violation.field}`: {violation.message}")
    for warning in verdict.warnings:
        found.setdefault(warning.message, f"Warning: `{warning.field}`: {warning.message}")
    return list(found.values())


def _shown(value: Value) -> str:
    if isinstance(value, bool) or value is None:
        return str(value).lower().replace("none", "null")
    return str(value).replace("'", "")
