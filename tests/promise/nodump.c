/*
 * nodump: objects of a cache with SLAB_NODUMP are in mappings excluded from core dumps, and share these mappings with
 * no other cache, in each engine, at each size, with slabs allocated and freed, and after free memory went back. The
 * memory of a freed slab goes to the system at once. Memory is not used if the kernel refuses the advice. Where the
 * system writes core files, a core file has no secret, and has the data beside the secret.
 */
#define _GNU_SOURCE
#include <dirent.h>
#include <fcntl.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>

#include "kit/api.h"
#include "page/arena.h"
#include "os/os.h"

enum { COUNT = 3000 };

static struct kmem_cache *secrets(unsigned size)
{
	struct kmem_cache *cache = kmem_cache_create("secrets", size, NULL, SLAB_NODUMP);

	NEED(cache);
	return cache;
}

struct area {
	uintptr_t start, end;
	bool left_out;
};
static struct area areas[4096];
static size_t area_count;

static void read_areas(void)
{
	FILE *smaps = fopen("/proc/self/smaps", "r");
	char line[512];
	unsigned long from, to;

	NEED(smaps);
	area_count = 0;
	while (fgets(line, sizeof(line), smaps)) {
		if (sscanf(line, "%lx-%lx ", &from, &to) == 2 && strchr(line, '-') < strchr(line, ' ')) {
			NEED(area_count < sizeof(areas) / sizeof(*areas));
			areas[area_count++] = (struct area){ from, to, false };
		} else if (strncmp(line, "VmFlags:", 8) == 0) {
			areas[area_count - 1].left_out = strstr(line, " dd") != NULL;
		}
	}
	fclose(smaps);
}

static bool is_left_out(const void *p, size_t bytes)
{
	for (size_t i = 0; i < area_count; i++)
		if ((uintptr_t)p >= areas[i].start && (uintptr_t)p < areas[i].end)
			return areas[i].left_out && (uintptr_t)p + bytes <= areas[i].end;
	NEED(!"an object is in a mapping");
	return false;
}

static void *mine[COUNT], *others[COUNT];

static void fill(struct kmem_cache *cache, void **objects, unsigned count)
{
	for (unsigned i = 0; i < count; i++) {
		NEED((objects[i] = kmem_cache_alloc(cache, GFP_KERNEL)));
		memset(objects[i], 1, kmem_cache_size(cache));
	}
}

static void empty(struct kmem_cache *cache, void **objects, unsigned count, unsigned step)
{
	for (unsigned i = 0; i < count; i += step) {
		kmem_cache_free(cache, objects[i]);
		objects[i] = NULL;
	}
}

static void apart(void)
{
	static const unsigned sizes[] = { 8, 40, 256, 1000, 5000, 70000 };

	for (size_t s = 0; s < sizeof(sizes) / sizeof(*sizes); s++) {
		const unsigned size = sizes[s], count = size > 1000 ? 100 : COUNT;
		struct kmem_cache *cache = secrets(size), *other = make("others", size);

		fill(cache, mine, count / 2);
		fill(other, others, count);
		fill(cache, mine + count / 2, count - count / 2);
		read_areas();
		for (unsigned i = 0; i < count; i++)
			NEED(is_left_out(mine[i], size) && !is_left_out(others[i], size));
		/* Some come and go. */
		empty(cache, mine, count, 2);
		kmem_cache_shrink(cache);
		for (unsigned i = 0; i < count; i += 2)
			fill(cache, &mine[i], 1);
		read_areas();
		for (unsigned i = 0; i < count; i++)
			NEED(is_left_out(mine[i], size));
		empty(cache, mine, count, 1);
		empty(other, others, count, 1);
		kmem_cache_shrink(cache);
		kmem_cache_shrink(other);
		struct kmem_stats stats;
		kmem_shrink_all();
		kmem_get_stats(&stats);
		gone(cache);
		gone(other);
	}
}

/* Memory of a freed secret slab serves other caches again, without the secret. */
static void comes_back(void)
{
	struct kmem_cache *cache = secrets(4000);
	struct kmem_stats before, after;
	char *block;

	kmem_shrink_all();
	kmem_get_stats(&before);
	fill(cache, mine, COUNT);
	memset(mine[0], 0x77, 4000);
	uintptr_t from = (uintptr_t)mine[0] & -(uintptr_t)(4 << 20);
	empty(cache, mine, COUNT, 1);
	kmem_cache_destroy(cache);
	kmem_shrink_all();
	kmem_get_stats(&after);
	NEED(after.pages_used <= before.pages_used);
	read_areas();
	NEED(!is_left_out((void *)from, 4096));
	for (int i = 0; i < 64 && (block = kmalloc(1 << 20, GFP_KERNEL)); i++)
		for (size_t at = 0; at < 1 << 20; at++)
			NEED(block[at] != 0x77);
}

static size_t resident(void *const *objects, unsigned count, size_t size)
{
	size_t pages = 0;

	for (unsigned i = 0; i < count; i++)
		for (uintptr_t at = (uintptr_t)objects[i] & -4096ul; at < (uintptr_t)objects[i] + size; at += 4096) {
			unsigned char is;

			NEED(mincore((void *)at, 4096, &is) == 0);
			pages += is & 1;
		}
	return pages;
}

/* One object keeps its slab, and does not keep the block of the other slabs. */
static void one_stays(void)
{
	struct kmem_cache *cache = secrets(1000);
	void *were[COUNT];

	fill(cache, mine, COUNT);
	memcpy(were, mine, sizeof(were));
	size_t before = resident(were, COUNT, 1000);
	empty(cache, mine + 1, COUNT - 1, 1);
	kmem_cache_shrink(cache);
	size_t after = resident(were, COUNT, 1000);
	printf("%zu pages of objects were resident, %zu are\n", before, after);
	NEED(before >= COUNT && after < before / 8);
	empty(cache, mine, 1, 1);
	gone(cache);
	NEED(kmem_check_all() == 0);
}

static bool refuse_dump(const char *call)
{
	return strcmp(call, "dump") == 0;
}

static void refused(void)
{
	struct kmem_cache *cache = secrets(64);

	km_os_fault = refuse_dump;
	NEED(!kmem_cache_alloc(cache, GFP_KERNEL | __GFP_NOWARN));
	km_os_fault = NULL;
	NEED(!kmem_cache_alloc(cache, GFP_NOWAIT));
	void *p = kmem_cache_alloc(cache, GFP_KERNEL);
	NEED(p);
	read_areas();
	NEED(is_left_out(p, 64));
	kmem_cache_free(cache, p);
	gone(cache);
}

/* A child uses blocks of its own. */
static void forked(void)
{
	struct kmem_cache *cache = secrets(64);
	int status;

	fill(cache, mine, COUNT);
	pid_t child = fork();
	if (!child) {
		empty(cache, mine, COUNT, 1);
		fill(cache, mine, COUNT);
		read_areas();
		for (unsigned i = 0; i < COUNT; i++)
			NEED(is_left_out(mine[i], 64));
		empty(cache, mine, COUNT, 1);
		gone(cache);
		_exit(0);
	}
	NEED(waitpid(child, &status, 0) == child && status == 0);
	empty(cache, mine, COUNT, 1);
	gone(cache);
}

/* ------------------------------------------------------------------ a core file */

/* Each byte differs from what stands in the program. */
static const char hidden[] = "9mZ!q8<R&tW2:kP6yB#vH0fD", shown[] = "3xL%a7>U(gN4;sE1oC$jK5hT";

static __attribute__((noinline)) void write_to(volatile char *to, const char *text)
{
	for (size_t i = 0; text[i]; i++)
		to[i] = text[i] ^ 1;
}

static bool file_has(const char *path, const char *text)
{
	int fd = open(path, O_RDONLY);
	struct stat status;
	char wanted[64];
	size_t length = strlen(text);

	NEED(fd >= 0 && fstat(fd, &status) == 0);
	char *bytes = mmap(NULL, (size_t)status.st_size, PROT_READ, MAP_PRIVATE, fd, 0);
	NEED(bytes != MAP_FAILED);
	for (size_t i = 0; i < length; i++)
		wanted[i] = text[i] ^ 1;
	bool has = memmem(bytes, (size_t)status.st_size, wanted, length) != NULL;
	memset(wanted, 0, sizeof(wanted));
	munmap(bytes, (size_t)status.st_size);
	close(fd);
	return has;
}

/* Finds the core file of the system in this folder, if there is one. */
static bool find_core(char *name, size_t bytes)
{
	DIR *folder = opendir(".");
	struct dirent *entry;
	bool found = false;

	while (folder && (entry = readdir(folder)))
		if (strncmp(entry->d_name, "core", 4) == 0)
			found = snprintf(name, bytes, "%s", entry->d_name) > 0;
	closedir(folder);
	return found;
}

static void core_file(void)
{
	char folder[] = "/tmp/nodump.XXXXXX", name[300];
	const struct rlimit all = { RLIM_INFINITY, RLIM_INFINITY };
	int status;

	NEED(mkdtemp(folder) && chdir(folder) == 0);
	pid_t child = fork();
	if (!child) {
		setrlimit(RLIMIT_CORE, &all);
		write_to(kmem_cache_alloc(secrets(100), GFP_KERNEL), hidden);
		write_to(kmem_cache_alloc(make("others", 100), GFP_KERNEL), shown);
		signal(SIGABRT, SIG_DFL);
		abort();
	}
	NEED(waitpid(child, &status, 0) == child && WIFSIGNALED(status));
	if (WCOREDUMP(status) && find_core(name, sizeof(name))) {
		NEED(file_has(name, shown));
		NEED(!file_has(name, hidden));
		printf("a core file has been looked at\n");
		unlink(name);
	}
	NEED(chdir("/") == 0 && rmdir(folder) == 0);
}

static const struct test_case cases[] = {
	{ "slabs lie apart", apart },
	{ "memory comes back", comes_back },
	{ "one object keeps one slab", one_stays },
	{ "the advice is refused", refused },
	{ "fork", forked },
	{ "a core file", core_file },
};

/* Again with each eligible object guarded: these objects are not eligible. */
int main(int argc, char **argv)
{
	const size_t count = sizeof(cases) / sizeof(*cases);
	int failed = api_main(argc, argv, cases, count, "");

	return argc > 1 ? failed : api_main(argc, argv, cases, count, ",guard:each") | failed;
}
