/*
 * stat_meanwhile.c: the figures of a group, read while another thread takes the group offline, include no word given
 * back by the group: on each CPU the group's words may belong to another group by then. Disciplines: all.
 */
#define _GNU_SOURCE
#include <pthread.h>
#include <unistd.h>

#include "kit/groups.h"
#include "kit/sleeps.h"

#include "memcg/memcg_group.h"

enum { OTHERS = 4711000 };

static struct mem_cgroup *group;
static pthread_t thread;
static int reader;
static bool started, has_read;
static uint64_t in_stocks;

static void *read_figures(void *unused)
{
	km_store(&reader, (int)gettid());
	in_stocks = km_stock_bytes(group);
	km_store(&has_read, true);
	return unused;
}

/*
 * The first freed words go to another group at once. The reader has its figures, or waits for the end of this
 * call.
 */
void __real_km_percpu_free(uint32_t offset, size_t bytes);
void __wrap_km_percpu_free(uint32_t offset, size_t bytes);
void __wrap_km_percpu_free(uint32_t offset, size_t bytes)
{
	uint64_t *word = (uint64_t *)(km_area(km_percpu.home) + offset);

	if (!started && group && offset) {
		started = true;
		km_store(word, (uint64_t)OTHERS);
		NEED(pthread_create(&thread, NULL, read_figures, NULL) == 0);
		while (!km_load(&has_read) && !(km_load(&reader) && sleeps(km_load(&reader))))
			sched_yield();
		km_store(word, (uint64_t)0);
	}
	__real_km_percpu_free(offset, bytes);
}

int main(void)
{
	struct mem_cgroup *parent = group_below(NULL, "parent"), *victim = group_below(parent, "victim");

	kfree(kmalloc_in(victim, 100, GFP_KERNEL));
	group = victim;
	NEED(mem_cgroup_offline(victim) == 0);
	if (!started) {
		printf("no CPU has words\n");
		return 77;
	}
	pthread_join(thread, NULL);
	NEED(in_stocks == 0, "%lu", (unsigned long)in_stocks);
	mem_cgroup_put(victim);
	mem_cgroup_put(parent);
	return failures != 0;
}
