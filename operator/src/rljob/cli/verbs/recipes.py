"""`rljob recipes`: list the recipes of the cluster, show what one sets, and compare two."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING, Any

from rljob.api.group import GROUP
from rljob.cli import kubectl, output
from rljob.cli.arguments import Commands, Parser, command
from rljob.cli.exits import Exit
from rljob.cli.output import DATA, data_page

if TYPE_CHECKING:
    from rljob.cli.recipe_view import View

EXAMPLES = (
    ("recipes list", "list the recipes that a job of this namespace can use"),
    ("recipes show qwen3-8b", "show every field that a recipe and its bases set"),
    ("recipes diff qwen3-8b qwen3-32b", "show in which fields two recipes differ"),
)


def add(commands: Commands[Parser]) -> None:
    """Add the command of each topic."""
    about = commands.add_parser("recipes", help="list, show and compare the recipes of the cluster")
    about.examples = EXAMPLES
    topics = about.add_subparsers(dest="topic", required=True, metavar="ACTION")
    where = "namespace of RLRecipes; default: the namespace of the context"
    command(
        topics,
        "list",
        "list the recipes that jobs of a namespace can use, with their hardware",
        _list,
        outputs=output.FORMS,
        namespace=where,
        examples=EXAMPLES[:1],
    )
    show = command(
        topics,
        "show",
        "show every field that a recipe and its bases set; -o yaml prints the recipe as it is in the cluster",
        _show,
        outputs=output.FORMS,
        namespace=where,
        examples=EXAMPLES[1:2],
    )
    change = command(
        topics,
        "diff",
        "show in which fields two recipes differ, bases included; exit code 1 if they do",
        _diff,
        outputs=output.FORMS,
        namespace=where,
        exits={Exit.NEGATIVE: "the recipes differ"},
        examples=EXAMPLES[2:],
    )
    show.add_argument("recipe", metavar="RECIPE", help="name of an RLRecipe of the namespace or a ClusterRLRecipe")
    for name in ("before", "after"):
        change.add_argument(name, metavar="RECIPE", help="name of a recipe, as in `recipes show`")


def _list(chosen: argparse.Namespace) -> int:
    from rljob.cli.recipe_view import list_page

    place = kubectl.Place(chosen.namespace, chosen.context)
    own = kubectl.list_of_namespace(f"rlrecipes.{GROUP}", place)
    found = [*own, *kubectl.list_items(f"clusterrlrecipes.{GROUP}", place)]
    if chosen.output in DATA:
        print(data_page([{"recipes": [_summary(recipe) for recipe in found]}], chosen.output, _names(found)))
    else:
        print(list_page(found, wide=chosen.output == output.WIDE) if found else "no recipes")
    return 0


def _show(chosen: argparse.Namespace) -> int:
    from rljob.cli.recipe_view import show_page

    view = _view(chosen, chosen.recipe)
    print(data_page([view.recipe], chosen.output) if chosen.output in DATA else show_page(view))
    return 0


def _diff(chosen: argparse.Namespace) -> int:
    from rljob.cli.recipe_view import differences, differences_page

    before, after = _view(chosen, chosen.before), _view(chosen, chosen.after)
    found = differences(before, after)
    if chosen.output in DATA:
        rows = [dict(zip(("field", "from", "to"), row, strict=True)) for row in found]
        document = {"before": chosen.before, "after": chosen.after, "changes": rows}
        print(data_page([document], chosen.output, [row["field"] for row in rows]))
    else:
        print(differences_page(found, chosen.before, chosen.after) if found else "no difference")
    return Exit.NEGATIVE if found else Exit.SUCCESS


def _summary(recipe: dict[str, Any]) -> dict[str, Any]:
    spec = recipe.get("spec") or {}
    shown = {key: spec.get(key, "") for key in ("hardware", "description", "source")}
    return {"kind": recipe["kind"], "name": recipe["metadata"]["name"], **shown}


def _names(recipes: list[dict[str, Any]]) -> list[str]:
    return [f"{recipe['kind'].lower()}.{GROUP}/{recipe['metadata']['name']}" for recipe in recipes]


def _view(chosen: argparse.Namespace, name: str) -> View:
    from rljob.cli.recipe_view import read_view

    return read_view(name, kubectl.Place(chosen.namespace, chosen.context))
