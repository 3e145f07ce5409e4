"""The command line. An error is one line and exit status 2, before any measurement."""
from __future__ import annotations

import argparse
import functools
import re
import sys
from typing import NoReturn

from . import BenchError
from .model import LINKAGES

BENCHES = ("fastpath", "bulk", "worst", "slab-fastpath", "bulk-latency", "netio", "memcg", "peers", "debug",
           "forwarding")
ENGINES = ("sheaf", "slub", "slab", "slob")
DISCIPLINES = ("rseq", "cmpxchg", "lock")
WORKS = ("pair", "alloc", "free", "loop", "bulk", "producer-consumer", "larson", "threads-4k", "idle-threads",
         "live-set", "netio", "latency", "groups", "churn", "simulation", "zero", "aligned", "blocks", "held",
         "realloc", "adrift", "turn", "program", "live-set-cycle", "programs")
LIST = 64               # maximum of entries in an option's list


class Parser(argparse.ArgumentParser):
    """argparse with the driver's messages."""

    def exit(self, status: int = 0, message: str | None = None) -> NoReturn:
        try:
            sys.stdout.flush()
        except OSError as error:
            raise BenchError(f"writing: {error.strerror}") from error
        super().exit(status, message)

    def error(self, message: str) -> NoReturn:
        said = re.sub("^argument ", "", message)
        raise BenchError(re.sub("^(.*): expected one argument$", r"\1 needs a value", said), 2)


def number(text: str, most: int) -> int:
    if not re.fullmatch("[0-9]+", text) or not 1 <= int(text) <= most:
        raise argparse.ArgumentTypeError(f"'{text}' is not a number from 1 to {most}")
    return int(text)


def numbers(text: str, most: int) -> list[int]:
    found = [number(item, most) for item in text.split(",")]
    if len(set(found)) < len(found) or len(found) > LIST:
        raise argparse.ArgumentTypeError("a number twice" if len(found) <= LIST else "too many numbers")
    return found


def names(text: str, known: tuple[str, ...]) -> list[str]:
    found = text.split(",")
    if "" in found or len(set(found)) < len(found):
        raise argparse.ArgumentTypeError("an empty or repeated name")
    if unknown := [name for name in found if name not in known]:
        raise argparse.ArgumentTypeError(f"unknown value '{unknown[0]}'")
    return found


def make_parser(subjects: tuple[str, ...]) -> Parser:
    parser = Parser(prog="kmem bench", usage="kmem bench BENCH... [OPTION...]", add_help=False,
                    epilog="Example: kmem bench fastpath --size 256 --subjects sheaf,jemalloc,mimalloc3",
                    formatter_class=lambda prog: argparse.HelpFormatter(prog, max_help_position=24, width=79))
    add = parser.add_argument
    add("benches", nargs="*", metavar="BENCH", help=", ".join(BENCHES) + ", all")
    for name, to, known, said in (
            ("engine", "engines", ENGINES, "engines of ours: " + ",".join(ENGINES)),
            ("percpu", "disciplines", DISCIPLINES, "disciplines of ours: " + ",".join(DISCIPLINES)),
            ("subjects", "subjects", subjects, "engines and peers to measure; default: all"),
            ("linkage", "linkages", LINKAGES, ", ".join(LINKAGES)),
            ("work", "works", WORKS, "works of the table, as its rows name them")):
        add(f"--{name}", dest=to, metavar="A,B", type=functools.partial(names, known=known), default=[], help=said)
    for name, to, most, said in (
            ("size", "sizes", 1 << 20, "bytes of an object"),
            ("batch", "batches", 10000, "objects of a batch"),
            ("threads", "threads", 1024, "threads of a work"),
            ("objects", "objects", 10000000, "objects of live-set-cycle and churn"),
            ("transfer", "transfers", 100000, "memcg's simulation: ns for a line from another CPU (100)")):
        add(f"--{name}", dest=to, metavar="N,..", type=functools.partial(numbers, most=most), default=[], help=said)
    for name, most, said in (
            ("rounds", 10000, "default 9"),
            ("runs", 10000, "default 100 for bulk-latency, 50 for netio"),
            ("seconds", 1000000, "no round that would end later than N s after a table's begin; peers: 600, unless "
             "--rounds or --work is given")):
        add(f"--{name}", metavar="N", type=functools.partial(number, most=most), default=0, help=said)
    work, form = parser.add_mutually_exclusive_group(), parser.add_mutually_exclusive_group()
    for group, name, said in (
            (work, "quick", "a tenth of the work"),
            (work, "full", "bulk: 10 M objects a cell"),
            (form, "json", "instead of the table: one object"),
            (form, "csv", "instead of the table: rows"),
            (parser, "fetch", "first bring the missing peers (scripts/peers: minutes)")):
        group.add_argument(f"--{name}", action="store_true", help=said)
    add("--html", metavar="FILE", help="tables and plots as well")
    add("--help", action="help", help="print this")
    return parser


def parse(arguments: list[str], subjects: tuple[str, ...]) -> argparse.Namespace:
    """Parses the options; `subjects` are the known subjects. Benches run in the given order, each once; `worst` belongs
    to the table of batches."""
    options, unknown = make_parser(subjects).parse_known_intermixed_args(arguments)
    if unknown:
        raise BenchError(f"unknown option '{unknown[0]}'", 2)
    also = {"all": BENCHES, "bulk": ("bulk", "worst")}
    for name in options.benches:
        if name not in BENCHES + ("all",):
            raise BenchError(f"unknown bench '{name}'; the benches are {', '.join(BENCHES)}, all", 2)
    options.benches = list(dict.fromkeys(bench for name in options.benches for bench in also.get(name, (name,))))
    if not options.benches:
        raise BenchError(f"a bench is missing: {', '.join(BENCHES)} or all", 2)
    return options
