/* The work's operations without any code: the cost of the loop, for a comparison with a fast path in a header. */
#ifndef BENCH_API_H
#define BENCH_API_H

#include "frame/bench.h"

struct api {
	void *object;
};

bench_inline struct api api_open(size_t size)
{
	static char object[8192] __attribute__((aligned(4096)));

	(void)size;
	return (struct api){ object };
}

bench_inline void api_close(struct api api)
{
	(void)api;
}

bench_inline void *api_alloc(struct api api)
{
	__asm__ __volatile__("" : "+r"(api.object)::"memory");
	return api.object;
}

bench_inline void api_free(struct api api, void *object)
{
	(void)api;
	bench_use(object);
}

#endif
