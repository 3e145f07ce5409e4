# The benchmark workers: one program for each interface, linkage and allocator, into build/bench/.
# Included by the root Makefile; `kmem bench` asks for those it needs by name. The flags are fixed
# here, so that a figure means the same whatever the library was built with; there is no link-time
# optimisation, and -fno-builtin keeps the compiler from dropping a malloc/free pair.

# Works stand in headers, and no worker uses all of one.
BENCH_WARN := -Wall -Wextra -Wno-unused-function
BENCH_CFLAGS := -O2 -g -std=gnu17 -fno-builtin -falign-functions=64 -falign-loops=32
BENCH_DEFINES = '-DBENCH_FLAGS="$(BENCH_CFLAGS)"' '-DBENCH_LIBRARY_FLAGS="$(ALL_CFLAGS)"'
BENCH_HEADERS := $(wildcard bench/*.h) $(wildcard include/kmem/*.h)
BENCH_FRAME := build/bench/worker.o build/bench/crew.o build/bench/together.o
BENCH_MALLOC := $(BENCH_FRAME) build/bench/worker_malloc.o build/bench/who_malloc.o
BENCH_CACHE := $(BENCH_FRAME) build/bench/worker_cache.o build/bench/who_kmem.o
BENCH_INLINE := $(BENCH_FRAME) build/bench/worker_cache_inline.o build/bench/who_kmem.o
BENCH_KMALLOC := $(BENCH_FRAME) build/bench/worker_kmalloc.o build/bench/who_kmem.o
BENCH_ACCOUNT := $(BENCH_FRAME) build/bench/who_kmem.o
BENCH_NETIO := $(BENCH_FRAME) build/bench/worker_netio.o build/bench/who_kmem.o
BENCH_FIO := $(BENCH_FRAME) build/bench/worker_fio.o build/bench/who_malloc.o
BENCH_NOTHING := $(BENCH_FRAME) build/bench/worker_nothing.o build/bench/who_nothing.o
BENCH_JEMALLOC := $(BENCH_FRAME) build/bench/worker_jemalloc.o build/bench/who_nothing.o
BENCH_ORIGIN := '-Wl,-rpath,$$ORIGIN/..' '-Wl,-rpath,$$ORIGIN'
# An archive must give the whole malloc family, although the worker itself calls two of it.
BENCH_FAMILY := -Wl,-u,calloc,-u,realloc,-u,memalign,-u,aligned_alloc,-u,posix_memalign
BENCH_FAMILY += -Wl,-u,malloc_usable_size
BENCH_PEERS_STATIC = $(patsubst build/peers/%/lib.a,build/bench/malloc-%-static,\
	$(wildcard build/peers/*/lib.a))

.PHONY: bench-workers
bench-workers: build/bench/gauge build/bench/code build/bench/malloc-shared build/bench/malloc-glibc-static \
	build/bench/malloc-kmem-static \
	build/bench/cache-shared build/bench/cache-static build/bench/cache-inline \
	build/bench/kmalloc-shared build/bench/kmalloc-static \
	build/bench/nothing-shared build/bench/nothing-static build/bench/nothing-inline \
	build/bench/netio-static build/bench/fio-shared build/bench/forwarding-static \
	build/bench/account-cache-shared build/bench/account-cache-static \
	build/bench/account-kmalloc-shared build/bench/account-kmalloc-static \
	build/bench/account-model-static \
	$(BENCH_PEERS_STATIC)

build/bench:
	mkdir -p $@

# worker.o names the flags of worker and library, so it follows both files that set them.
build/bench/worker.o: bench/worker.c $(BENCH_HEADERS) bench/bench.mk Makefile | build/bench
	$(CC) $(BENCH_CFLAGS) $(BENCH_WARN) $(BENCH_DEFINES) -Ibench -Iinclude -c $< -o $@

build/bench/worker_dpdk.o build/bench/dpdk_calls.o build/bench/dpdk_open.o: \
	build/bench/%.o: bench/%.c $(BENCH_HEADERS) bench/bench.mk | build/bench
	$(CC) $(BENCH_CFLAGS) $(BENCH_WARN) $$(pkg-config --cflags libdpdk) -Ibench -c $< -o $@

build/bench/%.o: bench/%.c $(BENCH_HEADERS) bench/bench.mk | build/bench
	$(CC) $(BENCH_CFLAGS) $(BENCH_WARN) -Ibench -Iinclude -c $< -o $@

build/bench/gauge: build/bench/gauge.o
	$(CC) $^ -o $@

# Reads the library beside it.
build/bench/code: bench/worker_code.py build/libkmem.so bench/bench.mk | build/bench
	install -m 755 $< $@

build/bench/libnothing.so: bench/nothing.c bench/nothing.h bench/bench.mk | build/bench
	$(CC) $(BENCH_CFLAGS) $(BENCH_WARN) -fPIC -shared -Ibench $< -o $@

# Whichever malloc is preloaded, or the system's.
build/bench/malloc-shared: $(BENCH_MALLOC)
	$(CC) $^ -o $@ -lpthread

build/bench/malloc-glibc-static: $(BENCH_MALLOC)
	$(CC) -static $^ -o $@ -lpthread

build/bench/malloc-kmem-static: $(BENCH_MALLOC) build/libkmem-malloc.a
	$(CC) $(BENCH_MALLOC) $(BENCH_FAMILY) -Wl,-u,kmem_version,-u,kmem_percpu_discipline \
		-Wl,-u,kmem_cache_of,-u,kmem_cache_get_stats \
		build/libkmem-malloc.a -o $@ -lpthread

build/bench/malloc-%-static: $(BENCH_MALLOC) build/peers/%/lib.a
	rm -f $@
	$(CC) $(BENCH_MALLOC) $(BENCH_FAMILY) build/peers/$*/lib.a -o $@ \
		-lpthread -ldl -lm -lstdc++ $$(cat build/peers/$*/ldflags)

build/bench/cache-shared: $(BENCH_CACHE) build/libkmem.so
	$(CC) $(BENCH_CACHE) -o $@ -Lbuild -lkmem $(BENCH_ORIGIN) -lpthread

build/bench/cache-static: $(BENCH_CACHE) build/libkmem.a
	$(CC) $(BENCH_CACHE) build/libkmem.a -o $@ -lpthread

build/bench/cache-inline: $(BENCH_INLINE) build/libkmem.a
	$(CC) $(BENCH_INLINE) build/libkmem.a -o $@ -lpthread

build/bench/kmalloc-shared: $(BENCH_KMALLOC) build/libkmem.so
	$(CC) $(BENCH_KMALLOC) -o $@ -Lbuild -lkmem $(BENCH_ORIGIN) -lpthread

build/bench/kmalloc-static: $(BENCH_KMALLOC) build/libkmem.a
	$(CC) $(BENCH_KMALLOC) build/libkmem.a -o $@ -lpthread

build/bench/account-%-shared: build/bench/worker_account_%.o $(BENCH_ACCOUNT) build/libkmem.so
	$(CC) $< $(BENCH_ACCOUNT) -o $@ -Lbuild -lkmem $(BENCH_ORIGIN) -lpthread

build/bench/account-%-static: build/bench/worker_account_%.o $(BENCH_ACCOUNT) build/libkmem.a
	$(CC) $< $(BENCH_ACCOUNT) build/libkmem.a -o $@ -lpthread

# The library as it is, but for the CPUs: how many there are, and which one this is.
build/bench/worker_account_model.o: bench/worker_account_model.c $(BENCH_HEADERS) bench/bench.mk | build/bench
	$(CC) $(BENCH_CFLAGS) $(BENCH_WARN) -Ibench -Iinclude -Isrc -MMD -MP -c $< -o $@
-include build/bench/worker_account_model.d

build/bench/account-model-static: build/bench/worker_account_model.o $(BENCH_FRAME) build/libkmem.a
	$(CC) $< $(BENCH_FRAME) build/libkmem.a -Wl,--wrap=km_cpu,--wrap=km_os_possible_cpus \
		-o $@ -lpthread

build/bench/forwarding-static: $(BENCH_FRAME) build/bench/worker_forwarding.o build/bench/who_nothing.o
	$(CC) -static $^ -o $@ -lpthread

build/bench/netio-static: $(BENCH_NETIO) build/libkmem.a
	$(CC) $(BENCH_NETIO) build/libkmem.a -o $@ -lpthread

# fio's malloc is whichever is preloaded, and this worker's with it.
build/bench/fio-shared: $(BENCH_FIO)
	$(CC) $^ -o $@ -lpthread

build/bench/nothing-shared: $(BENCH_NOTHING) build/bench/libnothing.so
	$(CC) $(BENCH_NOTHING) -o $@ -Lbuild/bench -lnothing $(BENCH_ORIGIN) -lpthread

build/bench/nothing-static: $(BENCH_NOTHING) build/bench/nothing.o
	$(CC) $^ -o $@ -lpthread

build/bench/nothing-inline: $(BENCH_FRAME) build/bench/worker_nothing_inline.o \
	build/bench/who_nothing.o
	$(CC) $^ -o $@ -lpthread

build/bench/dpdk-inline: $(BENCH_FRAME) build/bench/worker_dpdk.o build/bench/dpdk_open.o
	$(CC) $^ -o $@ $$(pkg-config --libs libdpdk) -lpthread

build/bench/dpdk-static: $(BENCH_FRAME) build/bench/worker_dpdk_calls.o build/bench/dpdk_calls.o \
	build/bench/dpdk_open.o
	$(CC) $^ -o $@ $$(pkg-config --libs libdpdk) -lpthread

build/bench/jemalloc-static: $(BENCH_JEMALLOC) build/peers/jemalloc/lib.a
	$(CC) $^ $(BENCH_FAMILY) -o $@ -lpthread -ldl -lm -lstdc++ \
		$$(cat build/peers/jemalloc/ldflags)

# Linked against the peer's shared object, run with the same one preloaded and found by its name.
build/bench/jemalloc-shared: $(BENCH_JEMALLOC) build/peers/jemalloc/lib.so
	$(CC) $^ -o $@ -lpthread
