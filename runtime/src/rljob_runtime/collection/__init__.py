"""Copy what explains a failure from every node to the log volume, and let MindCluster's ascend-fd diagnose it.

The launcher runs it when an attempt has failed (`after_failure`), and `rljob logs --collect` by exec in the head
(`command`). Both start the same program, which is a Ray driver of its own: it works when the run's own connection
hangs, and it can be ended at its deadline. On each node a task copies CANN's logs, the driver's logs as far as the
container sees them and the logs of Ray's workers (`sources`, `copying`, `node`), the newest first, within limits of
bytes and time. How an attempt ends does not depend on it: what is missing is a note.
"""
