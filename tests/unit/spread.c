/*
 * spread.c: the start addresses of records used in turn. A hit reads the first line of its cache's record, and a page
 * has four records. At one place in their pieces all these lines would share four of the 64 sets of a processor's
 * first-level cache. The lines would also have the page offset of objects, and a load would wait for a store to such
 * an object. So the records are spread over their pieces; a freed record gives its whole piece back.
 */
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <kmem/kmem.h>
#include <kmem/memcg.h>

#include "page/metadata.h"
#include "base/cc.h"

#include "kit/check.h"

#define RECORDS	96u
#define SETS	64u
/* At one place of pieces of 1024 bytes there are 4, and at most RECORDS / 4 records in each. */
#define LEAST	12u
#define MOST	12u

/* Counts the sets of the first lines, and the lines of the set with the most. */
static void look(void *const *records, const char *what)
{
	unsigned of[SETS] = { 0 }, sets = 0, most = 0;

	for (unsigned i = 0; i < RECORDS; i++) {
		unsigned set = (unsigned)((uintptr_t)records[i] / KM_CACHE_LINE % SETS);

		CHECK((uintptr_t)records[i] % KM_CACHE_LINE == 0);
		sets += !of[set]++;
		most = of[set] > most ? of[set] : most;
	}
	printf("%s: %u first lines in %u sets of %u, %u in one\n", what, RECORDS, sets, SETS, most);
	CHECK(sets >= LEAST);
	CHECK(most <= MOST);
}

/*
 * A freed record is allocated again, as a whole piece: otherwise repeated use would take more
 * memory each time.
 */
static void come_and_go(size_t bytes)
{
	static char *pieces[RECORDS], *again[RECORDS];

	for (unsigned i = 0; i < RECORDS; i++) {
		NEED(pieces[i] = km_metadata_alloc_spread(bytes, true));
		for (size_t at = 0; at < bytes; at++)
			NEED(pieces[i][at] == 0);
		memset(pieces[i], 0xff, bytes);
	}
	size_t had = km_metadata_committed_bytes();
	for (unsigned round = 0; round < 64; round++) {
		for (unsigned i = 0; i < RECORDS; i++)
			km_metadata_free_spread(pieces[i], bytes);
		for (unsigned i = 0; i < RECORDS; i++) {
			NEED(again[i] = km_metadata_alloc_spread(bytes, true));
			memset(again[i], 0xff, bytes);
		}
		memcpy(pieces, again, sizeof(pieces));
	}
	CHECK(km_metadata_committed_bytes() == had);
	for (unsigned i = 0; i < RECORDS; i++)
		km_metadata_free_spread(pieces[i], bytes);
}

int main(void)
{
	static struct kmem_cache *caches[RECORDS];
	static struct mem_cgroup *groups[RECORDS];
	char name[32];

	for (unsigned i = 0; i < RECORDS; i++) {
		snprintf(name, sizeof(name), "spread-%u", i);
		NEED(caches[i] = kmem_cache_create(name, 256, NULL, 0));
	}
	look((void *const *)caches, "caches");
	for (unsigned i = 0; i < RECORDS; i++)
		kmem_cache_destroy(caches[i]);
	for (unsigned i = 0; i < RECORDS; i++) {
		snprintf(name, sizeof(name), "group-%u", i);
		NEED(groups[i] = mem_cgroup_create(NULL, name, 0));
	}
	look((void *const *)groups, "groups");
	for (unsigned i = 0; i < RECORDS; i++)
		mem_cgroup_put(groups[i]);
	km_metadata_free_spread(NULL, 700);
	come_and_go(700);
	come_and_go(1024);
	come_and_go(60);
	puts(failures ? "FAIL" : "records are spread over their pieces");
	return failures != 0;
}
