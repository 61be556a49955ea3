"""Where pods go and what holds them: queues, gangs, ports, nodes and their faults. Pure."""
