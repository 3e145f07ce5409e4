"""redis_data.py: fill a redis server with data of every type and read all data back.

usage: redis_data.py PORT load|verify SCALE

The value of a key follows from its number, so the reader needs no data from the writer."""
import hashlib
import socket
import sys


class Redis:
    """As much of the protocol as is needed: pipelines of commands, replies of every kind."""

    def __init__(self, port):
        self.socket = socket.create_connection(("127.0.0.1", port))
        self.file = self.socket.makefile("rb", 1 << 16)

    def send(self, commands):
        text = []
        for command in commands:
            text.append(b"*%d\r\n" % len(command))
            for word in command:
                word = word if isinstance(word, bytes) else str(word).encode()
                text.append(b"$%d\r\n%s\r\n" % (len(word), word))
        self.socket.sendall(b"".join(text))
        return [self.reply() for _ in commands]

    def reply(self):
        line = self.file.readline()
        kind, rest = line[:1], line[1:-2]
        if kind == b"-":
            raise SystemExit("redis says: " + rest.decode())
        if kind == b"$":
            return None if rest == b"-1" else self.file.read(int(rest) + 2)[:-2]
        if kind == b"*":
            return [self.reply() for _ in range(int(rest))]
        return rest


def value(i):
    """Bytes of many lengths, 1 to 2000, most of them short, and one in 500 long."""
    seed = hashlib.sha256(b"%d" % i).digest()
    length = 1 + seed[0] + (seed[1] * 7 if seed[2] < 50 else 0)
    if i % 500 == 0:
        length = 60000 + i % 7000
    return (seed * (length // len(seed) + 1))[:length]


def small(i, n):
    return [(b"field%d" % j, value(i * 31 + j)[:100]) for j in range(n)]


def batches(scale):
    """(what loads, what reads, the reply) for each key, in batches."""
    batch = []
    for i in range(scale):
        batch.append((("SET", f"s:{i}", value(i)), ("GET", f"s:{i}"), value(i)))
        if i % 10 == 0:
            pairs = small(i, i // 10 % 40 + 1)
            flat = [x for pair in pairs for x in pair]
            batch.append((["HSET", f"h:{i}", *flat], ["HGETALL", f"h:{i}"], sorted(flat)))
            names = [v for _, v in pairs]
            batch.append((["RPUSH", f"l:{i}", *names], ["LRANGE", f"l:{i}", 0, -1], names))
            scores = [x for j, (name, _) in enumerate(pairs) for x in (j, name)]
            batch.append((["ZADD", f"z:{i}", *scores], ["ZRANGE", f"z:{i}", 0, -1],
                          [name for name, _ in pairs]))
            batch.append((["SADD", f"t:{i}", *set(names)], ["SMEMBERS", f"t:{i}"],
                          sorted(set(names))))
        if len(batch) >= 500:
            yield batch
            batch = []
    yield batch


def main():
    port, action, scale = int(sys.argv[1]), sys.argv[2], int(sys.argv[3])
    redis = Redis(port)
    count = 0
    for batch in batches(scale):
        if action == "load":
            redis.send([load for load, _, _ in batch])
        else:
            for (_, read, expected), got in zip(batch, redis.send([r for _, r, _ in batch])):
                if read[0] in ("HGETALL", "SMEMBERS"):
                    got = sorted(got)
                if got != expected:
                    raise SystemExit(f"{read}: not what was written")
        count += len(batch)
    if redis.send([("DBSIZE",)]) != [b"%d" % count]:
        raise SystemExit("the server has another number of keys")
    print(count, "keys")


if __name__ == "__main__":
    main()
