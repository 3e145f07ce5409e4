/*
 * pressure.c: charges beyond a limit: stocks and sheaves are drained, shrinkers and the out-of-memory callback are
 * called; above `high` the thread is slowed down. Events tell of all steps. Invariant: callbacks run with no lock
 * held, on referenced groups, and charges by a callback start no second reclaim.
 */
#define _GNU_SOURCE
#include <errno.h>

#include "page/metadata.h"
#include "os/die.h"
#include "os/os.h"
#include "memcg_group.h"

#define RETRIES		16		/* kernel: MAX_RECLAIM_RETRIES */
#define RECLAIM_BYTES	((uint64_t)32 << KM_PAGE_SHIFT)	/* bytes requested at once from the shrinkers of a large group;
							 * kernel: SWAP_CLUSTER_MAX pages */
#define DELAY_MAX_MS	2000u		/* kernel: MEMCG_MAX_HIGH_DELAY_JIFFIES */
#define PATIENCE_MS	512u		/* longest single wait for another thread's shrinker; all waits of a charge
					 * together take about a second */
#define DELAY_LEAST_MS	10u		/* a shorter delay is skipped, because the sleep costs more */

/*
 * The steps of a refused charge, in order of their cost: drain of stocks and sheaves below the refusing group;
 * shrinkers, whose caches must be filled again; the out-of-memory callback, which may end a tenant. A new attempt
 * follows each step, because another thread may have freed meanwhile, and another group may refuse now. The refusing
 * group is held from its attempt until the next attempt has named another group. Each loop has a bound: RETRIES for
 * reclaim, MEMCG_DEPTH_MAX for draining, PATIENCE_MS for other threads.
 */

/* ------------------------------------------------------------------ events */

static bool left;	/* a group has events to tell, or a request for reclaim (take_left) */

/*
 * Tells the waiters of a group of an event. An eventfd write is a system call: a charge without this right leaves the
 * event to the next charge that may wait.
 */
static void tell(struct mem_cgroup *group, bool may_call)
{
	if (may_call) {
		km_os_event_add(group->event_fd, 1);
	} else {
		km_add(&group->untold, 1u);
		km_store(&left, true);
	}
}

void km_memcg_event(struct mem_cgroup *group, enum memcg_memory_event event, bool may_call)
{
	km_add(&group->local[event], 1u);
	for (; !km_memcg_is_root(group); group = group->parent) {
		km_add(&group->events[event], 1u);
		/* Acquire pairs with mem_cgroup_eventfd: a thread that sees the mask sees the descriptor. */
		if (km_load_acquire(&group->event_mask) >> event & 1)
			tell(group, may_call);
	}
}

/*
 * Tells the events not yet told, and takes one group's request for reclaim; `bytes` NULL: takes none. `left` is cleared
 * before the groups are read: what a group gets in between sets `left` again. Returns: the group, held; NULL: none.
 */
static struct mem_cgroup *take_left(uint64_t *bytes)
{
	struct mem_cgroup *found = NULL;

	if (!km_load(&left))
		return NULL;
	km_memcg_scope();
	km_store(&left, false);
	for (struct mem_cgroup *group = &km_memcg_root; group; group = km_memcg_next(&km_memcg_root, group)) {
		uint64_t count = km_swap_acquire(&group->untold, (uint64_t)0);

		if (count && group->event_fd >= 0)
			km_os_event_add(group->event_fd, count);
		if (!group->asked || !group->online)
			continue;
		if (found || !bytes) {
			km_store(&left, true);
			continue;
		}
		found = km_memcg_hold(group);
		*bytes = group->asked;
		group->asked = 0;
	}
	return found;
}

int mem_cgroup_eventfd(struct mem_cgroup *group, unsigned int mask)
{
	if (!mask || mask >> MEMCG_NR_MEMORY_EVENTS || km_memcg_is_root(group)) {
		errno = EINVAL;
		return -1;
	}
	km_memcg_lock();
	if (group->event_fd < 0)
		group->event_fd = km_os_eventfd();
	int fd = group->event_fd;
	if (fd >= 0)
		km_store_release(&group->event_mask, group->event_mask | mask);
	km_memcg_unlock();
	if (fd >= 0)
		return fd;
	errno = -fd;
	return -1;
}

/* ------------------------------------------------------------------ shrinkers */

struct mem_cgroup_shrinker {
	struct km_list link;		/* link in `shrinkers`, which is sorted by priority, lowest first */
	struct mem_cgroup *group;	/* holds a reference on the group */
	mem_cgroup_shrink_callback shrink;
	void *arg;
	int priority;
	bool going;			/* being removed: no thread calls the shrinker any more */
	uint32_t running;		/* number of threads in the callback; while not 0 the record stays listed */
};

/*
 * A shrinker is called with the tree unlocked, and may be removed by another thread meanwhile. `running` keeps its
 * record on the list. The remover first sets `going`, so that no thread calls the shrinker again, and then waits
 * until no thread is in the callback. The walk goes on from the called record, so the record must stay listed.
 */
static struct km_list shrinkers = { &shrinkers, &shrinkers };	/* guarded by the tree lock */
static uint64_t shrunk;			/* number of shrinker calls that freed bytes; guarded by the tree lock */

static void insert(struct mem_cgroup_shrinker *shrinker)
{
	struct km_list *after = &shrinkers;

	km_list_for_each(entry, &shrinkers) {
		if (km_container_of(entry, struct mem_cgroup_shrinker, link)->priority > shrinker->priority)
			break;
		after = entry;
	}
	km_debug(shrinker->group->online, "the group of a shrinker exists");
	km_list_add_head(&shrinker->link, after);
}

struct mem_cgroup_shrinker *mem_cgroup_add_shrinker(struct mem_cgroup *group, int priority,
						    mem_cgroup_shrink_callback shrink, void *arg)
{
	const bool valid = !km_memcg_is_root(group) && shrink;
	struct mem_cgroup_shrinker *shrinker = valid ? km_metadata_alloc(sizeof(*shrinker), true) : NULL;

	if (!shrinker) {
		errno = valid ? ENOMEM : EINVAL;
		return NULL;
	}
	*shrinker = (struct mem_cgroup_shrinker){
		.group = group, .priority = priority, .shrink = shrink, .arg = arg,
	};
	km_memcg_lock();
	const bool online = group->online;
	if (online) {
		mem_cgroup_get(group);
		insert(shrinker);
	}
	km_memcg_unlock();
	if (online)
		return shrinker;
	km_metadata_free(shrinker, sizeof(*shrinker));
	errno = ENOENT;
	return NULL;
}

void mem_cgroup_remove_shrinker(struct mem_cgroup_shrinker *shrinker)
{
	if (!shrinker)
		return;
	/* A removal by a shrinker would wait for the shrinker's own end, or two shrinkers for each other. */
	if (km_unlikely(km_thread.shrinker != NULL)) {
		km_misuse(KM_MISUSE_SHRINKER, "mem_cgroup_remove_shrinker", shrinker, NULL);
		return;
	}
	km_memcg_lock();
	shrinker->going = true;
	for (uint32_t running; (running = km_load(&shrinker->running));) {
		km_memcg_unlock();
		km_os_wait(&shrinker->running, running, 10);
		km_memcg_lock();
	}
	km_debug(!shrinker->running, "a shrinker is removed after all its calls");
	km_list_del(&shrinker->link);
	km_memcg_unlock();
	mem_cgroup_put(shrinker->group);
	km_metadata_free(shrinker, sizeof(*shrinker));
}

/* In the child of fork only this thread's calls of shrinkers go on. The eventfds are dropped: a write would wake the
 * parent's waiters. */
void km_pressure_fork_child(void)
{
	km_list_for_each(entry, &shrinkers) {
		struct mem_cgroup_shrinker *shrinker = km_container_of(entry, struct mem_cgroup_shrinker, link);

		shrinker->running = shrinker == km_thread.shrinker;
	}
	for (struct mem_cgroup *group = &km_memcg_root; group; group = km_memcg_next(&km_memcg_root, group)) {
		if (group->event_fd >= 0)
			km_os_close(group->event_fd);
		group->event_fd = -1;
		group->event_mask = 0;
		group->memory.squeezed = 0;
		km_memcg_fork_child(group);
	}
	km_thread.owed.objcg = NULL;
}

/* ------------------------------------------------------------------ protection */

/*
 * Returns the part of low (or min) that protects a group in a reclaim from `root`: at most the group's usage, and at
 * most the parent's protection. If the children claim more than the parent's protection, each gets a share by claim.
 * Kernel: the same, without memory_recursiveprot. Context: tree lock held.
 */
static uint64_t claim(const struct mem_cgroup *group, bool low)
{
	return km_min(km_load(low ? &group->memory.low : &group->memory.min), km_load(&group->memory.usage));
}

static uint64_t protection(const struct mem_cgroup *group, const struct mem_cgroup *root, bool low)
{
	uint64_t own = claim(group, low), all = 0;

	if (!own || group == root || group->parent == root || km_memcg_is_root(group->parent))
		return group == root ? 0 : own;
	uint64_t above = protection(group->parent, root, low);
	km_list_for_each(entry, &group->parent->children)
		all += claim(km_container_of(entry, struct mem_cgroup, sibling), low);
	return all > above ? (uint64_t)((unsigned __int128)own * above / all) : own;
}

/* ------------------------------------------------------------------ reclaim */

/*
 * Returns the bytes to request from this shrinker; 0: skip. The first pass leaves each group the bytes protected by
 * `low`. If the first was not enough, the second (break_low) calls the protected groups, down to `min`, and tells them
 * so (MEMCG_LOW). Context: tree lock held.
 */
static uint64_t share_of(const struct mem_cgroup_shrinker *shrinker, const struct mem_cgroup *root, uint64_t want,
			 bool break_low)
{
	const struct mem_cgroup *group = shrinker->group;

	if (shrinker->going || !group->online || !km_memcg_in(group, root))
		return 0;
	uint64_t usage = km_load(&group->memory.usage), min = protection(group, root, false);
	uint64_t low = protection(group, root, true);
	/* In the second pass call only groups that `low` protected in the first pass. */
	if (break_low)
		return usage <= low && usage > min ? km_min(want, usage - min) : 0;
	uint64_t keep = km_max(low, min);
	return usage > keep ? km_min(want, usage - keep) : 0;
}

/* Calls a shrinker with the tree unlocked. Returns: the bytes freed. */
static uint64_t ask(struct mem_cgroup_shrinker *shrinker, uint64_t bytes, bool break_low)
{
	struct mem_cgroup_shrinker *outer = km_thread.shrinker;
	int error = errno;

	shrinker->running++;
	km_thread.shrinker = shrinker;
	km_memcg_unlock();
	km_debug(!km_thread.busy, "a callback runs without locks");
	if (break_low)
		km_memcg_event(shrinker->group, MEMCG_LOW, true);
	uint64_t freed = shrinker->shrink(shrinker->group, bytes, shrinker->arg);
	errno = error;
	km_memcg_lock();
	if (freed)
		km_bump(&shrunk, 1);
	km_thread.shrinker = outer;
	km_debug(shrinker->running, "a shrinker exists during its calls");
	km_bump(&shrinker->running, -1);
	if (shrinker->going)
		km_os_wake(&shrinker->running);
	return freed;
}

static uint64_t reclaim_pass(struct mem_cgroup *root, uint64_t want, bool break_low)
{
	uint64_t freed = 0;

	km_memcg_scope();
	for (struct km_list *entry = shrinkers.next; entry != &shrinkers && freed < want; entry = entry->next) {
		struct mem_cgroup_shrinker *shrinker = km_container_of(entry, struct mem_cgroup_shrinker, link);
		uint64_t bytes = share_of(shrinker, root, want - freed, break_low);

		if (bytes)
			freed += ask(shrinker, bytes, break_low);
	}
	return freed;
}

/* In a callback of the library does nothing, because the callback runs during a reclaim, and would recurse. */
uint64_t mem_cgroup_reclaim(struct mem_cgroup *group, uint64_t bytes)
{
	uint64_t freed;

	if (km_thread.pressed)
		return 0;
	km_thread.pressed = true;
	freed = reclaim_pass(group, bytes, false);
	if (freed < bytes)
		freed += reclaim_pass(group, bytes - freed, true);
	km_thread.pressed = false;
	return freed;
}

void km_memcg_ask(struct mem_cgroup *group, uint64_t bytes)
{
	km_store(&group->asked, bytes);
	km_store(&left, true);
}

void km_memcg_serve(void)
{
	uint64_t bytes;
	struct mem_cgroup *group = take_left(km_thread.pressed ? NULL : &bytes);

	if (!group)
		return;
	uint64_t drained = mem_cgroup_drain(group);
	if (drained < bytes)
		mem_cgroup_reclaim(group, bytes - drained);
	km_memcg_let_go(group);
}

/* Flushes the charged sheaves first, because their bytes go into the stocks, then drains the stocks. */
uint64_t mem_cgroup_drain(struct mem_cgroup *group)
{
	take_left(NULL);
	km_memcg_flush_pcs(group);
	km_memcg_scope();
	return km_stock_drain(group);
}

/* ------------------------------------------------------------------ over max */

/* Calls the out-of-memory callback of the group, or of its nearest ancestor with a callback. Returns: true if there is
 * room now. Callback and argument are read together with the tree locked; the call is made with the tree unlocked,
 * because the callback may free, offline groups, or set another callback. */
static bool ask_oom(struct mem_cgroup *group, uint64_t bytes)
{
	struct mem_cgroup *at = group;

	km_memcg_lock();
	while (!at->on_oom && !km_memcg_is_root(at))
		at = at->parent;
	mem_cgroup_oom_callback callback = at->on_oom;
	void *arg = at->oom_arg;
	km_memcg_unlock();
	if (!callback)
		return false;
	km_debug(!km_thread.busy && !km_thread.pressed, "a callback runs without locks, outside of other callbacks");
	int error = errno;
	km_thread.pressed = true;
	bool again = callback(group, bytes, arg);
	km_thread.pressed = false;
	errno = error;
	if (again)
		km_memcg_event(group, MEMCG_OOM_KILL, true);
	return again;
}

/* Returns the bytes to reclaim for a charge of `bytes`: not so many that a small group is emptied, nor so few that a
 * large group's shrinkers are called a thousand times. */
static uint64_t portion(const struct mem_cgroup *group, uint64_t bytes)
{
	return km_max(bytes, km_min(km_load(&group->memory.max) / 32, RECLAIM_BYTES));
}

static bool others_shrink(const struct mem_cgroup *group)
{
	km_memcg_scope();
	km_list_for_each(entry, &shrinkers) {
		struct mem_cgroup_shrinker *shrinker = km_container_of(entry, struct mem_cgroup_shrinker, link);

		if (shrinker->running > (shrinker == km_thread.shrinker) && km_memcg_in(shrinker->group, group))
			return true;
	}
	return false;
}

/* Waits while another thread is in a shrinker, after the shrinkers freed nothing for this thread. The wait is bounded,
 * because the other thread may wait for this thread. before: an earlier value of `shrunk`. Returns: true if a shrinker
 * has freed bytes since. */
static bool wait_for_others(const struct mem_cgroup *group, uint64_t before)
{
	for (unsigned ms = 1; ms <= PATIENCE_MS && km_load(&shrunk) == before && others_shrink(group); ms *= 2)
		km_os_wait(&(uint32_t){ 0 }, 0, ms);
	return km_load(&shrunk) != before;
}

/* Reclaims `bytes`, waits for other threads' shrinkers, or calls the out-of-memory callback. before: the value of
 * `shrunk` at the charge's last attempt. Returns: true if another attempt is worthwhile. */
static bool make_room(struct mem_cgroup *group, uint64_t bytes, uint64_t before, bool hopeless, gfp_t gfp)
{
	if (!hopeless && (mem_cgroup_reclaim(group, portion(group, bytes)) || wait_for_others(group, before)))
		return true;
	if (gfp & (__GFP_NORETRY | __GFP_RETRY_MAYFAIL))
		return false;
	km_memcg_event(group, MEMCG_OOM, true);
	return ask_oom(group, bytes);
}

/* Does nothing at 0: a fork by a signal handler has reset the count in the child. */
static void unsqueeze(struct mem_cgroup *group)
{
	uint32_t now = km_load(&group->memory.squeezed);

	while (now && !km_cas_release(&group->memory.squeezed, &now, now - 1))
		;
}

/* Drains the refusing group, and tries again. While `squeezed` is set, charges below take no more bytes than needed, so
 * that the drained bytes do not go into another charge's stock. A second drain may be needed: another group may refuse
 * next, or bytes were on the way into a stock. */
static bool drain_and_charge(struct km_attempt *attempt)
{
	int same = 2;

	for (int tries = MEMCG_DEPTH_MAX; tries; tries--) {
		struct mem_cgroup *over = attempt->refused;

		km_debug(over && km_load(&over->refs), "a refusing group is held until the next attempt");
		/* Visible to each thread that locks a CPU's stock after the drain. */
		km_add(&over->memory.squeezed, 1u);
		uint64_t bytes = km_memcg_could_give(over, attempt->bytes) ? mem_cgroup_drain(over) : 0;
		bool done = km_stock_charge(attempt);
		unsqueeze(over);
		bool again = attempt->refused != over || (bytes && same--);
		km_memcg_let_go(over);
		if (done || !again)
			return done;
	}
	return false;
}

/*
 * Makes room for a refused charge: drains stocks and charged sheaves and charges again, waits for a grace period once,
 * then reclaims (make_room), at most RETRIES times. Kernel: reclaims before a drain; here the drain comes first,
 * because a drain takes no memory in use. Returns: true if the charge is made; false after a report, and
 * attempt->refused is NULL. `before` is read before the attempt, so that wait_for_others does not wait if another
 * thread's shrinker freed bytes since.
 */
bool km_press(struct km_attempt *attempt, gfp_t gfp)
{
	unsigned tries = gfp & __GFP_NORETRY ? 1 : RETRIES;
	bool waited = km_thread.pressed;

	for (;;) {
		uint64_t before = km_load(&shrunk);

		/* No drain makes room for a charge above max; the last callback may raise max. */
		const bool hopeless = attempt->bytes > km_load(&attempt->refused->memory.max);
		if (!hopeless && drain_and_charge(attempt))
			return true;
		struct mem_cgroup *over = attempt->refused;
		km_memcg_event(over, MEMCG_MAX, true);
		/* Wait once only: the end of a grace period may free nothing of this group. */
		if (!hopeless && !waited && (waited = true) && km_grace_relieves())
			continue;
		if (km_thread.pressed || !tries-- || !make_room(over, attempt->bytes, before, hopeless, gfp)) {
			km_memcg_tell_refused(over, attempt->bytes, gfp);
			km_memcg_let_go(over);
			attempt->refused = NULL;
			return false;
		}
	}
}

/* ------------------------------------------------------------------ over high */

/* Returns: the delay in ms for a charge of `bytes` above high. Computes the excess in units of high / 2^20. */
unsigned int mem_cgroup_high_delay(uint64_t current, uint64_t high, uint64_t bytes)
{
	if (current <= high)
		return 0;
	unsigned __int128 excess = ((unsigned __int128)(current - high) << 20) / km_max(high, (uint64_t)KM_PAGE_SIZE);
	/* Bound the excess: ten times high gives far more than DELAY_MAX_MS. */
	excess = km_min(excess, (unsigned __int128)10 << 20);
	unsigned __int128 delay = excess * excess * 1000 >> 34;
	delay = delay * km_min(bytes, (uint64_t)1 << 40) / ((uint64_t)64 << KM_PAGE_SHIFT);
	return (unsigned)km_min(delay, (unsigned __int128)DELAY_MAX_MS);
}

static uint64_t bytes_over_high(const struct mem_cgroup *group)
{
	uint64_t usage = km_load(&group->memory.usage), high = km_load(&group->memory.high);

	return usage > high ? usage - high : 0;
}

static uint64_t reclaim_high(struct mem_cgroup *group, uint64_t bytes)
{
	uint64_t freed = 0;

	for (; !km_memcg_is_root(group); group = group->parent)
		if (bytes_over_high(group)) {
			uint64_t over = km_min(bytes_over_high(group), RECLAIM_BYTES);

			km_memcg_event(group, MEMCG_HIGH, true);
			freed += mem_cgroup_reclaim(group, km_max(bytes, over));
		}
	return freed;
}

/* Returns the group furthest over high, among this group and its ancestors, and in *delay the milliseconds to wait;
 * NULL: none is over high. */
static struct mem_cgroup *worst(struct mem_cgroup *group, uint64_t bytes, unsigned *delay)
{
	struct mem_cgroup *found = NULL;

	*delay = 0;
	for (; !km_memcg_is_root(group); group = group->parent) {
		unsigned ms = mem_cgroup_high_delay(km_load(&group->memory.usage), km_load(&group->memory.high), bytes);

		if (bytes_over_high(group) && (!found || ms > *delay)) {
			found = group;
			*delay = ms;
		}
	}
	return found;
}

static void slow_down(struct mem_cgroup *group, unsigned delay)
{
	km_memcg_lock();
	mem_cgroup_high_callback callback = group->on_high;
	void *arg = group->high_arg;
	km_memcg_unlock();
	if (callback) {
		km_errno_scope(error);

		km_debug(!km_thread.busy && !km_thread.pressed,
			 "a callback runs without locks, outside of other callbacks");
		km_thread.pressed = true;
		callback(group, bytes_over_high(group), delay, arg);
		km_thread.pressed = false;
	} else if (delay > DELAY_LEAST_MS) {
		uint32_t never = 0;

		km_os_wait(&never, 0, delay);
	}
}

/*
 * Slows the thread down for a group over high. Reclaims while reclaim frees bytes; then drains stocks; then delays
 * the thread once, for the group furthest over high. Requires: the group is held.
 */
static void throttle(struct mem_cgroup *group, uint64_t bytes)
{
	unsigned delay;

	for (int tries = RETRIES; tries && reclaim_high(group, bytes) && worst(group, bytes, &delay); tries--)
		;
	struct mem_cgroup *over = worst(group, bytes, &delay);
	if (over && (delay > DELAY_LEAST_MS || over->on_high)) {
		mem_cgroup_drain(over);
		over = worst(group, bytes, &delay);
	}
	if (over)
		slow_down(over, delay);
}

void km_memcg_owe(struct mem_cgroup *group, uint64_t bytes)
{
	struct km_owed *owed = &km_thread.owed;

	if (km_thread.pressed)
		return;
	if (!owed->objcg || owed->number != group->number)
		owed->bytes = 0;
	*owed = (struct km_owed){ group->objcg, group->number, owed->bytes + bytes };
}

/* Returns the owed group, held; NULL if offline or released: the objcg then leads to an ancestor, to no group, or to
 * the group of a reused record. The lock keeps handlers out; an earlier handler may have paid. */
static struct mem_cgroup *take_owed(uint64_t *bytes)
{
	struct mem_cgroup *group;

	km_memcg_scope();
	const struct km_owed owed = km_thread.owed;
	km_thread.owed = (struct km_owed){ 0 };
	group = owed.objcg ? km_load(&owed.objcg->memcg) : NULL;
	*bytes = owed.bytes;
	return group && group->number == owed.number ? km_memcg_hold(group) : NULL;
}

void km_slow_down_for(struct mem_cgroup *group, uint64_t bytes)
{
	uint64_t before = 0;
	struct mem_cgroup *other = km_unlikely(km_thread.owed.objcg != NULL) ? take_owed(&before) : NULL;

	if (other == group)
		bytes += before;
	else if (other)
		throttle(other, before);
	if (group)
		throttle(group, bytes);
	km_memcg_let_go(other);
}

void km_objcg_settle(struct obj_cgroup *objcg, uint64_t bytes)
{
	struct mem_cgroup *group = km_thread.pressed ? NULL : km_objcg_hold(objcg);
	unsigned delay;

	if (group)
		km_slow_down_for(worst(group, bytes, &delay) ? group : NULL, bytes);
	km_memcg_let_go(group);
}

/* ------------------------------------------------------------------ calls of users */

int mem_cgroup_charge(struct mem_cgroup *group, gfp_t gfp, uint64_t bytes)
{
	return km_objcg_charge(group->objcg, bytes, gfp | __GFP_NOWARN) ? 0 : -ENOMEM;
}

void mem_cgroup_uncharge(struct mem_cgroup *group, uint64_t bytes)
{
	/* Report an uncharge of 2^48 bytes or more: no group was ever charged so much. */
	if (km_unlikely(bytes >> 48))
		km_misuse(KM_MISUSE_UNCHARGE, "mem_cgroup_uncharge", group, NULL);
	else
		km_objcg_uncharge(group->objcg, bytes);
}

void mem_cgroup_set_high_callback(struct mem_cgroup *group, mem_cgroup_high_callback callback, void *arg)
{
	km_memcg_scope();
	group->on_high = callback;
	group->high_arg = arg;
}

void mem_cgroup_set_oom_callback(struct mem_cgroup *group, mem_cgroup_oom_callback callback, void *arg)
{
	km_memcg_scope();
	group->on_oom = callback;
	group->oom_arg = arg;
}

/* Sets max. A max below the usage holds at once; then drains and reclaims until the usage fits. */
int mem_cgroup_set_max(struct mem_cgroup *group, uint64_t bytes)
{
	if (km_memcg_is_root(group))
		return -EINVAL;
	if (!km_load(&group->online))
		return -ENOENT;
	km_store(&group->memory.max, bytes);
	for (int tries = RETRIES; tries && km_load(&group->memory.usage) > bytes; tries--) {
		mem_cgroup_drain(group);
		uint64_t usage = km_load(&group->memory.usage);
		if (usage <= bytes || !mem_cgroup_reclaim(group, usage - bytes))
			break;
	}
	return 0;
}
