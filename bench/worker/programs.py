#!/usr/bin/env python3
"""A worker: whole programs under the preload of BENCH_PRELOAD. The cells are the programs. The figures are the
processor time of all processes, the elapsed time, and the peak resident memory of the largest process.

redis: a server under the load of redis-benchmark over loopback; the time of redis-benchmark does not count. sqlite3:
tables and indices in memory. g++: one source file with much of the standard library. lua, perl, ruby, node, python and
gawk: a script with records, strings and containers of all sizes, some of them for the whole run."""
import json
import os
import resource
import socket
import subprocess
import sys
import tempfile
import time
from typing import NoReturn

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
LUA = """
local function tree(depth)
    if depth == 0 then return {} end
    return { tree(depth - 1), tree(depth - 1) }
end
local words, total = {}, 0
for i = 1, 150000 do
    local key = "word" .. i * 7919 % 30011
    words[key] = { count = (words[key] and words[key].count or 0) + 1, text = key:rep(i % 7 + 1) }
end
for _, word in pairs(words) do total = total + #word.text * word.count end
local lines = {}
for i = 1, 60000 do lines[#lines + 1] = ("%d:%s"):format(i, ("x"):rep(i % 90)) end
local text = table.concat(lines, " ")
for number in text:gmatch("(%d+):") do total = total + #number end
for i = 1, 4 do tree(15) end
print(total, #text)
"""
PERL = """
my (%index, @rows, $total);
for my $i (1 .. 120000) {
    my $row = { id => $i, name => "row " . $i * 7919 % 50021, body => "y" x ($i % 150) };
    push @rows, $row if $i % 3 == 0;
    push @{ $index{ substr $row->{name}, 0, 7 } }, $row->{id};
}
$total += length($_->{body}) for @rows;
my @sorted = sort { $a->{name} cmp $b->{name} } @rows;
my $text = join ",", map { $_->{name} } @sorted;
my %count;
$count{$_}++ for split /[, ]+/, $text;
print $total, " ", scalar(keys %index), " ", scalar(keys %count), "\n";
"""
RUBY = """
Record = Struct.new(:id, :name, :parts)
rows = (1..100_000).map { |i| Record.new(i, "name #{i * 7919 % 40_009}", Array.new(i % 9) { |k| "p#{k}" * (k + 1) }) }
groups = rows.group_by { |row| row.name[0, 7] }
sizes = groups.map { |key, all| [key, all.sum { |row| row.parts.sum(&:size) }] }.sort_by { |pair| -pair[1] }
text = rows.map(&:name).sort.join(",")
words = Hash.new(0)
text.split(",").each { |word| words[word] += 1 }
puts sizes.size, words.size, text.gsub(/[0-4]/, "zero").size
"""
NODE = """
const rows = [];
let total = 0;
for (let i = 0; i < 120000; i++) {
    const row = { id: i, name: 'row ' + (i * 7919) % 50021, body: Buffer.alloc(i % 400 + 1, 7), at: new Date(i) };
    rows[(i * 31) % 20011] = row;
    total += row.body[0];
}
const text = JSON.stringify(rows.map(row => row && { id: row.id, name: row.name, size: row.body.length }));
const again = JSON.parse(text).filter(Boolean);
const index = new Map(again.map(row => [row.name, row]));
const all = Buffer.concat(rows.filter(Boolean).map(row => row.body));
console.log(total, text.length, index.size, all.length, text.replace(/[0-4]/g, 'zero').length);
"""
PYTHON = """
import json
class Row:
    def __init__(self, number):
        self.number, self.name = number, f"row {number * 7919 % 50021}"
        self.body, self.parts = bytearray(number % 700 + 1), [number] * (number % 90)
rows = [Row(number) for number in range(40000)]
text = json.dumps([{"id": row.number, "name": row.name, "parts": row.parts[:9]} for row in rows])
index = {}
for entry in json.loads(text):
    index.setdefault(entry["name"][:7], []).append(entry)
rows = sorted(rows, key=lambda row: row.name)[::2]
lines = [(row.name + ",") * (row.number % 60) for row in rows]
print(len(text), len(index), sum(len(row.body) for row in rows), len("".join(lines).split(",")))
"""
GAWK = """
BEGIN {
    for (i = 1; i <= 250000; i++) {
        key = "key" (i * 7919) % 30011
        text[key] = text[key] " " i % 1000
        if (i % 5 == 0)
            pair[i % 70001, key] = sprintf("%s-%d", key, i)
    }
    for (key in text) {
        parts = split(text[key], part, " ")
        for (k = 1; k <= parts; k++)
            count[part[k]]++
        gsub(/[0-4]/, "zero", text[key])
        total += length(text[key])
    }
    asorti(text, sorted)
    print total, length(count), length(pair), sorted[1]
}
"""
# For each program the command, which reads its program from standard input, and the input.
SCRIPTS = {"lua": (["lua5.4", "-"], LUA), "perl": (["perl", "-"], PERL), "ruby": (["ruby", "-"], RUBY),
           "node": (["node", "-"], NODE), "python": ([sys.executable, "-I", "-S", "-"], PYTHON),
           "gawk": (["gawk", "-f", "-"], GAWK), "sqlite3": (["sqlite3", ":memory:"], SQL)}
PRELOAD = os.environ.get("BENCH_PRELOAD", "")
OURS = {name: value for name, value in os.environ.items() if name not in ("LD_PRELOAD", "BENCH_PRELOAD")}
THEIRS = OURS | ({"LD_PRELOAD": PRELOAD} if PRELOAD else {})
PLAIN = {name: value for name, value in OURS.items() if not name.startswith("KMEM_")}


def fail(why: str) -> NoReturn:
    sys.exit(f"programs: {why}")


def run(command: list[str], text: str) -> None:
    try:
        done = subprocess.run(command, input=text, text=True, env=THEIRS, stdout=subprocess.DEVNULL)
    except OSError as error:
        fail(f"{command[0]}: {error.strerror}")
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


def gxx(folder: str) -> None:
    run(["g++", "-std=c++17", "-O1", "-x", "c++", "-", "-c", "-o", f"{folder}/o"], SOURCE)


def used(who: int) -> float:
    usage = resource.getrusage(who)
    return usage.ru_utime + usage.ru_stime


def measured(program: str, folder: str) -> tuple[float, int]:
    if program == "redis":
        return redis(folder)
    before = used(resource.RUSAGE_CHILDREN)
    if program == "g++":
        gxx(folder)
    elif program in SCRIPTS:
        run(*SCRIPTS[program])
    else:
        fail(f"unknown program '{program}'")
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
