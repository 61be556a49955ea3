"""`python -m benchmarks.planners [experts] [reshard] [packing]`: tables for docs/benchmarks.md."""

from __future__ import annotations

import argparse
import importlib

SUBJECTS = ("experts", "reshard", "packing")


def main() -> None:
    """Print the tables of the chosen planners."""
    parser = argparse.ArgumentParser(prog="benchmarks.planners", description=__doc__)
    parser.add_argument("subjects", nargs="*", choices=SUBJECTS, default=[], help="planners (default: all)")
    for subject in parser.parse_args().subjects or SUBJECTS:
        importlib.import_module(f"benchmarks.planners.{subject}").main()


if __name__ == "__main__":
    main()
