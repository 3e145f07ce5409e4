/*
 * stock.c: charging an objcg: from the byte stock of this CPU, then the CPU's page stock, then the counters.
 * Invariant, for each objcg, between two sections under a CPU's stock lock: net bytes from the page level = bytes out
 * with users + bytes in byte stocks + nr_charged_bytes. The left side is the sum of the objcg's `net` words, and
 * `charged`.
 *
 *	byte stock	a word for each group on each CPU (percpu/stock_word.h), at most two pages
 *	page stock	for each CPU seven groups' whole pages, at most 64 each; under the CPU's lock
 *
 * Kernel: the same layers; its byte stock has five slots, searched, and its counters count pages.
 *
 * Each section reads objcg->memcg once, and hands the group out only with a reference (memcg_group.h). Any CPU's lock
 * guards the group, also the lock of a CPU that the thread has left meanwhile. A second read may find the parent,
 * because the group may go offline meanwhile; the section then still uses the group of the first read.
 *
 * `usage` of a counter is never less than the bytes out: bytes are counted before use, and given back after. The one
 * exception is corrected at the next look (make_good). A reader without a lock (km_stock_bytes, `kmem info`) may see
 * moving bytes twice, or not at all.
 */
#include "page/metadata.h"
#include "os/die.h"
#include "os/probe.h"
#include "percpu/stock_word.h"
#include "memcg_group.h"

#define BATCH	64u		/* pages of one group in a page stock, at most; kernel: MEMCG_CHARGE_BATCH */

static struct km_stock *stocks;
static unsigned stock_count;		/* page stocks of CPUs; the spares follow them in the array */
const struct km_memcg_view km_memcg_view = {
	km_group_fields, &km_group_field_count, &km_memcg_root, (const struct km_stock *const *)&stocks, &stock_count,
};
/* After this number of byte stocks left behind (km_stock_close_objcg) no more byte stocks are made, because caches need
 * per-CPU words, too. */
#define MOST_WORDS_LEFT	((1u << KMEM_AREA_SHIFT) / sizeof(uint64_t) / 4)
static unsigned words_left;		/* byte stocks left behind; guarded by the tree lock */

/* Returns the number of page stocks, with the spares. A spare is for a signal handler that interrupts the holder of a
 * stock lock. A spare has no CPU and no pages; bytes charged with a spare are counted in the objcg's `charged`. */
static unsigned all_stocks(void)
{
	return stocks ? stock_count + KM_STOCK_SPARES : 0;
}

static bool is_spare(const struct km_stock *stock)
{
	return stock - stocks >= (ptrdiff_t)stock_count;
}

bool km_stock_start(void)
{
	unsigned count = km_max(km_percpu.cpus, 1u);

	if (stocks)
		return true;
	struct km_stock *fresh = km_metadata_alloc((count + KM_STOCK_SPARES) * sizeof(*fresh), true);
	if (!fresh)
		return false;
	for (unsigned i = 0; i < count + KM_STOCK_SPARES; i++)
		km_lock_init(&fresh[i].lock, KM_RANK_STOCK);
	stock_count = count;
	/* No thread reads `stocks` before the tree is unlocked: before the first group there is no objcg to charge. */
	stocks = fresh;
	return true;
}

void km_stock_fork(bool before, bool child)
{
	for (unsigned i = 0; i < all_stocks(); i++)
		km_lock_around_fork(&stocks[i].lock, before, child);
}

/* ------------------------------------------------------------------ a CPU's lock */

#define NESTED_TRIES	100

/* Returns whether per-CPU words of objcgs exist on the CPU: false while the CPU's area is offline, and without per-CPU
 * memory. */
static bool has_words(unsigned cpu)
{
	return km_cpu_is_online(cpu) || !km_percpu.cpus;
}

static struct km_stock *try_each(unsigned here, bool nested)
{
	for (unsigned i = 0; i < stock_count; i++) {
		unsigned cpu = (here + i) % stock_count;

		if (has_words(cpu) && km_trylock(&stocks[cpu].lock))
			return &stocks[cpu];
	}
	for (unsigned i = stock_count; nested && i < all_stocks(); i++)
		if (km_trylock(&stocks[i].lock))
			return &stocks[i];
	return NULL;
}

/*
 * Locks this CPU's stock, or another stock if this CPU's lock is taken, and waits only if all are taken. A handler that
 * interrupted a section of its own thread must not wait. Returns: NULL for a handler if all locks, with the spares,
 * stay taken by other threads and interrupted handlers.
 */
static struct km_stock *enter(bool nested)
{
	unsigned here = km_cpu();
	struct km_stock *stock = try_each(here, nested);

	for (int tries = NESTED_TRIES; nested && !stock && tries; tries--) {
		km_relax();
		stock = try_each(here, true);
	}
	if (stock || nested)
		return stock;
	km_debug(has_words(here) || here == km_percpu.home, "a thread waits only on a CPU with stock words");
	km_lock(&stocks[here].lock);
	return &stocks[here];
}

static void leave(struct km_stock *const *stock)
{
	if (*stock)
		km_unlock_quick(&(*stock)->lock);
}
#define stock_scope(stock, nested) struct km_stock *stock km_scoped(leave) = enter(nested)

/* ------------------------------------------------------------------ whole pages */

static unsigned find(const struct km_stock *stock, const struct mem_cgroup *group)
{
	unsigned i = 0;

	while (i < KM_STOCK_SLOTS && stock->groups[i] != group)
		i++;
	return i;
}

static uint64_t flush_pages(struct km_stock *stock, unsigned i)
{
	uint64_t bytes = (uint64_t)stock->pages[i] << KM_PAGE_SHIFT;

	km_debug(km_is_locked(&stock->lock) && i < KM_STOCK_SLOTS && stock->groups[i],
		 "the pages of a stock belong to one group, under the lock");
	km_counter_uncharge(&stock->groups[i]->memory, bytes);
	km_bump(&stock->moves, 1);
	km_store(&stock->groups[i], NULL);
	km_store(&stock->pages[i], (uint8_t)0);
	return bytes;
}

/* Puts charged, unused pages into the CPU's page stock. If the group then has more than BATCH pages, all are uncharged
 * (kernel: the same). The root has no counter, so the stock has no pages of the root. */
static void put_pages(struct km_stock *stock, struct km_counter *counter, uint64_t pages)
{
	struct mem_cgroup *group = km_memcg_of_counter(counter);
	unsigned i = find(stock, group);

	km_debug(counter, "the group of a page stock has a counter");
	if (i == KM_STOCK_SLOTS)
		i = find(stock, NULL);
	if (i == KM_STOCK_SLOTS) {
		i = stock->victim++ % KM_STOCK_SLOTS;
		flush_pages(stock, i);
	}
	if (stock->pages[i] + pages > BATCH || is_spare(stock)) {
		if (stock->groups[i])
			flush_pages(stock, i);
		km_counter_uncharge(counter, pages << KM_PAGE_SHIFT);
		return;
	}
	km_debug(!stock->groups[i] || stock->groups[i] == group, "an entry of a page stock has one group");
	/* An atomic store, because in_stocks reads the entry without this lock. */
	km_store(&stock->groups[i], group);
	km_store(&stock->pages[i], (uint8_t)(stock->pages[i] + pages));
	km_debug(stock->pages[i] && stock->pages[i] <= BATCH, "an entry of a page stock has at most a batch of pages");
}

/*
 * Takes pages from the page stock, else charges the counters: BATCH pages, or half of the bytes left below the nearest
 * limit if these are fewer, and at least the pages needed. Pages in one CPU's stock are refused to all other CPUs until
 * a drain. If even the needed pages are refused, charge_keep charges only the missing bytes, so that a limit can be
 * used to its last byte.
 */
static bool get_pages(struct km_stock *stock, struct km_counter *counter, uint64_t pages, struct km_attempt *attempt)
{
	unsigned i = find(stock, km_memcg_of_counter(counter));

	km_debug(counter, "pages are charged to a group with a counter");
	if (i < KM_STOCK_SLOTS && stock->pages[i] >= pages) {
		km_store(&stock->pages[i], (uint8_t)(stock->pages[i] - pages));
		return true;
	}
	uint64_t spare = km_counter_spare(counter);
	uint64_t batch = km_max(km_min((uint64_t)BATCH, spare / 2 >> KM_PAGE_SHIFT), pages);
	uint64_t bytes = batch << KM_PAGE_SHIFT;

	km_debug(batch >= pages && pages, "a batch has at least the needed pages");
	if (bytes > spare || km_counter_try_charge(counter, bytes))
		return false;
	attempt->counted = bytes;
	if (batch > pages)
		put_pages(stock, counter, batch - pages);
	return true;
}

/* ------------------------------------------------------------------ between an objcg and the page level */

static bool is_open(const struct obj_cgroup *objcg)
{
	return km_load(&objcg->slot) != 0;
}

/* Returns the group that the objcg charges. Requires: a CPU's stock lock, held until the last use of the group. */
static struct mem_cgroup *group_of(const struct obj_cgroup *objcg)
{
	return km_load(&objcg->memcg) ?: &km_memcg_root;
}

static struct km_counter *counter_of(const struct obj_cgroup *objcg)
{
	return km_memcg_counter(group_of(objcg));
}

/* Adds to `charged`, and lists the objcg at 0. Acquire and release: the thread that reaches 0 comes after all other
 * threads' last reads of the objcg. */
static void count_charged(struct obj_cgroup *objcg, int64_t bytes)
{
	if (KM_SHARED(&objcg->charged, km_add_both(&objcg->charged, bytes)) + bytes == 0)
		km_objcg_list(objcg);
}

void km_stock_forget(struct obj_cgroup *objcg, int64_t what)
{
	count_charged(objcg, -what);
}

static int64_t *net_of(const struct obj_cgroup *objcg, const struct km_stock *stock)
{
	return (int64_t *)(km_area((unsigned)(stock - stocks)) + objcg->net);
}

/*
 * Counts bytes moved to the objcg (negative: from the objcg). Must be the last use of the objcg. Bytes are counted
 * where counting is cheapest: in a plain word for each CPU, under the CPU's lock. A dead objcg uses one atomic
 * number, because the return to 0 must be noticed. km_stock_leave moves the words of all CPUs into this number once,
 * with each lock held in turn: an earlier section added to the word; a later section sees `dead` under the lock, and
 * adds to the number. No byte is counted twice or lost.
 */
static void traffic(struct km_stock *stock, struct obj_cgroup *objcg, struct km_counter *counter, int64_t bytes)
{
	km_debug(km_is_locked(&stock->lock), "an objcg's bytes are counted under a CPU's lock");

	km_bump(&stock->moves, 1);
	if (km_memcg_modes[MEM_CGROUP_V1] && counter) {
		struct km_counter *kmem = &km_memcg_of_counter(counter)->kmem;

		if (bytes > 0)
			km_counter_charge(kmem, (uint64_t)bytes);
		else
			km_counter_uncharge(kmem, (uint64_t)-bytes);
	}
	if (objcg->net && !km_load(&objcg->dead) && !is_spare(stock))
		km_bump(net_of(objcg, stock), bytes);
	else
		count_charged(objcg, bytes);
}

/*
 * Corrects the counters for late changes in left-behind words. Without a fence a per-CPU operation that found the
 * stock open may still run when the stock is closed. The bytes in the words go back then, but the words stay, and are
 * never reused. So the next look sees a late change, in or out, before further bytes of the objcg go back.
 */
static void make_good(struct km_stock *stock, struct obj_cgroup *objcg, struct km_counter *counter)
{
	uint64_t left = km_load(&objcg->left), now = 0;

	km_debug(km_is_locked(&stock->lock) && !is_open(objcg), "abandoned words are never opened again");
	km_for_each_cpu(cpu)
		now += km_load((uint64_t *)(km_area(cpu) + objcg->words));
	if (now == left || !KM_SHARED(&objcg->left, km_cas_both(&objcg->left, &left, now)))
		return;
	if (now > left)
		km_counter_uncharge(counter, now - left);
	else
		km_counter_charge(counter, left - now);
	traffic(stock, objcg, counter, (int64_t)(left - now));
}

/* Uncharges `bytes`, which may be 0, from the counters, and corrects the counters for late changes (make_good). */
static void give_back(struct km_stock *stock, struct obj_cgroup *objcg, struct km_counter *counter, uint64_t bytes)
{
	km_debug(km_is_locked(&stock->lock), "the stock lock keeps the objcg alive");
	if (km_unlikely(objcg->words))
		make_good(stock, objcg, counter);
	if (!bytes)
		return;
	km_counter_uncharge(counter, bytes);
	traffic(stock, objcg, counter, -(int64_t)bytes);
}

/*
 * Gives whole pages to the page stock, or to the counters while a charge above is draining (squeezed). Otherwise the
 * draining thread would find the pages in a stock the next time. With many threads freeing this might never end.
 */
static void give_pages(struct km_stock *stock, struct obj_cgroup *objcg, struct km_counter *counter, uint64_t pages)
{
	if (km_unlikely(!counter || !km_counter_spare(counter))) {
		give_back(stock, objcg, counter, pages << KM_PAGE_SHIFT);
		return;
	}
	put_pages(stock, counter, pages);
	traffic(stock, objcg, counter, -(int64_t)(pages << KM_PAGE_SHIFT));
}

/* Takes nr_charged_bytes of the objcg. Mostly 0, and then only read. */
static uint64_t take_loose(struct obj_cgroup *objcg)
{
	if (!km_load(&objcg->nr_charged_bytes))
		return 0;
	return KM_SHARED(&objcg->nr_charged_bytes, km_swap_acquire(&objcg->nr_charged_bytes, (uint64_t)0));
}

/* Takes all bytes out of the objcg's byte stock on this CPU, and nr_charged_bytes. */
static uint64_t take_all(struct km_stock *stock, struct obj_cgroup *objcg)
{
	uint64_t bytes = km_stock_empty(&objcg->slot) + take_loose(objcg);

	km_bump(&stock->moves, bytes != 0);
	return bytes;
}

/* The ordinary mode: puts unused bytes into the byte stock, up to km_stock_most. Beyond, whole pages go to the page
 * stock, but one page stays in the byte stock, so that the next charge finds bytes and the next uncharge finds room. */
static void stow(struct km_stock *stock, struct obj_cgroup *objcg, struct km_counter *counter, uint64_t bytes)
{
	if (is_open(objcg)) {
		if (bytes > km_stock_most()) {
			uint64_t pages = (bytes - (km_stock_most() - KM_PAGE_SIZE)) >> KM_PAGE_SHIFT;

			give_pages(stock, objcg, counter, pages);
			bytes -= pages << KM_PAGE_SHIFT;
		}
		km_debug(bytes <= km_stock_most(), "a byte stock has room for the rest");
		if (!bytes || km_stock_put(&objcg->slot, bytes, km_stock_most()))
			return;
	}
	give_back(stock, objcg, counter, bytes);
}

/* ------------------------------------------------------------------ rule `drain`, as before Linux 5.14 */

/* Empties the CPU's byte stock: whole pages go to the page stock, the rest to the owner's nr_charged_bytes; afterwards
 * the byte stock has no owner. */
static void flush_owner(struct km_stock *stock, struct obj_cgroup *owner, struct km_counter *counter, uint64_t bytes)
{
	bytes += km_stock_empty(&owner->slot);
	km_debug(stock->objcg == owner, "a CPU's byte stock has one owner");
	km_store(&stock->objcg, NULL);
	if (bytes >> KM_PAGE_SHIFT)
		give_pages(stock, owner, counter, bytes >> KM_PAGE_SHIFT);
	bytes &= KM_PAGE_SIZE - 1;
	if (bytes)
		KM_SHARED(&owner->nr_charged_bytes, km_add(&owner->nr_charged_bytes, bytes));
}

/* Makes objcg the owner of the CPU's byte stock, and takes the objcg's nr_charged_bytes into the stock. */
static void refill_drain(struct km_stock *stock, struct obj_cgroup *objcg, struct km_counter *counter, uint64_t bytes)
{
	if (stock->objcg != objcg) {
		if (stock->objcg)
			flush_owner(stock, stock->objcg, counter_of(stock->objcg), 0);
		km_store(&stock->objcg, objcg);
		bytes += KM_SHARED(&objcg->nr_charged_bytes,
				   km_swap_acquire(&objcg->nr_charged_bytes, (uint64_t)0));
	}
	bytes += km_stock_empty(&objcg->slot);
	if (bytes > KM_PAGE_SIZE || (bytes && !km_stock_put(&objcg->slot, bytes, KM_PAGE_SIZE)))
		flush_owner(stock, objcg, counter, bytes);
}

static bool charge_drain(struct km_stock *stock, struct km_attempt *attempt, struct km_counter *counter)
{
	uint64_t pages = (attempt->bytes + KM_PAGE_SIZE - 1) >> KM_PAGE_SHIFT;
	struct obj_cgroup *objcg = attempt->objcg;

	if (!counter || !is_open(objcg) || !get_pages(stock, counter, pages, attempt))
		return false;
	traffic(stock, objcg, counter, (int64_t)(pages << KM_PAGE_SHIFT));
	refill_drain(stock, objcg, counter, (pages << KM_PAGE_SHIFT) - attempt->bytes);
	return true;
}

/* ------------------------------------------------------------------ charge and uncharge */

/*
 * Charges from the objcg's bytes on this CPU, else whole pages, else exactly the missing bytes. All bytes of the byte
 * stock are taken out first, and the rest is put back, with the stock locked: a drain takes every stock lock, and so
 * finds these bytes. After a refusal all bytes are back in the stocks, and the attempt names the counter that refused.
 */
static bool charge_keep(struct km_stock *stock, struct km_attempt *attempt, struct km_counter *counter,
			struct km_counter **refused)
{
	struct obj_cgroup *objcg = attempt->objcg;
	uint64_t have = take_all(stock, objcg), need, pages;

	km_debug(objcg != &km_objcg_root && !attempt->counted, "a charge begins without counted bytes");
	if (have >= attempt->bytes) {
		stow(stock, objcg, counter, have - attempt->bytes);
		return true;
	}
	need = attempt->bytes - have;
	pages = (need + KM_PAGE_SIZE - 1) >> KM_PAGE_SHIFT;
	if (counter && is_open(objcg) && get_pages(stock, counter, pages, attempt)) {
		traffic(stock, objcg, counter, (int64_t)(pages << KM_PAGE_SHIFT));
		stow(stock, objcg, counter, (pages << KM_PAGE_SHIFT) - need);
		return true;
	}
	if (attempt->force)
		km_counter_charge(counter, need);
	else if ((*refused = km_counter_would_refuse(counter, need) ?: km_counter_try_charge(counter, need))) {
		stow(stock, objcg, counter, have);
		return false;
	}
	attempt->counted = need;
	traffic(stock, objcg, counter, (int64_t)need);
	return true;
}

/* Returns whether the group, or an ancestor, is over high. */
static bool is_over_high(const struct km_counter *counter)
{
	while (counter && km_load(&counter->usage) <= km_load(&counter->high))
		counter = counter->parent;
	return counter != NULL;
}

/*
 * Notes a charge above high. Such a charge is not refused, but the thread must be slowed down, and can't be under a
 * lock. If the thread may wait, attempt->high gets the group with a reference, and the caller delays without a lock.
 * Else the delay becomes the thread's debt (km_memcg_owe). Only charges that reached the counters are checked: bytes of
 * a stock were checked when the stock was filled.
 */
static void note_high(struct km_attempt *attempt, struct km_counter *counter, bool nested)
{
	if (!attempt->counted || !is_over_high(counter))
		return;
	struct mem_cgroup *group = km_memcg_of_counter(counter);
	if (attempt->may_wait) {
		attempt->high = km_memcg_hold(group);
		return;
	}
	km_memcg_event(group, MEMCG_HIGH, false);
	if (!nested)
		km_memcg_owe(group, attempt->counted);
}

void km_objcg_owe(struct obj_cgroup *objcg, uint64_t bytes)
{
	km_busy_scope(nested);
	km_calls_scope(calls, false);

	if (km_was_busy(nested))
		return;
	stock_scope(stock, false);
	struct km_counter *counter = counter_of(objcg);
	if (is_over_high(counter))
		km_memcg_owe(km_memcg_of_counter(counter), bytes);
}

/* Makes one attempt at a charge, with one page stock locked and no other lock, so the attempt never waits long, and the
 * group stays alive. The caller drains, reclaims, calls back and sleeps, as *attempt says. */
bool km_stock_charge(struct km_attempt *attempt)
{
	struct km_counter *refused = NULL;
	km_busy_scope(nested);

	if (km_unlikely(!km_thread_has_cpu()))
		km_alloc_new_cpu(attempt->may_wait);
	km_debug(attempt->bytes && km_thread.busy, "a charge has bytes");
	stock_scope(stock, km_was_busy(nested));
	attempt->refused = attempt->high = NULL;
	attempt->counted = 0;
	if (!stock)
		return false;
	struct km_counter *counter = counter_of(attempt->objcg);
	bool done = (km_memcg_modes[MEM_CGROUP_DRAIN] && charge_drain(stock, attempt, counter)) ||
		    charge_keep(stock, attempt, counter, &refused);
	km_debug(!done || !refused, "a charge is done, or refused by a group");
	if (done)
		note_high(attempt, counter, km_was_busy(nested));
	else if (attempt->may_wait)
		attempt->refused = km_memcg_hold(km_memcg_of_counter(refused));
	else
		km_memcg_event(km_memcg_of_counter(refused), MEMCG_MAX, false);
	return done;
}

/*
 * Charges after a miss of the byte stock. may_wait is decided once, here: false where gfp forbids waiting, in a
 * handler that interrupted the allocator, and in a slow path of the library (km_thread.busy): a callback would run
 * under locks there. A forced charge comes last: __GFP_NOFAIL exceeds a limit only after all other steps. The thread
 * is slowed down after the charge, with only the group held.
 */
static km_noinline bool charge_slow(struct obj_cgroup *objcg, uint64_t bytes, gfp_t gfp)
{
	struct km_attempt attempt = {
		.objcg = objcg, .bytes = bytes, .may_wait = (gfp & __GFP_DIRECT_RECLAIM) && !km_thread.busy,
	};
	const bool must = gfp & (__GFP_NOFAIL | __GFP_HIGH);

	if (objcg == &km_objcg_root || !bytes)
		return true;
	if (bytes >> 48)
		return false;
	if (km_unlikely(!km_load(&objcg->memcg))) {
		km_misuse(KM_MISUSE_GROUP, "mem_cgroup_charge", objcg->home, NULL);
		return false;
	}
	bool calls = km_calls_begin(attempt.may_wait);
	if (attempt.may_wait)
		km_memcg_serve();
	bool done = km_stock_charge(&attempt) || (attempt.refused && km_press(&attempt, gfp));
	if (!done && must) {
		attempt.force = true;
		done = km_stock_charge(&attempt);
	}
	if (attempt.may_wait && !km_thread.pressed)
		km_slow_down_for(attempt.high, attempt.counted);
	km_memcg_let_go(attempt.high);
	km_calls_end(calls);
	km_debug(done || !must || km_thread.busy, "a charge that must succeed fails");
	KM_PROBE4(charge, objcg, bytes, gfp, done);
	return done;
}

bool km_objcg_charge(struct obj_cgroup *objcg, uint64_t bytes, gfp_t gfp)
{
	return km_likely(bytes && km_stock_take(&objcg->slot, bytes)) || charge_slow(objcg, bytes, gfp);
}

/*
 * Uncharges after a failed put; can't fail. If the thread must not call the system, the locks spin
 * (km_thread.no_calls). If a handler finds all locks taken, one of them by the interrupted code, the bytes are added
 * to the objcg's nr_charged_bytes atomically. The next charge or drain of this objcg takes the bytes. The bytes stay
 * charged until then, so no limit is exceeded.
 */
static km_noinline void uncharge_slow(struct obj_cgroup *objcg, uint64_t bytes)
{
	km_busy_scope(nested);
	stock_scope(stock, km_was_busy(nested));
	struct km_counter *counter = stock ? counter_of(objcg) : NULL;

	if (!stock)
		KM_SHARED(&objcg->nr_charged_bytes, km_add(&objcg->nr_charged_bytes, bytes));
	else if (km_memcg_modes[MEM_CGROUP_DRAIN] && is_open(objcg))
		refill_drain(stock, objcg, counter, bytes);
	else
		stow(stock, objcg, counter, bytes + take_all(stock, objcg));
}

/* In mode MEM_CGROUP_DRAIN the CPU's byte stock may belong to another objcg, so the fast path is not possible. */
void km_objcg_uncharge(struct obj_cgroup *objcg, uint64_t bytes)
{
	if (objcg == &km_objcg_root || !bytes)
		return;
	const bool drain = km_unlikely(km_memcg_modes[MEM_CGROUP_DRAIN]);

	if ((drain && km_load(&stocks[km_cpu()].objcg) != objcg) ||
	    !km_stock_put(&objcg->slot, bytes, drain ? KM_PAGE_SIZE : km_stock_most()))
		uncharge_slow(objcg, bytes);
}

/* ------------------------------------------------------------------ queries */

uint64_t km_objcg_spare(const struct obj_cgroup *objcg)
{
	km_busy_scope(nested);
	km_calls_scope(calls, false);
	stock_scope(stock, km_was_busy(nested));

	return stock ? km_counter_spare(counter_of(objcg)) : 0;
}

/* Waits for a stock lock also if the thread is busy, so that a drain skips no objcg. Context: not in a signal
 * handler. */
bool km_memcg_below(const struct obj_cgroup *objcg, const struct mem_cgroup *root)
{
	km_busy_scope(was);
	stock_scope(stock, false);

	return km_memcg_in(group_of(objcg), root);
}

static struct mem_cgroup *group_by(struct obj_cgroup *objcg, struct mem_cgroup *(*get)(struct mem_cgroup *))
{
	km_busy_scope(nested);
	stock_scope(stock, km_was_busy(nested));

	return stock ? get(group_of(objcg)) : NULL;
}

struct mem_cgroup *km_objcg_memcg(struct obj_cgroup *objcg)
{
	return group_by(objcg, mem_cgroup_get);
}

struct mem_cgroup *km_objcg_hold(struct obj_cgroup *objcg)
{
	return group_by(objcg, km_memcg_hold);
}

/* ------------------------------------------------------------------ opening, draining, closing; with the tree lock */

void km_stock_open_objcg(struct obj_cgroup *objcg)
{
	km_debug(!objcg->slot && !objcg->stock, "a byte stock is opened once");
	objcg->net = km_percpu_alloc(sizeof(int64_t));
	objcg->stock = objcg->net && words_left < MOST_WORDS_LEFT ? km_percpu_alloc(km_stock_word_bytes()) : 0;
	km_stock_open(&objcg->slot, objcg->stock);
}

/* Takes the bytes of a closed byte stock on all CPUs, and nr_charged_bytes. Other CPUs' words are read and stored
 * plainly: correct only after a fence (stock_word.h), or where words change by compare-and-swap, as without rseq. */
static uint64_t collect(struct obj_cgroup *objcg)
{
	uint64_t bytes = take_loose(objcg);

	km_debug(!is_open(objcg), "a byte stock is closed during its drain");
	if (objcg->stock)
		km_for_each_cpu(cpu)
			bytes += km_stock_take_cpu(objcg->stock, cpu);
	return bytes;
}

static void give_back_locked(struct obj_cgroup *objcg, uint64_t bytes)
{
	if (!bytes && !objcg->words)
		return;
	stock_scope(stock, false);
	give_back(stock, objcg, counter_of(objcg), bytes);
}

bool km_stock_is_over(struct obj_cgroup *objcg)
{
	if (km_likely(!objcg->words))
		return true;
	give_back_locked(objcg, 0);
	if (!km_load(&objcg->charged))
		return true;
	/* Clear `listed`, then look again: a thread that uncharges the last byte in between lists the objcg again. An
	 * exchange, because a plain store might be delayed after the look. Acquire pairs with km_objcg_list. */
	KM_SHARED(&objcg->listed, km_swap_both(&objcg->listed, (uint32_t)false));
	return !km_load(&objcg->charged) &&
	       !KM_SHARED(&objcg->listed, km_swap_acquire(&objcg->listed, (uint32_t)true));
}

/* Uncharges the pages of `root` and groups below from all page stocks. Locks each stock once, and so waits for every
 * charge that has taken bytes out of a stock. */
static uint64_t drain_pages(const struct mem_cgroup *root)
{
	uint64_t bytes = 0;

	for (struct km_stock *stock = stocks; stock < stocks + all_stocks(); stock++) {
		km_lock_scope(&stock->lock);
		for (unsigned i = 0; i < KM_STOCK_SLOTS; i++)
			if (stock->groups[i] && km_memcg_in(stock->groups[i], root))
				bytes += flush_pages(stock, i);
	}
	return bytes;
}

/*
 * Drains `root` and all groups below. All stocks are closed before the one fence, because the fence interrupts every
 * CPU. Then each stock is emptied and opened at once; in between, charges take the slow path. If the system refuses the
 * fence, only this CPU's bytes are taken, with the ordinary per-CPU operation, after the stock is open again. Bytes on
 * other CPUs stay charged, safely.
 *
 * Orphans have no words of their own any more, but may have bytes on no CPU, and left-behind words.
 */
uint64_t km_stock_drain(struct mem_cgroup *root)
{
	uint64_t bytes = 0;

	for (struct mem_cgroup *group = root; group; group = km_memcg_next(root, group))
		km_stock_close(&group->objcg->slot);
	bool fenced = km_pcs_fence();
	for (struct mem_cgroup *group = root; group; group = km_memcg_next(root, group)) {
		uint64_t own = fenced ? collect(group->objcg) : 0;

		km_stock_open(&group->objcg->slot, group->objcg->stock);
		/* Without a fence take at least this CPU's bytes, by a per-CPU operation. */
		if (!fenced)
			own = km_stock_empty(&group->objcg->slot);
		give_back_locked(group->objcg, own);
		bytes += own;
		km_list_for_each(entry, &group->objcgs) {
			struct obj_cgroup *objcg = km_container_of(entry, struct obj_cgroup, link);
			uint64_t loose = take_loose(objcg);

			give_back_locked(objcg, loose);
			bytes += loose;
		}
	}
	return bytes + drain_pages(root);
}

/*
 * If the system refuses a fence, the words can't be reused: a per-CPU operation that read the offset before it became 0
 * may still store there. The words are left behind (`words`), and checked at each later look. After MOST_WORDS_LEFT
 * left-behind words new groups get no byte stock, and are slower.
 */
void km_stock_close_objcg(struct obj_cgroup *objcg)
{
	km_stock_close(&objcg->slot);
	km_debug(!objcg->slot, "a byte stock is closed before its drain");
	if (km_pcs_fence()) {
		give_back_locked(objcg, collect(objcg));
		return;
	}
	words_left += objcg->stock != 0;
	objcg->words = objcg->stock;
	objcg->stock = 0;
	give_back_locked(objcg, 0);
}

/*
 * Ends going offline: afterwards no thread reads the group through its objcg. The loop takes each CPU's lock once. An
 * earlier section with the old group has ended; a later section reads the parent. The group's pages leave each page
 * stock, and the CPU's `net` word is moved into `charged`.
 */
void km_stock_leave(struct mem_cgroup *group, struct obj_cgroup *objcg)
{
	int64_t net = 0;

	km_debug(km_load(&objcg->dead) && group->objcg == objcg && !objcg->slot,
		 "the objcg of a released group is dead and closed");

	for (unsigned cpu = 0; cpu < all_stocks(); cpu++) {
		struct km_stock *stock = &stocks[cpu];

		km_lock_scope(&stock->lock);
		unsigned i = find(stock, group);
		if (i < KM_STOCK_SLOTS)
			flush_pages(stock, i);
		if (stock->objcg == objcg)
			km_store(&stock->objcg, NULL);
		if (objcg->net && km_cpu_is_online(cpu)) {
			net += *net_of(objcg, stock);
			km_store(net_of(objcg, stock), (int64_t)0);
		}
	}
	km_add(&objcg->charged, net);
	give_back_locked(objcg, take_loose(objcg));
	km_percpu_free(objcg->stock, km_stock_word_bytes());
	km_percpu_free(objcg->net, sizeof(int64_t));
	objcg->stock = 0;
}
