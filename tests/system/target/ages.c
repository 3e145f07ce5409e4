/*
 * ages: the program of the images in tests/system/images: a process with known objects that dumps core. It prints the
 * addresses of three objects of "elder": a held one, a lost one, and a free one. Made with the library of its age:
 *
 * cc -static -O1 -Iinclude ages.c build/libkmem.a -lpthread; setarch -R ./a.out; xz core
 *
 * with the constant pages of its file put into the core, because no other machine has the file.
 */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>

#include <kmem/kmem.h>
#include <kmem/memcg.h>

#define HELD	3000
#define LOST	40
#define BLOCKS	70

void *held[HELD], *blocks[BLOCKS], *paid[BLOCKS];
/* Addresses in a form that no scan takes for pointers. */
static uintptr_t hidden[LOST];

static void __attribute__((noinline)) lose(struct kmem_cache *cache)
{
	for (int i = 0; i < LOST; i++)
		hidden[i] = ~(uintptr_t)kmem_cache_alloc(cache, GFP_KERNEL);
}

static void __attribute__((noinline)) clean(void)
{
	char volatile stack[65536];

	for (size_t i = 0; i < sizeof(stack); i++)
		stack[i] = 0;
}

int main(void)
{
	struct rlimit all = { RLIM_INFINITY, RLIM_INFINITY };
	struct kmem_cache *elder = kmem_cache_create("elder", 100, NULL, 0);
	struct kmem_cache *charged = kmem_cache_create("elder-paid", 200, NULL, SLAB_ACCOUNT);
	struct mem_cgroup *group = mem_cgroup_create(NULL, "elders", 0);

	for (int i = 0; i < HELD; i++)
		held[i] = kmem_cache_alloc(elder, GFP_KERNEL);
	for (int i = 0; i < BLOCKS; i++)
		blocks[i] = kmalloc(300, GFP_KERNEL);
	set_active_memcg(group);
	for (int i = 0; i < BLOCKS; i++)
		paid[i] = kmem_cache_alloc(charged, GFP_KERNEL);
	set_active_memcg(NULL);
	lose(elder);
	void *freed = held[HELD / 2];
	uintptr_t gone = ~(uintptr_t)freed;
	held[HELD / 2] = NULL;
	kmem_cache_free(elder, freed);
	freed = NULL;
	clean();
	printf("held 0x%lx lost 0x%lx free 0x%lx\n", (long)held[7], (long)~hidden[3], (long)~gone);
	fflush(stdout);
	setrlimit(RLIMIT_CORE, &all);
	abort();
}
