/*
 * A program with a false record of libkmem. liar other: its record is of another kind. liar SEED: the record is
 * valid, and all data behind the record are invalid: wild pointers, loops, absurd counts; beyond seed 40 the table of
 * fields is invalid, too. liar below: all data are valid except for one freelist, and an engine's name that JSON must
 * escape. Prints "ready" and waits to be killed.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "cache/process_record.h"
#include "memcg/memcg_group.h"

#define WORDS (1u << 16)	/* of nonsense */

static unsigned long state;

static unsigned long any(void)
{
	state = state * 6364136223846793005ul + 1442695040888963407ul;
	return state >> 20 ^ state << 30;
}

/* A pointer into the invalid data, mostly; else an odd or wild one, or NULL. */
static unsigned long pointer(const unsigned long *nonsense)
{
	switch (any() % 16) {
	case 0:
		return 0;
	case 1:
		return any();
	case 2:
		return (unsigned long)nonsense + any() % (WORDS * 8);
	default:
		return (unsigned long)(nonsense + any() % (WORDS - 64) / 8 * 8);
	}
}

static void fill(unsigned long *nonsense)
{
	for (unsigned i = 0; i < WORDS; i++)
		nonsense[i] = any() % 3 ? pointer(nonsense) : any() % 4 ? any() % 64 : any();
}

static struct km_engine engines[3] = {
	{ .name = "none", .front = KM_PERCPU_NONE },
	{ .name = "array", .front = KM_PERCPU_SHEAVES },
	{ .name = "chain", .front = KM_PERCPU_FREELIST },
};

/* A ring of caches, each with invalid engine, nodes and sheaves, some of them damaged. */
static void make_caches(struct km_list *head, unsigned *count, unsigned long *nonsense)
{
	struct kmem_cache *caches = (struct kmem_cache *)nonsense;

	km_list_init(head);
	*count = 0;
	for (unsigned i = 0; i < 20; i++) {
		struct kmem_cache *cache = &caches[i];

		cache->layout.dead = false;
		if (any() % 16)
			cache->layout.engine = &engines[any() % 3];
		for (unsigned node = 0; node < KM_MAX_NODES; node++)
			cache->state.node[node] = any() % 3 ? NULL : (void *)pointer(nonsense);
		cache->fast.pcs.slot = (uint32_t)(any() % 2000 * 8);
		cache->fast.pcs.sheaf_mask = (64u << any() % 8) - 1;
		cache->fast.chain.slot = (uint32_t)(any() % 300 * 64);
		cache->layout.size = (uint32_t)(any() % 9000 + 1);
		cache->layout.objects = (uint32_t)(any() % 600 + 1);
		cache->layout.order = (uint8_t)(any() % (KM_MAX_ORDER + 1));
		km_list_add_tail(&cache->registry.all, head);
		++*count;
	}
	if (any() % 2)
		caches[7].registry.all.next = &caches[any() % 20].registry.all;
	if (any() % 4 == 0)
		caches[11].registry.all.prev = (struct km_list *)pointer(nonsense);
}

/* A tree of groups with numbers, names and stocks of nonsense, some of them damaged; loops among them. */
static void make_groups(struct km_memcg_view *view, unsigned long *nonsense)
{
	static const struct km_stock *stocks;
	static unsigned stock_count;
	static struct mem_cgroup groups[20];

	memcpy(groups, nonsense, sizeof(groups));
	for (unsigned i = 0; i < 20; i++) {
		struct mem_cgroup *group = &groups[i], *parent = i ? &groups[any() % i] : NULL;

		km_list_init(&group->children);
		km_list_init(&group->objcgs);
		group->parent = parent;
		group->depth = parent ? parent->depth + 1 : 0;
		group->online = any() % 8;
		group->objcg = (void *)(nonsense + any() % 1000 * 8);
		if (any() % 4 == 0)
			group->objcgs.next = (struct km_list *)pointer(nonsense);
		if (parent)
			km_list_add_tail(&group->sibling, &parent->children);
	}
	/* One group that is its own descendant, and one with a wild sibling pointer. */
	if (any() % 4 == 0)
		groups[9].children = groups[0].children;
	if (any() % 4 == 0)
		groups[any() % 19 + 1].sibling.next = (struct km_list *)pointer(nonsense);
	if (any() % 8 == 0)
		groups[5].depth = (unsigned)any();
	stocks = (struct km_stock *)(nonsense + any() % 100 * 16);
	stock_count = (unsigned)(any() % 16 ? any() % 40 : any());
	*view = (struct km_memcg_view){ km_group_fields, &km_group_field_count, groups, &stocks, &stock_count };
}

/* The freelist's object is just below its slab; a careless reader has other data there. */
static void make_below(struct km_root *root)
{
	static struct km_list head;
	static unsigned count = 1, ranges, nodes = 1;
	static struct km_zone_counts zone;
	static size_t zero;
	static char slab[KM_PAGE_SIZE] km_aligned(KM_PAGE_SIZE);
	static struct {
		struct km_chain_cpu closed, open;
	} area;
	static struct km_percpu percpu = { .base = (char *)&area, .cpus = 1, .discipline = KM_DISCIPLINE_LOCK };
	static struct kmem_cache cache = {
		.layout.engine = &engines[2],
		.registry.name = "below",
		.layout.size = 64,
		.layout.object_size = 64,
		.layout.freeptr = 56,
		.layout.objects = 64,
		.fast.chain = {.slot = sizeof(area.closed)},
	};

	engines[2].name = "be\"low";
	area.open.top.freelist = slab - cache.layout.size;
	area.open.top.slab = km_chain_tag(slab, KM_PAGE_SHIFT);
	km_list_init(&head);
	km_list_add_tail(&cache.registry.all, &head);
	root->discipline = root->reason = "none";
	root->percpu = &percpu;
	root->caches = &head;
	root->cache_count = &count;
	root->arena = (struct km_arena_view){
		.ranges = &ranges, .nodes = &nodes, .zone = { &zone }, .bind_failures = &zero,
	};
	root->large_blocks = root->large_bytes = root->mapped_blocks = root->mapped_bytes = &zero;
	root->mapped_kept = root->mapped_spare = root->mapped_ready = &zero;
	root->meta_bytes = root->slob_pages = root->slob_units = root->own_pages = &zero;
	root->growth_at = (const uint32_t *)&zero;
	root->guard_objects = root->guard_live = root->guard_samples = root->guard_reports = &zero;
	root->hardened = "";
	root->memcg = NULL;
}

/* A table with some absurd lines. */
static void make_fields(struct km_root *root)
{
	static struct kmem_record_field fields[256];

	memcpy(fields, km_fields, km_field_count * sizeof(*fields));
	root->head.fields = fields;
	for (unsigned lies = (unsigned)(any() % 8 + 1); lies; lies--) {
		struct kmem_record_field *field = &fields[any() % km_field_count];

		switch (any() % 5) {
		case 0:
			field->offset = any() % 4 ? any() % 600 : any();
			break;
		case 1:
			field->each = (uint32_t)(any() % 2 ? 1u << any() % 5 : any());
			break;
		case 2:
			field->count = (uint32_t)(any() % 2 ? any() % 100 : any());
			break;
		case 3:
			memset(field->name, 'x', sizeof(field->name));
			break;
		default:
			*field = fields[any() % km_field_count];
		}
	}
	if (any() % 8 == 0)
		root->head.field_count = any() % 2 ? any() : any() % 5000;
	if (any() % 16 == 0)
		root->head.fields = (void *)any();
}

int main(int argc, char **argv)
{
	static struct km_list head;
	static struct km_memcg_view view;
	static unsigned count, ranges, nodes;
	static struct km_percpu percpu;
	char *at = mmap(NULL, 65536, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	unsigned long *nonsense = aligned_alloc(4096, WORDS * sizeof(*nonsense));
	struct km_root *root = (struct km_root *)(at + 16384);

	if (argc != 2 || at == MAP_FAILED || !nonsense || mprotect(root, 4096, PROT_READ | PROT_WRITE))
		return 2;
	state = strtoul(argv[1], NULL, 10);
	fill(nonsense);
	memcpy(root, nonsense, sizeof(*root));
	memcpy(root->head.magic, KMEM_RECORD_MAGIC, sizeof(root->head.magic));
	root->head.major = KMEM_RECORD_MAJOR;
	root->head.fields = km_fields;
	root->head.field_count = km_field_count;
	memcpy(root->head.version, "9.9.9 of nobody!", sizeof(root->head.version));
	if (atoi(argv[1]) > 40)
		make_fields(root);
	if (!strcmp(argv[1], "other")) {
		root->head.major++;
	} else if (!strcmp(argv[1], "below")) {
		make_below(root);
	} else if (any() % 8) {
		/* Valid far enough to be worth a read. */
		make_caches(&head, &count, nonsense);
		root->caches = &head;
		root->cache_count = &count;
		percpu = (struct km_percpu){ .base = (char *)nonsense, .cpus = any() % 2 };
		root->percpu = &percpu;
		ranges = (unsigned)(any() % 3);
		root->arena.ranges = &ranges;
		root->arena.range = (struct km_range *)nonsense;
		nodes = (unsigned)(any() % 16 ? any() % KM_MAX_NODES + 1 : any());
		root->arena.nodes = &nodes;
		for (unsigned node = 0; node < KM_MAX_NODES; node++)
			root->arena.zone[node] = (void *)pointer(nonsense);
		root->arena.bind_failures = nonsense + 1;
		root->large_blocks = root->large_bytes = root->own_pages = nonsense + 3;
		root->growth_at = (const uint32_t *)(nonsense + 6);
		root->mapped_blocks = root->mapped_bytes = root->meta_bytes = nonsense + 4;
		root->mapped_kept = root->mapped_spare = root->mapped_ready = nonsense + 5;
		make_groups(&view, nonsense);
		root->memcg = any() % 16 ? &view : (void *)pointer(nonsense);
		root->discipline = root->reason = (char *)(nonsense + any() % WORDS);
	}
	if (write(1, "ready\n", 6) != 6)
		return 5;
	for (;;)
		pause();
}
