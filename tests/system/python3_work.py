"""python3_work.py: work with the same output in every run: processes, threads, large numbers, text, JSON."""
import collections, hashlib, json, multiprocessing, re, threading
def count(n):
    words = re.findall(r"[a-z]+", json.dumps([hashlib.md5(b"%d" % (n * i)).hexdigest() for i in range(8000)]))
    return collections.Counter(words).most_common(20)
def big(results, n):
    results[n] = hashlib.md5(str(3 ** (20000 + n)).encode() if n else b"").hexdigest()
if __name__ == "__main__":
    import sys; sys.set_int_max_str_digits(0) if hasattr(sys, "set_int_max_str_digits") else None
    with multiprocessing.Pool(3) as pool:
        print(pool.map(count, range(1, 7)))
    results = {}
    threads = [threading.Thread(target=big, args=(results, n)) for n in range(8)]
    for t in threads: t.start()
    for t in threads: t.join()
    print(sorted(results.items()))
    data = {i: [str(j) * (j % 50) for j in range(i % 100)] for i in range(4000)}
    print(hashlib.md5(json.dumps(data).encode()).hexdigest())
