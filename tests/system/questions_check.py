"""Runs the commands of pages to the letter, and compares what they print with what the pages show: BUILD FOLDER PAGE...
With --print the output goes to standard output, to be put on the page.

The blocks of a page without a language are one session of a shell in the root of the tree. A line that begins with "$ "
is a command, and the lines below the command are its output. After a command that ends with "&" the session waits until
the output has a line "ready". A line "..." stands for any number of lines. Blanks, numbers, addresses
and folders may differ, but not the lines of sources. Figures of 4 MiB or more may differ by a third at most.
"""
import os
import re
import subprocess
import sys

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
BLOCK = re.compile(r"^```\n(.*?)^```$", re.M | re.S)
FIGURE = re.compile(r"(?<![\w.])(\d+(?:\.\d+)?)(?: ?([KMG])(?:iB)?\b)?")
MIB = {"": 1 / 2**20, "K": 1 / 2**10, "M": 1, "G": 2**10}
TOLERANCE = 1.34


def sessions(page):
    """[(command, [line, ...])] of a page."""
    commands = []
    with open(page, encoding="utf-8") as file:
        blocks = BLOCK.findall(file.read())
    for block in blocks:
        for line in block.split("\n")[:-1]:
            if line.startswith("$ "):
                commands.append((line[2:].split("  #")[0].rstrip(), []))
            elif commands:
                commands[-1][1].append(line)
    return commands


def script(commands, build, folder):
    """The commands as a script; what number N prints goes to the file N."""
    lines = [f"cd {ROOT} || exit 1", 'trap \'kill $(jobs -p) 2>/dev/null\' EXIT']
    for number, (command, _) in enumerate(commands):
        output = f"{folder}/{number}"
        lines += [f"exec >{output} 2>&1", re.sub(r"(?<![\w/.-])build/", build + "/", command)]
        if command.endswith("&"):
            written = re.search(r"(?<!\d)>(\S+) &$", lines[-1])
            file = written.group(1) if written else output
            lines.append(f"for _ in $(seq 3000); do grep -q '^ready$' {file} && break; sleep 0.1; done")
    return "\n".join(lines) + "\n"


def shape(line):
    """A line without what may differ."""
    line = re.sub(r"\b0x[0-9a-f]+\b", "0x0", line)
    line = re.sub(r"/\S*/(build|examples)/", r"\1/", line)
    line = re.sub(r"\+0x0/0x0", "", line)
    line = re.sub(r"\.c:(\d+)", lambda match: ".c:" + "o" * int(match.group(1)), line)
    return " ".join(FIGURE.sub("0", line.replace("kernel's", "")).split())


def alike(shown, printed):
    """Two lines: the same words, and large figures that are near each other."""
    if shape(shown) != shape(printed):
        return False
    for (a, unit), (b, other) in zip(FIGURE.findall(shown), FIGURE.findall(printed)):
        a, b = float(a) * MIB[unit], float(b) * MIB[other]
        if (unit in ("M", "G") or other in ("M", "G")) and max(a, b) >= 4 and max(a, b) > TOLERANCE * min(a, b):
            return False
    return True


def matches(shown, printed):
    """Lines of the page and lines of the output; "..." stands for any number of the latter."""
    if not shown:
        return not printed
    if shown[0].strip() == "...":
        return any(matches(shown[1:], printed[i:]) for i in range(len(printed) + 1))
    return bool(printed) and alike(shown[0], printed[0]) and matches(shown[1:], printed[1:])


def main():
    show = sys.argv[1] == "--print"
    build, folder, *pages = sys.argv[2 if show else 1:]
    bad = count = 0
    for page in pages:
        own = os.path.join(folder, os.path.basename(page))
        os.makedirs(own, exist_ok=True)
        commands = sessions(page)
        # What bash says of jobs that end goes nowhere.
        subprocess.run(["bash", "-c", script(commands, build, own)], stdin=subprocess.DEVNULL, check=False,
                       stderr=subprocess.DEVNULL)
        for number, (command, shown) in enumerate(commands):
            count += 1
            with open(os.path.join(own, str(number)), encoding="utf-8") as file:
                printed = [line for line in file.read().split("\n")[:-1] if " Terminated " not in line]
            if show:
                print("$ " + command, *printed, sep="\n")
            elif not matches(shown, printed):
                bad += 1
                print(f"FAIL {page}: $ {command}", *(f"     | {line}" for line in printed), sep="\n")
    print(f"{len(pages)} pages, {count} commands, {bad} print something else than the page shows")
    return 1 if bad or not count else 0


sys.exit(main())
