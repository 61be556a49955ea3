"""A command of the user's: any Ray program, of any framework.

`job` turns `launcher.command` into job.json, and `checks` refuses what the launcher in `rljob_runtime` cannot honour
for a program about which it knows nothing.
"""
