"""Generated pages on verl: the key that each field sets, and the counterparts of the published recipes.

Pure functions.
"""

from __future__ import annotations

from rljob.launchers.verl import baseline
from rljob.launchers.verl.checks.limits import LIMITS
from rljob.launchers.verl.rows import OverrideRow
from rljob.launchers.verl.table import TABLE
from rljob.render import env
from rljob_runtime.contract import OverrideValue
from scripts.reference import HEADER, table
from upstream import recipe_flags

KEYS = """\
What the operator writes into job.json. The table is `rljob.launchers.verl.table.TABLE`. A row without a condition
always applies, and an optional field that is not set leaves its key to verl. Keys marked `own` can only be set by the
field: `verl.overrides` with such a key is rejected, and the message names the field; those marked `own then` are free
where the condition does not hold. The other keys follow the field, but `verl.overrides` may set them. A leading `+`
means that verl's schema lacks the key and its code reads it. The launcher sets router, spool, ports and the settings of
the CPU platform (`rljob_runtime.launcher_overrides`).
"""
REFUSED = """\
What is refused is rejected before any resources are used; a warning is reported with the condition Validated.
"""
ENVIRONMENT = """\
On the Ray containers of head and workers. A variable of the same name in a template's `env` takes precedence; one from
`envFrom` does not, because Kubernetes gives `env` precedence over it.
"""
CLASSES = """\
Every job of an Atlas class gets these settings. `rljob explain` shows those of a job with their reasons, and
`verl.overrides` replaces each. They are not measured on hardware yet; `rljob conformance`: `trains` would confirm that
the stack starts with them.
"""
LEFT = """\
Settings of the Ascend recipes and guides that no class sets. A job may set them through `verl.overrides`.
"""
FLAGS = """\
The scripts of cann-recipes-train for DeepSeek-V3, Qwen3-235B-A22B (GRPO and DAPO) and Qwen3-32B, flag by flag. The
values are those that our recipes render; a test compares each with job.json and with the pods. `left out` states why
verl 0.9.1 does not use a flag. None of these recipes has been measured on hardware yet;
`rljob conformance`: `trains`, `metrics` would confirm the stack that they run on, with a small model.
"""
TRIED = """\
What became of settings of `override_transformer_config` when verl's trainer with MindSpeed built a model of two layers
with them and trained a step, on an emulated NPU (tests/emulated_npu; `make acceptance` tries them again). Kernels,
memory and speed need hardware. A recipe's numbers of layers are fitted to the model. RLJob refuses what cannot start.
"""
MODELS = {"dense": "Qwen2", "qwen3": "Qwen3", "experts": "Qwen3-MoE", "deepseek": "DeepSeek-V3"}
SHORT = {
    recipe_flags.DEEPSEEK: "DeepSeek-V3",
    recipe_flags.QWEN235: "Qwen3-235B",
    recipe_flags.DAPO: "Qwen3-235B DAPO",
    recipe_flags.QWEN32: "Qwen3-32B",
}


def verl_keys_page() -> str:
    """Return the page on keys."""
    rows = [(f"`{row.field}`", f"`{row.key}`", row.when.text, _owner(row), f"verl/{row.source}") for row in TABLE]
    variables = [
        (f"`{row.name}`", ", ".join(sorted(platform.value for platform in row.platforms)), row.source)
        for row in env.VARIABLES
    ]
    parts = [
        HEADER,
        "# From fields to verl 0.9.1\n",
        KEYS,
        table(("field", "key", "when", "", "source"), rows),
        "## Defaults of the Atlas classes\n",
        CLASSES,
        table(
            ("key", "when", "why", "source"),
            [(f"`{row.plain}`", row.when, row.why, row.source) for row in baseline.ROWS],
        ),
        "## Considered and left out\n",
        LEFT,
        table(("setting", "why", "source"), [(f"`{row.name}`", row.why, row.source) for row in baseline.LEFT_OUT]),
        "## Unsupported by verl\n",
        REFUSED,
        table(
            ("field", "for", "verdict", "why, and what to do"),
            [(f"`{x.field}`", x.case, "warning" if x.warns else "refused", x.message) for x in LIMITS],
        ),
        "## Variables set by the operator\n",
        ENVIRONMENT,
        table(("variable", "platforms", "source"), variables),
    ]
    return "\n".join(parts)


def recipe_flags_page() -> str:
    """Return the page on the published recipes."""
    head = ("flag", *SHORT.values(), "where", "note")
    parts = [HEADER, "# The published recipes, flag by flag\n", FLAGS]
    for title, flags in recipe_flags.SECTIONS.items():
        parts += [f"## {title}\n", table(head, [_flag_row(flag) for flag in flags])]
    parts += ["## Environment\n", table(("variable", *SHORT.values(), "where", "note"), _environment_rows())]
    tried = [_tried_row(row) for row in recipe_flags.load_tried()]
    parts += ["## Tried on an emulated NPU\n", TRIED, table(("settings", "model", "processes", "result"), tried)]
    return "\n".join(parts)


def _owner(row: OverrideRow) -> str:
    return "" if not row.own else "own then" if row.free_elsewhere else "own"


def _flag_row(flag: recipe_flags.Flag) -> tuple[str, ...]:
    values = tuple(_shown(flag.values[recipe]) if recipe in flag.values else "" for recipe in SHORT)
    place = flag.place if flag.place in recipe_flags.WORDS else f"`{flag.place}`"
    renamed = f"`{flag.key}`" if flag.key else ""
    return (f"`{flag.name}`", *values, place, "; ".join(text for text in (renamed, flag.note) if text))


def _tried_row(row: recipe_flags.Tried) -> tuple[str, ...]:
    override = row.override | ({"model.trust_remote_code": True} if row.trust else {})
    settings = ", ".join(f"`{name}={_shown(value)}`" for name, value in override.items())
    recipes = f"{', '.join(row.recipes)}: " if row.recipes else ""
    result = row.emulation or (row.found if row.found == recipe_flags.TRAINS else f"refused; {row.found}")
    return (recipes + (settings or "none"), MODELS[row.model], row.ranks or "1", result)


def _environment_rows() -> list[tuple[str, ...]]:
    return [
        (f"`{row.name}`", *(row.values.get(recipe, "") for recipe in SHORT), row.place, row.note)
        for row in recipe_flags.ENVIRONMENT
    ]


def _shown(value: OverrideValue) -> str:
    if isinstance(value, list):
        return ", ".join(map(str, value))
    return str(value).lower() if isinstance(value, bool) else str(value)
