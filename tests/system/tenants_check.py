"""Checks the output of the tenants examples: FILES of one run in a folder, and the page with the output: PAGE
FOLDER."""
import os
import re
import sys

MIB = 1 << 20
# Example: limit of each and of all; the form of the hog's line; whether the hog keeps its memory, and so is the
# largest.
EXPECTED = {
    "lua": (MIB, 128 * MIB, "tenant 500: not enough memory", True),
    "sqlite": (MIB, 256 * MIB, "tenant 500: out of memory", False),
    "bomb": (MIB, 4 * MIB, "stopped at its limit", True),
}
ROW = re.compile(r"^ +(\d+) +(\d+) +(\d+)  (.*)$", re.M)
SHOWN = re.compile(r"^### build/examples/tenants/(\w+)\n\n```\n(.*?)```$", re.M | re.S)


def shape(text):
    """All figures are alike, and blanks."""
    return re.sub(r" +", " ", re.sub(r"\d+", "0", text))


def check(example, text, shown):
    each, everything, complaint, keeps = EXPECTED[example]
    rows = [(int(b), int(p), int(r), name) for b, p, r, name in ROW.findall(text)]
    tenants, total = rows[:-1], rows[-1]
    others = tenants[-1]
    assert shape(text) == shape(shown), "the page shows something else"
    # Only the hog complains; each refusal was the hog's.
    assert text.count(complaint) == 1
    assert len(re.findall(r"wrong|error|memory|stopped", text)) == 1
    hog = rows[0] if keeps else others
    assert hog[2] == total[2] > 0, "refused: %d of %d" % (hog[2], total[2])
    # The hog used its promised memory up to less than one more block, and not more.
    assert each - 128 * 1024 < hog[1] <= each
    assert all(peak <= each for _, peak, _, _ in tenants) and total[1] <= everything
    sizes = [row[0] for row in tenants[:-1]]
    assert sizes == sorted(sizes, reverse=True)
    assert sum(row[0] for row in tenants) == total[0] > 0, "the sum"
    assert "all closed: 0 bytes\n" in text


def main():
    with open(sys.argv[1], encoding="utf-8") as page:
        shown = dict(SHOWN.findall(page.read()))
    assert sorted(shown) == sorted(EXPECTED)
    for example in EXPECTED:
        with open(os.path.join(sys.argv[2], example), encoding="utf-8") as file:
            text = file.read()
        try:
            check(example, text, shown[example])
        except (AssertionError, IndexError) as error:
            sys.exit("%s: %r\n%s" % (example, error, text))


main()
