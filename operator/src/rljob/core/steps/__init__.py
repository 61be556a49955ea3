"""The decisions of `reconcile`, in four modules by the phases of a job: preparing, starting, running, finishing."""
