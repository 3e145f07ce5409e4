/*
 * memcg.c: the tree of groups: creation, search, offline, release. Invariant: the tree changes under one lock. An
 * offline group is skipped by every walk, but stays linked until its last reference is gone, so that a walk at this
 * group can go on.
 *
 * A group has three lifetimes. Online: until mem_cgroup_offline; the group may be charged anew. Referenced: until the
 * last reference goes (release); the group may be walked, queried and named. Its objcg: until the group is gone and the
 * last byte charged through the objcg has come back; objects point to the objcg. At offline the objcg is led to the
 * parent. The parent was charged for these bytes all along, so no object must be found and no counter changed.
 *
 * A child of fork has one thread. References held by calls are counted apart (CALL), so that the child can drop the
 * references of other threads' calls. Users' references stay, as all memory does.
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

/* The group that stands in the root's place for this process: the group of the options, or the tree's root. */
static struct mem_cgroup *top = &km_memcg_root;

static struct {
	struct km_lock lock;
	struct km_busy_was was_busy;	/* the busy state of the lock's holder before km_memcg_lock */
	size_t groups;
} tree = { .lock = KM_LOCK_INIT(KM_RANK_MEMCG) };

static unsigned made;	/* number of groups created so far */

/* A handler finds the allocator busy while the lock is held. */
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

	km_debug(km_is_locked(&tree.lock), "the tree is unlocked by its holder");
	km_unlock(&tree.lock);
	km_busy_end(was);
}

/* Locks are taken in the order of their ranks. In the child the numbers are corrected before the tree is unlocked. */
static void memcg_fork(bool before, bool child)
{
	if (before)
		km_lock_around_fork(&tree.lock, before, child);
	km_lock_around_fork(&km_private_lock, before, child);
	km_stock_fork(before, child);
	if (child)
		km_pressure_fork_child();
	if (!before)
		km_lock_around_fork(&tree.lock, before, child);
}

/* In the child of fork: releases groups whose last references were calls of other threads (`left`). The search starts
 * anew for each group, because mem_cgroup_put takes the lock and changes the list. */
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

/* Returns the name and the number of the objcg's group. Needs no lock: a group's memory is never reused for anything
 * but groups. */
static const char *name_of(const struct obj_cgroup *objcg, unsigned *number)
{
	const struct mem_cgroup *group = km_load(&objcg->memcg);

	*number = group ? km_load(&group->number) : 0;
	return *number ? group->name : "";
}

/* Releases what offline groups left behind; called by each tick, and with `all` by a shrink. A tick runs in a miss, so
 * it waits for no lock and works on a few private groups only. All listed objcgs are reaped: each was listed by one
 * free. */
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
	.charge = km_charge_bytes, .charge_more = km_objcg_charge, .uncharge = km_objcg_uncharge,
	.is_charged_here = km_charge_is_here, .may_more = km_charge_may_more, .has_room = km_charge_has_room,
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

/* ------------------------------------------------------------------ creation */

static void set_up(struct mem_cgroup *group, struct obj_cgroup *objcg, struct mem_cgroup *parent)
{
	km_debug(km_is_locked(&tree.lock) && parent->online, "the parent of a new group is online");
	group->parent = mem_cgroup_get(parent);
	group->depth = parent->depth + 1;
	group->refs = 1;
	group->event_fd = -1;
	group->objcg = objcg;
	km_counter_init(&group->memory, km_memcg_counter(parent));
	km_counter_init(&group->kmem, km_memcg_is_root(parent) ? NULL : &parent->kmem);
	km_list_init(&group->children);
	km_list_init(&group->objcgs);
	km_store(&objcg->memcg, group);
	objcg->charged = KM_OBJCG_HOME + (objcg->private ? KM_OBJCG_PRIVATE : 0);
	km_list_add_tail(&objcg->link, &group->objcgs);
}

/* The memory of the last REST_GROUPS groups released is not reused: a thread may still have a dead group active. The
 * thread's next charge must report the dead group, and not charge a new group in the same memory. */
#define REST_GROUPS 64u

/* Keeps the memory of a released group unused until REST_GROUPS more groups are released. Context: tree lock held. */
static void keep_group(struct mem_cgroup *group)
{
	static struct mem_cgroup *resting[REST_GROUPS];
	static unsigned next;
	struct mem_cgroup **place = &resting[next++ % REST_GROUPS];

	km_debug(km_is_locked(&tree.lock) && !group->online && !km_load(&group->refs),
		 "a group exists until its last reference is dropped");

	km_metadata_free_spread(*place, sizeof(**place));
	*place = group;
}

/* Ends the listed objcgs without charged bytes; late charges may have come since an objcg was listed. An ended record
 * leads to no group: a thread with the dead group still active gets an error on its next charge. */
void km_memcg_reap(void)
{
	struct obj_cgroup *objcg;

	while ((objcg = km_objcg_pop_listed())) {
		if (!km_stock_is_over(objcg))
			continue;
		km_debug(!km_load(&objcg->charged), "an objcg at its end has no charged bytes");
		km_list_del(&objcg->link);
		km_store(&objcg->memcg, NULL);
		km_objcg_keep(objcg);
	}
}

/* Links a new group into the tree. Returns: 0 or an errno. */
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

/* Returns the top group for NULL and the root, while the top group is online: a program can't leave its own group. */
static struct mem_cgroup *top_for(struct mem_cgroup *group)
{
	return (!group || group == &km_memcg_root) && km_load(&top->online) ? top : group;
}

void km_memcg_set_top(struct mem_cgroup *group)
{
	km_debug(top == &km_memcg_root && group->online, "the group of the process is set once");
	top = group;
}

/*
 * Creates a group. All steps without the tree come before the lock. The step under the lock fails only if the parent
 * went offline, or for want of memory for stocks. Then all steps are undone in reverse order; no other thread has
 * seen the group. Returns: NULL with the reason in errno on failure.
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
	struct mem_cgroup *group = km_metadata_alloc_spread(sizeof(*group), true);
	struct obj_cgroup *objcg = NULL;
	if (group) {
		km_memcg_lock();
		objcg = km_objcg_new(group);
		km_memcg_unlock();
		km_text_take(group->name, sizeof(group->name), name, "/", '_');
		group->number = km_add(&made, 1u) + 1;
	}
	if (objcg && (!(flags & MEM_CGROUP_PRIVATE) || km_private_create(objcg, group)))
		error = join_tree(group, objcg, parent);
	if (!error)
		return group;
	if (objcg && objcg->private)
		km_private_drop(objcg);
	if (objcg) {
		km_memcg_scope();
		km_objcg_keep(objcg);
	}
	km_metadata_free_spread(group, sizeof(*group));
	errno = error;
	return NULL;
}

/* ------------------------------------------------------------------ offline and release */

/* Makes all objcgs of the group point to the parent, which was charged for their bytes all along. Readers of the group
 * hold some CPU's stock lock: km_stock_leave waits for them. The group's own counters keep their usage, and are never
 * uncharged for these bytes. */
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
		 "no objcg points to an offline group");
	km_stock_leave(group, group->objcg);
	km_store(&group->memory.usage, (uint64_t)0);
	km_store(&group->kmem.usage, (uint64_t)0);
}

/* Takes a group offline. The byte stock is closed first, while the objcg still points to this group, so that the
 * stock's bytes return to this group's counters. Then `online` is cleared, and the objcgs point to the parent. The
 * counters of ancestors do not change: they count the same bytes as before. */
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
			 "the ancestors of an online group are online");
		group->parent->online_children--;
		tree.groups--;
		reparent(group);
		km_memcg_reap();
	}
	return result;
}

/*
 * Releases a group without references. Private slabs go first, with the tree unlocked, because their release takes
 * the registry lock of lower rank. KM_OBJCG_HOME is dropped last: after this the last byte to come back, in any
 * thread, may end the objcg.
 */
static void release(struct mem_cgroup *group)
{
	if (group->objcg->private)
		km_private_release(group->objcg);
	km_memcg_scope();
	km_debug(km_list_empty(&group->children) && !group->online,
		 "an unlinked group has no children");
	km_list_del(&group->sibling);
	km_stock_forget(group->objcg, KM_OBJCG_HOME);
	km_memcg_reap();
	if (group->event_fd >= 0)
		km_os_close(group->event_fd);
	keep_group(group);
}

/*
 * Drops a reference. Returns: true if the last one was dropped. An online group keeps its last reference until it is
 * offline. If a group below is online, this last reference belongs to the group below, not to the caller. The count
 * is decreased by compare-and-swap, because the group must go offline before its last reference is dropped, and must
 * still exist then. Of two concurrent puts one loses the swap and looks again. `error` bounds the inner loop: a group
 * with online groups below can't go offline, and was put once too often.
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

/* Drops a reference, and the reference on the parent if the group is released, and so on up the tree. The reference on
 * a parent is a plain one, never a CALL. */
static void put(struct mem_cgroup *group, uint64_t unit)
{
	for (; group && !km_memcg_is_root(group) && drop(group, unit); unit = 1) {
		struct mem_cgroup *parent = group->parent;

		km_debug(km_load(&parent->refs), "a group has a reference to its parent");
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

#define CALL	((uint64_t)1 << 32)	/* added to `refs` by a call's reference */

/* Takes a call's reference on a group. Writes the group into a place of km_thread.memcg_held before the reference is
 * counted, and km_memcg_let_go clears the place after: so a fork by a handler never drops one reference too many in the
 * child. Without a free place takes a plain reference. */
struct mem_cgroup *km_memcg_hold(struct mem_cgroup *group)
{
	unsigned i = km_array_count(km_thread.memcg_held);

	if (!group || km_memcg_is_root(group))
		return group;
	while (i && !km_thread.memcg_held[i - 1])
		i--;
	if (km_unlikely(i == km_array_count(km_thread.memcg_held)))
		return mem_cgroup_get(group);
	km_thread.memcg_held[i] = group;
	km_add(&group->refs, CALL);
	return group;
}

/* Drops the reference, and clears the last place of km_thread.memcg_held with this group: a signal handler's places
 * follow those of the interrupted code. */
void km_memcg_let_go(struct mem_cgroup *group)
{
	unsigned i = km_array_count(km_thread.memcg_held);

	while (group && i && km_thread.memcg_held[i - 1] != group)
		i--;
	put(group, i ? CALL : 1);
	if (group && i)
		km_thread.memcg_held[i - 1] = NULL;
}

void km_memcg_fork_child(struct mem_cgroup *group)
{
	uint64_t calls = group->refs / CALL, own = 0;

	for (unsigned i = 0; i < km_array_count(km_thread.memcg_held); i++)
		own += km_thread.memcg_held[i] == group;
	group->refs -= (calls - km_min(own, calls)) * CALL;
	group->left = calls && !group->refs;
	group->refs += group->left;
}

/* ------------------------------------------------------------------ queries and modes */

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
	struct mem_cgroup *before = km_thread.active;

	km_thread.active = group;
	/* The order of the stores matters: a handler may set and restore the active group in between. */
	__atomic_signal_fence(__ATOMIC_RELEASE);
	km_objcg_here = group ? top_for(group)->objcg : NULL;
	return before;
}

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
	return km_thread.active;
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
 * Returns the next online group after `at`, held, and drops `at`. The next group is held before `at` is dropped. A
 * referenced group, also offline, keeps its place among its siblings, so that the walk can go on after any offline by
 * the visitor.
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
	/* With charged sheaves off, the objects on them would never be used. */
	if (mode == MEM_CGROUP_SHELF && !on)
		km_memcg_flush_pcs(&km_memcg_root);
	return result;
}

bool mem_cgroup_mode(enum mem_cgroup_mode mode)
{
	return (unsigned)mode < MEM_CGROUP_NR_MODES && km_load(&km_memcg_modes[mode]);
}
