/*
 * record.c: a process with a hostile record, one field after another. Prints the fields' names, and "ready"; then,
 * for each line of its input, "FIELD VALUE", sets the field to the value until the next line, and prints "done".
 */
#define _GNU_SOURCE
#include <kmem/kmem.h>
#include <kmem/memcg.h>
#include <linux/userfaultfd.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "cache/process_record.h"
#include "page/arena.h"

static struct km_root *root;

/* The record begins a mapping, behind inaccessible memory. */
static struct km_root *find_root(void)
{
	FILE *maps = fopen("/proc/self/maps", "r");
	unsigned long start, end;
	char line[512], access[8];

	while (fgets(line, sizeof(line), maps))
		if (sscanf(line, "%lx-%lx %4s", &start, &end, access) == 3 && !strcmp(access, "rw-p") &&
		    !memcmp((void *)start, KMEM_RECORD_MAGIC, 8))
			break;
	fclose(maps);
	return (void *)start;
}

/* The start of the field's structure. */
static char *base_of(const char *name)
{
	const struct kmem_cache *cache = (const void *)((char *)root->caches->next -
							offsetof(struct kmem_cache, registry.all));
	const struct {
		const char *of;
		const void *at;
	} bases[] = {
		{ "root.", root }, { "percpu.", root->percpu }, { "range.", root->arena.range },
		{ "page.", root->arena.range->page }, { "cache.", cache }, { "engine.", cache->layout.engine },
		{ "node.", cache->state.node[0] }, { "pool.", root->guarded }, { "zone.", root->arena.zone[0] },
		{ "parked.", root->parked }, { "span.", root->spans },
	};

	for (size_t i = 0; i < sizeof(bases) / sizeof(*bases); i++)
		if (bases[i].at && !strncmp(name, bases[i].of, strlen(bases[i].of)))
			return (char *)bases[i].at;
	return NULL;
}

/* Memory with one repeated byte; zeros are untouched pages, and use no memory. */
static unsigned long filled(int byte, size_t bytes)
{
	char *at = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE,
			-1, 0);

	if (byte)
		memset(at, byte, bytes);
	return (unsigned long)at;
}

/* Memory with reads that wait forever; 0: unavailable here. */
static unsigned long waits(void)
{
	const unsigned long at = filled(0, 1ul << 20);
	struct uffdio_api api = { .api = UFFD_API };
	struct uffdio_register area = { .range = { at, 1ul << 20 }, .mode = UFFDIO_REGISTER_MODE_MISSING };
	int fd = (int)syscall(SYS_userfaultfd, 0);

	return fd < 0 || ioctl(fd, UFFDIO_API, &api) || ioctl(fd, UFFDIO_REGISTER, &area) ? 0 : at;
}

static void put(char *at, uint64_t value, size_t bytes)
{
	const unsigned long page = (unsigned long)at & -4096ul;

	mprotect((void *)page, 8192, PROT_READ | PROT_WRITE);
	memcpy(at, &value, bytes);
}

int main(void)
{
	const unsigned long zeros = filled(0, 1ul << 34), ones = filled(0xff, 1ul << 20),
			    some = filled(0x11, 1ul << 20);
	char name[64], value[64], line[200], *at = NULL;
	const struct kmem_record_field *field = NULL;
	uint64_t was = 0;
	static struct mem_cgroup *group;

	group = mem_cgroup_create(NULL, "group", 0);
	kfree(kmalloc_in(group, 100, GFP_KERNEL));
	if (!kmalloc(100, GFP_KERNEL) || !kvmalloc(8 << 20, GFP_KERNEL))
		return 1;
	root = find_root();
	const struct kmem_record_field *fields = root->head.fields;
	const size_t count = root->head.field_count;
	for (size_t i = 0; i < count; i++)
		if (strchr(fields[i].name, '.') && fields[i].each && base_of(fields[i].name))
			printf("%s\n", fields[i].name);
	puts("ready");
	fflush(stdout);
	while (fgets(line, sizeof(line), stdin) && sscanf(line, "%63s %63s", name, value) == 2) {
		if (at)
			put(at, was, field->each);
		for (field = fields; strcmp(field->name, name); field++)
			;
		at = base_of(name) + field->offset;
		was = 0;
		memcpy(&was, at, field->each);
		put(at, !strcmp(value, "zeros") ? zeros : !strcmp(value, "ones") ? ones :
		    !strcmp(value, "some") ? some : !strcmp(value, "waits") ? waits() :
		    strtoul(value, NULL, 0), field->each);
		puts("done");
		fflush(stdout);
	}
	return 0;
}
