/*
 * A program whose objects look lost at each moment, like objects that were young at the read of the memory with
 * their pointers: the pointers are inverted. Each millisecond a thread replaces them by others, at the same
 * addresses. Some other objects are really lost: "lost ADDRESS". Then the program prints "ready", and waits to be
 * killed.
 */
#include <kmem/kmem.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#define COUNT	1000u
#define LOST	20u

struct object { uint64_t number, more[7]; };
static uintptr_t hidden[COUNT];

static __attribute__((noinline)) void lose(struct kmem_cache *cache)
{
	for (unsigned i = 0; i < LOST; i++) {
		struct object *object = kmem_cache_zalloc(cache, GFP_KERNEL);

		if (object)
			printf("lost 0x%lx\n", (unsigned long)object);
	}
}

static __attribute__((noinline)) void clear_stack(void)
{
	volatile char room[16384];

	memset((char *)room, 0, sizeof(room));
}

int main(void)
{
	struct kmem_cache *cache = KMEM_CACHE(object, SLAB_PANIC);

	lose(cache);
	for (unsigned i = 0; i < COUNT; i++)
		hidden[i] = ~(uintptr_t)kmem_cache_zalloc(cache, GFP_KERNEL);
	clear_stack();
	printf("ready\n");
	fflush(stdout);
	for (uint64_t number = 1;; number++) {
		for (unsigned i = 0; i < COUNT; i++)
			((struct object *)~hidden[i])->number = number;
		usleep(1000);
	}
}
