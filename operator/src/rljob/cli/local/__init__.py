"""`rljob run --local`: an RLJob without Kubernetes, in a private Ray on this machine.

`command` is the whole of it in order; `surroundings` reads what stands beside the RLJob in its file; `paths` and
`translate` turn pod paths into folders; `fields` says which fields mean nothing here; `folder`, `processes` and `ray`
touch the machine; `follow` runs the launcher, shows progress and passes Ctrl-C on.
"""
