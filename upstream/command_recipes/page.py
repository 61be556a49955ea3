"""The generated page docs/reference/cann-recipes.md: each command beside its script. Pure, except for the tables."""

from __future__ import annotations

from collections.abc import Iterator

from scripts.reference import HEADER, table
from upstream.command_recipes.differences import LEFT_OUT, added_flags, added_variables, flag_value, variable_value
from upstream.command_recipes.notes import SWITCHES
from upstream.command_recipes.sources import SOURCES, Source
from upstream.command_recipes.table import Facts, load_facts

INTRODUCTION = """\
Each job in [examples/cann-recipes](../../examples/cann-recipes) passes the flags of one script of cann-recipes-train,
in its order. The flags are recorded by evaluating the script (`make upstream-facts`), and a test compares
every flag and variable of each manifest with the record. What differs is listed here with its reason; everything else
is equal. The [guide](../guides/cann-recipes.md) states what image and volume must have. None of these jobs has been run
on hardware; `preflight` and `hccl` of `rljob conformance`, with an image for launcher Verl, check the nodes.
"""
SWITCHES_TEXT = """\
Read from the recipes' patches at the scripts' commits. None of the defects was observed on an NPU; no row of
conformance covers them.
"""
ROWS = ("name", "script", "manifest", "why")


def cann_recipes_page() -> str:
    """Return the page."""
    known = load_facts()
    names = {name for facts in known.values() for name in facts.environment}
    parts = [
        HEADER,
        "# The scripts of cann-recipes-train as commands\n",
        INTRODUCTION,
        table(
            ("manifest", "script", "commit", "flags", "of them different", "added"),
            [_row(source, known[source.name]) for source in SOURCES],
        ),
        "## Switches\n",
        SWITCHES_TEXT,
        table(("variable", "what it does, and its defects"), [(f"`{name}`", text) for name, text in SWITCHES.items()]),
        "## Variables of the scripts that no pod has\n",
        table(("variable", "why"), [(f"`{name}`", why) for name, why in LEFT_OUT.items() if name in names]),
    ]
    return "\n".join([*parts, *(_section(source, known[source.name]) for source in SOURCES)])


def _row(source: Source, facts: Facts) -> tuple[str, ...]:
    link = f"[{source.name}](../../examples/cann-recipes/{source.name}.yaml)"
    different = sum(1 for key, text in facts.flags.items() if flag_value(source, key, text).reason)
    added = len(added_flags(facts))
    return (link, f"`{facts.path}`", f"`{facts.commit[:12]}`", str(len(facts.flags)), str(different), str(added))


def _section(source: Source, facts: Facts) -> str:
    return f"## {source.name}\n\n{table(ROWS, list(_differences(source, facts)))}"


def _differences(source: Source, facts: Facts) -> Iterator[tuple[str, ...]]:
    for key, text in facts.flags.items():
        if (value := flag_value(source, key, text)).reason:
            yield (f"`{key}`", f"`{text}`", f"`{value.text}`", value.reason)
    for key, value in added_flags(facts).items():
        yield (f"`{key}`", "", f"`{value.text}`", value.reason)
    for name, text in facts.environment.items():
        if (known := variable_value(source, name, text)) is not None and known.reason:
            yield (f"`{name}`", f"`{text}`", f"`{known.text}`", known.reason)
    for name, value in added_variables(source, facts).items():
        yield (f"`{name}`", "", f"`{value.text}`" if value.text else "empty", value.reason)
