# bench.mk: the benchmark workers, one program for each interface, linkage and allocator, in build/bench/. The root
# Makefile includes this file; `kmem bench` builds the needed workers by name. The flags are fixed here, because a
# figure must not depend on the library's build: no link-time optimisation, and -fno-builtin, because the compiler would
# remove a malloc/free pair.

# Works are in headers, and no worker uses all functions of a header.
BENCH_WARN := -Wall -Wextra -Wno-unused-function
BENCH_CFLAGS := -O2 -g -std=gnu17 -fno-builtin -falign-functions=64 -falign-loops=32
BENCH_DEFINES = '-DBENCH_FLAGS="$(BENCH_CFLAGS)"' '-DBENCH_LIBRARY_FLAGS="$(ALL_CFLAGS)"'
BENCH_HEADERS := $(wildcard bench/*/*.h) $(wildcard include/kmem/*.h)
BENCH_OBJ := build/bench/obj
BENCH_FRAME := $(BENCH_OBJ)/frame/worker.o $(BENCH_OBJ)/frame/crew.o $(BENCH_OBJ)/frame/together.o
BENCH_MALLOC := $(BENCH_FRAME) $(BENCH_OBJ)/worker/malloc.o $(BENCH_OBJ)/frame/who_malloc.o
BENCH_CACHE := $(BENCH_FRAME) $(BENCH_OBJ)/worker/cache.o $(BENCH_OBJ)/frame/who_kmem.o
BENCH_INLINE := $(BENCH_FRAME) $(BENCH_OBJ)/worker/cache_inline.o $(BENCH_OBJ)/frame/who_kmem.o
BENCH_KMALLOC := $(BENCH_FRAME) $(BENCH_OBJ)/worker/kmalloc.o $(BENCH_OBJ)/frame/who_kmem.o
BENCH_ACCOUNT := $(BENCH_FRAME) $(BENCH_OBJ)/frame/who_kmem.o
BENCH_NETIO := $(BENCH_FRAME) $(BENCH_OBJ)/worker/netio.o $(BENCH_OBJ)/frame/who_kmem.o
BENCH_FIO := $(BENCH_FRAME) $(BENCH_OBJ)/worker/fio.o $(BENCH_OBJ)/frame/who_malloc.o
BENCH_NOTHING := $(BENCH_FRAME) $(BENCH_OBJ)/worker/nothing.o $(BENCH_OBJ)/frame/who_nothing.o
BENCH_JEMALLOC := $(BENCH_FRAME) $(BENCH_OBJ)/worker/jemalloc.o $(BENCH_OBJ)/frame/who_nothing.o
BENCH_ORIGIN := '-Wl,-rpath,$$ORIGIN/..' '-Wl,-rpath,$$ORIGIN'
# An archive must bring the whole malloc family, although the worker calls only two functions.
BENCH_FAMILY := -Wl,-u,calloc,-u,realloc,-u,memalign,-u,aligned_alloc,-u,posix_memalign
BENCH_FAMILY += -Wl,-u,malloc_usable_size
BENCH_PEERS_STATIC = $(patsubst build/peers/%/lib.a,build/bench/malloc-%-static,\
	$(wildcard build/peers/*/lib.a))

# The workers "watched" link guarded objects and profiles by name, because the others are linked without.
$(foreach worker,cache kmalloc malloc-kmem,$(eval BENCH_LIBS_$(worker)-static-watched := -Wl,-u,km_guarding,-u,km_profiling))

.PHONY: bench-workers
bench-workers: build/bench/gauge build/bench/code build/bench/programs build/bench/malloc-shared build/bench/malloc-glibc-static \
	build/bench/malloc-kmem-static \
	build/bench/cache-shared build/bench/cache-static build/bench/cache-inline \
	build/bench/kmalloc-shared build/bench/kmalloc-static \
	build/bench/cache-static-watched build/bench/kmalloc-static-watched build/bench/malloc-kmem-static-watched \
	build/bench/nothing-shared build/bench/nothing-static build/bench/nothing-inline \
	build/bench/netio-static build/bench/fio-shared build/bench/forwarding-static \
	build/bench/account-cache-shared build/bench/account-cache-static \
	build/bench/account-kmalloc-shared build/bench/account-kmalloc-static \
	build/bench/account-model-static \
	$(BENCH_PEERS_STATIC)

build/bench:
	mkdir -p $@

# worker.o contains the flags of worker and library, so the object depends on both files with flags.
$(BENCH_OBJ)/frame/worker.o: bench/frame/worker.c $(BENCH_HEADERS) bench/bench.mk Makefile
	@mkdir -p $(@D)
	$(CC) $(BENCH_CFLAGS) $(BENCH_WARN) $(BENCH_DEFINES) -Ibench -Iinclude -c $< -o $@

$(BENCH_OBJ)/worker/dpdk.o $(BENCH_OBJ)/api/dpdk_calls.o $(BENCH_OBJ)/api/dpdk_open.o: \
	$(BENCH_OBJ)/%.o: bench/%.c $(BENCH_HEADERS) bench/bench.mk
	@mkdir -p $(@D)
	$(CC) $(BENCH_CFLAGS) $(BENCH_WARN) $$(pkg-config --cflags libdpdk) -Ibench -c $< -o $@

$(BENCH_OBJ)/%.o: bench/%.c $(BENCH_HEADERS) bench/bench.mk
	@mkdir -p $(@D)
	$(CC) $(BENCH_CFLAGS) $(BENCH_WARN) -Ibench -Iinclude -c $< -o $@

build/bench/gauge: $(BENCH_OBJ)/worker/gauge.o
	$(CC) $^ -o $@

# Reads the library in the build folder.
build/bench/code: bench/worker/bulk_code.py build/libkmem.so bench/bench.mk | build/bench
	install -m 755 $< $@

# Starts programs with the preload of BENCH_PRELOAD.
build/bench/programs: bench/worker/programs.py bench/bench.mk | build/bench
	install -m 755 $< $@

build/bench/libnothing.so: bench/api/nothing_calls.c bench/api/nothing_calls.h bench/bench.mk | build/bench
	$(CC) $(BENCH_CFLAGS) $(BENCH_WARN) -fPIC -shared -Ibench $< -o $@

# For the preloaded malloc, or the system's malloc.
build/bench/malloc-shared: $(BENCH_MALLOC)
	$(CC) $^ -o $@ -lpthread

build/bench/malloc-glibc-static: $(BENCH_MALLOC)
	$(CC) -static $^ -o $@ -lpthread

build/bench/malloc-kmem-static build/bench/malloc-kmem-static-watched: $(BENCH_MALLOC) build/libkmem-malloc.a
	$(CC) $(BENCH_LIBS_$(@F)) $(BENCH_MALLOC) $(BENCH_FAMILY) -Wl,-u,kmem_version,-u,kmem_percpu_discipline \
		-Wl,-u,kmem_cache_of,-u,kmem_cache_get_stats \
		build/libkmem-malloc.a -o $@ -lpthread

build/bench/malloc-%-static: $(BENCH_MALLOC) build/peers/%/lib.a
	rm -f $@
	$(CC) $(BENCH_MALLOC) $(BENCH_FAMILY) build/peers/$*/lib.a -o $@ \
		-lpthread -ldl -lm -lstdc++ $$(cat build/peers/$*/ldflags)

build/bench/cache-shared: $(BENCH_CACHE) build/libkmem.so
	$(CC) $(BENCH_CACHE) -o $@ -Lbuild -lkmem $(BENCH_ORIGIN) -lpthread

build/bench/cache-static build/bench/cache-static-watched: $(BENCH_CACHE) build/libkmem.a
	$(CC) $(BENCH_LIBS_$(@F)) $(BENCH_CACHE) build/libkmem.a -o $@ -lpthread

build/bench/cache-inline: $(BENCH_INLINE) build/libkmem.a
	$(CC) $(BENCH_INLINE) build/libkmem.a -o $@ -lpthread

build/bench/kmalloc-shared: $(BENCH_KMALLOC) build/libkmem.so
	$(CC) $(BENCH_KMALLOC) -o $@ -Lbuild -lkmem $(BENCH_ORIGIN) -lpthread

build/bench/kmalloc-static build/bench/kmalloc-static-watched: $(BENCH_KMALLOC) build/libkmem.a
	$(CC) $(BENCH_LIBS_$(@F)) $(BENCH_KMALLOC) build/libkmem.a -o $@ -lpthread

build/bench/account-%-shared: $(BENCH_OBJ)/worker/account_%.o $(BENCH_ACCOUNT) build/libkmem.so
	$(CC) $< $(BENCH_ACCOUNT) -o $@ -Lbuild -lkmem $(BENCH_ORIGIN) -lpthread

build/bench/account-%-static: $(BENCH_OBJ)/worker/account_%.o $(BENCH_ACCOUNT) build/libkmem.a
	$(CC) $< $(BENCH_ACCOUNT) build/libkmem.a -o $@ -lpthread

# The library with two replaced functions: the number of CPUs, and the number of this CPU.
$(BENCH_OBJ)/worker/account_model.o: bench/worker/account_model.c $(BENCH_HEADERS) bench/bench.mk
	@mkdir -p $(@D)
	$(CC) $(BENCH_CFLAGS) $(BENCH_WARN) -Ibench -Iinclude -Isrc -iquote . -MMD -MP -c $< -o $@
-include $(BENCH_OBJ)/worker/account_model.d

build/bench/account-model-static: $(BENCH_OBJ)/worker/account_model.o $(BENCH_FRAME) build/libkmem.a
	$(CC) $< $(BENCH_FRAME) build/libkmem.a -Wl,--wrap=km_cpu,--wrap=km_os_possible_cpus \
		-o $@ -lpthread

build/bench/forwarding-static: $(BENCH_FRAME) $(BENCH_OBJ)/worker/forwarding.o $(BENCH_OBJ)/frame/who_nothing.o
	$(CC) -static $^ -o $@ -lpthread

build/bench/netio-static: $(BENCH_NETIO) build/libkmem.a
	$(CC) $(BENCH_NETIO) build/libkmem.a -o $@ -lpthread

# fio and this worker use the preloaded malloc.
build/bench/fio-shared: $(BENCH_FIO)
	$(CC) $^ -o $@ -lpthread

build/bench/nothing-shared: $(BENCH_NOTHING) build/bench/libnothing.so
	$(CC) $(BENCH_NOTHING) -o $@ -Lbuild/bench -lnothing $(BENCH_ORIGIN) -lpthread

build/bench/nothing-static: $(BENCH_NOTHING) $(BENCH_OBJ)/api/nothing_calls.o
	$(CC) $^ -o $@ -lpthread

build/bench/nothing-inline: $(BENCH_FRAME) $(BENCH_OBJ)/worker/nothing_inline.o \
	$(BENCH_OBJ)/frame/who_nothing.o
	$(CC) $^ -o $@ -lpthread

build/bench/dpdk-inline: $(BENCH_FRAME) $(BENCH_OBJ)/worker/dpdk.o $(BENCH_OBJ)/api/dpdk_open.o
	$(CC) $^ -o $@ $$(pkg-config --libs libdpdk) -lpthread

build/bench/dpdk-static: $(BENCH_FRAME) $(BENCH_OBJ)/worker/dpdk_calls.o $(BENCH_OBJ)/api/dpdk_calls.o \
	$(BENCH_OBJ)/api/dpdk_open.o
	$(CC) $^ -o $@ $$(pkg-config --libs libdpdk) -lpthread

build/bench/jemalloc-static: $(BENCH_JEMALLOC) build/peers/jemalloc/lib.a
	$(CC) $^ $(BENCH_FAMILY) -o $@ -lpthread -ldl -lm -lstdc++ \
		$$(cat build/peers/jemalloc/ldflags)

# Linked with the peer's shared object, and run with the same object preloaded.
build/bench/jemalloc-shared: $(BENCH_JEMALLOC) build/peers/jemalloc/lib.so
	$(CC) $^ -o $@ -lpthread
