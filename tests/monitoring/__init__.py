"""A real Prometheus for tests: what it scrapes, what it is asked, and which questions may stay unanswered."""
