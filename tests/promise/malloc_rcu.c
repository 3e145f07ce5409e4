/*
 * malloc_rcu.c: malloc never waits for a grace period, with any number of kfree_rcu calls under way. The caller may
 * be a reader, so that no grace period ends, or the child of a fork, without a thread to end one. This also holds
 * where malloc makes a cache for a part of a class and drops the cache as not worthwhile. Disciplines: all.
 */
#define _GNU_SOURCE
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

#include <kmem/rcu.h>

#include "kit/malloc.h"

#define MOST_BYTES ((size_t)4 << 20)

struct node {
	long value;
	struct {
		void *word[2];
	} rcu;
};

static int asked;

static void call(struct kmem_rcu_head *head, void (*function)(struct kmem_rcu_head *head))
{
	(void)head, (void)function;
	asked++;
}

static void nothing(void)
{
}

/* Waiting for a grace period fails the test. */
static void barrier(void)
{
	NEED(!"malloc waits for a grace period");
}

static void *blocks[MOST_BYTES / 256];

/* Enough blocks of one size for a cache of its own, where slabs can be cut so. */
static void many_of(size_t size)
{
	size_t n = 0;

	for (; n < MOST_BYTES / size; n++)
		NEED(blocks[n] = malloc(size));
	while (n)
		free(blocks[--n]);
}

static void many_of_each(void)
{
	for (size_t size = 272; size <= 2048; size += 16)
		many_of(size);
}

static int in_a_child(void)
{
	int status;
	pid_t child = fork();

	if (!child) {
		many_of_each();
		_exit(0);
	}
	return child < 0 || waitpid(child, &status, 0) != child ? -1 : status;
}

int main(void)
{
	static const struct kmem_rcu rcu = { .call = call, .synchronize = nothing, .barrier = barrier };
	struct node *node = kmalloc(sizeof(*node), GFP_KERNEL);

	check_ours();
	NEED(node && !kmem_set_rcu(&rcu));
	kfree_rcu(node, rcu);
	NEED(asked == 1);
	NEED(!in_a_child());
	many_of_each();
	NEED(asked == 1);
	return 0;
}
