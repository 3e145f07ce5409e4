/*
 * memcg.c: the tree of groups: they are made, found, taken offline, released. Invariant: the tree changes under one
 * lock; a group that is offline is passed over by everything, but stays linked until its last reference is gone, so
 * that whoever walks finds the way on.
 *
 * Three lives that end at different times. A group is online until it is taken offline: new charges may come by it. It
 * is there until its last reference goes: it can be walked, asked and named. Its objcg is there until the group is gone
 * and the last byte that was charged through it has come back: objects point to it. Offline parts the first from the
 * second: from then on the objcg leads to the parent, which was charged for these bytes all along, so that no object
 * has to be found and no counter moved. Release parts the second from the third.
 *
 * A child of fork has one thread. References that calls of other threads held are counted apart (CALL), so that the
 * child can give them up; those of users are its own, as all memory is.
 */
#define _GNU_SOURCE
#include <errno.h>

#include "page/metadata.h"
#include "os/die.h"
#include "os/os.h"
#include "base/text.h"
#include "memcg_group.h"
#include "child_cache.h"

struct obj_cgroup km_objcg_root = { .memcg = &km_memcg_root, .home = &km_memcg_root };
struct mem_cgroup km_memcg_root = {
	.objcg = &km_objcg_root,
	.refs = 1,
	.online = true,
	.children = { &km_memcg_root.children, &km_memcg_root.children },
	.sibling = { &km_memcg_root.sibling, &km_memcg_root.sibling },
	.objcgs = { &km_memcg_root.objcgs, &km_memcg_root.objcgs },
	.memory = { .max = MEMCG_NO_LIMIT, .high = MEMCG_NO_LIMIT },
	.event_fd = -1,
	.name = "/",
};

/* The group above this process's groups: the one that options made for it, where they did. */
static struct mem_cgroup *top = &km_memcg_root;

static struct {
	struct km_lock lock;
	struct km_busy_was was_busy;	/* of who holds it */
	bool keep_gone;			/* objcgs that are over stay: somebody has a list of them */
	size_t groups;
} tree = { .lock = KM_LOCK_INIT(KM_RANK_MEMCG) };

static unsigned made;	/* groups, ever */
static km_tls struct mem_cgroup *active;

/* A handler finds the allocator busy meanwhile. */
void km_memcg_lock(void)
{
	struct km_busy_was was = km_busy_begin();

	km_lock(&tree.lock);
	tree.was_busy = was;
}

bool km_memcg_trylock(void)
{
	struct km_busy_was was = km_busy_begin();
	bool locked = km_trylock(&tree.lock);

	if (locked)
		tree.was_busy = was;
	else
		km_busy_end(was);
	return locked;
}

void km_memcg_unlock(void)
{
	struct km_busy_was was = tree.was_busy;

	km_debug(km_is_locked(&tree.lock), "the tree is given back by who has it");
	km_unlock(&tree.lock);
	km_busy_end(was);
}

/*
 * Before a fork the locks are taken in the order of their ranks: tree, private groups, stocks; after it they are given
 * back the other way round. A nested fork may not have got the tree's lock, and then does not walk what that guards. In
 * the child numbers are put right before the tree is free, so that nothing can come in between.
 */
static void memcg_fork(bool before, bool child)
{
	if (before) {
		km_lock_around_fork(&tree.lock, true, child);
		if (km_fork_has(&tree.lock))
			km_private_fork(true, child);
	}
	km_stock_fork(before, child);
	if (!before && (child || km_fork_has(&tree.lock)))
		km_private_fork(false, child);
	if (child)
		km_pressure_fork_child();
	if (!before)
		km_lock_around_fork(&tree.lock, before, child);
}

/*
 * The groups that nobody has a reference on but calls of threads that are not here. One at a time, and from the start
 * again each time: the put releases a group, which takes the lock itself and changes the list that was walked.
 */
static void memcg_forked(void)
{
	struct mem_cgroup *group;

	do {
		km_memcg_lock();
		group = &km_memcg_root;
		while (group && !group->left)
			group = km_memcg_next(&km_memcg_root, group);
		if (group)
			group->left = false;
		km_memcg_unlock();
		mem_cgroup_put(group);
	} while (group);
}

/* Its group's memory is never anything else, or is a group's again. */
static const char *name_of(const struct obj_cgroup *objcg, unsigned *number)
{
	const struct mem_cgroup *group = km_load(&objcg->memcg);

	*number = group ? km_load(&group->number) : 0;
	return *number ? group->name : "";
}

/*
 * A tick runs between two misses of some thread, so a tick waits for no lock, and looks at a few private groups only.
 * All listed objcgs are reaped: each was listed by a free, so the cost is one reaped objcg for each of these frees.
 */
static void tidy(bool all)
{
	km_private_tidy(all);
	if (!all && !km_memcg_trylock())
		return;
	if (all)
		km_memcg_lock();
	km_memcg_reap();
	if (all)
		km_objcg_purge();
	km_memcg_unlock();
}

const struct km_charge_ops km_accounting = {
	.begin = km_charge_begin, .drain = km_charge_drain, .close = km_charge_close, .release = km_charge_release,
	.forget = km_private_forget,
	.pay = km_charge_bytes, .pay_more = km_charge_more, .pay_back = km_charge_back,
	.pays_here = km_charge_pays_here, .may_more = km_charge_may_more, .has_room = km_charge_has_room,
	.tidy = tidy, .own_block = km_charge_block, .note_block = km_charge_large,
	.start = km_memcg_start_process, .fork = memcg_fork, .forked = memcg_forked,
	.name_of = name_of, .groups = km_memcg_figures, .write = km_memcg_write,
	.account_malloc = km_memcg_account_malloc, .view = &km_memcg_view,
};
KM_REGISTER(km_charge_ops, km_accounting);

struct mem_cgroup *km_memcg_next(const struct mem_cgroup *root, struct mem_cgroup *at)
{
	km_debug(km_is_locked(&tree.lock), "the tree changes under its lock");
	if (!km_list_empty(&at->children))
		return km_list_first(&at->children, struct mem_cgroup, sibling);
	for (; at != root; at = at->parent)
		if (at->sibling.next != &at->parent->children)
			return km_list_first(&at->sibling, struct mem_cgroup, sibling);
	return NULL;
}

/* ------------------------------------------------------------------ they come */

/*
 * A group that comes. It is filled in before it is linked and before `online` is stored, all under the tree's lock; a
 * thread that does not take that lock gets to know of the group only by its creator.
 */
static void set_up(struct mem_cgroup *group, struct obj_cgroup *objcg, struct mem_cgroup *parent)
{
	km_debug(km_is_locked(&tree.lock) && parent->online, "a group comes below one that is online");
	group->parent = mem_cgroup_get(parent);
	group->depth = parent->depth + 1;
	group->refs = 1;
	group->event_fd = -1;
	group->objcg = objcg;
	km_counter_init(&group->memory, km_memcg_counter(parent));
	km_counter_init(&group->kmem, km_memcg_kmem_counter(parent));
	km_list_init(&group->children);
	km_list_init(&group->objcgs);
	km_store(&objcg->memcg, group);
	objcg->charged = KM_OBJCG_HOME + (objcg->private ? KM_OBJCG_PRIVATE : 0);
	km_list_add_tail(&objcg->link, &group->objcgs);
}

void km_memcg_keep_gone(bool keep)
{
	km_debug(km_is_locked(&tree.lock) && tree.keep_gone != keep, "one walk at a time has a list of objcgs");
	tree.keep_gone = keep;
}

/* The memory of the last groups without a reference is not reused at once: a thread may still have such a group active,
 * and its next charge must report the dead group, not charge a new group in the same memory. */
#define REST_GROUPS 64u

/* No reference is left. With the tree lock. */
static void keep_group(struct mem_cgroup *group)
{
	static struct mem_cgroup *resting[REST_GROUPS];
	static unsigned next;
	struct mem_cgroup **place = &resting[next++ % REST_GROUPS];

	km_debug(km_is_locked(&tree.lock) && !group->online && !km_load(&group->refs),
		 "a group stays until its last reference is gone");

	km_meta_free_spread(*place, sizeof(**place));
	*place = group;
}

static struct obj_cgroup *new_objcg(struct mem_cgroup *group)
{
	km_memcg_scope();
	return km_objcg_new(group);
}

static void drop_objcg(struct obj_cgroup *objcg)
{
	km_memcg_scope();
	km_objcg_keep(objcg);
}

/*
 * Check each listed objcg again, because late charges may have come. Then the record leads to no group: a thread with
 * the dead group still active gets an error on its next charge, and no new owner of the record is charged.
 */
void km_memcg_reap(void)
{
	struct obj_cgroup *objcg;

	while (!tree.keep_gone && (objcg = km_objcg_pop_listed())) {
		if (!km_stock_is_over(objcg))
			continue;
		km_debug(!km_load(&objcg->charged), "of an objcg that is over nothing is out");
		km_list_del(&objcg->link);
		km_store(&objcg->memcg, NULL);
		km_objcg_keep(objcg);
	}
}

/* 0 or an errno. */
static int join_tree(struct mem_cgroup *group, struct obj_cgroup *objcg, struct mem_cgroup *parent)
{
	int error = 0;

	km_memcg_scope();
	km_memcg_reap();
	if (!parent->online)
		error = ENOENT;
	else if (!km_stock_start())
		error = ENOMEM;
	if (!error) {
		set_up(group, objcg, parent);
		km_stock_open_objcg(objcg);
		km_list_add_tail(&group->sibling, &parent->children);
		parent->online_children++;
		tree.groups++;
		km_store(&group->online, true);
	}
	return error;
}

/* A program can't leave the group that was made for it, as long as it lets that be: there it meets its root. */
static struct mem_cgroup *top_for(struct mem_cgroup *group)
{
	return (!group || group == &km_memcg_root) && km_load(&top->online) ? top : group;
}

void km_memcg_set_top(struct mem_cgroup *group)
{
	km_debug(top == &km_memcg_root && group->online, "the root's place is given once");
	top = group;
}

/*
 * Everything that can fail without the tree is done before it is locked; the rest fails only by a parent that went
 * offline meanwhile, or for want of memory for stocks. Then all of it is taken back, in the reverse order, and the
 * caller has NULL with the reason in errno: nobody else has seen the group.
 */
struct mem_cgroup *mem_cgroup_create(struct mem_cgroup *parent, const char *name, unsigned int flags)
{
	int error = ENOMEM;

	parent = top_for(parent) ?: &km_memcg_root;
	if (flags & ~MEM_CGROUP_PRIVATE || !name || parent->depth >= MEMCG_DEPTH_MAX) {
		errno = EINVAL;
		return NULL;
	}
	if (!km_boot() || !km_kmalloc_start_charged()) {
		errno = ENOMEM;
		return NULL;
	}
	struct mem_cgroup *group = km_meta_alloc_spread(sizeof(*group), true);
	struct obj_cgroup *objcg = group ? new_objcg(group) : NULL;
	if (group) {
		km_text_take(group->name, sizeof(group->name), name, "/", '_');
		group->number = km_add(&made, 1u) + 1;
	}
	if (objcg && (!(flags & MEM_CGROUP_PRIVATE) || km_private_create(objcg, group)))
		error = join_tree(group, objcg, parent);
	if (!error)
		return group;
	if (objcg && objcg->private)
		km_private_drop(objcg);
	if (objcg)
		drop_objcg(objcg);
	km_meta_free_spread(group, sizeof(*group));
	errno = error;
	return NULL;
}

/* ------------------------------------------------------------------ they go */

/*
 * From here on all that points to the group points to its parent, which was charged all along. Whoever still looks at
 * the group does so under some CPU's lock: km_stock_leave passes them all. The rest on its own counters then is what
 * has gone over, and nobody will take it back from there.
 */
static void reparent(struct mem_cgroup *group)
{
	struct mem_cgroup *parent = group->parent;

	km_store(&group->objcg->dead, true);
	km_list_for_each_safe(entry, &group->objcgs) {
		struct obj_cgroup *objcg = km_container_of(entry, struct obj_cgroup, link);

		km_store_release(&objcg->memcg, parent);
		km_list_del(&objcg->link);
		km_list_add_tail(&objcg->link, &parent->objcgs);
	}
	km_debug(km_list_empty(&group->objcgs) && !group->online,
		 "nothing points to a group that went offline");
	km_stock_leave(group, group->objcg);
	km_store(&group->memory.usage, (uint64_t)0);
	km_store(&group->kmem.usage, (uint64_t)0);
}

/*
 * The stock is closed first, while the objcg still leads to this group, so that its bytes go back to these counters.
 * Only then the group stops being online, and what points to it is led to the parent. The counters above are not
 * touched: they have counted the same bytes all the time.
 */
int mem_cgroup_offline(struct mem_cgroup *group)
{
	int result = 0;

	km_memcg_scope();
	if (km_memcg_is_root(group) || group->online_children)
		result = -EBUSY;
	else if (!group->online)
		result = -ENOENT;
	if (!result) {
		km_stock_close_objcg(group->objcg);
		km_store(&group->online, false);
		km_debug(group->parent->online && group->parent->online_children && tree.groups,
			 "the groups above an online one are online");
		group->parent->online_children--;
		tree.groups--;
		reparent(group);
		km_memcg_reap();
	}
	return result;
}

/*
 * No reference is left. Private slabs go first, with the tree unlocked, for that takes the registry, whose rank is
 * lower. The objcg forgets its home last: after that the last byte to come back, by any thread, may end it.
 */
static void release(struct mem_cgroup *group)
{
	if (group->objcg->private)
		km_private_release(group->objcg);
	km_memcg_scope();
	km_debug(km_list_empty(&group->children) && !group->online,
		 "a group stays linked as long as there is one below it");
	km_list_del(&group->sibling);
	km_memcg_released(group);
	km_stock_forget(group->objcg, KM_OBJCG_HOME);
	km_memcg_reap();
	if (group->event_fd >= 0)
		km_os_close(group->event_fd);
	keep_group(group);
}

/*
 * An online group keeps its last reference until it is offline. Where one below it is online that reference is that
 * one's, and not the caller's. The count is brought down by compare-and-swap, and not by a subtraction, because the
 * last reference of an online group is not simply dropped: first the group goes offline, for which it must be there.
 * Two threads that put at once are told apart by the swap; the one that loses looks again. `error` bounds the inner
 * loop: a group that can't go offline, as groups below it are online, has been put once too often.
 */
static bool drop(struct mem_cgroup *group, uint64_t unit)
{
	uint64_t refs = km_load(&group->refs);
	int error = 0;

	do {
		while (refs == unit && km_load(&group->online) && !error) {
			error = mem_cgroup_offline(group);
			refs = km_load(&group->refs);
			error = refs == unit && error == -EBUSY ? error : 0;
		}
		if (km_unlikely(!(unit == 1 ? (uint32_t)refs : refs) || error)) {
			km_misuse(KM_MISUSE_GROUP, "mem_cgroup_put", group, NULL);
			return false;
		}
	} while (!km_cas_both(&group->refs, &refs, refs - unit));
	return refs == unit;
}

/* A group's reference on the one above is none of a call's. */
static void put(struct mem_cgroup *group, uint64_t unit)
{
	for (; group && !km_memcg_is_root(group) && drop(group, unit); unit = 1) {
		struct mem_cgroup *parent = group->parent;

		km_debug(km_load(&parent->refs), "a group has a reference on the one above");
		release(group);
		group = parent;
	}
}

void mem_cgroup_put(struct mem_cgroup *group)
{
	put(group, 1);
}

struct mem_cgroup *mem_cgroup_get(struct mem_cgroup *group)
{
	if (group && !km_memcg_is_root(group))
		km_add(&group->refs, 1u);
	return group;
}

/* ------------------------------------------------------------------ references of calls */

#define CALL	((uint64_t)1 << 32)	/* such a reference, in `refs` */

/* This thread's; in a call within a callback, or a handler, further ones. One that finds no place is as a user's. */
static km_tls struct mem_cgroup *held[8];

/* The place comes before the reference, and goes after it: so a handler's child never gives up one too many. */
struct mem_cgroup *km_memcg_hold(struct mem_cgroup *group)
{
	unsigned i = km_array_count(held);

	if (!group || km_memcg_is_root(group))
		return group;
	while (i && !held[i - 1])
		i--;
	if (km_unlikely(i == km_array_count(held)))
		return mem_cgroup_get(group);
	held[i] = group;
	km_add(&group->refs, CALL);
	return group;
}

/* The last place of this group's: a handler's are behind those that it found. */
void km_memcg_let_go(struct mem_cgroup *group)
{
	unsigned i = km_array_count(held);

	while (group && i && held[i - 1] != group)
		i--;
	put(group, i ? CALL : 1);
	if (group && i)
		held[i - 1] = NULL;
}

void km_memcg_fork_child(struct mem_cgroup *group)
{
	uint64_t calls = group->refs / CALL, own = 0;

	for (unsigned i = 0; i < km_array_count(held); i++)
		own += held[i] == group;
	group->refs -= (calls - km_min(own, calls)) * CALL;
	group->left = calls && !group->refs;
	group->refs += group->left;
}

/* ------------------------------------------------------------------ who is who */

struct mem_cgroup *mem_cgroup_root(void)
{
	return &km_memcg_root;
}

bool mem_cgroup_online(const struct mem_cgroup *group)
{
	return km_load(&group->online);
}

const char *mem_cgroup_name(const struct mem_cgroup *group)
{
	return group->name;
}

struct mem_cgroup *mem_cgroup_parent(const struct mem_cgroup *group)
{
	return group->parent;
}

struct mem_cgroup *set_active_memcg(struct mem_cgroup *group)
{
	struct mem_cgroup *before = active;

	active = group;
	/* In this order: a handler that strikes in between and sets back what it found does no harm. */
	__atomic_signal_fence(__ATOMIC_RELEASE);
	km_objcg_here = group ? top_for(group)->objcg : NULL;
	return before;
}

/*
 * The group is the thread's for the length of the call, and a handler that strikes in it allocates in that name unless
 * it says another: as with set_active_memcg, of which this is a shorter form. A handler that sets a group of its own
 * puts back what it found, so the call goes on as it began.
 */
void *kmalloc_in(struct mem_cgroup *group, size_t size, gfp_t gfp)
{
	struct mem_cgroup *before = set_active_memcg(group);
	void *object = kmalloc_account(size, gfp | __GFP_ACCOUNT);

	set_active_memcg(before);
	return object;
}

void *kmem_cache_alloc_in(struct kmem_cache *cache, struct mem_cgroup *group, gfp_t gfp)
{
	struct mem_cgroup *before = set_active_memcg(group);
	void *object = kmem_cache_alloc(cache, gfp | __GFP_ACCOUNT);

	set_active_memcg(before);
	return object;
}

struct mem_cgroup *mem_cgroup_active(void)
{
	return active;
}

void mem_cgroup_set_default(struct mem_cgroup *group)
{
	if (top != &km_memcg_root)
		group = top_for(group);
	km_memcg_lock();
	struct obj_cgroup *before = km_objcg_default;
	km_store(&km_objcg_default, group ? mem_cgroup_get(group)->objcg : NULL);
	km_memcg_unlock();
	if (before)
		mem_cgroup_put(before->home);
}

/*
 * The next online one after `at`, held; that is let go. The next one is held before the last one is let go: a group
 * keeps its place among its siblings as long as it has a reference, also offline, so that the walk finds its way on
 * whatever was taken offline by the visitor.
 */
static struct mem_cgroup *step(struct mem_cgroup *root, struct mem_cgroup *at)
{
	struct mem_cgroup *next = at;

	km_memcg_lock();
	do
		next = km_memcg_next(root, next);
	while (next && !next->online);
	km_memcg_hold(next);
	km_memcg_unlock();
	km_memcg_let_go(at);
	return next;
}

int mem_cgroup_walk(struct mem_cgroup *group, int (*visit)(struct mem_cgroup *group, unsigned int depth, void *arg),
		    void *arg)
{
	struct mem_cgroup *root = group ? group : &km_memcg_root;
	int result = 0;

	for (struct mem_cgroup *at = km_memcg_hold(root); at;) {
		result = visit(at, at->depth - root->depth, arg);
		if (result) {
			km_memcg_let_go(at);
			break;
		}
		at = step(root, at);
	}
	return result;
}

int mem_cgroup_set_mode(enum mem_cgroup_mode mode, bool on)
{
	int result = 0;

	if ((unsigned)mode >= MEM_CGROUP_NR_MODES)
		return -EINVAL;
	km_boot();
	km_memcg_lock();
	if (mode == MEM_CGROUP_V1 && tree.groups)
		result = -EBUSY;
	else
		km_store(&km_memcg_modes[mode], on);
	km_memcg_unlock();
	/* The objects on shelves now would stay in use there. */
	if (mode == MEM_CGROUP_SHELF && !on)
		km_memcg_flush_pcs(&km_memcg_root);
	return result;
}

bool mem_cgroup_mode(enum mem_cgroup_mode mode)
{
	return (unsigned)mode < MEM_CGROUP_NR_MODES && km_load(&km_memcg_modes[mode]);
}
