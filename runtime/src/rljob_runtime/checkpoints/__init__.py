"""Checkpoints of a job: who may write them, which steps are complete, what they contain, where an attempt starts."""
