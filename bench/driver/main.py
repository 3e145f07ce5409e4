"""The course of one call: options, subjects, plan, workers, rounds, printing. The workers measure; tables.py has the
contents of each table.

Exit status: 0; 1 if a subject of the project could not be measured; 2 wrong usage; 3 if `peers` lacks a required peer;
128 and the signal's number after a signal. Tables are printed in every case except wrong usage, with the complete
rounds."""
from __future__ import annotations

import argparse
import importlib.util
import os
import sys
from pathlib import Path
from typing import NoReturn

from . import BenchError
from .emit import as_csv, as_json
from .environment import GAUGE
from .model import Bench, Table
from .options import parse
from .plan import QUICK_ROUNDS, ROUNDS, plan
from .progress import PIPE_COLUMNS, terminal_columns
from .published import rows_for
from .run import Runner
from .subjects import SUBJECTS, Finder, build_workers


def check(options: argparse.Namespace, root: str) -> None:
    """Tests the tree, the Python libraries and the HTML file before the work, not after an hour."""
    if not root:
        raise BenchError("the source tree is needed: run kmem bench inside of a clone")
    for module in ["rich"] * (not options.json and not options.csv) + ["rich", "matplotlib"] * bool(options.html):
        if not importlib.util.find_spec(module):
            raise BenchError(f"needs the Python library {module}: apt-get install python3-{module}")
    if options.html:
        try:
            with open(options.html, "a", encoding="utf-8"):
                pass
        except OSError as error:
            raise BenchError(f"{options.html}: {error.strerror}") from error


def finish(bench: Bench, table: Table) -> None:
    """Completes the rows of a table. A table without a complete round has no rows."""
    if table.incomplete:
        print(f"kmem bench: {table.bench}: {table.extent}", file=sys.stderr)
    if not table.complete:
        return
    table.rows += rows_for(bench, table.bench)
    for row in table.rows:
        row.settle()
    keys = [row.key() for row in table.rows]
    if len(set(keys)) < len(keys):
        raise BenchError(f"two rows of {table.bench} are the same: {max(keys, key=keys.count)}")


def text_of(bench: Bench) -> str:
    if bench.options.json or bench.options.csv:
        return as_json(bench) if bench.options.json else as_csv(bench)
    from .text import report
    columns = terminal_columns(sys.stdout)
    return report(bench, columns or PIPE_COLUMNS, bool(columns))


def print_all(bench: Bench) -> None:
    """Prints the text and writes the page. A reader that the same Ctrl-C ended must not prevent the page."""
    text, failed = text_of(bench), False
    try:
        sys.stdout.buffer.write(text.encode(errors="replace"))
        sys.stdout.flush()
    except OSError:
        failed = True
    if bench.options.html:
        from .page import write_page
        write_page(bench, bench.options.html)
    if failed:
        raise BenchError("cannot write the figures")


def run(arguments: list[str], root: str) -> int:
    options = parse(arguments, SUBJECTS)
    check(options, root)
    bench = Bench(options, Path(root))
    bench.children.catch_stop()
    bench.environment.rounds = options.rounds or (QUICK_ROUNDS if options.quick else ROUNDS)
    Finder(bench).find()
    bench.tables = [plan(bench, name) for name in options.benches]
    build_workers(bench, GAUGE)
    bench.environment.before(bench.root, bool(bench.children.stopped))
    Runner(bench).run()
    bench.environment.after()
    for table in bench.tables:
        finish(bench, table)
    print_all(bench)
    if bench.children.status:
        return bench.children.status
    if "peers" in options.benches and bench.must_missing:
        raise BenchError("peers: glibc, jemalloc, mimalloc or gperftools is missing", 3)
    return int(bench.ours_failed)


def main(root: str, arguments: list[str]) -> NoReturn:
    try:
        status = run(arguments, root)
    except BenchError as error:
        print(f"kmem bench: {error}", file=sys.stderr)
        status = error.status
    # Ends without Python's cleanup, because Python would complain about a closed reader.
    sys.stderr.flush()
    os._exit(status)
