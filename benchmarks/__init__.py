"""Measurements that no test asserts: each is a package here with a command of its own."""
