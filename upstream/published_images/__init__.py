"""What the published images for Ascend contain, from their Dockerfiles, and the verdict of the image check on each."""
