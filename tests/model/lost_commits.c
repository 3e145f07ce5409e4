/*
 * lost_commits: a commit may be lost at any try, to another thread, a signal or another CPU: then the per-CPU
 * operation has no effect, and tries again or misses. The random programs of model.c, with every third commit lost,
 * and now and then as many in a row as an operation tries. Disciplines: all; SEED, PROGRAMS and OPS as there.
 */
#include "model.c"
#include "percpu/visit.h"

bool __real_km_visit_commit(struct km_visit *visit, km_word *first, uint64_t one, km_word *last, uint64_t other);
bool __wrap_km_visit_commit(struct km_visit *visit, km_word *first, uint64_t one, km_word *last, uint64_t other);

bool __wrap_km_visit_commit(struct km_visit *visit, km_word *first, uint64_t one, km_word *last, uint64_t other)
{
	static unsigned commits;
	unsigned n = __atomic_fetch_add(&commits, 1, __ATOMIC_RELAXED);

	if (n % 3 == 0 || n % 199 < KM_VISIT_TRIES + 1)
		return false;
	return __real_km_visit_commit(visit, first, one, last, other);
}

__attribute__((constructor)) static void fewer_programs(void)
{
	setenv("PROGRAMS", "4", 0);
}
