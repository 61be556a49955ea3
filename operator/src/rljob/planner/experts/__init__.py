"""Placement of the experts of a mixture-of-experts model on devices by their load, for `rljob plan experts`.

The map is for vllm-ascend servers outside of RLJob; jobs of RLJob keep their experts in place, because a weight update
loads experts by their first positions (vllm issue 55228). The modules use numpy, which the extra `planner` installs.
"""
