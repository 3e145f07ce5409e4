#!/usr/bin/env python3
"""tracked.py: the files of the project are the files tracked by git. A user's own file in the clone is not checked. As
a program tracked.py prints the tracked files with names that match the patterns, a line each."""
import glob
import os
import subprocess
import sys

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))


def walk():
    """All files, where git tracks none: an unpacked archive."""
    for folder, folders, names in os.walk(ROOT):
        folders[:] = [f for f in folders if not f.startswith(("build", ".git"))]
        for name in names:
            yield os.path.relpath(os.path.join(folder, name), ROOT)


def tracked(*patterns):
    """The tracked files, sorted, with their paths from the root; with glob patterns, only the files with a
    matching name."""
    command = ["git", "-c", "safe.directory=*", "-C", ROOT, "ls-files", "-z"]
    try:
        result = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, check=False)
        names = os.fsdecode(result.stdout).split("\0")
    except FileNotFoundError:
        names = []
    names = {name for name in names if name} or set(walk())
    if patterns:
        matching = (glob.glob(os.path.join(ROOT, pattern), recursive=True) for pattern in patterns)
        names &= {os.path.relpath(path, ROOT) for paths in matching for path in paths}
    return sorted(name for name in names if os.path.isfile(os.path.join(ROOT, name)))


if __name__ == "__main__":
    print("\n".join(tracked(*sys.argv[1:])))
