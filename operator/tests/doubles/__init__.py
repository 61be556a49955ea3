"""What stands in for the outside world in tests: API server, Ray heads, time, and the hand that drives an operator.

`operator/tests/contract` holds the API server in memory to what a real one does. Nothing of this is shipped.
"""
