"""metrics_check.py WHAT FILE...: reads the output of kmem metrics, more strictly than the formats demand. Written
from the specification of OpenMetrics 1.0 and from the description of Prometheus' text format.

openmetrics FILE        a whole exposition: families one after another, each with its metadata first, samples of the
                        right names, no two with the same labels, units, escapes, the end
text FILE OPENMETRICS   the same in the text format, and the same samples, except for samples that move with time
same FILE FILE          the same samples, except for samples only an observer can have
figures FILE JSON       the figures of `kmem info --json` for the same process
dumped FILE DUMP        promtool's database has these samples
dashboard FILE FILE     each metric of the dashboard is in the exposition, and each panel has some"""
import json
import re
import sys

SUFFIX = {"counter": "_total", "info": "_info", "gauge": ""}
NAME = re.compile(r"[a-zA-Z_][a-zA-Z0-9_]*")
ONLOOKERS = ("kmem_resident_bytes", "kmem_rss_bytes")


def need(truth, what):
    if not truth:
        sys.exit(f"{sys.argv[1:]}: {what}")


def labels_of(text, line, go=False):
    """The labels between braces, and what follows."""
    found, rest = {}, text
    while not rest.startswith("}"):
        name = NAME.match(rest)
        need(name and rest[name.end():].startswith('="'), f"a label: {line}")
        rest, value = rest[name.end() + 2:], ""
        while not rest.startswith('"'):
            need(rest, f"a label's end: {line}")
            if rest[0] != "\\":
                value, rest = value + rest[0], rest[1:]
            elif go and rest[1] in "tr":
                value, rest = value + {"t": "\t", "r": "\r"}[rest[1]], rest[2:]
            else:
                need(rest[1:2] in ("\\", '"', "n"), f"an escape: {line}")
                value, rest = value + ("\n" if rest[1] == "n" else rest[1]), rest[2:]
        need(name.group() not in found, f"a label twice: {line}")
        found[name.group()] = value
        rest = rest[1:]
        if rest.startswith(","):
            rest = rest[1:].lstrip() if go else rest[1:]
            need(not rest.startswith("}"), f"a comma behind the last label: {line}")
    return found, rest[1:]


def sample_of(line):
    name = NAME.match(line)
    need(name, f"a name: {line}")
    rest, labels = line[name.end():], {}
    if rest.startswith("{"):
        labels, rest = labels_of(rest[1:], line)
    need(re.fullmatch(r" [0-9]+", rest), f"a value: {line}")
    return name.group(), labels, int(rest)


def read(path, classic=False):
    """{(name, labels): value}; the kinds of families."""
    text = open(path, "rb").read().decode("utf-8", errors="strict")
    need(text.endswith("\n"), "the last line has its end")
    lines, samples, kinds, family, closed = text[:-1].split("\n"), {}, {}, None, False
    for line in lines:
        need(not closed, f"a line behind the end: {line}")
        if line == "# EOF" and not classic:
            closed = True
        elif line.startswith("#"):
            word, name, value = line[2:].split(" ", 2)
            need(word in ("HELP", "TYPE", "UNIT") and value, f"metadata: {line}")
            if word == "HELP":
                need(name not in kinds, f"a family twice: {line}")
                need(value[-1] == "." and "\\" not in value, f"a family's help: {line}")
                family, kinds[name] = name, None
            need(name == family, f"metadata in the midst of another family: {line}")
            if word == "TYPE":
                need(kinds[name] is None and value in SUFFIX, f"a kind: {line}")
                kinds[name] = value
                need(classic or not name.endswith(("_total", "_info")), f"a family's name: {line}")
            if word == "UNIT":
                need(not classic and value == "bytes" and name.endswith("_bytes"), f"a unit: {line}")
        else:
            name, labels, value = sample_of(line)
            need(family and kinds[family], f"a sample without a kind: {line}")
            need(name == family + ("" if classic else SUFFIX[kinds[family]]), f"a sample of another family: {line}")
            key = (name, tuple(sorted(labels.items())))
            need(key not in samples, f"twice: {line}")
            need(kinds[family] != "info" or value == 1, f"an info's value: {line}")
            samples[key] = value
    need(classic or closed, "no end")
    return samples, kinds


def check_text(path, openmetrics):
    samples, kinds = read(path, classic=True)
    other, other_kinds = read(openmetrics)
    need(samples.keys() == other.keys(), f"other samples: {samples.keys() ^ other.keys()}")
    for name, kind in other_kinds.items():
        need(kinds.get(name + SUFFIX[kind]) == ("gauge" if kind == "info" else kind), f"{name}: another kind")


def check_same(path, other):
    one, two = ({key: value for key, value in read(p)[0].items() if not key[0].startswith(ONLOOKERS)}
                for p in (path, other))
    need(one == two, f"other samples: {set(one.items()) ^ set(two.items())}")


def label(name):
    """In the place of an invalid character names of JSON have U+FFFD, and names of metrics a
    question mark."""
    return name.replace("\ufffd", "?")


def check_figures(path, json_path):
    samples = read(path)[0]
    said = json.load(open(json_path, encoding="utf-8"))
    live, slabs = {}, {}
    for cache in said["caches"]:
        name = label(cache.get("of", cache["name"]))
        live[name] = live.get(name, 0) + cache["active_objects"]
        slabs[name] = slabs.get(name, 0) + cache["alloc_slab"]
    for name, n in live.items():
        key = (("cache", name),)
        need(samples["kmem_cache_live_objects", key] == n, f"{name}: {n} objects")
        need(samples["kmem_cache_slabs_taken_total", key] == slabs[name], f"{name}: {slabs[name]} slabs")
    need(sum(key[0] == "kmem_cache_live_objects" for key in samples) == len(live), "other caches")
    path_at, groups = [], {}
    for group in said["groups"]:
        path_at[group["depth"] - 1:] = [label(group["name"])]
        key = "/".join(path_at)
        groups[key] = groups.get(key, 0) + group["current"]
    for name, n in groups.items():
        need(samples["kmem_group_current_bytes", (("group", name),)] == n, f"{name}: {n} bytes")
    need(sum(key[0] == "kmem_group_current_bytes" for key in samples) == len(groups), "other groups")
    need(samples["kmem_groups", ()] == len(said["groups"]), "how many groups")
    need(samples["kmem_page_bytes", (("state", "used"),)] == 4096 * said["pages_used"], "pages")
    need(samples["kmem_slabs_taken_total", ()] == sum(slabs.values()) + said["past_alloc_slab"], "slabs ever")


def check_dumped(path, dump):
    samples, dumped = read(path)[0], {}
    for line in open(dump, encoding="utf-8", newline="\n"):
        labels, rest = labels_of(line[1:], line, go=True)
        name = labels.pop("__name__")
        dumped[name, tuple(sorted(labels.items()))] = int(float(rest.split()[0]))
    # A label without a value is none.
    wanted = {(name, tuple((n, v) for n, v in labels if v)): value for (name, labels), value in samples.items()}
    need(wanted == dumped, f"another database: {list(set(wanted.items()) ^ set(dumped.items()))[:6]}")


def expressions(panel):
    for target in panel.get("targets", []):
        yield target["expr"]
    for inner in panel.get("panels", []):
        yield from expressions(inner)


def check_dashboard(path, exposition):
    board = json.load(open(path, encoding="utf-8"))
    there = {name for name, _ in read(exposition)[0]}
    asked = set()
    need(board["panels"] and board["title"] and board["uid"], "a dashboard has a title and panels")
    ids = [panel["id"] for panel in board["panels"]]
    need(len(ids) == len(set(ids)), "each panel has a number of its own")
    for panel in board["panels"]:
        found = [set(re.findall(r"\bkmem_[a-z_]+", expr)) for expr in expressions(panel)]
        need(panel["type"] == "row" or (found and all(found)), f"{panel['title']}: asks for nothing")
        asked.update(*found)
    for variable in board["templating"]["list"]:
        asked |= set(re.findall(r"\bkmem_[a-z_]+", str(variable.get("query", ""))))
    need(asked <= there, f"asks for what is not there: {asked - there}")


def main():
    what, paths = sys.argv[1], sys.argv[2:]
    if what == "openmetrics":
        need(len(read(paths[0])[0]) > 20, "few samples")
    else:
        {"text": check_text, "same": check_same, "figures": check_figures, "dumped": check_dumped,
         "dashboard": check_dashboard}[what](*paths)


if __name__ == "__main__":
    main()
