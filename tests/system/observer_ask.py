"""observer_ask.py PID: requests a process's figures by its observer's name, as a curious observer: the answer must be
one sealed file without a way to change it by any descriptor, and JSON without a value like an address. --none PID: asks
a process unable to make a file twice, and checks that the process lives. --many PID: a hundred requests at once, and
the system refuses none of them. --always PID: connects again and again until the name has no listener: "gone". --busy
FILE: answers itself: the client first finds a full queue, then gets an empty answer, and then FILE. Prints "ready".
--own PID: connects to the process's own sockets: they must stay waiting."""
import array
import fcntl
import json
import mmap
import os
import re
import socket
import struct
import sys
import time

F_ADD_SEALS, F_GET_SEALS = 1033, 1034
SEAL, SHRINK, GROW, WRITE = 1, 2, 4, 8


def refused(what, function):
    try:
        function()
    except OSError:
        return
    sys.exit(f"{what} was not refused")


def ask(pid):
    """Returns: the descriptor received."""
    fds, data, more, peer = question(pid)
    if len(data) != 1 or more or len(fds) != 1 or peer != pid:
        sys.exit(f"{len(data)} bytes, {len(more)} more, {len(fds)} descriptors, of {peer}")
    return fds[0]


def question(pid):
    """Returns: the descriptors received, the bytes, the bytes behind them, and the sending process."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as connection:
        connection.settimeout(20)
        connection.connect(f"\0libkmem-observer-{pid}")
        peer = struct.unpack("iII", connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, 12))
        data, control, _, _ = connection.recvmsg(100, 1000)
        more = connection.recv(100)
    fds = array.array("i")
    for level, kind, bytes_of in control:
        if (level, kind) == (socket.SOL_SOCKET, socket.SCM_RIGHTS):
            fds.frombytes(bytes_of)
    return fds, data, more, peer[0]


def ask_own(pid):
    """The program's own listening socket stays its own: no other code accepts the connection."""
    connections = []
    for fd in range(3, 200):
        connections.append(socket.socket(socket.AF_UNIX, socket.SOCK_STREAM))
        connections[-1].connect(f"\0observed-own-{pid}-{fd}".ljust(108, "\0"))
    os.close(ask(pid))
    for fd, connection in enumerate(connections, 3):
        connection.setblocking(False)
        try:
            sys.exit(f"{fd} was answered, or closed: {connection.recv(1)!r}")
        except BlockingIOError:
            pass
    print("unanswered")


def ask_many(pid):
    connections = []
    for _ in range(100):
        connections.append(socket.socket(socket.AF_UNIX, socket.SOCK_STREAM | socket.SOCK_NONBLOCK))
        connections[-1].connect(f"\0libkmem-observer-{pid}")
    print("none refused")


def ask_always(pid):
    for _ in range(6000):
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as connection:
            try:
                connection.connect(f"\0libkmem-observer-{pid}")
            except ConnectionRefusedError:
                print("gone")
                return
        time.sleep(0.01)
    sys.exit("it is still there")


def be_busy(path):
    file = os.memfd_create("answer", os.MFD_ALLOW_SEALING)
    with open(path, "rb") as text:
        os.write(file, text.read())
    fcntl.fcntl(file, F_ADD_SEALS, SEAL | SHRINK | GROW | WRITE)
    name = f"\0libkmem-observer-{os.getpid()}"
    own = []
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as listening:
        listening.bind(name)
        listening.listen(0)
        try:
            while True:
                own.append(socket.socket(socket.AF_UNIX, socket.SOCK_STREAM | socket.SOCK_NONBLOCK))
                own[-1].connect(name)
        except BlockingIOError:
            own.pop()
        print("ready", flush=True)
        # The client has seen the answer by then, except on the busiest machines; there the test is easier than
        # intended.
        time.sleep(1)
        for _ in own:
            listening.accept()[0].close()
        with listening.accept()[0] as first:
            first.send(b"\1")
        with listening.accept()[0] as second:
            socket.send_fds(second, [b"\1"], [file])
            second.recv(1)


def main():
    if sys.argv[1] == "--own":
        ask_own(int(sys.argv[2]))
        return
    if sys.argv[1] == "--many":
        ask_many(int(sys.argv[2]))
        return
    if sys.argv[1] == "--always":
        ask_always(int(sys.argv[2]))
        return
    if sys.argv[1] == "--busy":
        be_busy(sys.argv[2])
        return
    if sys.argv[1] == "--none":
        for _ in range(2):
            fds, _, _, _ = question(int(sys.argv[2]))
            if fds:
                sys.exit("a file came")
        os.kill(int(sys.argv[2]), 0)
        print("no file")
        return
    fd = ask(int(sys.argv[1]))
    if fcntl.fcntl(fd, F_GET_SEALS) != SEAL | SHRINK | GROW | WRITE:
        sys.exit("not all seals")
    size = os.fstat(fd).st_size
    again = f"/proc/self/fd/{fd}"
    refused("a write", lambda: os.pwrite(fd, b"x", 0))
    refused("a shorter file", lambda: os.ftruncate(fd, 1))
    refused("a longer file", lambda: os.ftruncate(fd, size + 1))
    refused("a writable mapping", lambda: mmap.mmap(fd, size, mmap.MAP_SHARED, mmap.PROT_WRITE))
    refused("a write by another descriptor", lambda: os.write(os.open(again, os.O_RDWR), b"x"))
    text = os.pread(fd, size, 0).decode()
    said = json.loads(text)
    if "observed" not in [cache["name"] for cache in said["caches"]]:
        sys.exit("not the caches")
    # Numbers above 2^40 would be addresses; reserved bytes are address space, by length.
    said.pop("arena_reserved_bytes")
    large = [n for n in re.findall(r"\d{13,}", json.dumps(said))]
    if large or "0x" in text:
        sys.exit(f"what looks like an address: {large}")
    print("sealed")


if __name__ == "__main__":
    main()
