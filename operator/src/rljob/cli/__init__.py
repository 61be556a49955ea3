"""The command line: `rljob` and `kubectl rljob`."""
