#!/usr/bin/env python3
"""A worker: bytes of machine code of the bulk functions, read by binutils from libkmem.so. The cells are the functions.

The count has the function, and the functions reached by direct calls and without other callers than bulk functions.
The bulk functions of the public interface count with any caller, and so do bulk functions in the table of an engine
with a chain. Code of single calls (refill of a sheaf, slabs, pages, locks) does not count."""
import ctypes
import os
import re
import subprocess
import sys

LIBRARY = os.path.join(os.path.dirname(os.path.abspath(sys.argv[0])), "..", "libkmem.so")
FRONT = {"km_alloc_bulk", "km_free_bulk", "km_free_chain", "km_free_last"}
# Bulk functions in the table of an engine with a chain.
VERBS = {"kmem_cache_alloc_bulk": "take", "kmem_cache_free_bulk": "give", "kfree_bulk": "give_last", "kmalloc_bulk": ""}


def said(*command: str) -> str:
    return subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True).stdout


class Code:
    """The functions of a library: bytes, and the called functions."""

    def __init__(self, library: str) -> None:
        self.bytes: dict[str, int] = {}
        self.calls: dict[str, set[str]] = {}
        names: dict[int, str] = {}      # of several names for one address the first: NAME comes before NAME.localalias
        symbols = re.findall(r"^(\w+) (\w+) [tT] (\S+)$", said("nm", "-S", library), re.MULTILINE)
        for address, size, name in sorted(symbols):
            if names.setdefault(int(address, 16), name) == name:
                self.bytes[name] = int(size, 16)
        caller = ""
        for line in said("objdump", "-d", "--no-show-raw-insn", library).splitlines():
            if start := re.match(r"([0-9a-f]+) <", line):
                caller = names.get(int(start[1], 16), caller)
            elif jump := re.search(r"\t(?:call|j[a-z]+) +([0-9a-f]+) <", line):
                callee = names.get(int(jump[1], 16), caller)
                if callee != caller:
                    self.calls.setdefault(caller, set()).add(callee)

    def reached(self, roots: set[str], within: set[str]) -> set[str]:
        """The functions of `within` that the roots reach, with the roots."""
        found = more = roots & self.bytes.keys()
        while more:
            more = {callee for name in more for callee in self.calls.get(name, ())} & within - found
            found = found | more
        return found

    def bulk_alone(self, roots: set[str]) -> set[str]:
        """Functions reached by bulk only: all reached functions, less the functions with other callers."""
        own = self.reached(roots, set(self.bytes))
        while lost := {name for caller in self.bytes.keys() - own for name in self.calls.get(caller, ())} & own - roots:
            own -= lost
        return own


def main() -> None:
    """Prints the library's version and engine, under the driver's options."""
    library, code = ctypes.CDLL(LIBRARY), Code(LIBRARY)
    library.kmem_version.restype = library.kmem_percpu_discipline.restype = ctypes.c_char_p
    engine = os.environ["KMEM_OPTIONS"].rpartition("engine:")[2]
    print("info version", library.kmem_version().decode())
    if engine != "slob":
        print("info discipline", library.kmem_percpu_discipline().decode())
    # Only an engine with a chain has a function for the last object of a chain.
    chain = f"km_{engine}_give_last" in code.bytes
    own = {function: f"km_{engine}_{verb}" for function, verb in VERBS.items() if chain}
    alone = code.bulk_alone(FRONT | VERBS.keys() | set(own.values()))
    for index, cell in enumerate(cell for cell in sys.argv[1:] if not cell.startswith("--")):
        function = cell.split(",")[0]
        counted = code.reached({function, own.get(function, function)}, alone)
        print(index, "bytes code", function, sum(code.bytes[name] for name in counted))


main()
