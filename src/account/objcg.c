/*
 * objcg.c: the records of objcgs: those that may be over are listed here. Invariant: an objcg is on the list once at
 * most, and only a thread that has the tree's lock takes one off it.
 */
#include "../port/die.h"
#include "group.h"

static struct obj_cgroup *gone;		/* linked by next_gone */

/*
 * Nothing is out any more, and its group is gone. It may be there already: what came late was not counted. An objcg
 * that is over is not freed by the thread that brought it to that, which may be any free, but listed: a stack, pushed
 * without a lock, and popped under the tree's lock by a thread that makes or releases a group next (km_memcg_reap).
 * `listed` keeps it from being pushed twice, which would tie a knot in the list.
 */
void km_objcg_list(struct obj_cgroup *objcg)
{
	struct obj_cgroup *head = km_load(&gone);

	/* Release pairs with the acquire of km_stock_is_over: it sees what brought `charged` to 0. */
	if (KM_SHARED(&objcg->listed, km_swap_both(&objcg->listed, (uint32_t)true)))
		return;
	do
		objcg->next_gone = head;
	while (!km_cas_release(&gone, &head, objcg));
}

/* A thread with the tree lock pops, so that none comes back to the top meanwhile. Acquire pairs with km_objcg_list. */
struct obj_cgroup *km_objcg_pop_listed(void)
{
	struct obj_cgroup *objcg = km_load_acquire(&gone);

	while (objcg && !km_cas_acquire(&gone, &objcg, objcg->next_gone))
		;
	km_debug(!objcg || km_load(&objcg->listed), "an objcg on the list knows that it is there");
	return objcg;
}
