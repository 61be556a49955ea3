"""A real Prometheus for tests: scrape configuration, queries, and the queries that may have no data."""
