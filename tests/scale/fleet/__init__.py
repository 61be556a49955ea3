"""Three teams on a simulated fleet of Ascend nodes: a mix of jobs, what befalls them, and what was seen of it."""
