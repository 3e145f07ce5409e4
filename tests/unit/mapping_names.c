/*
 * mapping_names.c: each mapping of the library gets a name in the kernel's format. On a kernel with such names
 * (CONFIG_ANON_VMA_NAME) all mappings are under their names in /proc/self/maps, a moved block as well; on other
 * kernels errno is unchanged.
 */
#define _GNU_SOURCE
#include "named.h"
#include "os/secret.h"

#include <sys/mman.h>

#include <kmem/kmem.h>

#define BLOCK ((size_t)8 << 20)

static const char *const kinds[] = {
	"libkmem: arena", "libkmem: page map", "libkmem: metadata", "libkmem: per-CPU areas",
	"libkmem: cache table", "libkmem: large block",
};
#define KINDS (sizeof(kinds) / sizeof(kinds[0]))

/* True if the address is in a range of this name. */
static bool is_named(const void *p, const char *name)
{
	bool found = false;

	for (unsigned i = 0; i < named_count; i++)
		found |= (uintptr_t)p >= named[i].start && (uintptr_t)p < named[i].end &&
			 strcmp(named[i].name, name) == 0;
	return found;
}

/* True if this kernel shows names; by a mapping outside the library. */
static bool kernel_has_names(void)
{
	void *p = mmap(NULL, 4096, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	NEED(p != MAP_FAILED);
	int result = __real_prctl(PR_SET_VMA, PR_SET_VMA_ANON_NAME, p, 4096ul, "a test's");
	NEED(munmap(p, 4096) == 0);
	return result == 0;
}

/* Returns: the bytes of [start, end) under the name in /proc/self/maps. */
static size_t shown(uintptr_t start, uintptr_t end, const char *name)
{
	FILE *maps = fopen("/proc/self/maps", "r");
	char line[512], wanted[128];
	size_t bytes = 0;

	NEED(maps);
	snprintf(wanted, sizeof(wanted), "[anon:%s]\n", name);
	while (fgets(line, sizeof(line), maps)) {
		unsigned long from, to;

		NEED(sscanf(line, "%lx-%lx", &from, &to) == 2);
		from = from < start ? start : from;
		to = to > end ? end : to;
		if (from < to && strstr(line, wanted))
			bytes += to - from;
	}
	fclose(maps);
	return bytes;
}

int main(void)
{
	static const char text[] = "to be moved";

	errno = 0;
	struct kmem_cache *cache = kmem_cache_create("mappings", 100, NULL, 0);
	NEED(cache);
	char *object = kmem_cache_alloc(cache, GFP_KERNEL);
	char *block = kvmalloc(BLOCK, GFP_KERNEL);
	NEED(object && block);
	NEED(errno == 0);
	NEED(is_named(object, "libkmem: arena"));
	NEED(is_named(block, "libkmem: large block"));
	for (unsigned i = 0; i < KINDS; i++) {
		unsigned count = 0;

		for (unsigned j = 0; j < named_count; j++)
			count += strcmp(named[j].name, kinds[i]) == 0;
		if (count != 1)
			printf("%u mappings are called '%s'\n", count, kinds[i]);
		NEED(count == 1);
	}
	/* ... and the tables of what is out. */
	NEED(named_count == KINDS + km_hardening.live);
	if (!kernel_has_names()) {
		printf("named; but this kernel shows no names (CONFIG_ANON_VMA_NAME)\n");
		return 77;
	}
	for (unsigned i = 0; i < named_count; i++)
		NEED(shown(named[i].start, named[i].end, named[i].name) == named[i].end - named[i].start);
	strcpy(block, text);
	block = kvrealloc(block, 16 * BLOCK, GFP_KERNEL);
	NEED(block && strcmp(block, text) == 0);
	NEED(shown((uintptr_t)block, (uintptr_t)block + 16 * BLOCK, "libkmem: large block") == 16 * BLOCK);
	printf("%u mappings, all of them under their names\n", named_count);
	return 0;
}
