/*
 * Lost objects, and held objects, in all known ways, for `kmem leaks`. lost WAY: prints a line "lost ADDRESS" or
 * "held ADDRESS" for each, then "ready", and waits to be killed; busy: other threads allocate, free, and pass objects
 * on meanwhile; core: dumps core. WAY 0: all of them. With -DMALLOC the program is unaware of libkmem.
 */
#define _GNU_SOURCE
#include <pthread.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#ifdef MALLOC
#define get(bytes) malloc(bytes)
#define put(p) free(p)
#else
#include <kmem/kmem.h>
#include <kmem/memcg.h>
#include <kmem/rcu.h>
static void *get(size_t bytes)
{
	return kvmalloc(bytes, GFP_KERNEL);
}
#define put(p) kvfree(p)
#endif

#define EACH 20

struct node {
	struct node *next, *other;
	char bytes[80];
};

/* Addresses in a form that no scan takes for pointers. */
static uintptr_t hidden[8192];
static char kinds[8192];
static unsigned count;

static void note(const void *p, int lost)
{
	kinds[count] = (char)lost;
	hidden[count++] = ~(uintptr_t)p;
}

static struct node *node(int lost)
{
	struct node *node = get(sizeof(*node));

	memset(node, 0, sizeof(*node));
	note(node, lost);
	return node;
}

static void *volatile globals[8192];
static unsigned used;
static volatile int waits;
static __thread void *volatile local;

static void keep(void *p)
{
	globals[used++] = p;
}

static void single(void)
{
	for (int i = 0; i < EACH; i++) {
		node(1);
		keep(node(0));
	}
}

static struct node *chain(int lost, int length)
{
	struct node *first = NULL;

	while (length--) {
		struct node *node_ = node(lost);

		node_->next = first;
		first = node_;
	}
	return first;
}

static void chains(void)
{
	chain(1, EACH);
	keep(chain(0, EACH));
}

static struct node *ring(int lost, int length)
{
	struct node *last = node(lost), *first = last;

	while (--length) {
		struct node *node_ = node(lost);

		node_->next = first;
		first->other = node_;
		first = node_;
	}
	last->next = first;
	first->other = last;
	return first;
}

static void rings(void)
{
	ring(1, EACH);
	keep(ring(0, EACH));
}

static void self(void)
{
	for (int i = 0; i < EACH; i++) {
		struct node *node_ = node(1);

		node_->next = node_;
	}
}

static void tail(void)
{
	ring(1, 3)->other->other = chain(1, EACH);
}

static void inside(void)
{
	for (int i = 0; i < EACH; i++)
		keep(node(0)->bytes + 3 * i);
	for (int i = 0; i < EACH; i++)
		node(1);
}

/* A held object points to the middle of the next, and so does a lost one. */
static void inside_chain(void)
{
	struct node *first = node(0);

	keep(first);
	for (int i = 0; i < EACH; i++) {
		struct node *next = node(0), *lost = node(1);

		first->next = (struct node *)(next->bytes + 40);
		lost->next = next;
		first = next;
	}
}

static void lost_to_held(void)
{
	struct node *held = node(0);

	keep(held);
	for (int i = 0; i < EACH; i++)
		node(1)->next = held;
}

static void array(int lost)
{
	void **array = get(EACH * sizeof(*array));

	note(array, lost);
	for (int i = 0; i < EACH; i++)
		array[i] = node(lost);
	if (!lost)
		keep(array);
}

static void arrays(void)
{
	array(1);
	array(0);
}

static void freed(void)
{
	struct node *some[EACH];

	/* Free objects point to lost ones, and are not lost themselves. */
	for (int i = 0; i < EACH; i++) {
		some[i] = get(sizeof(struct node));
		some[i]->other = node(1);
	}
	for (int i = 0; i < EACH; i++)
		put(some[i]);
	memset(some, 0, sizeof(some));
}

static void sized(size_t bytes)
{
	void *lost = get(bytes), **held = get(bytes);

	memset(held, 0, bytes);
	memset(lost, 0, bytes);
	note(lost, 1);
	note(held, 0);
	held[bytes / sizeof(void *) - 1] = node(0);
	keep((char *)held + bytes / 2);
}

static void small(void)
{
	for (size_t bytes = 16; bytes <= 4096; bytes *= 2)
		sized(bytes);
}

static void pages(void)
{
	for (size_t bytes = 12000; bytes < 1000000; bytes *= 3)
		sized(bytes);
}

static void big(void)
{
	sized((size_t)5 << 20);
	sized((size_t)9 << 20);
}

/*
 * Threads wait with an object in a register or on the stack; one of them has its object in a thread
 * variable.
 */
/* Clears vector registers: after a copy of two addresses at once they may keep the addresses to the end. */
static void wipe_vectors(void)
{
#if defined(__x86_64__)
	__asm__ volatile("pxor %%xmm0, %%xmm0; pxor %%xmm1, %%xmm1; pxor %%xmm2, %%xmm2; pxor %%xmm3, %%xmm3;"
			 "pxor %%xmm4, %%xmm4; pxor %%xmm5, %%xmm5; pxor %%xmm6, %%xmm6; pxor %%xmm7, %%xmm7;"
			 "pxor %%xmm8, %%xmm8; pxor %%xmm9, %%xmm9; pxor %%xmm10, %%xmm10; pxor %%xmm11, %%xmm11;"
			 "pxor %%xmm12, %%xmm12; pxor %%xmm13, %%xmm13; pxor %%xmm14, %%xmm14; pxor %%xmm15, %%xmm15"
			 ::: "xmm0", "xmm1", "xmm2", "xmm3", "xmm4", "xmm5", "xmm6", "xmm7", "xmm8", "xmm9", "xmm10",
			 "xmm11", "xmm12", "xmm13", "xmm14", "xmm15");
#endif
}

static void *wait_with(void *way)
{
	struct node *volatile mine = node(0);

	if (way)
		local = mine, mine = NULL;
	wipe_vectors();
	waits = 1;
	for (;;)
		pause();
	return mine;
}

static void threads(void *way)
{
	for (int i = 0; i < 3; i++) {
		pthread_t thread;

		waits = 0;
		pthread_create(&thread, NULL, wait_with, way);
		while (!waits)
			usleep(1000);
	}
}

static void on_stacks(void)
{
	threads(NULL);
}

static void of_threads(void)
{
	threads((void *)1);
}

/* Contents left on the stack by an ended function, far below the frames in use. */
static __attribute__((noinline)) void leave(void)
{
	struct node *volatile left[2048];

	/* A register of the thread before may have where this one is, as what comes next. */
	keep(node(0));
	for (int i = 0; i < EACH; i++)
		left[i] = node(1);
}

static void *leave_and_wait(void *unused)
{
	leave();
	return wait_with(unused);
}

/* Neighbouring stacks in one mapping, and the memory behind them. */
static void neighbours(void)
{
	const size_t bytes = 256 << 10;
	char *stacks = mmap(NULL, 3 * bytes + 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	for (int i = 0; i < 3; i++) {
		pthread_attr_t attributes;
		pthread_t thread;

		waits = 0;
		pthread_attr_init(&attributes);
		pthread_attr_setstack(&attributes, stacks + (size_t)i * bytes, bytes);
		pthread_create(&thread, &attributes, leave_and_wait, NULL);
		while (!waits)
			usleep(1000);
	}
	*(struct node **)(stacks + 3 * bytes + 8) = node(0);
}

static void trees(void)
{
	struct node *tree[EACH];

	for (int i = 0; i < EACH; i++) {
		tree[i] = node(i % 2);
		if (i >= 2) {
			struct node *above = tree[((i - 2) / 4) * 2 + i % 2];

			*(above->next ? &above->other : &above->next) = tree[i];
		}
	}
	keep(tree[0]);
	memset(tree, 0, sizeof(tree));
}

static void reallocated(void)
{
	for (int i = 0; i < EACH; i++) {
		struct node *before = get(sizeof(*before));

		put(before);
		note(get(sizeof(*before)), 1);
	}
}

static void odd(void)
{
	for (int i = 1; i < EACH; i++) {
		struct node *node_ = get(24 * i);

		memset(node_, 0, 24 * i);
		note(node_, 1);
		keep(node_ = get(24 * i));
		memset(node_, 0, 24 * i);
		note(node_, 0);
	}
}

#ifdef MALLOC
static void caches(void)
{
	single();
}

static void groups(void)
{
	chains();
}

static void waiting(void)
{
	rings();
}
#else
/* An RCU with a reader that never ends. */
static void call(struct kmem_rcu_head *head, void (*func)(struct kmem_rcu_head *head))
{
	(void)head, (void)func;
}

static void end(void)
{
}

/*
 * Freed objects that wait for a grace period: the first for the period under way, the others for the next, in blocks
 * of pointers, and linked by their own heads. Readers may go on from each.
 */
static void waiting(void)
{
	static const struct kmem_rcu rcu = { call, end, end };

	kmem_set_rcu(&rcu);
	for (int i = 0; i < 40 * EACH; i++) {
		struct node *first = node(0);

		first->other = node(0);
		node(i % 40 == 0);
		if (i % 40)
			keep((void *)~hidden[count - 1]);
		if (i % 8)
			kmem_free_rcu(first, offsetof(struct node, bytes));
		else
			kmem_free_rcu_nolock(first, offsetof(struct node, bytes));
	}
}

static void caches(void)
{
	struct kmem_cache_args args = { .sheaf_capacity = 30 };
	struct kmem_cache *sheaves = kmem_cache_create("in sheaves", 96, &args, 0);
	struct slab_sheaf *sheaf = kmem_cache_prefill_sheaf(sheaves, GFP_KERNEL, EACH);
	struct kmem_cache *cache = kmem_cache_create("lost ones", 200, NULL, 0);

	for (int i = 0; i < EACH; i++) {
		void **lost = kmem_cache_zalloc(cache, GFP_KERNEL), **held = kmem_cache_zalloc(cache, GFP_KERNEL);

		note(lost, 1);
		note(held, 0);
		*lost = held;
		keep(held);
	}
	/* Objects in a sheaf of the program are not lost. */
	if (sheaf)
		keep(sheaf);
}

static void groups(void)
{
	struct mem_cgroup *group = mem_cgroup_create(NULL, "tenant", 0);

	for (int i = 0; group && i < EACH; i++) {
		void **lost = kmalloc_in(group, 100, GFP_KERNEL | __GFP_ZERO);
		void **held = kmalloc_in(group, 100, GFP_KERNEL | __GFP_ZERO);

		note(lost, 1);
		note(held, 0);
		keep(held);
	}
}
#endif

static void (*const ways[])(void) = {
	single, chains, rings, self, tail, inside, inside_chain, lost_to_held, arrays, freed, small, pages, big,
	on_stacks, of_threads, trees, reallocated, odd, caches, groups,
	waiting, neighbours,
};

/* Objects come and go, and are handed from thread to thread: none of them is ever lost. */
static void *swap[512];

static void *work(void *arg)
{
	unsigned long state = (unsigned long)(uintptr_t)arg + 1;

	for (;;) {
		state = state * 6364136223846793005ul + 1442695040888963407ul;
		unsigned at = (unsigned)(state >> 33) % 512;
		void *p = __atomic_exchange_n(&swap[at], get(16 + (state >> 50) % 600), __ATOMIC_ACQ_REL);

		if (p)
			p = __atomic_exchange_n(&swap[(at * 7 + 1) % 512], p, __ATOMIC_ACQ_REL);
		if (p)
			put(p);
	}
	return NULL;
}

/* Clears the stack below main's frame of addresses. */
static __attribute__((noinline)) void wipe(void)
{
	volatile char bytes[65536];

	for (size_t i = 0; i < sizeof(bytes); i++)
		bytes[i] = 0;
}

int main(int argc, char **argv)
{
	unsigned way = (unsigned)atoi(argv[1]);
	pthread_t thread;

	for (unsigned i = 0; i < sizeof(ways) / sizeof(*ways); i++)
		if (!way || way == i + 1)
			ways[i]();
	wipe();
	wipe_vectors();
	for (unsigned i = 0; i < count; i++)
		printf("%s 0x%lx\n", kinds[i] ? "lost" : "held", ~hidden[i]);
	for (uintptr_t i = 0; i < 2 && argc > 2 && !strcmp(argv[2], "busy"); i++)
		pthread_create(&thread, NULL, work, (void *)i);
	printf("ready\n");
	fflush(stdout);
	if (argc > 2 && !strcmp(argv[2], "core"))
		abort();
	for (;;)
		pause();
}
