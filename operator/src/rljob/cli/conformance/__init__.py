"""`rljob conformance`: check on the user's cluster that this release does what its documentation says.

`claims` is the table of what is checked, `judges` decide each claim from the gathered `facts`; both are pure. `gather`
reads the cluster through kubectl, `run` goes through the stages and removes everything at the end, `page` prints.
"""
