"""Rules of this repository that no other tool checks."""
