/*
 * A program that grows: some hundred objects of the cache `grows` each moment, all held. The program waits to be
 * killed.
 */
#include <kmem/kmem.h>
#include <stdio.h>
#include <unistd.h>

static __attribute__((noinline)) void *grow(struct kmem_cache *cache, void *before)
{
	void **object = kmem_cache_zalloc(cache, GFP_KERNEL);

	if (object)
		*object = before;
	return object ?: before;
}

static void *volatile last;

int main(void)
{
	struct kmem_cache *cache = kmem_cache_create("grows", 64, NULL, 0);

	printf("ready\n");
	fflush(stdout);
	for (;;) {
		for (int i = 0; i < 100; i++)
			last = grow(cache, last);
		usleep(1000);
	}
}
