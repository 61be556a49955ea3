"""Placement of the experts of a mixture-of-experts model on devices by their load.

`python -m rljob_runtime plan-experts` is the only caller: it writes the expert map that a vllm-ascend server outside of
RLJob reads. The modules use numpy, so neither the operator nor the launcher may import them; jobs of RLJob keep their
experts in place, because a weight update loads experts by their first positions (vllm issue 55228).
"""
