/*
 * engines.c: the engines that there are. Invariant: the list grows before the first cache is made, and never changes
 * again.
 */
#include "slab/engine.h"

#define MAX_ENGINES	8u
#define ADDRESS(name)	&km_engine_##name,

static const struct km_engine *engines[MAX_ENGINES + 1] = { KM_ENGINES(ADDRESS, ) };

const struct km_engine *km_engine_find(const char *name)
{
	unsigned i = 0;

	while (engines[i] && __builtin_strcmp(engines[i]->name, name) != 0)
		i++;
	return engines[i];
}

bool km_engine_add(const struct km_engine *engine)
{
	unsigned i = 0;

	while (engines[i])
		i++;
	if (i < MAX_ENGINES)
		engines[i] = engine;
	return i < MAX_ENGINES;
}

const struct km_sized_engine *km_engine_sized(void)
{
	for (unsigned i = 0; engines[i]; i++)
		if (engines[i]->shared_pages)
			return &engines[i]->sized;
	return NULL;
}

int km_engines_check(void)
{
	int damages = 0;

	for (unsigned i = 0; engines[i]; i++)
		damages += engines[i]->check_all ? engines[i]->check_all() : 0;
	return damages;
}

void km_engines_fork(bool before, bool child)
{
	for (unsigned i = 0; engines[i]; i++)
		if (engines[i]->fork_all)
			engines[i]->fork_all(before, child);
}
