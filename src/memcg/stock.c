/*
 * stock.c: charging an objcg: from the byte stock of this CPU, behind it the CPU's page stock, behind that the
 * counters. Invariant, for each objcg, at any time between two sections under a CPU's stock lock: what passed between
 * it and the page level (the sum of its `net` words, and `charged`) is what is out with users, in its byte stocks, and
 * in nr_charged_bytes.
 *
 *	byte stock	a word for each group on each CPU (percpu/stock_word.h), at most two pages
 *	page stock	for each CPU seven groups' whole pages, at most 64 each; under the CPU's lock
 *
 * Kernel: the same layers; its byte stock is five slots, searched, and the counters count pages. Here a charge that
 * finds no room for a batch gets less, in the end exactly what it needs: so a limit can be used to its last byte.
 *
 * Why the group that an objcg points to is there. A group goes offline in this order: its byte stock is closed, the
 * objcg points to the parent, then every CPU's stock lock is taken once and given back (km_stock_leave). So a thread
 * that reads objcg->memcg under any one of these locks either finds the parent, or is waited for. That is why each
 * section here reads the group anew, and hands it out only with a reference. It is also why any CPU's lock will do:
 * the lock of a CPU that the thread has left meanwhile guards the group as well as the one it is on.
 *
 * The view of other threads. `usage` of a counter is never less than what is out, for bytes are counted before they are
 * used, and given back after (the one exception is made good as soon as somebody looks: make_good). It is more by what
 * lies in stocks. A reader without a lock (km_stock_bytes, `kmem info`) may see bytes twice, or not at all, that move
 * just then; a number for people may be off by that.
 *
 * The rest of a failure. A refused charge has put back what it took out of the stocks, and tells which group refused;
 * a charge that was done has said what the counters took for it. There is no third way out.
 */
#include "page/metadata.h"
#include "os/die.h"
#include "percpu/stock_word.h"
#include "memcg_group.h"

#define BATCH	64u		/* pages; kernel: MEMCG_CHARGE_BATCH */

static struct km_stock *stocks;
static unsigned stock_count;		/* one for each CPU; behind them the spares */
const struct km_memcg_view km_memcg_view = {
	km_group_fields, &km_group_field_count, &km_memcg_root, (const struct km_stock *const *)&stocks, &stock_count,
};
/* Byte stocks that nobody can have again; then no more of them are made, since caches want such words, too. */
#define MOST_WORDS_LEFT	((1u << KMEM_AREA_SHIFT) / sizeof(uint64_t) / 4)
static unsigned words_left;		/* with the tree lock */

/*
 * For a handler that struck a thread which has the only stock's lock that there is, as in a program of one thread; a
 * handler that strikes that one takes the next. A spare is no CPU's, has no pages, and counts in the objcg's number.
 */
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
	struct km_stock *fresh = km_meta_alloc((count + KM_STOCK_SPARES) * sizeof(*fresh), true);
	if (!fresh)
		return false;
	for (unsigned i = 0; i < count + KM_STOCK_SPARES; i++)
		km_lock_init(&fresh[i].lock, KM_RANK_STOCK);
	stock_count = count;
	/* Release pairs with nothing: nobody has an objcg to charge before the tree lock is dropped. */
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

/*
 * An objcg's `net` words can be written where the area is alive; without per-CPU memory there are none. Any CPU's lock
 * will do, so a thread that finds one taken goes on to the next, and waits only where all are: with as many locks as
 * CPUs there is nearly always a free one. A handler has another reason to go on: the lock that it finds taken may be
 * that of the code it struck. For it there are the spares.
 */
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
 * This CPU's stock, or, where that is taken, another's: any will do. A handler that struck under a lock of its own
 * thread must not wait: NULL where all stay taken, the spares by handlers that it struck, or other threads'.
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
	km_debug(has_words(here) || here == km_percpu.home, "a thread waits where an objcg's words may be written");
	km_lock(&stocks[here].lock);
	return &stocks[here];
}

static void leave(struct km_stock *stock)
{
	km_unlock_quick(&stock->lock);
}

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
		 "a stock's pages are a group's, under its lock");
	km_counter_uncharge(&stock->groups[i]->memory, bytes);
	km_bump(&stock->moves, 1);
	km_store(&stock->groups[i], NULL);
	km_store(&stock->pages[i], (uint8_t)0);
	return bytes;
}

/*
 * Put charged, unused pages into the CPU's stock. Above a batch all pages of the group are uncharged (kernel: the
 * same). The root has no counter, so the stock has no pages of the root.
 */
static void put_pages(struct km_stock *stock, struct km_counter *counter, uint64_t pages)
{
	struct mem_cgroup *group = km_memcg_of_counter(counter);
	unsigned i = find(stock, group);

	km_debug(counter, "a page stock is of a group that has a counter");
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
	km_debug(!stock->groups[i] || stock->groups[i] == group, "a place has one group's pages");
	/* A caller that asks for numbers reads them without the lock. */
	km_store(&stock->groups[i], group);
	km_store(&stock->pages[i], (uint8_t)(stock->pages[i] + pages));
	km_debug(stock->pages[i] && stock->pages[i] <= BATCH, "a place has a batch of pages at most");
}

/*
 * So many pages, from here or from the counters: a batch of them if that leaves as much again below every limit. A
 * batch is charged in one climb up the tree, so that the next 63 pages need none: that is where accounting's price per
 * page comes from. It takes at most half of what is left below the nearest limit, because what lies in one CPU's stock
 * is refused to all others until somebody drains it; near a limit batches shrink to what is needed, and then
 * charge_keep charges the missing bytes alone.
 */
static bool get_pages(struct km_stock *stock, struct km_counter *counter, uint64_t pages, struct km_attempt *attempt)
{
	unsigned i = find(stock, km_memcg_of_counter(counter));

	km_debug(counter, "pages are had in the name of a group that has a counter");
	if (i < KM_STOCK_SLOTS && stock->pages[i] >= pages) {
		km_store(&stock->pages[i], (uint8_t)(stock->pages[i] - pages));
		return true;
	}
	uint64_t spare = km_counter_spare(counter);
	uint64_t batch = km_max(km_min((uint64_t)BATCH, spare / 2 >> KM_PAGE_SHIFT), pages);
	uint64_t bytes = batch << KM_PAGE_SHIFT;

	km_debug(batch >= pages && pages, "a batch is what is needed, or more");
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

/*
 * Returns the charged group. Requires a CPU's stock lock. A section reads the group once, and passes its counter on: if
 * the group goes offline meanwhile, a second read would find the parent. The group's memory stays until the end of the
 * section.
 */
static struct mem_cgroup *group_of(const struct obj_cgroup *objcg)
{
	return km_load(&objcg->memcg) ?: &km_memcg_root;
}

static struct km_counter *counter_of(const struct obj_cgroup *objcg)
{
	return km_memcg_counter(group_of(objcg));
}

/* Both orders: who brings it to 0 comes after all others' last look at the objcg. */
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
 * So many bytes came to the objcg, or with a minus went. The last thing that is done with it. Bytes that are out are
 * counted where it costs least: in a word for each CPU, plain, since the CPU's lock is held; only in a dead objcg by
 * one atomic number, because then somebody must notice the moment when it comes to 0. The words of all CPUs are moved
 * into that number once, in km_stock_leave, with each lock held in turn: whoever came before added to the word,
 * whoever comes after sees `dead` under the lock and adds to the number. Nothing is counted twice or lost.
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
 * Where the system does not stop other CPUs for us, a sequence that found the stock open may still be on its way when
 * that is closed. The bytes in its words go back then, but the words stay as they are, and nobody else gets them: so
 * what comes late, in or out, is seen by whoever looks next, before anything else of the objcg goes back.
 */
static void make_good(struct km_stock *stock, struct obj_cgroup *objcg, struct km_counter *counter)
{
	uint64_t left = km_load(&objcg->left), now = 0;

	km_debug(km_is_locked(&stock->lock) && !is_open(objcg), "words that were left behind are never open again");
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

/* Exactly so many bytes go back to the counters. */
static void give_back(struct km_stock *stock, struct obj_cgroup *objcg, struct km_counter *counter, uint64_t bytes)
{
	if (!bytes)
		return;
	km_debug(km_is_locked(&stock->lock), "who pays stays as long as the lock is held");
	if (km_unlikely(objcg->words))
		make_good(stock, objcg, counter);
	km_counter_uncharge(counter, bytes);
	traffic(stock, objcg, counter, -(int64_t)bytes);
}

/*
 * Whole pages go to the page stock; straight to the counters where somebody waits for them. While some charge above is
 * draining (squeezed), pages that come back go to the counters at once. Else the thread that drains would find them in
 * a stock the next time, and with many threads freeing that might go on for ever.
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

/* The bytes that lie on no CPU. Mostly there are none, and the look is a read. */
static uint64_t take_loose(struct obj_cgroup *objcg)
{
	if (!km_load(&objcg->nr_charged_bytes))
		return 0;
	return KM_SHARED(&objcg->nr_charged_bytes, km_swap_acquire(&objcg->nr_charged_bytes, (uint64_t)0));
}

/* All that the objcg has here and on no CPU. */
static uint64_t take_all(struct km_stock *stock, struct obj_cgroup *objcg)
{
	uint64_t bytes = km_stock_empty(&objcg->slot) + take_loose(objcg);

	km_bump(&stock->moves, bytes != 0);
	return bytes;
}

/*
 * Rule `keep`: bytes that are not used stay in the byte stock, up to its bound. Beyond, whole pages go, but one of them
 * stays beside the rest: so what comes next, in or out, finds what it needs.
 */
static void stow(struct km_stock *stock, struct obj_cgroup *objcg, struct km_counter *counter, uint64_t bytes)
{
	if (is_open(objcg)) {
		if (bytes > km_stock_most()) {
			uint64_t pages = (bytes - (km_stock_most() - KM_PAGE_SIZE)) >> KM_PAGE_SHIFT;

			give_pages(stock, objcg, counter, pages);
			bytes -= pages << KM_PAGE_SHIFT;
		}
		km_debug(bytes <= km_stock_most(), "a byte stock has room for what stays");
		if (!bytes || km_stock_put(&objcg->slot, bytes, km_stock_most()))
			return;
	}
	give_back(stock, objcg, counter, bytes);
}

/* ------------------------------------------------------------------ rule `drain`, as before Linux 5.14 */

/* A CPU's byte stock has one owner; whole pages go, the rest becomes the owner's remainder, and it is nobody's. */
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

/* Becoming the owner picks the remainder up, by an exchange also where there is none. */
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
 * From what there is, else whole pages, else exactly what is missing. Everything that the objcg has here is taken out
 * first, and what is not needed is put back: so that two charges that each need a little do not both go to the
 * counters past bytes that would have served one of them. In between the bytes are in this thread's hand, under its
 * CPU's lock; a drain passes that lock, and finds them afterwards.
 */
static bool charge_keep(struct km_stock *stock, struct km_attempt *attempt, struct km_counter *counter,
			struct km_counter **refused)
{
	struct obj_cgroup *objcg = attempt->objcg;
	uint64_t have = take_all(stock, objcg), need, pages;

	km_debug(objcg != &km_objcg_root && !attempt->counted, "a charge begins with nothing that was counted for it");
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

/* Is the group, or an ancestor, over high? */
static bool is_over_high(const struct km_counter *counter)
{
	while (counter && km_load(&counter->usage) <= km_load(&counter->high))
		counter = counter->parent;
	return counter != NULL;
}

/*
 * Above high nothing is refused, but the thread is to be slowed down, which it can't be here, under a lock. So either
 * the group is handed out with a reference, and the caller slows down with no lock held; or, where it may not wait, the
 * thread owes it. Only charges that reached the counters are asked about: what came out of a stock was asked for then.
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
	struct km_stock *stock = km_was_busy(nested) ? NULL : enter(false);

	if (stock) {
		struct km_counter *counter = counter_of(objcg);

		if (is_over_high(counter))
			km_memcg_owe(km_memcg_of_counter(counter), bytes);
		leave(stock);
	}
}

/*
 * One attempt, from the byte stock's miss on. Everything between enter and leave runs under one CPU's lock, with
 * handlers kept out, and makes no call that could wait for another lock: so it ends, and the group that was looked up
 * stays. Draining, reclaim, callbacks and sleeping are the caller's, by what is left in *attempt.
 */
bool km_stock_charge(struct km_attempt *attempt)
{
	struct km_counter *refused = NULL;
	struct km_busy_was nested = km_busy_begin();

	if (km_unlikely(!km_thread_has_cpu()))
		km_alloc_new_cpu(attempt->may_wait);
	km_debug(attempt->bytes && km_thread_busy, "a charge has bytes");
	struct km_stock *stock = enter(km_was_busy(nested));
	bool done = false;

	attempt->refused = attempt->high = NULL;
	attempt->counted = 0;
	if (stock) {
		struct km_counter *counter = counter_of(attempt->objcg);

		done = (km_memcg_modes[MEM_CGROUP_DRAIN] && charge_drain(stock, attempt, counter)) ||
		       charge_keep(stock, attempt, counter, &refused);
		if (done)
			note_high(attempt, counter, km_was_busy(nested));
		else if (attempt->may_wait)
			attempt->refused = km_memcg_hold(km_memcg_of_counter(refused));
		else
			km_memcg_event(km_memcg_of_counter(refused), MEMCG_MAX, false);
		leave(stock);
	}
	km_busy_end(nested);
	km_debug(!done || !attempt->refused, "a charge is done, or refused by a group");
	return done;
}

/*
 * In a call that must not call the system its locks spin, as said at the door (km_no_calls). A free can't fail. Where a
 * handler finds all locks taken, one of them by the code that it struck, the bytes are laid down in the objcg
 * itself, by one atomic addition; the next charge or drain of that objcg picks them up. They stay charged until then,
 * so no limit is passed because of it.
 */
static km_noinline void uncharge_slow(struct obj_cgroup *objcg, uint64_t bytes)
{
	km_busy_scope(nested);
	struct km_stock *stock = enter(km_was_busy(nested));

	if (!stock) {
		KM_SHARED(&objcg->nr_charged_bytes, km_add(&objcg->nr_charged_bytes, bytes));
	} else {
		struct km_counter *counter = counter_of(objcg);

		if (km_memcg_modes[MEM_CGROUP_DRAIN] && is_open(objcg))
			refill_drain(stock, objcg, counter, bytes);
		else
			stow(stock, objcg, counter, bytes + take_all(stock, objcg));
		leave(stock);
	}
}

/* Under `drain` a byte stock is used by its owner only: whoever else comes must take it over. */
void km_objcg_uncharge(struct obj_cgroup *objcg, uint64_t bytes)
{
	if (objcg == &km_objcg_root || !bytes)
		return;
	const bool drain = km_unlikely(km_memcg_modes[MEM_CGROUP_DRAIN]);

	if ((drain && km_load(&stocks[km_cpu()].objcg) != objcg) ||
	    !km_stock_put(&objcg->slot, bytes, drain ? KM_PAGE_SIZE : km_stock_most()))
		uncharge_slow(objcg, bytes);
}

/* ------------------------------------------------------------------ what others want to know */

uint64_t km_objcg_spare(const struct obj_cgroup *objcg)
{
	km_busy_scope(nested);
	km_calls_scope(calls, false);
	struct km_stock *stock = enter(km_was_busy(nested));
	uint64_t spare = stock ? km_counter_spare(counter_of(objcg)) : 0;

	if (stock)
		leave(stock);
	return spare;
}

/* Not for handlers, so it may wait whatever its caller is busy with: nothing is passed by in a drain. */
bool km_memcg_below(const struct obj_cgroup *objcg, const struct mem_cgroup *root)
{
	km_busy_scope(was);
	struct km_stock *stock = enter(false);
	bool below = km_memcg_in(group_of(objcg), root);

	leave(stock);
	return below;
}

static struct mem_cgroup *group_by(struct obj_cgroup *objcg, struct mem_cgroup *(*get)(struct mem_cgroup *))
{
	km_busy_scope(nested);
	struct km_stock *stock = enter(km_was_busy(nested));
	struct mem_cgroup *group = stock ? get(group_of(objcg)) : NULL;

	if (stock)
		leave(stock);
	return group;
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

/*
 * Everything out of a closed byte stock, and what lies on no CPU. Plain reads and stores of other CPUs' words: right
 * only behind a fence, with the stock closed (stock_word.h), or where the words are changed by compare-and-swap, which
 * is how soft disciplines do it.
 */
static uint64_t collect(struct obj_cgroup *objcg)
{
	uint64_t bytes = take_loose(objcg);

	km_debug(!is_open(objcg), "a byte stock is closed while it is emptied");
	if (objcg->stock)
		km_for_each_cpu(cpu)
			bytes += km_stock_take_cpu(objcg->stock, cpu);
	return bytes;
}

static void give_back_locked(struct obj_cgroup *objcg, uint64_t bytes)
{
	if (!bytes)
		return;
	struct km_stock *stock = enter(false);
	give_back(stock, objcg, counter_of(objcg), bytes);
	leave(stock);
}

/* A charge that came late is made good on the way. */
static void look_again(struct obj_cgroup *objcg)
{
	struct km_stock *stock = enter(false);

	make_good(stock, objcg, counter_of(objcg));
	leave(stock);
}

bool km_stock_is_over(struct obj_cgroup *objcg)
{
	if (km_likely(!objcg->words))
		return true;
	look_again(objcg);
	if (!km_load(&objcg->charged))
		return true;
	/* Clear `listed` before the second look: a thread with the last uncharge in between lists the objcg again. An
	 * exchange, because a plain store might come after the look. Acquire pairs with km_objcg_list. */
	KM_SHARED(&objcg->listed, km_swap_both(&objcg->listed, (uint32_t)false));
	return !km_load(&objcg->charged) &&
	       !KM_SHARED(&objcg->listed, km_swap_acquire(&objcg->listed, (uint32_t)true));
}

/* Each CPU's lock once: so this also waits for every charge that had begun before, and whose bytes were in its hand. */
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
 * All stocks of the groups below are closed before the one fence, since that costs an interrupt of every CPU; then each
 * is emptied and opened again at once, so that charges find it closed for as short as possible: meanwhile they take the
 * slow way, which works without it. Where the system refuses the fence, only this CPU's bytes are had, by the sequence
 * that every thread uses, after the stock is open again; others' stay charged where they lie, which is safe.
 *
 * Orphans have no words of their own any more, but may have bytes on no CPU, and words that were left behind.
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
		/* The bytes of this CPU can be had without a fence. */
		if (!fenced)
			own = km_stock_empty(&group->objcg->slot);
		give_back_locked(group->objcg, own);
		bytes += own;
		km_list_for_each(entry, &group->objcgs) {
			struct obj_cgroup *objcg = km_container_of(entry, struct obj_cgroup, link);
			uint64_t loose = take_loose(objcg);

			give_back_locked(objcg, loose);
			bytes += loose;
			if (objcg->words)
				look_again(objcg);
		}
	}
	return bytes + drain_pages(root);
}

/*
 * Where the system refuses a fence the words can't be given to anybody else: a sequence that read the offset before it
 * became 0 may still store there. They are left behind (`words`), and looked at again by whoever comes next. A bounded
 * number may be left so; then new groups get no byte stock, and are slower.
 */
void km_stock_close_objcg(struct obj_cgroup *objcg)
{
	km_stock_close(&objcg->slot);
	km_debug(!objcg->slot, "a byte stock is closed before it is emptied");
	if (km_pcs_fence()) {
		give_back_locked(objcg, collect(objcg));
		return;
	}
	words_left += objcg->stock != 0;
	objcg->words = objcg->stock;
	objcg->stock = 0;
	look_again(objcg);
}

/*
 * The last of going offline: afterwards nobody looks at the group by way of its objcg. The loop takes each CPU's lock
 * once. A section that began before and read the old group is through; one that begins later reads the parent. On the
 * way the group's pages leave each page stock, and the CPU's `net` word is taken over into `charged`.
 */
void km_stock_leave(struct mem_cgroup *group, struct obj_cgroup *objcg)
{
	int64_t net = 0;

	km_debug(km_load(&objcg->dead) && group->objcg == objcg && !objcg->slot,
		 "an objcg whose group goes is dead, and closed");

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
