/*
 * `threads-4k` charged to one group: as works/threads.h, with the atomic operations of all threads on shared lines for
 * each alloc+free. Included after an interface with accounting (api/).
 */
#ifndef BENCH_WORK_ACCOUNT_THREADS_H
#define BENCH_WORK_ACCOUNT_THREADS_H

#include "works/threads.h"

static struct {
	_Atomic(uint64_t) ops, atomics;
} crowd;

static void crowd_body(struct member *member)
{
	const struct api api = threads_api;
	uint64_t before = mem_cgroup_atomics();

	account_enter();
	crew_start(member);
	member->ops = threads_work(api);
	atomic_fetch_add(&crowd.ops, member->ops);
	atomic_fetch_add(&crowd.atomics, mem_cgroup_atomics() - before);
	crew_finish(member);
}

static void account_threads(const struct cell *cell)
{
	threads_api = api_open(cell->size);
	crew_run(cell->threads, crowd_body, false);
	bench_print("atomics/op", "-", "-",
		    (double)atomic_load(&crowd.atomics) / (double)atomic_load(&crowd.ops));
	api_close(threads_api);
}

#endif
