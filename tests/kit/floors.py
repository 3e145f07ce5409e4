"""The order of the library's folders, bottom up. A file includes files of its own floor and of lower floors. No file
outside an extension includes or names the extension, because the core has hooks. Each folder of engines/ and of ext/ is
a floor of its own."""
import os

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))


def folders_in(top):
    names = sorted(os.listdir(os.path.join(ROOT, top)))
    return tuple(f"{top}/{name}" for name in names if os.path.isdir(os.path.join(ROOT, top, name)))


ENGINES, EXTENSIONS = folders_in("engines"), folders_in("ext")
FLOORS = (
    ("src/base",), ("src/os",), ("src/percpu",), ("src/page",), ("src/slab",),
    *((each,) for each in ENGINES), ("engines",),
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
    """The floor of a folder; None for a folder outside the library."""
    return next((height for height, floor in enumerate(FLOORS) if folder in floor), None)


def is_extension(floor):
    return floor is not None and FLOORS[floor][0] in EXTENSIONS
