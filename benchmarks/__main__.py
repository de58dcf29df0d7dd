"""Run every benchmark in full and write the pages in `results/`: `python -m benchmarks [--data DIR]`.

python -m benchmarks compare REV               compare the speed with another commit's
python -m benchmarks copy PAGE SECTION ...     copy sections from a page that another checkout has written
python -m benchmarks plots                     draw the plots from the tables
"""

import argparse
import sys
from pathlib import Path

from benchmarks import (
    bench_accuracy,
    bench_attacks,
    bench_audit,
    bench_boosting,
    bench_bulk,
    bench_console,
    bench_durability,
    bench_erase,
    bench_erasure_rate,
    bench_export,
    bench_http,
    bench_igbdt,
    bench_influence,
    bench_leaver,
    bench_limits,
    bench_load,
    bench_load_client,
    bench_operations,
    bench_paper,
    bench_push,
    bench_reading,
    bench_sets,
    bench_shap,
    bench_tags,
    bench_threads,
    bench_tree,
    bench_unseen,
    bench_v2,
    compare,
    higgs_like,
    plots,
)
from benchmarks.results import copy_sections
from benchmarks.serving import wrk


def main() -> None:
    """Run them one after the other, or one of the other commands."""
    if sys.argv[1:2] == ["compare"]:
        compare.main(sys.argv[2:])
        return
    if sys.argv[1:2] == ["plots"]:
        plots.main()
        return
    if sys.argv[1:2] == ["copy"]:
        parser = argparse.ArgumentParser(prog="python -m benchmarks copy")
        parser.add_argument("page", type=Path, help="a page with marked sections")
        parser.add_argument("sections", nargs="+", metavar="section", help="the name in the mark, as in compare-http")
        chosen = parser.parse_args(sys.argv[2:])
        copy_sections(chosen.page, chosen.sections)
        return
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, default=bench_accuracy.DATA)
    parser.add_argument("--cache", type=Path, default=higgs_like.CACHE, help="keeps the data that are generated")
    parser.add_argument("--dare-python", type=Path, metavar="FILE", help="an interpreter that has dare-rf")
    options = parser.parse_args()
    common = ["--data", str(options.data), "--write-results"]
    cached = [*common, "--cache", str(options.cache)]
    dare = [] if options.dare_python is None else ["--dare-python", str(options.dare_python)]
    bench_operations.main([*cached, *dare])
    bench_http.main(["--cache", str(options.cache), "--write-results"])
    bench_v2.main(["--environment", str(options.cache / "mlserver"), "--write-results"])
    bench_push.main(["--write-results"])
    bench_reading.main(["--write-results"])
    bench_erase.main(["--write-results"])
    bench_erasure_rate.main(["--write-results"])
    bench_sets.main(["--write-results"])
    bench_console.main(["--write-results"])
    bench_load.main(["--write-results"])
    bench_tags.main(["--write-results"])
    if wrk.is_installed():
        bench_load_client.main(["--write-results"])
    bench_bulk.main(["--write-results"])
    bench_durability.main(["--cache", str(options.cache), "--write-results"])
    bench_paper.main(cached)
    bench_tree.main(cached)
    bench_attacks.main(cached)
    bench_leaver.main([*cached, *dare])
    bench_unseen.main(cached)
    bench_export.main(cached)
    bench_shap.main(cached)
    bench_threads.main(cached)
    bench_limits.main([*cached, "--only", "growth"])
    bench_audit.main(cached)
    bench_boosting.main(cached)
    bench_igbdt.main(cached)
    bench_influence.main(cached)
    bench_accuracy.main(common)
    plots.main()


if __name__ == "__main__":
    main()
