/*
 * A program with a list, with nodes put in and taken out on request: the reader of the program's memory makes
 * requests just before and just behind a read of the pointers to these nodes. So each scan misses the way to the
 * rest of the list, in the list and in the removed nodes. All nodes are held: "held ADDRESS". Some other objects
 * are lost: "lost ADDRESS". Then the program prints "ready", and waits to be killed.
 *
 * Its argument is the file for the requests, a page of zeros.
 */
#include <fcntl.h>
#include <kmem/kmem.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#define COUNT	4000u
#define PLACES	4u			/* in the list, where nodes are taken out */
#define LOST	20u

struct node {
	struct node *next;
	char bytes[56];
};
struct turn {
	uint64_t page[2];		/* the place of the pointers to the moving nodes */
	volatile uint64_t asked, done;	/* odd: they are in the list, even: they are not */
};

static struct node *nodes[COUNT];	/* by address; cleared before any read */
static struct node **head;		/* an object of another cache */
static struct node *volatile movers[PLACES];
static volatile uintptr_t before[PLACES];	/* the address of the word with the pointer to each, inverted, so that
						 * no pointer is kept */

/* Without memory of its own; addresses would stay there. */
static void sort(void)
{
	for (unsigned i = 1; i < COUNT; i++)
		for (unsigned k = i; k && (uintptr_t)nodes[k] < (uintptr_t)nodes[k - 1]; k--) {
			struct node *higher = nodes[k - 1];

			nodes[k - 1] = nodes[k];
			nodes[k] = higher;
		}
}

/*
 * In each quarter the head's word or a node of low address leads to one of high address, and this one to the
 * rest.
 */
static __attribute__((noinline)) void make(struct kmem_cache *cache, struct turn *turn)
{
	struct node **at = head;
	unsigned next = PLACES, each = (COUNT - 2 * PLACES) / PLACES;

	for (unsigned i = 0; i < COUNT; i++)
		nodes[i] = kmem_cache_zalloc(cache, GFP_KERNEL | __GFP_NOFAIL);
	sort();
	turn->page[0] = (uintptr_t)head & ~(uint64_t)4095;
	turn->page[1] = (uintptr_t)nodes[0] & ~(uint64_t)4095;
	for (unsigned place = 0; place < PLACES; place++) {
		if (place) {
			*at = nodes[place];
			at = &nodes[place]->next;
		}
		before[place] = ~(uintptr_t)at;
		movers[place] = *at = nodes[COUNT - 1 - place];
		at = &(*at)->next;
		for (unsigned i = 0; i < each; i++, next++) {
			*at = nodes[next];
			at = &nodes[next]->next;
		}
	}
	*at = nodes[0];
	for (unsigned i = 0; i < COUNT; i++)
		printf("held 0x%lx\n", (unsigned long)nodes[i]);
	memset(nodes, 0, sizeof(nodes));
	for (unsigned i = 0; i < LOST; i++)
		printf("lost 0x%lx\n", (unsigned long)kmem_cache_zalloc(cache, GFP_KERNEL | __GFP_NOFAIL));
}

static __attribute__((noinline)) void move(bool in)
{
	for (unsigned place = 0; place < PLACES; place++) {
		struct node **at = (struct node **)~before[place];

		if (in && *at != movers[place]) {
			movers[place]->next = *at;
			*at = movers[place];
		} else if (!in && *at == movers[place]) {
			*at = movers[place]->next;
			movers[place]->next = NULL;
		}
	}
}

static __attribute__((noinline)) void clear_stack(void)
{
	volatile char room[16384];

	memset((char *)room, 0, sizeof(room));
}

int main(int argc, char **argv)
{
	struct kmem_cache *cache = kmem_cache_create("node", sizeof(struct node), 0, SLAB_NO_MERGE | SLAB_PANIC, NULL);
	int file = open(argv[1], O_RDWR);
	struct turn *turn = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);

	if (turn == MAP_FAILED)
		return 1;
	head = kmem_cache_zalloc(kmem_cache_create("head", 32, 0, SLAB_NO_MERGE | SLAB_PANIC, NULL),
				 GFP_KERNEL | __GFP_NOFAIL);
	make(cache, turn);
	clear_stack();
	printf("ready\n");
	fflush(stdout);
	for (;;) {
		uint64_t asked = turn->asked;

		if (asked != turn->done)
			move(asked % 2);
		clear_stack();
		turn->done = asked;
		usleep(100);
	}
}
