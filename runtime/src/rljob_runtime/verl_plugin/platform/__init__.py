"""What verl and its workers run on: the platform `cpu`, and the CPUs that a worker is bound to."""
