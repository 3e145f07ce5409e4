/* Parts of interfaces whose calls have only a size. For the interfaces (api/) without a cache. */
#ifndef BENCH_API_SIZE_H
#define BENCH_API_SIZE_H

#include "frame/bench.h"

struct api {
	size_t size;
};

bench_inline struct api api_open(size_t size)
{
	return (struct api){ size };
}

bench_inline void api_close(struct api api)
{
	(void)api;
}

/* The start of a slab is unknown: pages stand for slabs. */
bench_inline unsigned int api_slab_shift(struct api api)
{
	(void)api;
	return 12;
}

#endif
