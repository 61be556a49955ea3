"""The run report in a browser."""
