"""Whole-product tests on the local cluster: real kubelet, KubeRay, Ray, verl and vLLM; only the NPU is fake."""
