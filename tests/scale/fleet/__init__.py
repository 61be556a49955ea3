"""Three teams on a simulated fleet of Ascend nodes: a mix of jobs, injected faults, and the recorded history."""
