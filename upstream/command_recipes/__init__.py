"""The training scripts of cann-recipes-train as jobs whose launcher is a command.

`python -m upstream.command_recipes` reads flags and variables of each script from a clone into `facts`. Everything else
reads those tables: `manifest` builds the jobs in examples/cann-recipes from them and from `differences`, where each
deviation has its reason, and `page` the reference page. The scripts themselves are not part of this repository.
"""
