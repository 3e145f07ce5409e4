"""figures_check.py KMEM PID [SAID OWN]: compares each sum that kmem prints of a process's memory with the kernel's
number, or with the sum of its parts. The process is stopped. SAID, OWN: output of target/figures.c; with them the
process's own figures are compared as well. A difference is a line, and the exit status is 1."""
import json
import re
import subprocess
import sys

KMEM, PID = sys.argv[1:3]
PAGE = 4096
NOBODYS = 2  # pages of the arena
UNITS = {"B": 1, "KiB": 1 << 10, "MiB": 1 << 20, "GiB": 1 << 30, "TiB": 1 << 40}
bad = []


def kmem(*words):
    done = subprocess.run([KMEM, *words], capture_output=True, text=True)
    if done.returncode or done.stderr:
        bad.append(f"kmem {' '.join(words)}: status {done.returncode}: {done.stderr}")
    return done.stdout


def near(what, got, want, slack=0):
    if got is None or abs(got - want) > slack:
        bad.append(f"{what}: {got}, not {want}" + (f" (within {slack})" if slack else ""))


def rollup():
    with open(f"/proc/{PID}/smaps_rollup") as file:
        return {key: int(kb) * 1024 for key, kb in re.findall(r"^(\w+): +(\d+) kB", file.read(), re.M)}


def of_memory():
    """The lines below the table of caches: bytes, and what the last digit stands for."""
    lines = {}
    for line in kmem("info", "--memory", PID).split("\n\n")[-1].splitlines():
        name, number, unit = re.match(r"(.*?) {2,}(?:([\d.]+)(?: (\w+))?|-)$", line).groups()
        slack = 0.051 if unit and "." in number else 0
        lines[name] = (float(number) * UNITS[unit], slack * UNITS[unit]) if unit else (None, 0)
    return lines


def rounded(lines, name, want):
    near(f"info --memory, {name}", lines[name][0], want, lines[name][1])


kmem("info", "--json", PID)  # the memory that a read takes of a fork's child is taken before
kernel = rollup()
lines, said = of_memory(), json.loads(kmem("info", "--json", PID))
top, metrics = kmem("top", "--once", "--bytes", PID).splitlines(), kmem("metrics", PID)

# The process as a whole.
rounded(lines, "the process, resident (Rss)", kernel["Rss"])
rounded(lines, "the process, its share (Pss)", kernel["Pss"])
equation = {name.strip(): int(n) for name, n in re.findall(r"([a-zA-Z][a-zA-Z ]*?) (\d+)", top[1].replace(" B =", ""))}
rest = dict(re.findall(r"(files|anonymous) (\d+)", top[2]))
near("top, RSS", equation["RSS"], kernel["Rss"])
near("top, the parts of RSS", sum(n for name, n in equation.items() if name != "RSS"), kernel["Rss"])
near("top, files", int(rest["files"]), kernel["Rss"] - kernel["Anonymous"])
near("top, files and anonymous", int(rest["files"]) + int(rest["anonymous"]), equation["other"])
told = {name: int(n) for name, n in re.findall(r"^kmem_(\S+) (\d+)$", metrics, re.M)}
for name, n in told.items():
    if "process_resident" in name:
        near(f"metrics, {name}", n, kernel["Rss"])

# Resident memory of the library: the three figures are one sum, in each command.
used, free, records = (told[f'resident_bytes{{of="{of}"}}'] for of in ("used", "free", "records"))
ours = used + free + records
rounded(lines, "resident of slabs and large blocks", used)
rounded(lines, "resident of free pages", free)
rounded(lines, "resident of all metadata", records)
near("top, alloc, cached, holes and records", sum(equation[n] for n in ("alloc", "cached", "holes", "records")), ours)
rows = [(line[:40].rstrip(), line[40:].split()) for line in top[4:]]
rows = [(name, [None if n == "-" else int(n) for n in figures[:6]]) for name, figures in rows if "charged:" not in name]
near("top, the process's row", rows[0][1][0], ours)
near("top, the rows below it", sum(n[0] for name, n in rows[1:] if n[0] is not None), ours)
for name, (resident, live, ready, holes, *_) in rows[1:]:
    if None not in (resident, live, ready, holes) and "metadata" not in name:
        near(f"top, the parts of {name.strip()}", live + ready + holes, resident)
if ours > kernel["Anonymous"]:
    bad.append(f"{ours} bytes are resident of ours, of {kernel['Anonymous']}")

# Each page is in a slab, in a block, free, or of no owner.
slabs = sum(cache["total_slabs"] * cache["pages_per_slab"] for cache in said["caches"]
            if cache["engine"] != "slob" or cache["size"] >= PAGE)
pages = slabs + (said["large_bytes"] - said["mapped_bytes"]) // PAGE + said["slob_pages"]
# Engine slob has some empty pages at hand.
near("pages in use", said["pages_used"], pages, 16 if said["slob_pages"] else 0)
rounded(lines, "pages in slabs and large blocks", said["pages_used"] * PAGE)
dirty = said["pages_free_dirty"] - said["pages_mapped_ready"]
near("pages committed", said["arena_committed_bytes"] // PAGE,
     said["pages_used"] + dirty + said["pages_free_clean"] + NOBODYS)
rounded(lines, "free pages, not yet returned", dirty * PAGE)
for cache in said["caches"]:
    if cache["active_objects"] + cache["shelf_objects"] > cache["total_objects"]:
        bad.append(f"{cache['name']}: more objects than there are: {cache}")
if free > said["pages_free_dirty"] * PAGE:
    bad.append(f"{free} bytes of free pages are resident, of {said['pages_free_dirty'] * PAGE}")
# Reserved memory, accessible or not: the kernel has all of it in mappings.
with open(f"/proc/{PID}/statm") as file:
    if said["arena_reserved_bytes"] + said["mapped_bytes"] > int(file.read().split()[0]) * PAGE:
        bad.append(f"more is reserved than the process has: {said['arena_reserved_bytes']}")

if len(sys.argv) > 3:
    with open(sys.argv[3]) as file:
        inside = json.load(file)
    for name, n in inside.items():
        if isinstance(n, int) and said.get(name) != n:
            bad.append(f"{name}: {said.get(name)} from outside, {n} from within")
    with open(sys.argv[4]) as file:
        own = {name: int(n) for name, n in re.findall(r"^(\w+) (\d+)$", file.read(), re.M)}
    blocks = own["usable"] + own["charged"]
    # Some blocks are libc's.
    near("mallinfo2, uordblks and hblkhd", own["uordblks"] + own["hblkhd"], blocks, 256 << 10)
    near("mallinfo2, uordblks and fordblks", own["uordblks"] + own["fordblks"], own["arena"])
    near("stats.allocated", own["allocated"], blocks, 256 << 10)
    if own["resident"] + (512 << 10) < ours:
        bad.append(f"stats.resident: {own['resident']}, and {ours} are resident")
    if own.get("grown", 0) + (64 << 10) < own.get("kernel_grown", 0):
        bad.append(f"stats.resident grew by {own['grown']}, the kernel's number by {own['kernel_grown']}")
    if own["arena"] + own["hblkhd"] < used:
        bad.append(f"mallinfo2, arena and hblkhd: {own['arena'] + own['hblkhd']}, and {used} are resident")
    groups = {group["name"]: group for group in said["groups"]}
    # With what lies charged on CPUs. Engine slob charges nothing.
    charged = groups["tenant"]["current"] - groups["tenant"]["stock"]
    if said["slob_pages"] and charged or not said["slob_pages"] and not 0 <= charged - own["charged"] <= 128 << 10:
        bad.append(f"the group's bytes: {charged}, and its blocks have {own['charged']}")

for line in bad:
    print("FAIL", line)
sys.exit(1 if bad else 0)
