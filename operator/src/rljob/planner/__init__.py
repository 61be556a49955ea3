"""Estimates of how long a job takes, and plans that are better: what `rljob plan` computes.

`rollout` simulates a rollout, `layouts` compares the splits of a model, `stages` gives the seconds of the trainer,
`switches` says what a switch saves, and `experts` places experts. Pure. The operator and the pods of a job never load
it; launchers describe to it how they train (`rljob.launchers.planned`).
"""
