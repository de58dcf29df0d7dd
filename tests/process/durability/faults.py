"""Disks that are full."""

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


def why_no_mounts() -> str | None:
    """Return why no small file system can be had here; None when it can."""
    return None if os.geteuid() == 0 and sys.platform == "linux" else "only root can mount a small file system"


@contextmanager
def small_file_system(place: Path, size: str) -> Iterator[Path]:
    """Mount a file system in memory until the end of the block."""
    place.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={size}", "tmpfs", str(place)], check=True)
    try:
        yield place
    finally:
        subprocess.run(["umount", "--lazy", str(place)], check=True)


def fill(place: Path) -> Path:
    """Use up all room on the file system of a folder; return the file that does."""
    filler = place / "filler"
    with filler.open("wb", buffering=0) as file:
        for size in (2**20, 4096, 1):
            try:
                while file.write(bytes(size)) == size:
                    pass
            except OSError:
                continue
    return filler
