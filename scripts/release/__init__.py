"""What a release consists of, how it is built, and how its images are mirrored."""
