"""The node of a process: which of its CPUs and network interfaces the process uses, and the tools of its devices."""
