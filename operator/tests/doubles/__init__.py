"""Test doubles of the outside world: API server, Ray heads, time, and a driver of the operator.

`operator/tests/contract` verifies that the API server in memory behaves like a real one. Nothing of this is shipped.
"""
