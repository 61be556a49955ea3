"""From the typed spec to the configuration of a training framework; verl is the first."""
