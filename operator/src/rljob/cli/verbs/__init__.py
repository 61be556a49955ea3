"""The verbs of the command line: one module each, with its arguments, what it does and its words.

`--help` and shell completion import all of them, so none imports a model of the API, YAML or a rule at the top: a verb
imports inside the function that uses it (operator/tests/unit/cli/test_start_cost.py counts).
"""
