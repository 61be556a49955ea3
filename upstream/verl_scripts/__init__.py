"""verl's own example scripts for Ascend NPUs, as tables of facts, and their translation into RLJobs.

`flags/` has one table per script: the Hydra flags and environment variables that the script passes to verl's trainer on
an NPU, without the text of the script. `python -m upstream.verl_scripts <verl.git>` writes the tables from a clone;
everything else reads only them: the tests (tests/house/test_verl_scripts.py) and the generated page
docs/reference/verl-scripts.md.
"""
