"""The subjects: our engines through each interface and linkage, the peers in build/peers/, and the empty functions.
scripts/peers and make are called once for missing parts. A part that is still missing is named, and the run
continues. The order of the variants is the order of the rows."""
from __future__ import annotations

import os
import shutil
import sys
from typing import Any

from . import BenchError
from .model import LINKAGES, Bench, Kind, Variant
from .options import ENGINES

PEERS = ("glibc", "jemalloc", "mimalloc2", "mimalloc3", "gperftools", "snmalloc", "tcmalloc", "rpmalloc", "tbbmalloc",
         "scudo", "hardened_malloc", "hardened_malloc_light", "mimalloc3_secure", "snmalloc_checks", "dpdk")
SUBJECTS = ENGINES + PEERS + ("nothing", "published", "model", "processor")
MALLOC_LIB = "build/libkmem-malloc.so"
FIO_EXAMPLE = "/usr/share/doc/fio/examples/netio.fio"
LEVELS = {
    "hardened": {"KMEM_OPTIONS": "hardened:1"},
    "guarded": {"KMEM_OPTIONS": "guard:100"},
    "profiled": {"KMEM_OPTIONS": "profile:512K"},
    "sampled": {"KMEM_OPTIONS": "profile:2560"},        # one of ten objects of 256 bytes
    "beside": {"KMEM_DEBUG": "FZPU,kmalloc-1k,malloc-1024"},    # caches without objects of any work
    "FZPU": {"KMEM_DEBUG": "FZPU"},
}
# Workers that link guarded objects and profiles by name, because an archive brings only named parts.
NAMED = ("guarded", "profiled", "sampled")
CHECKING = ("mimalloc3_secure", "snmalloc_checks")      # builds of peers for one table only
ACCOUNTINGS = ("off", "v1-drain", "v1-keep", "v2-drain", "v2-keep", "shelf")
PEERS_IN = {"fastpath", "bulk", "worst", "peers", "debug"}       # the other tables have only our subjects
# The engines in tables that compare disciplines. The published figures used the transaction id and the
# compare-and-swap, so the two engines with this discipline run under cmpxchg, too; --percpu selects for all engines.
CMPXCHG_IN = ("bulk", "bulk-latency")
BY_DISCIPLINE: dict[str, tuple[str | None, ...]] = {
    "slab": ("lock", "cmpxchg", "rseq"), "slub": ("cmpxchg", "rseq"), "sheaf": (None,)}
# Our interfaces; a worker's name ends with its linkage.
OURS = (*(("kmem_cache", linkage, f"cache-{linkage}", None) for linkage in LINKAGES),
        *(("kmalloc", linkage, f"kmalloc-{linkage}", None) for linkage in LINKAGES[:2]),
        ("malloc", "shared", "malloc-shared", MALLOC_LIB), ("malloc", "static", "malloc-kmem-static", None))


class Finder:
    def __init__(self, bench: Bench) -> None:
        self.bench, self.options = bench, bench.options

    def wanted(self, subject: str) -> bool:
        return not self.options.subjects or subject in self.options.subjects

    def add(self, kind: Kind, subject: str, api: str, linkage: str, worker: str, preload: str | None = None,
            **fields: Any) -> None:
        """Adds a way to measure a subject, if its linkage is wanted. The malloc must be the preload's, or the
        worker's."""
        if not self.options.linkages or linkage in self.options.linkages:
            worker = f"build/bench/{worker}"
            owner = (preload or worker) if api == "malloc" and (preload or linkage != "shared") else None
            self.bench.variants.append(Variant(kind, subject, api, linkage, worker, preload, owner, **fields))

    # ------------------------------------------------------------------------------------------------------- engines

    def engines(self) -> list[str]:
        return [engine for engine in self.options.engines or ENGINES if self.wanted(engine)]

    def add_engine(self, engine: str) -> None:
        """Each interface and linkage, under each requested discipline, or the library's choice. Slob has no
        discipline."""
        wanted: list[str | None] = [None] if engine == "slob" else self.options.disciplines or [None]
        for percpu in wanted:
            for api, linkage, worker, preload in OURS:
                self.add(Kind.OURS, engine, api, linkage, worker, preload, percpu=percpu)
            if "peers" in self.options.benches:
                self.add(Kind.OURS, engine, "program", "shared", "programs", MALLOC_LIB, only="peers", percpu=percpu)
        self.add_disciplines(engine)
        self.add_netio(engine)
        if "memcg" in self.options.benches:
            self.add_memcg(engine, wanted)
        if "debug" in self.options.benches:
            self.add_levels(engine)

    def add_levels(self, engine: str) -> None:
        """The same interfaces with debugging; and whole programs, at each level."""
        for level in LEVELS:
            for api, linkage, worker, preload in OURS:
                if linkage == "static" and level in NAMED:
                    worker += "-watched"
                if linkage == "shared" or (linkage == "static" and level in ("hardened", *NAMED)):
                    self.add(Kind.OURS, engine, api, linkage, worker, preload, only="debug", level=level)
        for which in (None, "hardened", "guarded"):
            self.add(Kind.OURS, engine, "program", "shared", "programs", MALLOC_LIB, only="debug", level=which)

    def add_disciplines(self, engine: str) -> None:
        """A kmem_cache under a discipline, for one bench only. KMEM_PERCPU has no effect on benches that compare
        disciplines."""
        ways = [("slab-fastpath", percpu) for percpu in BY_DISCIPLINE.get(engine, ())]
        if engine in ("slub", "slab") and not self.options.disciplines and not os.environ.get("KMEM_PERCPU"):
            ways = [(bench, "cmpxchg") for bench in CMPXCHG_IN] + ways
        for only, percpu in ways:
            if only in self.options.benches and percpu in (None, *(self.options.disciplines or [percpu])):
                for linkage in ("static", "shared"):
                    self.add(Kind.OURS, engine, "kmem_cache", linkage, f"cache-{linkage}", only=only, percpu=percpu)

    def add_netio(self, engine: str) -> None:
        """SLAB, SLUB with each rule for partial slabs, and sheaf, as fio's malloc and as caches."""
        if "netio" not in self.options.benches or engine == "slob":
            return
        fio = os.access("/usr/bin/fio", os.X_OK) and os.access(FIO_EXAMPLE, os.R_OK)
        if not fio:
            self.bench.leave("fio", "not here; 'scripts/need fio fio-examples' installs it")
        for rule in ("static", "size", "half") if engine == "slub" else (None,):
            fields = {"only": "netio", "min_partial": rule}
            self.add(Kind.OURS, engine, "kmem_cache", "static", "netio-static", **fields)
            if fio:
                self.add(Kind.OURS, engine, "malloc", "shared", "fio-shared", MALLOC_LIB, **fields)

    def add_memcg(self, engine: str, disciplines: list[str | None]) -> None:
        """The rules for charges: one variant each, interleaved."""
        if engine == "slob":
            self.bench.leave(engine, "its objects are never charged")
            return
        for linkage in ("static", "shared"):
            for percpu in disciplines:
                for api in ("kmem_cache", "kmalloc"):
                    for accounting in ACCOUNTINGS:
                        self.add(Kind.OURS, engine, api, linkage, f"account-{api.removeprefix('kmem_')}-{linkage}",
                                 only="memcg", percpu=percpu, accounting=accounting)

    def add_others(self) -> None:
        """The charging code on simulated CPUs (one of the two replaced functions is called under cmpxchg only), and the
        machine."""
        if "memcg" in self.options.benches and self.wanted("model"):
            for accounting in ACCOUNTINGS[1:-1]:
                self.add(Kind.MODEL, "model", "kmalloc", "static", "account-model-static", only="memcg",
                         percpu="cmpxchg", accounting=accounting)
        if "forwarding" in self.options.benches and self.wanted("processor"):
            self.add(Kind.PROCESSOR, "processor", "none", "static", "forwarding-static", only="forwarding")

    def add_code(self) -> None:
        """The machine code of an engine's bulk functions."""
        if "bulk" not in self.options.benches or self.options.works:
            return
        if os.uname().machine != "x86_64" or not shutil.which("objdump"):
            self.bench.leave("machine code", "read on x86-64, by binutils")
            return
        for engine in self.engines():
            self.add(Kind.OURS, engine, "bulk", "shared", "code", only="bulk")

    # --------------------------------------------------------------------------------------------------------- peers

    def version(self, peer: str) -> str | None:
        """The version of a peer; None: not fetched."""
        try:
            return (self.bench.root / "build/peers" / peer / "version").read_text().partition("\n")[0]
        except OSError:
            return None

    def was_tried(self, peer: str) -> bool:
        """True for a peer with a log and without a version: the fetch failed."""
        return (self.bench.root / f"build/peers/{peer}.log").exists()

    def bring_peers(self) -> None:
        """Fetches a peer only with --fetch, because a fetch installs packages and compiles for minutes. The system's
        malloc needs no fetch."""
        wanted = [peer for peer in PEERS if self.wanted(peer) and self.version(peer) is None and
                  not self.was_tried(peer) and (self.options.fetch or peer == "glibc")]
        if not wanted or not (self.bench.root / "scripts/peers").exists():
            return
        if self.options.fetch:
            print("kmem bench: bringing the peers that are not there yet; this takes minutes, once", file=sys.stderr)
        self.bench.children.run(["scripts/peers", *wanted], self.bench.root)

    def lacks_must(self) -> bool:
        """True if a required peer of `peers` is missing, among the selected peers."""
        groups = (("glibc",), ("jemalloc",), ("gperftools",), ("mimalloc2", "mimalloc3"))
        return any(any(map(self.wanted, group)) and all(self.version(peer) is None for peer in group)
                   for group in groups)

    def add_peer(self, peer: str, version: str) -> None:
        """Variants as malloc, shared and static; DPDK and jemalloc also have an interface for batches."""
        library, archive = f"build/peers/{peer}/lib.so", f"build/peers/{peer}/lib.a"
        shared, static = (peer == "glibc" or (self.bench.root / path).exists() for path in (library, archive))
        preload = None if peer == "glibc" else library
        ways: list[tuple[bool, str, str, str, str | None]] = [
            (shared, "malloc", "shared", "malloc-shared", preload),
            (static, "malloc", "static", f"malloc-{peer}-static", None)]
        if peer == "jemalloc":
            ways += [(shared, "bulk", "shared", "jemalloc-shared", preload),
                     (static, "bulk", "static", "jemalloc-static", None)]
        for only in ("debug",) if peer in CHECKING else ("debug", "peers"):
            if shared and only in self.options.benches:
                self.add(Kind.PEER, peer, "program", "shared", "programs", preload, only=only, version=version)
        if peer == "dpdk":
            ways = [(True, "bulk", linkage, f"dpdk-{linkage}", None) for linkage in ("static", "inline")]
        elif not static:
            self.bench.leave(peer, "not as an archive: no static rows")
        for there, api, linkage, worker, loaded in ways:
            if there:
                self.add(Kind.PEER, peer, api, linkage, worker, loaded, version=version,
                         only="debug" if peer in CHECKING else None)

    def find_peers(self) -> None:
        self.bring_peers()
        self.bench.must_missing = self.lacks_must()
        for peer in filter(self.wanted, PEERS):
            version = self.version(peer)
            if version is not None:
                self.add_peer(peer, version)
            else:
                self.bench.leave(peer, "cannot be had here (scripts/peers tries again)" if self.was_tried(peer) else
                                 "not here; --fetch, or scripts/peers, brings it")

    def find(self) -> None:
        for engine in self.engines():
            self.add_engine(engine)
        self.add_others()
        if PEERS_IN.intersection(self.options.benches):
            self.find_peers()
        # The empty functions are in every table of costs, with any selection.
        for linkage in LINKAGES:
            self.add(Kind.NOTHING, "nothing", "malloc", linkage, f"nothing-{linkage}")
        self.add_code()


def build_workers(bench: Bench, gauge: str) -> None:
    """Builds the workers of the planned jobs; leaves out variants without a worker."""
    if bench.children.stopped:
        return
    jobs = [job for table in bench.tables for job in table.jobs]
    planned = [variant for variant in bench.variants if any(job.variant is variant for job in jobs)]
    if not planned:
        raise BenchError("none of the requested subjects can be measured")

    def targets(variant: Variant) -> list[str]:
        return ([variant.preload] if variant.preload and variant.kind is Kind.OURS else []) + [variant.worker]

    every = dict.fromkeys(target for variant in planned for target in targets(variant))
    if not bench.children.run(["make", "-s", "-k", gauge, *every], bench.root) or bench.children.stopped:
        return
    for variant in planned:
        # make may fail for some workers: asks make for each worker.
        if bench.children.run(["make", "-s", *targets(variant)], bench.root):
            variant.broken = True
            bench.leave(" ".join((variant.subject, variant.api, variant.linkage)), "its worker cannot be built")
            bench.ours_failed |= variant.kind.is_ours
