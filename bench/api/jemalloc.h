/*
 * The work's operations over jemalloc's experimental batch allocation, reached through mallctl. jemalloc has no batch
 * free, so frees are a loop.
 */
#ifndef BENCH_API_H
#define BENCH_API_H

#include <stdlib.h>

#include "frame/bench.h"

int mallctlnametomib(const char *name, size_t *mib, size_t *length);
int mallctlbymib(const size_t *mib, size_t length, void *old, size_t *old_length, void *new_value,
		 size_t new_length);

struct api {
	size_t size;
	size_t mib[2];
};

/* The layout of experimental.batch_alloc in jemalloc's manual. */
struct api_packet {
	void **objects;
	size_t count;
	size_t size;
	int flags;
};

bench_inline struct api api_open(size_t size)
{
	struct api api = { .size = size };
	size_t length = 2;

	if (mallctlnametomib("experimental.batch_alloc", api.mib, &length) || length != 2)
		bench_die("this jemalloc has no experimental.batch_alloc");
	return api;
}

bench_inline void api_close(struct api api)
{
	(void)api;
}

bench_inline bool api_alloc_bulk(struct api api, size_t count, void **objects)
{
	struct api_packet packet = { objects, count, api.size, 0 };
	size_t filled = 0, length = sizeof(filled);

	return !mallctlbymib(api.mib, 2, &filled, &length, &packet, sizeof(packet)) &&
	       filled == count;
}

bench_inline void api_free_bulk(struct api api, size_t count, void **objects)
{
	(void)api;
	for (size_t i = 0; i < count; i++)
		free(objects[i]);
}

#endif
