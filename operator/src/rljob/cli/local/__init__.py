"""`rljob run --local`: run an RLJob without Kubernetes, in a private Ray on this machine.

`command` runs all steps in order. `companion_objects` reads the objects beside the RLJob in its file; `paths` and
`translate` turn pod paths into folders; `fields` lists the fields that have no effect here; `folder`, `processes` and
`ray` touch the machine; `follow` runs the launcher, shows progress and handles Ctrl-C.
"""
