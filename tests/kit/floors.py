"""
The floors of the library, bottom up: the folders of each. A file includes its own floor and those beneath it, but no
file outside of an extension includes or names it: the core has hooks.
"""
import os

EXTENSIONS = ("ext/debug", "ext/failslab", "ext/guard", "ext/observe", "ext/profile", "ext/sanitize", "ext/usdt")
FLOORS = (
    ("src/base",), ("src/os",), ("src/percpu",), ("src/page",), ("src/slab",),
    ("engines/slub",), ("engines/slab",), ("engines/slob",), ("engines",),
    ("src/alloc",), ("src/kmalloc", "src/cache"),
    ("src/inspect",), *((each,) for each in EXTENSIONS),
    ("src/memcg",), ("src/parts",), ("src/process",), ("src/malloc",),
)
FOLDERS = tuple(folder for floor in FLOORS for folder in floor)


def files(root, ends=(".c", ".h")):
    """(folder, path below the root) of each file of the library."""
    for folder in FOLDERS:
        full = os.path.join(root, folder)
        for name in sorted(os.listdir(full) if os.path.isdir(full) else ()):
            if name.endswith(ends):
                yield folder, f"{folder}/{name}"


def floor_of(folder):
    """How high a folder stands; None: it is none of the library's."""
    return next((height for height, floor in enumerate(FLOORS) if folder in floor), None)


def is_extension(floor):
    return floor is not None and FLOORS[floor][0] in EXTENSIONS
