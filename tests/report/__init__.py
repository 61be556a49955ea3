"""The run report as people see it: in a browser."""
