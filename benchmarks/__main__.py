"""Run every benchmark with its defaults and write RESULTS.md: `python -m benchmarks [--data DIR]`."""

import argparse
from pathlib import Path

from benchmarks import bench_accuracy, bench_operations


def main() -> None:
    """Run them one after the other."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", type=Path, default=bench_accuracy.DATA)
    options = parser.parse_args()
    for benchmark in (bench_operations, bench_accuracy):
        benchmark.main(["--data", str(options.data), "--write-results"])


if __name__ == "__main__":
    main()
