"""The decisions of `reconcile`, in modules by the phases of a job; what is only told of it stands in drifting."""
