/* What an interface needs whose calls know nothing but a size. For the interfaces (api/) that have no cache. */
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

/* Where its slabs begin is its secret: pages stand for them. */
bench_inline unsigned int api_slab_shift(struct api api)
{
	(void)api;
	return 12;
}

#endif
