"""`python -m benchmarks.planners`: tables for docs/benchmarks.md."""

from benchmarks.planners.experts import main

if __name__ == "__main__":
    main()
