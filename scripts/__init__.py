"""Programs that the Makefile runs: generators, the test stages and the demo."""
