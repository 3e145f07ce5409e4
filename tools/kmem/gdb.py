"""gdb.py: `kmem who ADDRESS` and `kmem leaks` in gdb, for gdb's program or core dump.

    (gdb) source /usr/local/share/kmem/gdb.py
    (gdb) kmem who node->next
    (gdb) kmem leaks

Both call the command kmem: KMEM_COMMAND, or the installed one. A running program held by gdb cannot be stopped
once more, so leaks are searched in a dump of the program. The dump takes as much room in TMPDIR as the program's
memory."""
import os
import re
import subprocess
import tempfile

import gdb


def run(*arguments):
    """Prints the output of the command kmem, and its complaints."""
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
    """Memory of a program by libkmem: kmem who, kmem leaks."""

    def __init__(self):
        super().__init__("kmem", gdb.COMMAND_DATA, prefix=True)


class Who(gdb.Command):
    """kmem who EXPRESSION: the object, cache, group, slab and neighbours of an address."""

    def __init__(self):
        super().__init__("kmem who", gdb.COMMAND_DATA, gdb.COMPLETE_EXPRESSION)

    def invoke(self, argument, _from_tty):
        """Runs `kmem who` on the value of an expression."""
        if not argument:
            raise gdb.GdbError("kmem who: an address is missing")
        address = int(gdb.parse_and_eval(f"(unsigned long)({argument})"))
        run("who", subject(), hex(address))


class Leaks(gdb.Command):
    """kmem leaks [LINES]: objects without a pointer to them, at most LINES (20; 0: all)."""

    def __init__(self):
        super().__init__("kmem leaks", gdb.COMMAND_DATA)

    def invoke(self, argument, _from_tty):
        """Runs `kmem leaks` on the dump, or on a new one."""
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
