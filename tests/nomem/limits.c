/*
 * limits: the script of nomem.h where the system really is short: a tight RLIMIT_AS, beside which the program's own
 * large mapping still finds room; mlockall of all there is and will be; a small RLIMIT_MEMLOCK without the right to
 * exceed it. Each case in a process started anew.
 *
 * `limits plain` is the script alone, for tests/nomem/overcommit.
 * With hardened: own_addresses:0, for pages go from one name to another here.
 */
#include "nomem.h"

#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/wait.h>

#define MIB ((size_t)1 << 20)

static size_t status_kib(const char *key)
{
	char line[256];
	size_t kib = 0;
	FILE *file = fopen("/proc/self/status", "r");

	NEED(file);
	while (fgets(line, sizeof(line), file))
		if (strncmp(line, key, strlen(key)) == 0)
			kib = strtoul(line + strlen(key) + 1, NULL, 10);
	fclose(file);
	return kib;
}

/* Objects of 4 KiB, written to, until there are no more or enough; returns how many. */
static size_t fill_up(struct kmem_cache *cache, size_t most)
{
	size_t count = 0;
	void **first = NULL, **p;

	while (count < most && (p = kmem_cache_alloc(cache, GFP_KERNEL | __GFP_NOWARN))) {
		p[0] = first;
		p[1] = (void *)count;
		p[511] = (void *)count;
		first = p;
		count++;
	}
	NEED(count == most || errno == ENOMEM);
	for (size_t left = count; first; first = p) {
		p = first[0];
		NEED(first[1] == (void *)--left && first[511] == (void *)left);
		kmem_cache_free(cache, first);
	}
	kmem_cache_shrink(cache);
	return count;
}

static size_t exhaust(size_t most)
{
	struct kmem_cache *cache = kmem_cache_create("exhausted", 4096, NULL, 0);

	NEED(cache);
	size_t first = fill_up(cache, most), second = fill_up(cache, most);
	/* Released memory can be allocated again. */
	NEED(second + second / 8 + 16 >= first);
	kmem_cache_destroy(cache);
	return first;
}

/* ------------------------------------------------------------------ RLIMIT_AS */

static void as_limit(size_t mib)
{
	/* The library must leave most of the address space to the program. */
	void *own = mmap(NULL, mib * MIB / 2, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	NEED(own != MAP_FAILED);
	memset(own, 1, 4096);
	script();
	munmap(own, mib * MIB / 2);
	size_t got = exhaust(mib < 512 ? mib * 256 : 65536);
	printf("RLIMIT_AS %zu MiB: %zu MiB of objects, %u refusals, %s\n", mib, got / 256, refused,
	       kmem_percpu_discipline());
	NEED(got / 256 >= mib / 16);
	nothing_lost();
}

static void as_64(void) { as_limit(64); }
static void as_128(void) { as_limit(128); }
static void as_512(void) { as_limit(512); }
static void as_4096(void) { as_limit(4096); }

/* Nothing is left for the library: NULL, and then again objects. */
static void as_taken(void)
{
	enum { PIECES = 4096 };
	static void *piece[PIECES];
	struct kmem_cache *cache = kmem_cache_create("squeezed", 4096, NULL, 0);
	size_t pieces = 0;

	NEED(cache);
	for (size_t bytes = 64 * MIB; bytes >= 64 << 10; bytes /= 2)
		while (pieces < PIECES &&
		       (piece[pieces] = mmap(NULL, bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1,
					     0)) != MAP_FAILED)
			pieces++;
	size_t squeezed = fill_up(cache, 100000);
	NEED(!kvmalloc(64 * MIB, GFP_KERNEL | __GFP_NOWARN) && errno == ENOMEM);
	printf("RLIMIT_AS taken by %zu mappings of the program: %zu objects\n", pieces, squeezed);
	kmem_cache_destroy(cache);
	nothing_lost();
}

/* ------------------------------------------------------------------ locked memory */

static void locked(void)
{
	if (mlockall(MCL_CURRENT | MCL_FUTURE)) {
		printf("mlockall: %s: left out\n", strerror(errno));
		return;
	}
	size_t before = status_kib("VmRSS:");
	script();
	NEED(refused == 0);
	size_t got = exhaust(4096);
	NEED(got == 4096);
	nothing_lost();
	size_t after = status_kib("VmRSS:");
	printf("mlockall: resident %zu MiB before, %zu MiB after\n", before / 1024, after / 1024);
	/* Reservations must not have been populated. */
	NEED(before < 64 * 1024 && after < 256 * 1024);
}

/* Locked from the start, and no right to lock more than a little. */
static void locked_little(void)
{
	struct rlimit little;

	getrlimit(RLIMIT_MEMLOCK, &little);
	little.rlim_cur = little.rlim_max = little.rlim_max < 24 * MIB ? little.rlim_max : 24 * MIB;
	if (mlockall(MCL_CURRENT | MCL_FUTURE) || setrlimit(RLIMIT_MEMLOCK, &little) ||
	    setresuid(65534, 65534, 65534)) {
		printf("mlockall and setresuid: %s: left out\n", strerror(errno));
		return;
	}
	script();
	size_t got = exhaust(16384);
	printf("RLIMIT_MEMLOCK of %zu MiB, all locked: %zu objects of 4 KiB, %u refusals\n",
	       (size_t)little.rlim_cur / MIB, got, refused);
	nothing_lost();
}

/* The library starts without the right; then the program asks to lock what comes. */
static void locked_future(void)
{
	struct rlimit little = { 1 * MIB, 1 * MIB };

	if (setrlimit(RLIMIT_MEMLOCK, &little) || (geteuid() == 0 && setresuid(65534, 65534, 65534)) ||
	    mlockall(MCL_FUTURE)) {
		printf("mlockall(MCL_FUTURE): %s: left out\n", strerror(errno));
		return;
	}
	script();
	size_t got = exhaust(4096);
	printf("RLIMIT_MEMLOCK of 1 MiB, what comes is locked: %zu objects of 4 KiB, %u refusals\n", got,
	       refused);
	nothing_lost();
}

static void plain(void)
{
	script();
	NEED(refused == 0);
	NEED(exhaust(4096) == 4096);
	nothing_lost();
}

/* ------------------------------------------------------------------ cases */

static const struct limit {
	const char *name;
	void (*run)(void);
	size_t as_mib;
} limits[] = {
	{ "as_64", as_64, 64 }, { "as_128", as_128, 128 }, { "as_512", as_512, 512 },
	{ "as_4096", as_4096, 4096 }, { "as_taken", as_taken, 512 }, { "locked", locked, 0 },
	{ "locked_little", locked_little, 0 }, { "locked_future", locked_future, 0 },
	{ "plain", plain, 0 },
};

static int run(const struct limit *limit)
{
	int status;

	fflush(NULL);
	pid_t pid = fork();
	if (!pid) {
		struct rlimit as = { limit->as_mib * MIB, limit->as_mib * MIB };

		alarm(580);
		if (limit->as_mib && setrlimit(RLIMIT_AS, &as))
			_exit(4);
		execl("/proc/self/exe", "limits", limit->name, NULL);
		_exit(4);
	}
	waitpid(pid, &status, 0);
	if (status)
		printf("%s: status 0x%x\n", limit->name, (unsigned)status);
	return status != 0;
}

int main(int argc, char **argv)
{
	int failed = 0;

	for (size_t i = 0; i < sizeof(limits) / sizeof(limits[0]); i++) {
		if (argc < 2)
			failed += run(&limits[i]);
		else if (strcmp(argv[1], limits[i].name) == 0)
			limits[i].run();
	}
	return failed != 0;
}
