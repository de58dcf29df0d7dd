"""Run every benchmark with its defaults and write RESULTS.md: `python -m benchmarks [--data DIR]`."""

import argparse
from pathlib import Path

from benchmarks import bench_accuracy


def main() -> None:
    """Run them one after the other."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", type=Path, default=bench_accuracy.DATA)
    options = parser.parse_args()
    bench_accuracy.main(["--data", str(options.data), "--write-results"])


if __name__ == "__main__":
    main()
