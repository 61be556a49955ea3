"""RLJob: an operator that turns one manifest into a trained model on an Ascend NPU cluster."""
