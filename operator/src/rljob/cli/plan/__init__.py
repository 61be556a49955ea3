"""`rljob plan`: what a job needs of a die, how long its rollout takes, and which layouts of it fit.

`arguments` is loaded by every `rljob --help`; everything else is loaded by the command alone.
"""
