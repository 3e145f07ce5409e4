#!/usr/bin/env python3
"""Figures of redis-server with libkmem beside redis-server with its own jemalloc (scripts/redis measure).

`speed`: one server of each build runs all the time, and short bursts of redis-benchmark go to each server in turn,
round after round. A row has requests per second, and requests per second of the server's processor time; other
processes disturb the second figure less. `memory`: each round fills a new server of each build with the same data,
deletes half of the keys, and overwrites a part of the other keys while a child saves. A row has used_memory,
resident memory, and the bytes copied during the save (rdb_last_cow_size). All ratios are to jemalloc's build, in
the same round. A row is the median of the rounds, with minimum and maximum.
"""
import argparse
import contextlib
import csv
import os
import random
import socket
import statistics
import subprocess
import sys
import tempfile
import time

PIPELINE, CLIENTS, KEYS = 16, 8, 100000
SETTLE = int(os.environ.get("SETTLE", "12"))     # seconds
# Arguments of redis-benchmark, and requests per burst.
BURSTS = {
    "set 3": ("-t set -d 3", 40000), "set 100": ("-t set -d 100", 40000), "set 1000": ("-t set -d 1000", 20000),
    "set 16K": ("-t set -d 16384", 4000), "get 100": ("-t get -d 100", 40000), "incr": ("-t incr", 40000),
    "lpush 100": ("-t lpush -d 100", 40000), "lpop": ("-t lpop", 40000), "sadd": ("-t sadd", 40000),
    "hset 100": ("-t hset -d 100", 40000), "zadd": ("-t zadd", 30000), "mset 100": ("-t mset -d 100", 4000),
    "lrange_100": ("-t lrange_100", 2000), "set 100 alone": ("-t set -d 100 -P 1", 6000),
}


class Server:
    def __init__(self, build: str, folder: str, *options: str) -> None:
        self.build, self.source = build, f"build/redis/{build}/src"
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            self.port = probe.getsockname()[1]
        command = [f"{self.source}/redis-server", "--bind", "127.0.0.1", "--port", str(self.port), "--save", "",
                   "--appendonly", "no", "--dir", folder, "--dbfilename", f"{build}.rdb", *options]
        with contextlib.suppress(FileNotFoundError):    # else the server loads the file of an earlier server
            os.remove(os.path.join(folder, f"{build}.rdb"))
        self.process = subprocess.Popen(pinned(0) + command, stdout=subprocess.DEVNULL)
        for _ in range(500):
            try:
                self.socket = socket.create_connection(("127.0.0.1", self.port))
                break
            except OSError:
                time.sleep(0.02)
        else:
            sys.exit(f"measure: the server of build {build} does not answer")
        self.file = self.socket.makefile("rb")

    def reply(self) -> object:
        line = self.file.readline()
        kind, rest = line[:1], line[1:-2]
        if kind == b"-":
            raise RuntimeError(rest.decode())
        if kind == b"$":
            return None if rest == b"-1" else self.file.read(int(rest) + 2)[:-2]
        if kind == b"*":
            return [self.reply() for _ in range(int(rest))]
        return rest

    def call(self, *words: object) -> object:
        self.socket.sendall(encode(words))
        return self.reply()

    def calls(self, commands: list[tuple[object, ...]]) -> None:
        for start in range(0, len(commands), 200):
            part = commands[start:start + 200]
            self.socket.sendall(b"".join(encode(words) for words in part))
            for _ in part:
                self.reply()

    def info(self, key: str) -> int:
        for line in self.call("info", "everything").decode().splitlines():
            if line.startswith(key + ":"):
                return int(line.split(":")[1])
        return 0

    def resident(self) -> int:
        with open(f"/proc/{self.process.pid}/smaps_rollup") as rollup:
            return next(int(line.split()[1]) << 10 for line in rollup if line.startswith("Rss:"))

    def processor_ns(self) -> int:
        with open(f"/proc/{self.process.pid}/task/{self.process.pid}/schedstat") as stat:
            return int(stat.read().split()[0])

    def stop(self) -> None:
        self.process.kill()
        self.process.wait()


def pinned(cpu: int) -> list[str]:
    """Returns the words that pin a command to a CPU: 0 for the server, 1 for the client; none with one CPU."""
    cpus = sorted(os.sched_getaffinity(0))
    return ["taskset", "-c", str(cpus[cpu])] if len(cpus) > 1 else []


def encode(words: tuple[object, ...]) -> bytes:
    parts = [word if isinstance(word, bytes) else str(word).encode() for word in words]
    return b"*%d\r\n" % len(parts) + b"".join(b"$%d\r\n%s\r\n" % (len(part), part) for part in parts)


def burst(server: Server, work: str, keys: int) -> tuple[float, float]:
    """Returns requests per second, and requests per second of the server's processor time."""
    options, count = BURSTS[work]
    before = server.processor_ns()
    done = subprocess.run([*pinned(1), f"{server.source}/redis-benchmark", "-p", str(server.port), "-c", str(CLIENTS),
                           "-P", str(PIPELINE), "-r", str(keys), "-n", str(count), "--csv", *options.split()],
                          capture_output=True, text=True, check=True)
    spent = server.processor_ns() - before
    rows = list(csv.DictReader(done.stdout.splitlines()))
    return float(rows[-1]["rps"]), count * 1e9 / spent


def speed(builds: list[str], rounds: int, works: list[str], folder: str) -> list[dict[str, object]]:
    servers = [Server(build, folder) for build in builds]
    seen: dict[tuple[str, str], list[tuple[float, float]]] = {}
    try:
        for work in works:
            for server in servers:
                burst(server, work, KEYS)
            for turn in range(rounds):
                for server in servers if turn % 2 else reversed(servers):
                    seen.setdefault((work, server.build), []).append(burst(server, work, KEYS))
            for server in servers:
                if work == "lrange_100":
                    server.call("flushall")
    finally:
        for server in servers:
            server.stop()
    rows = []
    for (work, build), figures in seen.items():
        first = seen[work, builds[0]]
        for which, unit in enumerate(("requests/s", "requests/s of processor")):
            rows.append(row(work, build, unit, [f[which] for f in figures], [f[which] for f in first], max))
    return rows


def row(work: str, build: str, unit: str, figures: list[float], base: list[float], best: object) -> dict[str, object]:
    ratios = [mine / theirs for mine, theirs in zip(figures, base)]
    return {"bench": "redis", "work": work, "subject": build, "unit": unit, "median": statistics.median(figures),
            "min": min(figures), "max": max(figures), "rounds": len(figures), "ratio": statistics.median(ratios),
            "best": best(figures) / best(base)}


def data(scale: int) -> tuple[list[tuple[object, ...]], list[str]]:
    """Returns commands that fill a server with `scale` keys of all types, mostly strings, and the keys."""
    chance = random.Random(7)
    commands: list[tuple[object, ...]] = []
    keys = []
    for i in range(scale):
        key, kind = f"key:{chance.randrange(10 ** 9):010d}:{i}", chance.random()
        keys.append(key)
        some = range(chance.randrange(1, 40))
        if kind < 0.8:
            commands.append(("set", key, b"v" * min(int(chance.lognormvariate(4.4, 1.0)), 8000)))
        elif kind < 0.87:
            commands.append(("hset", key, *(w for j in some for w in (f"field{j}", "x" * chance.randrange(80)))))
        elif kind < 0.94:
            commands.append(("zadd", key, *(w for j in some for w in (chance.random(), f"member{j}"))))
        else:
            commands.append(("rpush", key, *("y" * chance.randrange(100) for _ in some)))
    return commands, keys


def settle(server: Server) -> None:
    """Waits until the allocators have given free memory back. jemalloc needs ten seconds of work."""
    for _ in range(2 * SETTLE):
        server.call("ping")
        time.sleep(0.5)


def one_memory(server: Server, scale: int, seen: dict[tuple[str, str], list[float]]) -> None:
    def note(work: str, value: float) -> None:
        seen.setdefault((work, server.build), []).append(value)

    commands, keys = data(scale)
    chance = random.Random(11)
    if server.call("dbsize") != b"0":
        sys.exit(f"measure: the server of build {server.build} is not fresh")
    note("started: resident", server.resident())
    server.calls(commands)
    note("filled: used_memory", server.info("used_memory"))
    note("filled: resident", server.resident())
    # Some keys change many times, as in a server that ran for a while.
    server.calls([("set", chance.choice(keys), b"w" * min(int(chance.lognormvariate(4.4, 1.0)), 8000))
                  for _ in range(scale)])
    note("overwritten: used_memory", server.info("used_memory"))
    note("overwritten: resident", server.resident())
    before = server.resident()
    server.call("config", "set", "rdb-key-save-delay", 3000000 // scale)
    server.call("bgsave")
    copied, most = [("set", chance.choice(keys), b"z" * min(int(chance.lognormvariate(4.4, 1.0)), 8000))
                    for _ in range(scale // 20)], 0
    for start in range(0, len(copied), 100):
        server.calls(copied[start:start + 100])
        time.sleep(0.005)
    saving = server.info("rdb_bgsave_in_progress")
    grown = server.resident() - before
    for _ in range(3000):
        if not server.info("rdb_bgsave_in_progress"):
            break
        time.sleep(0.02)
    if not saving:
        print("measure: the child had saved before all was written", file=sys.stderr)
    note("saved: copied on write", server.info("rdb_last_cow_size"))
    note("saved: copied, and grown", server.info("rdb_last_cow_size") + max(0, grown))
    server.calls([("del", key) for key in chance.sample(keys, scale // 2)])
    note("half deleted: used_memory", server.info("used_memory"))
    settle(server)
    note("half deleted: resident", server.resident())
    server.call("flushall")
    settle(server)
    note("flushed: resident", server.resident())


def memory(builds: list[str], rounds: int, scale: int, folder: str) -> list[dict[str, object]]:
    seen: dict[tuple[str, str], list[float]] = {}
    for turn in range(rounds):
        for build in builds if turn % 2 else reversed(builds):
            server = Server(build, folder)
            try:
                one_memory(server, scale, seen)
            finally:
                server.stop()
    return [row(work, build, "bytes", figures, seen[work, builds[0]], min) for (work, build), figures in seen.items()]


def table(rows: list[dict[str, object]]) -> None:
    print(f"{'work':24} {'build':9} {'unit':24} {'median':>12} {'min':>12} {'max':>12} {'ratio':>6} {'best':>6}")
    order = list(dict.fromkeys((r["work"], r["unit"]) for r in rows))
    for r in sorted(rows, key=lambda r: order.index((r["work"], r["unit"]))):
        print(f"{r['work']:24} {r['subject']:9} {r['unit']:24} {r['median']:12.0f} {r['min']:12.0f} {r['max']:12.0f} "
              f"{r['ratio']:6.3f} {r['best']:6.3f}")


def main() -> None:
    parser = argparse.ArgumentParser(prog="scripts/redis measure", description=__doc__.splitlines()[0])
    parser.add_argument("--builds", default="jemalloc,libkmem", help="the first is what ratios are to")
    parser.add_argument("--work", default="speed,memory")
    parser.add_argument("--bursts", default=",".join(BURSTS), help="of speed")
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--keys", type=int, default=200000, help="of memory")
    parser.add_argument("--csv", action="store_true")
    options = parser.parse_args()
    builds, rows = options.builds.split(","), []
    for build in builds:
        if not os.access(f"build/redis/{build}/src/redis-server", os.X_OK):
            sys.exit(f"measure: build {build} is not there: scripts/redis build {build}")
    with tempfile.TemporaryDirectory() as folder:
        if "speed" in options.work:
            rows += speed(builds, options.rounds, options.bursts.split(","), folder)
        if "memory" in options.work:
            rows += memory(builds, max(1, options.rounds // 3), options.keys, folder)
    if options.csv:
        out = csv.DictWriter(sys.stdout, list(rows[0]))
        out.writeheader()
        out.writerows(rows)
    else:
        table(rows)


if __name__ == "__main__":
    main()
