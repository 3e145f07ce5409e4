/*
 * `kmem who`: print the object at an address: cache, group, slab and neighbours, and if known the age and the stack
 * of the allocation. Invariant: the program is not stopped, and no code of the command runs in the program.
 *
 * Exit status: 0; 1 if libkmem has no object at the address, or a read failed; 2 wrong usage.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "command.h"
#include "leaks/core_dump.h"
#include "leaks/leaks.h"

static const char usage_text[] =
	"usage: kmem who PID|CORE ADDRESS...\n"
	"Print the object of each address: its cache, slab, neighbours, and the group\n"
	"charged. Objects debugged with U (kmem debug) and guarded objects have their\n"
	"age and the stack of the allocation too. The program does not stop.\n"
	"Example:\n"
	"  kmem who $(pidof server) 0x7f85b5802240 | kmem symbols\n";

static const char *state_of(const struct heap *heap, const struct heap_piece *piece, uint64_t object)
{
	if (piece->unknown)
		return "of an engine unknown to this kmem";
	if (heap_bit(heap->live, object))
		return piece->kind == HEAP_OF_GUARD ? "allocated, guarded" : "allocated";
	if (piece->kind == HEAP_OF_SLOB)
		return "free";
	return heap_bit(heap->ready, object) ? "free, cached" : "free";
}

static void print_neighbour(const struct heap *heap, const struct heap_piece *piece, const char *which, uint64_t object)
{
	printf("  %-12s0x%lx, %s\n", which, (unsigned long)heap_address(piece, object), state_of(heap, piece, object));
}

/* In a slob page the blocks before and behind the object have different sizes. */
static void print_neighbours(const struct heap *heap, const struct heap_piece *piece, uint64_t object)
{
	uint64_t behind = object + (piece->kind == HEAP_OF_SLOB ? heap_bytes(heap, piece, object) / piece->each : 1);
	uint64_t before = object - 1;

	if (object > piece->first && heap_object(heap, piece, heap_address(piece, before), &before))
		print_neighbour(heap, piece, "before", before);
	if (behind < piece->first + piece->count)
		print_neighbour(heap, piece, "behind", behind);
}

static void print_slab(const struct heap *heap, const struct heap_piece *piece, uint64_t object)
{
	unsigned live = 0, ready = 0;

	for (uint64_t i = piece->first; i < piece->first + piece->count; i++) {
		live += heap_bit(heap->live, i);
		ready += heap_bit(heap->ready, i);
	}
	printf("  %-12s0x%lx, %u page%s: ", piece->kind == HEAP_OF_SLAB ? "slab" : "page", (unsigned long)piece->slab,
	       piece->pages, piece->pages == 1 ? "" : "s");
	if (piece->kind == HEAP_OF_SLAB)
		printf("object %" PRIu64 " of %u, %u allocated, %u cached\n", object - piece->first, piece->count,
		       live, ready);
	else
		printf("shared by caches of slob, %u allocated\n", live);
}

static void print_cache(const struct heap *heap, const struct heap_piece *piece)
{
	if (piece->cache == HEAP_NO_CACHE) {
		printf("  %-12s%s\n", "cache", piece->kind == HEAP_OF_SLOB ?
		       "unknown: pages of slob do not record the cache" : "none: a block of whole pages");
		return;
	}
	const struct heap_cache *cache = &heap->caches[piece->cache];
	printf("  %-12s%s, engine %s, %u bytes for %u%s\n", "cache", cache->copy.name, cache->engine_name,
	       cache->copy.size, cache->copy.object_size, cache->copy.sibling_of ? ", debugged" : "");
}

static void print_origin(const struct subject *subject, struct heap *heap, const struct heap_piece *piece,
			 uintptr_t object)
{
	struct heap_track track;

	if (!heap_track(heap, piece, object, &track))
		return;
	if (track.when && heap->now_ms >= track.when)
		printf("  %-12s%.3f s\n", "age", (double)(heap->now_ms - track.when) / 1000);
	printf("  allocated by\n");
	print_stack(&subject->maps, track.frame, HEAP_FRAMES);
}

/* Print one line with the place of an address outside of all objects. */
static int tell_none(const struct subject *subject, const struct heap *heap, const struct heap_piece *piece,
		     uintptr_t address)
{
	const struct map *map = maps_find(&subject->maps, address);
	unsigned long p = address;

	if (piece)
		return kmem_failed(1, "who", "0x%lx: between the objects of a slab of %s", p, heap_name(heap, piece));
	if (!map)
		return kmem_failed(1, "who", subject->target.core && subject->target.core->cut ?
				   "0x%lx: not in the dump, because the dump is cut off" :
				   "0x%lx: no memory is mapped there", p);
	if (!map->file && address - heap->lowest < heap->highest - heap->lowest)
		return kmem_failed(1, "who", "0x%lx: in no object: free memory, or memory outside of libkmem", p);
	return kmem_failed(1, "who", "0x%lx: not memory of libkmem: %s", p, map->name ?: "a mapping without a name");
}

static int tell(struct subject *subject, struct heap *heap, uintptr_t address)
{
	const struct heap_piece *piece = heap_piece(heap, address);
	char group[KMEM_RECORD_NAME_BYTES * 4];
	uint64_t object;

	if (!piece || !heap_object(heap, piece, address, &object))
		return tell_none(subject, heap, piece, address);
	uintptr_t start = heap_user_address(heap, piece, object);
	printf("0x%lx: %lu bytes into an object of %zu bytes, %s\n", (unsigned long)address,
	       (unsigned long)(address - start),
	       heap_bytes(heap, piece, object) - (start - heap_address(piece, object)), state_of(heap, piece, object));
	print_cache(heap, piece);
	if (heap_group(heap, piece, start, group, sizeof(group)))
		printf("  %-12s%s\n", "group", group);
	else if (piece->cache != HEAP_NO_CACHE && heap->caches[piece->cache].copy.group)
		printf("  %-12sprivate, number %u\n", "group", heap->caches[piece->cache].copy.group);
	if (piece->kind == HEAP_OF_SLAB || piece->kind == HEAP_OF_SLOB) {
		print_slab(heap, piece, object);
		print_neighbours(heap, piece, object);
	} else {
		printf("  %-12s0x%lx, %zu bytes\n", "block", (unsigned long)start, piece->each);
	}
	if (heap_bit(heap->live, object))
		print_origin(subject, heap, piece, start);
	return 0;
}

static uintptr_t parse(const char *text)
{
	char *end;

	errno = 0;
	uintptr_t address = strtoull(text, &end, 0);
	if (errno || end == text || *end || *text == '-')
		kmem_usage("who", "'%s' is not an address", text);
	return address;
}

int cmd_who(int argc, char **argv)
{
	struct subject subject;
	struct heap heap;
	int status;

	if (argc == 2 && !strcmp(argv[1], "--help"))
		kmem_help(usage_text);
	if (argc < 3)
		kmem_usage("who", "a process or core dump and an address are needed; see kmem who --help");
	for (int i = 2; i < argc; i++)
		parse(argv[i]);
	if (!subject_open(&subject, "who", info_process("who", argv[1], true)))
		return 1;
	status = subject_load(&subject, &heap);
	for (int i = 2; !status && i < argc; i++)
		status = tell(&subject, &heap, parse(argv[i]));
	status = status ?: subject_is_other(&subject);
	if ((fflush(stdout) || ferror(stdout)) && !status)
		status = kmem_failed(1, "who", "writing: %s", strerror(errno));
	heap_clear(&heap);
	return status;
}
