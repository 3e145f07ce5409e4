"""gdb.py: `kmem who ADDRESS` and `kmem leaks` in gdb, of the program or the core dump that it has.

    (gdb) source /usr/local/share/kmem/gdb.py
    (gdb) kmem who node->next
    (gdb) kmem leaks

Both call the command kmem: KMEM_COMMAND, or the one that is found. A running program that gdb holds can't be stopped
once more, so leaks are looked for in a dump of it, which takes as much room in TMPDIR as the program has memory.
"""
import os
import re
import subprocess
import tempfile

import gdb


def run(*arguments):
    """Print what the command kmem says, and what it complains of."""
    command = os.environ.get("KMEM_COMMAND", "kmem")
    try:
        done = subprocess.run([command, *arguments], capture_output=True, text=True, check=False)
    except OSError as error:
        raise gdb.GdbError(f"{command}: {error.strerror}") from error
    gdb.write(done.stdout)
    if done.stderr:
        raise gdb.GdbError(done.stderr.rstrip())


def subject():
    """Return the core dump's path, or the process's number."""
    found = re.search(r"[Cc]ore dump file.*?`([^']*)'", gdb.execute("info files", to_string=True), re.S)
    if found:
        return found.group(1)
    pid = gdb.selected_inferior().pid
    if not pid:
        raise gdb.GdbError("kmem: no program runs here, and no core dump is loaded")
    return str(pid)


class Kmem(gdb.Command):
    """What libkmem knows of a program: kmem who, kmem leaks."""

    def __init__(self):
        super().__init__("kmem", gdb.COMMAND_DATA, prefix=True)


class Who(gdb.Command):
    """kmem who EXPRESSION: whose memory an address is: its object, cache, group, slab and neighbours."""

    def __init__(self):
        super().__init__("kmem who", gdb.COMMAND_DATA, gdb.COMPLETE_EXPRESSION)

    def invoke(self, argument, _from_tty):
        """Run it on the value of an expression."""
        if not argument:
            raise gdb.GdbError("kmem who: an address is missing")
        address = int(gdb.parse_and_eval(f"(unsigned long)({argument})"))
        run("who", subject(), hex(address))


class Leaks(gdb.Command):
    """kmem leaks [LINES]: objects that nothing points to any more, so many at most (20; 0: all)."""

    def __init__(self):
        super().__init__("kmem leaks", gdb.COMMAND_DATA)

    def invoke(self, argument, _from_tty):
        """Run it on the dump, or on one that is made."""
        if argument and not argument.isdecimal():
            raise gdb.GdbError(f"kmem leaks: '{argument}' is not a number of lines")
        most = f"--most={argument or 20}"
        name = subject()
        if not name.isdigit():
            run("leaks", most, name)
            return
        with tempfile.TemporaryDirectory() as folder:
            dump = os.path.join(folder, "dump")
            gdb.execute(f"generate-core-file {dump}", to_string=True)
            run("leaks", most, dump)


Kmem()
Who()
Leaks()
