"""How old the pins are: for each pinned upstream the newest release of its line and overall, and what moved in it.

`make upstream` asks the package index that pip is configured with and the configured proxy for Go modules. For verl and
vllm-ascend it reads the newer release as upstream/verl_names.py and upstream/ascend_names.py read the pinned one, and
prints the differences of names. It changes nothing, and `make test` does not run it, because its answer depends on the
network.
"""
