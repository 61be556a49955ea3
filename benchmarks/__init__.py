"""Measurements that no test asserts. Each is a package with a command of its own."""
