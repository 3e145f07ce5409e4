"""The command line. Anything wrong in it: one line, and exit status 2, before anything was measured."""
from __future__ import annotations

import argparse
import re
from collections.abc import Callable
from typing import NoReturn

from . import BenchError
from .model import LINKAGES

BENCHES = ("fastpath", "bulk", "worst", "slab-fastpath", "bulk-latency", "netio", "memcg", "peers", "forwarding")
ENGINES = ("sheaf", "slub", "slab", "slob")
DISCIPLINES = ("rseq", "cmpxchg", "lock")
WORKS = ("pair", "alloc", "free", "loop", "bulk", "producer-consumer", "larson", "threads-4k", "idle-threads",
         "live-set", "netio", "latency", "groups", "churn", "simulation", "zero", "aligned", "blocks", "held",
         "realloc", "adrift")
LIST = 64               # entries of an option's list


def usage(message: str) -> BenchError:
    return BenchError(message, 2)


class Parser(argparse.ArgumentParser):
    """argparse, which complains in our words."""

    def error(self, message: str) -> NoReturn:
        said = re.sub("^argument ", "", message)
        said = re.sub("^(.*): expected one argument$", r"\1 needs a value", said)
        raise usage(re.sub("^not allowed with argument", "not with", said))


def number(most: int) -> Callable[[str], int]:
    def parse(text: str) -> int:
        if not re.fullmatch("[0-9]+", text) or not 1 <= int(text) <= most:
            raise argparse.ArgumentTypeError(f"'{text}' is not a number from 1 to {most}")
        return int(text)
    return parse


def numbers(most: int) -> Callable[[str], list[int]]:
    def parse(text: str) -> list[int]:
        found = [number(most)(item) for item in text.split(",")]
        for item in found:
            if found.count(item) > 1:
                raise argparse.ArgumentTypeError(f"{item} twice")
        if len(found) > LIST:
            raise argparse.ArgumentTypeError("too many numbers")
        return found
    return parse


def names(known: tuple[str, ...]) -> Callable[[str], list[str]]:
    def parse(text: str) -> list[str]:
        found = text.split(",")
        if "" in found or len(set(found)) < len(found):
            raise argparse.ArgumentTypeError("an empty or repeated name")
        for name in found:
            if name not in known:
                raise argparse.ArgumentTypeError(f"there is no '{name}'")
        return found
    return parse


def make_parser(subjects: tuple[str, ...]) -> Parser:
    parser = Parser(prog="kmem bench", usage="kmem bench BENCH... [OPTION...]", add_help=False,
                    formatter_class=lambda prog: argparse.HelpFormatter(prog, max_help_position=24, width=79))
    add = parser.add_argument
    add("benches", nargs="*", metavar="BENCH", help=", ".join(BENCHES) + ", all")
    for name, to, known, said in (
            ("engine", "engines", ENGINES, "engines of ours: " + ",".join(ENGINES)),
            ("percpu", "disciplines", DISCIPLINES, "disciplines of ours: " + ",".join(DISCIPLINES)),
            ("subjects", "subjects", subjects, "engines and peers to measure; default: all"),
            ("linkage", "linkages", LINKAGES, ", ".join(LINKAGES)),
            ("work", "works", WORKS, "works of the table, as its rows name them")):
        add(f"--{name}", dest=to, metavar="A,B", type=names(known), default=[], help=said)
    for name, to, most, said in (
            ("size", "sizes", 1 << 20, "bytes of an object"),
            ("batch", "batches", 10000, "objects of a batch"),
            ("threads", "threads", 1024, "threads of a work"),
            ("transfer", "transfers", 100000, "memcg's simulation: ns for a line from another CPU (100)")):
        add(f"--{name}", dest=to, metavar="N,..", type=numbers(most), default=[], help=said)
    for name, most, said in (
            ("rounds", 10000, "default 9"),
            ("runs", 10000, "default 100 for bulk-latency, 50 for netio"),
            ("seconds", 1000000, "no round that would end later than N s after a table's begin; peers: 600, unless "
             "--rounds or --work is given")):
        add(f"--{name}", metavar="N", type=number(most), default=0, help=said)
    for name, said in (
            ("quick", "a tenth of the work"),
            ("full", "bulk: 10 M objects a cell"),
            ("json", "instead of the table: one object"),
            ("csv", "instead of the table: rows"),
            ("fetch", "first bring the peers that are not there (scripts/peers: takes minutes)")):
        add(f"--{name}", action="store_true", help=said)
    add("--html", metavar="FILE", help="tables and plots as well")
    add("--help", action="help", help="print this")
    return parser


def wanted_benches(asked: list[str]) -> list[str]:
    """In the order asked for. The worst case of a batch belongs to the table of batches."""
    wanted: list[str] = []
    for name in asked:
        if name not in BENCHES + ("all",):
            raise usage(f"there is no bench '{name}'; there are {', '.join(BENCHES)}, all")
        for bench in BENCHES if name == "all" else (name, "worst") if name == "bulk" else (name,):
            if bench not in wanted:
                wanted.append(bench)
    if not wanted:
        raise usage(f"which? {', '.join(BENCHES)} or all")
    return wanted


def parse(arguments: list[str], subjects: tuple[str, ...]) -> argparse.Namespace:
    """The options; `subjects` are those that there are."""
    options, unknown = make_parser(subjects).parse_known_intermixed_args(arguments)
    if unknown:
        raise usage(f"unknown option '{unknown[0]}'")
    options.benches = wanted_benches(options.benches)
    for one, other in (("json", "csv"), ("quick", "full")):
        if getattr(options, one) and getattr(options, other):
            raise usage(f"--{one} and --{other} exclude each other")
    return options
