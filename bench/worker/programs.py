#!/usr/bin/env python3
"""A worker: whole programs under the preload of BENCH_PRELOAD. The cells are the programs. The figures are the
processor time of all processes, the elapsed time, and the peak resident memory of the largest process.

redis: a server under the load of redis-benchmark over loopback; the time of redis-benchmark does not count. sqlite3:
tables and indices in memory. g++: one source file with much of the standard library."""
import json
import os
import resource
import socket
import subprocess
import sys
import tempfile
import time

SOURCE = """
#include <algorithm>
#include <functional>
#include <iostream>
#include <map>
#include <regex>
#include <vector>
int main()
{
    std::map<std::string, std::function<int()>> all;
    std::vector<int> v{3, 1, 2};
    std::regex words("[a-z]+");
    std::sort(v.begin(), v.end());
    all["x"] = [&] { return (int)v.size() + std::regex_match("abc", words); };
    std::cout << all["x"]() << std::endl;
}
"""
SQL = """
CREATE TABLE t(a INTEGER PRIMARY KEY, b TEXT, c REAL);
WITH RECURSIVE n(x) AS (SELECT 1 UNION ALL SELECT x + 1 FROM n WHERE x < 120000)
INSERT INTO t SELECT x, printf('row %d of many', (x * 7919) % 120000), x / 3.0 FROM n;
CREATE INDEX i ON t(b);
SELECT count(*), sum(length(b)) FROM t WHERE b LIKE 'row 1%';
SELECT b, count(*) FROM (SELECT substr(b, 1, 6) AS b FROM t) GROUP BY b ORDER BY 2 DESC LIMIT 3;
UPDATE t SET b = b || ' again' WHERE a % 3 = 0;
DELETE FROM t WHERE a % 5 = 0;
SELECT count(*), max(b) FROM t;
"""
PRELOAD = os.environ.get("BENCH_PRELOAD", "")
OURS = {name: value for name, value in os.environ.items() if name not in ("LD_PRELOAD", "BENCH_PRELOAD")}
THEIRS = OURS | ({"LD_PRELOAD": PRELOAD} if PRELOAD else {})
PLAIN = {name: value for name, value in OURS.items() if not name.startswith("KMEM_")}


def fail(why: str) -> None:
    sys.exit(f"programs: {why}")


def run(command: list[str], text: str) -> None:
    done = subprocess.run(command, input=text, text=True, env=THEIRS, stdout=subprocess.DEVNULL)
    if done.returncode:
        fail(f"{command[0]}: status {done.returncode}")


def free_port() -> int:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return int(listener.getsockname()[1])


def redis(folder: str) -> tuple[float, int]:
    port = str(free_port())
    server = subprocess.Popen(["redis-server", "--bind", "127.0.0.1", "--port", port, "--save", "", "--appendonly",
                               "no", "--dir", folder], env=THEIRS, stdout=subprocess.DEVNULL)
    client = ["redis-cli", "-h", "127.0.0.1", "-p", port]
    try:
        for _ in range(200):
            if subprocess.run([*client, "ping"], env=PLAIN, capture_output=True).stdout.strip() == b"PONG":
                break
            time.sleep(0.02)
        for tests in ("set,get,lpush,hset,zadd", "set,lpop,sadd"):
            subprocess.run(["redis-benchmark", "-h", "127.0.0.1", "-p", port, "-q", "-t", tests, "-n", "60000", "-c",
                            "20", "-r", "20000", "-d", "200", "-P", "16"], env=PLAIN, stdout=subprocess.DEVNULL,
                           check=True)
        subprocess.run([*client, "shutdown", "nosave"], env=PLAIN, stdout=subprocess.DEVNULL)
        _, status, usage = os.wait4(server.pid, 0)
        server.returncode = os.waitstatus_to_exitcode(status)
    finally:
        if server.returncode is None:
            server.kill()
    if server.returncode:
        fail(f"redis-server: status {server.returncode}")
    return usage.ru_utime + usage.ru_stime, usage.ru_maxrss * 1024


def sqlite3(_folder: str) -> None:
    run(["sqlite3", ":memory:"], SQL)


def gxx(folder: str) -> None:
    run(["g++", "-std=c++17", "-O1", "-x", "c++", "-", "-c", "-o", f"{folder}/o"], SOURCE)


def used(who: int) -> float:
    usage = resource.getrusage(who)
    return usage.ru_utime + usage.ru_stime


def measured(program: str, folder: str) -> tuple[float, int]:
    if program == "redis":
        return redis(folder)
    before = used(resource.RUSAGE_CHILDREN)
    {"sqlite3": sqlite3, "g++": gxx}[program](folder)
    return used(resource.RUSAGE_CHILDREN) - before, resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss * 1024


def check_preload(folder: str) -> None:
    """Tests that the preload is in force, and prints version and discipline of a libkmem."""
    stats = f"{folder}/stats"
    maps = subprocess.run(["cat", "/proc/self/maps"], env=THEIRS | {"KMEM_STATS": stats}, capture_output=True,
                          text=True)
    if PRELOAD and os.path.realpath(PRELOAD) not in maps.stdout:
        fail("the preload is not in force")
    if os.path.exists(stats):
        with open(stats) as file:
            said = json.load(file)
        for name in ("version", "discipline"):
            print("info", name, said[name])


def main() -> None:
    THEIRS["CCACHE_DISABLE"] = "1"
    with tempfile.TemporaryDirectory(prefix="kmem-bench-") as folder:
        check_preload(folder)
    cells = [word for word in sys.argv[1:] if not word.startswith("-")]
    for index, cell in enumerate(cells):
        with tempfile.TemporaryDirectory(prefix="kmem-bench-") as folder:
            began = time.monotonic()
            cpu, rss = measured(cell.split(",")[0], folder)
            print(f"{index} s cpu - {cpu:.4f}")
            print(f"{index} s real - {time.monotonic() - began:.4f}")
            print(f"{index} bytes rss peak {rss}")


main()
