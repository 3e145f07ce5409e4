/*
 * force_slow.c: shut the fast-path gate of another process, so that the process takes the slow path and reads the
 * mailbox (struct kmem_gate, percpu/pcpu.h). Invariant: a gate word is written only if the word has one of the two
 * values in the process record, and gets the other value. Therefore fast paths either continue or miss. If the
 * command leaves the gate shut, the program's next call opens the gate.
 *
 * The fast path of a cache made by the program reads a copy of the gate word, in the cache. Between the read of the
 * list of caches and the write, the program may destroy a cache and reuse the memory. Therefore all threads are
 * stopped for this write. The stop is the last resort: the program has caches of this kind, has run since the
 * request, and does not answer.
 *
 * A helper thread does the stop and ends afterwards. Kernel: a tracee is bound to the tracer thread. A thread that
 * could not be stopped in time stays traced, and would stop on leaving the kernel until the tracer thread ends.
 */
#include "force_slow.h"

#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>

#include "command.h"
#include "leaks/stop_threads.h"

#define FIRST_MS	100u		/* time for an answer before the first shut */
#define EACH_MS		50u		/* interval of further shuts: the thread that opened the gate may be busy */
#define STOP_MS		1000u		/* time before the first stop for the caches; doubles with each stop */
#define STOPS		3u		/* stops for one request */

void gate_find(struct gate *gate, struct target *target, const struct info_root *root)
{
	*gate = (struct gate){ .root = root, .work = target_work(target->pid) };
	if (!layout_has(&root->layout, "root.ways") || !root->record.ways ||
	    !target_read(target, &gate->there, root->record.ways, sizeof(gate->there)))
		gate->there.shut = 0;
}

static void turn(struct gate *gate, struct target *target, bool shut)
{
	const struct kmem_gate *there = &gate->there;

	for (unsigned i = 0; there->shut && i < sizeof(there->word) / sizeof(*there->word); i++) {
		const intptr_t from = shut ? there->open[i] : there->shut, to = shut ? there->shut : there->open[i];
		intptr_t is;

		if (there->word[i] && (uintptr_t)there->word[i] % sizeof(is) == 0 &&
		    target_read(target, &is, there->word[i], sizeof(is)) && is == from)
			target_write(target, there->word[i], &to, sizeof(to));
	}
}

/* ------------------------------------------------------------------ caches */

struct places {
	uintptr_t *at;
	size_t count, room;
};

/* Returns: true: the fast path reads the cache's copy of the gate word. The size caches of kmalloc and malloc and the
 * caches of large blocks are excluded, because their fast paths do not read the cache. */
static bool has_copy(const struct gate *gate, const struct rec_cache *cache)
{
	return cache->shelf.slot && cache->shelf.front.rseq == gate->there.open[1] &&
	       !(cache->flags & SLAB_KMALLOC) && strncmp(cache->name, "large-", 6);
}

/* Collect the addresses of the gate copies in all caches. Returns: false: the list is unreadable or is changing. */
static bool find_copies(const struct gate *gate, struct target *target, struct places *places)
{
	const struct layout *layout = &gate->root->layout;
	const size_t link = layout_offset(layout, "cache.all.next");
	const size_t word = layout_offset(layout, "cache.shelf.front.rseq");
	const struct rec_list *head = gate->root->record.caches, *before = head;
	struct rec_list first;
	struct rec_cache cache;
	size_t seen = 0;

	places->count = 0;
	if (!target_read(target, &first, head, sizeof(first)))
		return false;
	for (const struct rec_list *at = first.next; at != head; before = at, at = cache.all.next) {
		const uintptr_t address = (uintptr_t)at - link;

		if (seen++ == INFO_MAX_CACHES || address % sizeof(uint64_t) ||
		    !target_struct(target, layout, INFO_CACHE, &cache, (const void *)address) ||
		    info_true(&cache.dead) || cache.all.prev != before)
			return false;
		if (!has_copy(gate, &cache))
			continue;
		places->at = kmem_grow(places->at, places->count, &places->room, sizeof(*places->at));
		places->at[places->count++] = address + word;
	}
	return true;
}

static void shut_caches(struct gate *gate, struct target *target)
{
	struct places places = { .at = NULL };
	struct stop stop;

	gate->stop_error = 0;
	/* Read the list first without a stop; without copies no stop is needed. */
	if (find_copies(gate, target, &places) && !places.count)
		return;
	if (stop_begin(target->pid, &stop)) {
		if (find_copies(gate, target, &places))
			target_write_words(target, places.at, places.count, (uint64_t)gate->there.shut);
		stop_end(&stop);
		stop_clear(&stop);
	} else {
		gate->stop_error = errno;
	}
	free(places.at);
}

struct shutting {
	struct gate *gate;
	struct target *target;
};

static void *shut_and_end(void *of)
{
	const struct shutting *shutting = of;

	shut_caches(shutting->gate, shutting->target);
	return NULL;
}

/* Run shut_caches() in a helper thread. SIGALRM of leaks/stop_threads.c must reach the helper thread, which unblocks
 * the signal. All other threads of the command must block SIGALRM. */
static void shut_caches_in_thread(struct gate *gate, struct target *target)
{
	struct shutting shutting = { gate, target };
	sigset_t alarm, before;
	pthread_t thread;

	sigemptyset(&alarm);
	sigaddset(&alarm, SIGALRM);
	pthread_sigmask(SIG_BLOCK, &alarm, &before);
	if (!pthread_create(&thread, NULL, shut_and_end, &shutting))
		pthread_join(thread, NULL);
	pthread_sigmask(SIG_SETMASK, &before, NULL);
}

/* Check if a stop is due. The process must still be the same, because the process may have ended and the kernel may
 * have reused the PID. */
static bool stop_is_due(struct gate *gate, struct target *target, uint64_t now_ms)
{
	return gate->may_stop && gate->there.in_caches && gate->there.shut && gate->stops < STOPS &&
	       now_ms - gate->begun_ms >= (uint64_t)STOP_MS << gate->stops && target_work(target->pid) != gate->work &&
	       layout_has(&gate->root->layout, "cache.shelf.front.rseq cache.shelf.slot cache.all.next cache.all.prev "
					       "cache.flags cache.dead cache.name") &&
	       target_is_same(target);
}

/* ------------------------------------------------------------------ in time */

void gate_shut_if_due(struct gate *gate, struct target *target, uint64_t now_ms)
{
	if (!gate->next_ms) {
		gate->begun_ms = now_ms;
		gate->next_ms = now_ms + FIRST_MS;
	}
	if (now_ms < gate->next_ms)
		return;
	turn(gate, target, true);
	gate->next_ms = now_ms + EACH_MS;
	gate->times++;
	if (stop_is_due(gate, target, now_ms)) {
		shut_caches_in_thread(gate, target);
		gate->stops++;
	}
}

bool gate_saw_work(const struct gate *gate, const struct target *target)
{
	return target_work(target->pid) != gate->work;
}

void gate_open(struct gate *gate, struct target *target)
{
	if (gate->times)
		turn(gate, target, false);
}
