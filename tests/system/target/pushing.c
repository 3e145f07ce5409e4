/*
 * A program whose lists grow at their heads, as fast as possible, up to four million objects: older objects are
 * reached through young ones only. Some other objects are lost: "lost ADDRESS". Then the program prints "ready", and
 * waits to be killed.
 */
#include <kmem/kmem.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#define OLD	200000u
#define MOST	4000000u
#define LOST	40u

struct node {
	struct node *next;
	char bytes[56];
};
static struct node *volatile heads[4];

static __attribute__((noinline)) void lose(struct kmem_cache *cache)
{
	for (unsigned i = 0; i < LOST; i++) {
		struct node *node = kmem_cache_zalloc(cache, GFP_KERNEL);

		if (node)
			printf("lost 0x%lx\n", (unsigned long)node);
	}
}

static __attribute__((noinline)) void clear_stack(void)
{
	volatile char room[16384];

	memset((char *)room, 0, sizeof(room));
}

int main(void)
{
	struct kmem_cache *cache = KMEM_CACHE(node, SLAB_PANIC);

	lose(cache);
	clear_stack();
	for (unsigned i = 0; i < MOST; i++) {
		struct node *node = kmem_cache_zalloc(cache, GFP_KERNEL | __GFP_NOFAIL);

		node->next = heads[i % 4];
		heads[i % 4] = node;
		if (i == OLD) {
			printf("ready\n");
			fflush(stdout);
		}
		if (i > OLD && i % 1000 == 0)
			usleep(100);
	}
	for (;;)
		pause();
}
