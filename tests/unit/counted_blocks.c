/*
 * counted_blocks: some two hundred blocks above 4 MiB; every second block is freed, and its memory goes back to the
 * system. On a system with strict overcommit (overcommit_memory 2), or with a limit on data or address space, free
 * memory does not count any more, either; elsewhere free memory stays accessible, so that there are few mappings.
 */
#include <stdlib.h>
#include <sys/wait.h>

#include <kmem/kmem.h>
#include <kmem/stats.h>

#include "kit/check.h"
#include "kit/limit.h"

#define MIB	((size_t)1 << 20)
#define BLOCKS	200u
#define BYTES	(5 * MIB)

static bool strict;

long __real_km_os_read(const char *path, char *text, size_t bytes);
long __wrap_km_os_read(const char *path, char *text, size_t bytes)
{
	if (!strstr(path, "overcommit_memory"))
		return __real_km_os_read(path, text, bytes);
	strcpy(text, strict ? "2\n" : "0\n");
	return 2;
}

/* Bytes: private writable memory, by VmData; resident memory. */
static size_t data(const char *key)
{
	FILE *file = fopen("/proc/self/status", "re");
	char line[128];
	size_t kib = 0;

	NEED(file);
	while (fgets(line, sizeof(line), file))
		if (!strncmp(line, key, strlen(key)))
			kib = strtoul(line + strlen(key), NULL, 10);
	fclose(file);
	NEED(kib);
	return kib << 10;
}

static void *block[BLOCKS];

static void each_second(bool counted)
{
	for (unsigned i = 0; i < BLOCKS; i++) {
		NEED((block[i] = kvmalloc(BYTES, GFP_KERNEL)));
		memset(block[i], 1, BYTES);
	}
	size_t all = data("VmData:"), resident = data("VmRSS:");
	for (unsigned i = 0; i < BLOCKS; i += 2)
		kvfree(block[i]);
	kmem_shrink_all();
	size_t freed = BLOCKS / 2 * BYTES;
	CHECK(data("VmRSS:") + freed <= resident + freed / 50, "%zu KiB resident of %zu", data("VmRSS:") >> 10,
	      resident >> 10);
	CHECK((data("VmData:") + freed <= all + freed / 50) == counted, "%zu KiB of data of %zu", data("VmData:") >> 10,
	      all >> 10);
	for (unsigned i = 1; i < BLOCKS; i += 2)
		kvfree(block[i]);
	kmem_shrink_all();
	CHECK(data("VmData:") + 2 * freed <= all + freed / 25, "%zu KiB of data of %zu", data("VmData:") >> 10,
	      all >> 10);
	NEED(!kmem_check_all());
}

static void plenty(void)
{
	each_second(km_os_is_limited());
}

static void overcommit(void)
{
	strict = true;
	each_second(true);
}

static void data_limit(void)
{
	set_limit(RLIMIT_DATA, (size_t)1 << 40);
	each_second(true);
}

static void address_limit(void)
{
	set_limit(RLIMIT_AS, (size_t)1 << 44);
	each_second(true);
}

int main(void)
{
	void (*const runs[])(void) = { plenty, overcommit, data_limit, address_limit };

	NEED(slab_is_available());
	for (unsigned i = 0; i < sizeof(runs) / sizeof(runs[0]); i++) {
		pid_t child = fork();
		int status;

		if (!child) {
			alarm(580);
			runs[i]();
			_exit(failures != 0);
		}
		NEED(child > 0 && waitpid(child, &status, 0) == child);
		CHECK(status == 0, "run %u: status %d", i, status);
	}
	return failures != 0;
}
