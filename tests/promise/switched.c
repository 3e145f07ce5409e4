/*
 * switched: kmem_cache_set_debug: a cache is debugged while in use. New objects are debugged, older objects stay
 * unchanged, and any call frees both kinds. The cache has one name, one set of figures and one limit. With debugging
 * off, and the last debugged object freed, the cache is as before. For each engine, with all checks of the engine.
 * Disciplines: all. With hardened: own_addresses:0, because here pages go from one name to another.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <sys/mman.h>
#include <unistd.h>

#include "kit/api.h"
#include "kit/groups.h"
#include "kit/inside.h"
#include "cache/cache.h"
#include "os/os.h"

#define FZPU (SLAB_CONSISTENCY_CHECKS | SLAB_RED_ZONE | SLAB_POISON | SLAB_STORE_USER)
#define N 300

static void *blind(void *p)
{
	__asm__ volatile("" : "+r"(p));
	return p;
}

static void *get(struct kmem_cache *cache)
{
	void *object = kmem_cache_alloc(cache, GFP_KERNEL);

	NEED(object);
	return memset(object, 0x33, kmem_cache_size(cache));
}

static void switch_to(struct kmem_cache *cache, const char *letters)
{
	NEED(kmem_cache_set_debug(cache, letters) == 0);
}

/* No object of the debugged layout is allocated, and hits work as ever. */
static bool is_as_before(struct kmem_cache *cache)
{
	return cache->ext.shadows && !cache->ext.shadows->out &&
	       km_alloc_ops(cache) == km_layer_below(cache, KM_LAYER_SHADOW);
}

/* A byte behind the object is found, and mended; *p is the object's last. */
static bool is_debugged(struct kmem_cache *cache, void *object)
{
	unsigned char *p = object;

	p[kmem_cache_size(cache)] ^= 1;
	int damages = kmem_cache_validate(cache);
	NEED(kmem_cache_validate(cache) == 0);
	if (!damages)
		p[kmem_cache_size(cache)] ^= 1;
	return damages == 1;
}

static unsigned long active(struct kmem_cache *cache)
{
	struct kmem_cache_stats stats;

	kmem_cache_get_stats(cache, &stats);
	return stats.active_objects;
}

static void on_and_off(void)
{
	struct kmem_cache *cache = make("switched", 56);
	void *before = get(cache), *other = get(cache);

	NEED(kmem_cache_debug_flags(cache) == 0);
	switch_to(cache, "FZPU");
	NEED(kmem_cache_debug_flags(cache) == FZPU);
	void *during = get(cache), *second = get(cache);
	NEED(is_debugged(cache, during) && kmem_cache_validate(cache) == 0);
	NEED(active(cache) == 4);
	/* Users see one cache. */
	NEED(kmem_cache_of(during) == cache && (slob || kmem_cache_of(before) == cache));
	kmem_cache_free(cache, before);
	kmem_cache_free(cache, during);
	NEED(all(during, 0x6b, 1));
	switch_to(cache, "-");
	NEED(kmem_cache_debug_flags(cache) == 0 && !is_as_before(cache) && active(cache) == 2);
	void *after = get(cache);
	NEED(slob || km_cache_of(after) == cache);
	/* The last one. */
	kmem_cache_free(cache, second);
	kmem_cache_shrink(cache);
	NEED(is_as_before(cache));
	kmem_cache_free(cache, other);
	kmem_cache_free(cache, after);
	gone(cache);
}

/* The letters of the kernel, one after another: what is there stays, and is used again. */
static void other_flags(void)
{
	static const char *const letters[] = { "F", "Z", "P", "U", "ZP", "FZPU", "Z", "-", "U", "", "F", "-" };
	struct kmem_cache *cache = make("flags", 100);
	void *objects[km_array_count(letters)];

	for (size_t turn = 0; turn < 3; turn++) {
		for (size_t i = 0; i < km_array_count(letters); i++) {
			switch_to(cache, letters[i]);
			switch_to(cache, letters[i]);
			objects[i] = get(cache);
		}
		unsigned count = 0;
		for (struct kmem_cache *at = km_alloc_shadows(cache); at; at = at->ext.next_shadow)
			count++;
		NEED(count == 6);
		NEED(active(cache) == km_array_count(letters) && kmem_cache_validate(cache) == 0);
		for (size_t i = km_array_count(letters); i--;)
			kmem_cache_free(cache, objects[i]);
		kmem_cache_shrink(cache);
		NEED(is_as_before(cache));
	}
	gone(cache);
}

static void by_every_call(void)
{
	struct kmem_cache *cache = make("calls", 72);
	void *objects[N], *more[N];

	NEED(kmem_cache_alloc_bulk(cache, GFP_KERNEL, N, objects));
	switch_to(cache, "FZPU");
	NEED(kmem_cache_alloc_bulk(cache, GFP_KERNEL, N, more));
	NEED(is_debugged(cache, more[0]) && is_debugged(cache, more[N - 1]) && active(cache) == 2 * N);
	/* An array of both. */
	for (int i = 0; i < N; i += 2) {
		void *one = objects[i];

		objects[i] = more[i];
		more[i] = one;
	}
	kmem_cache_free_bulk(cache, N, objects);
	if (slob)
		kmem_cache_free_bulk(cache, N, more);
	else
		kfree_bulk(N, more);
	NEED(active(cache) == 0);
	for (int i = 0; i < N; i++)
		objects[i] = get(cache);
	switch_to(cache, "-");
	for (int i = 0; i < N; i++)
		if (i % 2)
			kfree(objects[i]);
		else
			kmem_cache_free(cache, objects[i]);
	unsigned char *zeros = kmem_cache_zalloc(cache, GFP_KERNEL);
	switch_to(cache, "P");
	unsigned char *zeros_again = kmem_cache_zalloc(cache, GFP_KERNEL);
	NEED(all(zeros, 0, 72) && all(zeros_again, 0, 72));
	void *of_node = kmem_cache_alloc_node(cache, GFP_KERNEL, 0), *quick = kmem_cache_alloc(cache, GFP_NOWAIT);
	NEED(of_node && quick);
	NEED(km_cache_of(of_node) == km_cache_of(zeros_again) && km_cache_of(quick) == km_cache_of(zeros_again));
	kmem_cache_free(cache, of_node);
	kmem_cache_free(cache, quick);
	kmem_cache_free(cache, zeros);
	kmem_cache_free(cache, zeros_again);
	switch_to(cache, "-");
	gone(cache);
}

/* Sheaves filled before, during and after. */
static void sheaves(void)
{
	struct kmem_cache *cache = make("sheaves", 40);
	struct slab_sheaf *before = kmem_cache_prefill_sheaf(cache, GFP_KERNEL, 10), *during;
	void *object = kmem_cache_alloc_from_sheaf(cache, GFP_KERNEL, before), *other;

	NEED(before && object);
	switch_to(cache, "FZPU");
	during = kmem_cache_prefill_sheaf(cache, GFP_KERNEL, 10);
	NEED(during);
	other = kmem_cache_alloc_from_sheaf(cache, GFP_KERNEL, during);
	NEED(is_debugged(cache, other) && (slob || km_cache_of(object) == cache));
	/* Objects added now are debugged. */
	while (kmem_cache_sheaf_size(before))
		kmem_cache_free(cache, kmem_cache_alloc_from_sheaf(cache, GFP_KERNEL, before));
	NEED(kmem_cache_refill_sheaf(cache, GFP_KERNEL, &before, 8) == 0);
	void *refilled = kmem_cache_alloc_from_sheaf(cache, GFP_KERNEL, before);
	NEED(is_debugged(cache, refilled));
	kmem_cache_free(cache, refilled);
	kmem_cache_free(cache, object);
	switch_to(cache, "-");
	kmem_cache_return_sheaf(cache, GFP_KERNEL, before);
	NEED(!is_as_before(cache));
	kmem_cache_return_sheaf(cache, GFP_KERNEL, during);
	kmem_cache_shrink(cache);
	NEED(!is_as_before(cache) && active(cache) == 1);
	kmem_cache_free(cache, other);
	gone(cache);
}

static void construct(void *object)
{
	memset(object, 0x5c, 48);
}

static void constructed(void)
{
	struct kmem_cache_args args = { .ctor = construct, .use_freeptr_offset = true, .freeptr_offset = 8 };
	struct kmem_cache *cache = kmem_cache_create("constructed", 48, &args, 0);
	unsigned char *before = kmem_cache_alloc(cache, GFP_KERNEL);

	switch_to(cache, "FZPU");
	unsigned char *during = kmem_cache_alloc(cache, GFP_KERNEL);
	NEED(all(during, 0x5c, 48) && all(before + 16, 0x5c, 32));
	kmem_cache_free(cache, during);
	kmem_cache_free(cache, before);
	during = kmem_cache_alloc(cache, GFP_KERNEL);
	NEED(all(during, 0x5c, 48));
	switch_to(cache, "-");
	kmem_cache_free(cache, during);
	gone(cache);
}

/*
 * Also while the free waits for the next miss, linked through the object: the link is outside the
 * user's bytes.
 */
static void constructed_waits(void)
{
	struct kmem_cache_args args = { .ctor = construct };
	struct kmem_cache *cache = kmem_cache_create("waits", 48, &args, 0);
	unsigned char *first, *second;

	switch_to(cache, "F");
	NEED((first = kmem_cache_alloc(cache, GFP_KERNEL)) && (second = kmem_cache_alloc(cache, GFP_KERNEL)));
	kmem_cache_free_nolock(cache, first);
	kmem_cache_free_nolock(cache, second);
	NEED(all(first, 0x5c, 48) && all(second, 0x5c, 48));
	gone(cache);
}

/* Typesafe memory keeps its type, in either layout. */
static void typesafe(void)
{
	struct kmem_cache *cache = kmem_cache_create("typed", 64, NULL, SLAB_TYPESAFE_BY_RCU);
	unsigned char *before = get(cache);

	switch_to(cache, "FZPU");
	unsigned char *during = get(cache);
	struct kmem_cache *actual = km_cache_of(during);
	kmem_cache_free(cache, during);
	NEED(all(during, 0x33, 64));
	switch_to(cache, "-");
	kmem_cache_shrink(cache);
	NEED(is_as_before(cache) && all(during, 0x33, 64) && km_cache_of(during) == actual && active(cache) == 1);
	kmem_cache_free(cache, before);
	kmem_cache_shrink(cache);
	NEED(active(cache) == 0 && kmem_check_all() == 0);
	kmem_cache_destroy(cache);
}

static void sizes(void)
{
	if (slob) {
		void *p = kmalloc(100, GFP_KERNEL);

		NEED(kmem_cache_set_debug(kmem_cache_of(p), "Z") == -EOPNOTSUPP);
		kfree(p);
		return;
	}
	unsigned char *before = kmalloc(50, GFP_KERNEL), *next = kmalloc(120, GFP_KERNEL);
	struct kmem_cache *cache = kmem_cache_of(before), *larger = kmem_cache_of(next);

	switch_to(cache, "FZPU");
	unsigned char *during = kmalloc(50, GFP_KERNEL), *zeros = kzalloc(51, GFP_KERNEL), *many[8];
	NEED(km_cache_of(during)->ext.shadow_of == cache && kmem_cache_of(during) == cache);
	NEED(ksize(during) == 50 && ksize(before) == 64 && ksize(zeros) == 51 && all(zeros, 0, 51));
	/* The red zone begins where the user's bytes end. */
	((unsigned char *)blind(during))[50] ^= 1;
	NEED(kmem_cache_validate(cache) == 1 && kmem_cache_validate(cache) == 0);
	NEED(kmalloc_bulk(60, GFP_KERNEL, 8, (void **)many) && ksize(many[7]) == 60);
	kfree_bulk(8, (void **)many);
	NEED(kmalloc_bulk(120, GFP_KERNEL, 8, (void **)many) && ksize(many[7]) == 128);
	kfree_bulk(8, (void **)many);
	memset(during, 0x44, 50);
	during = krealloc(during, 60, GFP_KERNEL);
	NEED(ksize(during) == 60 && all(during, 0x44, 50));
	during = krealloc(during, 200, GFP_KERNEL);
	NEED(all(during, 0x44, 50));
	before = krealloc(before, 40, GFP_KERNEL);
	/* No other size knows. */
	NEED(km_cache_of(next) == larger && !larger->ext.shadows && ksize(next) == 128);
	kfree(zeros);
	switch_to(cache, "-");
	unsigned char *after = kmalloc(50, GFP_KERNEL);
	NEED(km_cache_of(after) == cache && ksize(after) == 64 && is_as_before(cache));
	kfree(after);
	kfree(before);
	kfree(during);
	kfree(next);
	NEED(kmem_check_all() == 0);
}

static int count_named(struct kmem_cache *cache, void *arg)
{
	*(int *)arg += strcmp(kmem_cache_name(cache), "shown") == 0;
	return 0;
}

static int count_object(void *object, void *arg)
{
	++*(unsigned long *)arg;
	return object == NULL;
}

static void shown_as_one(void)
{
	struct kmem_cache *cache = make("shown", 80);
	void *before = get(cache);
	char text[8192] = "";
	unsigned long count = 0;
	int caches = 0, file;

	switch_to(cache, "FZPU");
	void *during = get(cache), *other = get(cache);
	kmem_for_each_cache(count_named, &caches);
	NEED(caches == 1);
	file = memfd_create("slabinfo", 0);
	NEED(kmem_print_slabinfo(file) == 0 && pread(file, text, sizeof(text) - 1, 0) > 0);
	const char *row = strstr(text, "\nshown ");
	NEED(row && !strstr(row + 1, "\nshown ") && atoi(row + 7) == 3);
	NEED(ftruncate(file, 0) == 0 && lseek(file, 0, SEEK_SET) == 0);
	NEED(kmem_cache_print_traces(cache, file) == 0);
	memset(text, 0, sizeof(text));
	NEED(pread(file, text, sizeof(text) - 1, 0) > 0 && strstr(text, "TOTAL 2\n"));
	NEED(kmem_cache_walk(cache, count_object, &count) == (slob ? -EOPNOTSUPP : 0) && (slob || count == 3));
	close(file);
	kmem_cache_free(cache, before);
	kmem_cache_free(cache, during);
	kmem_cache_free(cache, other);
	switch_to(cache, "-");
	NEED(kmem_cache_print_traces(cache, 1) == 0);
	gone(cache);
}

/* Bytes of slabs are limited together. */
static void one_limit(void)
{
	struct kmem_cache *cache = make("limited", 1000);
	void *objects[N];
	unsigned count = 0;

	if (slob)
		return;
	switch_to(cache, "FZPU");
	NEED(kmem_cache_set_limit(cache, 128 << 10) == 0);
	while (count < N && (objects[count] = kmem_cache_alloc(cache, GFP_KERNEL | __GFP_NOWARN)))
		count++;
	NEED(count > 20 && count < 128 && errno == ENOMEM);
	switch_to(cache, "-");
	NEED(!kmem_cache_alloc(cache, GFP_KERNEL | __GFP_NOWARN));
	while (count)
		kmem_cache_free(cache, objects[--count]);
	void *after = get(cache);
	NEED(after);
	kmem_cache_free(cache, after);
	gone(cache);
}

static void refused(void)
{
	struct kmem_cache *cache = make("refusing", 64), *large = kmem_cache_create("large", KMALLOC_MAX_SIZE, NULL, 0);
	struct kmem_cache *fixed = kmem_cache_create("fixed", 640, NULL, SLAB_NO_USER_FLAGS);

	NEED(kmem_cache_set_debug(cache, NULL) == -EINVAL);
	NEED(kmem_cache_set_debug(cache, "FX") == -EINVAL);
	NEED(kmem_cache_set_debug(cache, "O") == -EINVAL);
	NEED(kmem_cache_set_debug(cache, "F,cache") == -EINVAL);
	NEED(kmem_cache_set_debug(large, "FZPU") == -EOPNOTSUPP);
	NEED(kmem_cache_set_debug(fixed, "FZPU") == -EOPNOTSUPP);
	NEED(!cache->ext.shadows && kmem_cache_debug_flags(large) == 0);
	/* From the midst of the allocator. */
	struct km_busy_was was = km_busy_begin();
	NEED(kmem_cache_set_debug(cache, "FZPU") == -EBUSY);
	km_busy_end(was);
	kmem_cache_destroy(large);
	kmem_cache_destroy(fixed);
	gone(cache);
}

/* A cache created with debugging, without debugging for a while. */
static void made_with(void)
{
	struct kmem_cache *cache = kmem_cache_create("made", 64, NULL, SLAB_RED_ZONE | SLAB_POISON);
	void *before = get(cache);

	NEED(kmem_cache_debug_flags(cache) == (SLAB_RED_ZONE | SLAB_POISON));
	switch_to(cache, "-");
	void *during = get(cache);
	NEED(!is_debugged(cache, during) && kmem_cache_debug_flags(cache) == 0);
	switch_to(cache, "ZP");
	void *after = get(cache);
	NEED(slob || is_debugged(cache, after));
	kmem_cache_free(cache, during);
	kmem_cache_free(cache, before);
	kmem_cache_free(cache, after);
	kmem_cache_shrink(cache);
	NEED(is_as_before(cache));
	gone(cache);
}

/* With allocated objects of both layouts. */
static void destroyed(void)
{
	struct kmem_cache *cache = make("destroyed", 64);

	get(cache);
	switch_to(cache, "FZPU");
	get(cache);
	switch_to(cache, "ZU");
	get(cache);
	kmem_cache_destroy(cache);
	NEED(kmem_check_all() == 0);
	cache = make("destroyed", 64);
	switch_to(cache, "FZPU");
	kmem_cache_free(cache, get(cache));
	switch_to(cache, "-");
	gone(cache);
	/* The name is free, and none of them is there. */
	cache = make("destroyed", 64);
	gone(cache);
}

/* By the wrong name, a wrong address, and twice: reported, with no other effect. */
static void bad_frees(void)
{
	struct kmem_cache *cache = make("own", 64), *other = make("other", 64);

	switch_to(cache, "FZPU");
	char *object = get(cache), *foreign = get(other);
	if (!slob)
		kmem_cache_free(cache, foreign);
	kmem_cache_free(cache, object + 8);
	kmem_cache_free(cache, object);
	kmem_cache_free(cache, object);
	kmem_cache_free(cache, NULL);
	NEED(active(cache) == 0 && active(other) == 1);
	kmem_cache_free(other, foreign);
	switch_to(cache, "-");
	gone(cache);
	gone(other);
}

static void charged(void)
{
	struct kmem_cache *cache = kmem_cache_create("charged", 100, NULL, SLAB_ACCOUNT), *plain = make("plain", 100);
	struct mem_cgroup *group = group_below(NULL, "group"), *private = private_group("private");
	void *objects[6], *own;

	if (slob)
		return;
	mem_cgroup_set_max(group, 1 << 20);
	for (int turn = 0; turn < 2; turn++) {
		struct mem_cgroup *objcg = turn ? private : group;

		for (int i = 0; i < 6; i++) {
			struct mem_cgroup *before = set_active_memcg(objcg);

			switch_to(cache, i % 2 ? "FZPU" : "-");
			objects[i] = get(cache);
			set_active_memcg(before);
			NEED(mem_cgroup_from_obj(objects[i]) == objcg);
		}
		NEED(mem_cgroup_current(objcg) > 0 && kmem_check_all() == 0);
		own = get(cache);
		for (int i = 0; i < 6; i++)
			kmem_cache_free(cache, objects[i]);
		kmem_cache_free(cache, own);
		switch_to(cache, "-");
		kmem_cache_shrink(cache);
		NEED(is_as_before(cache));
	}
	/* The cache gets its first charged object meanwhile. */
	switch_to(plain, "FZPU");
	struct mem_cgroup *before = set_active_memcg(group);
	own = kmem_cache_alloc(plain, GFP_KERNEL | __GFP_ACCOUNT);
	NEED(own && mem_cgroup_from_obj(own) == group);
	NEED(kmem_cache_alloc_bulk(plain, GFP_KERNEL | __GFP_ACCOUNT, 6, objects));
	switch_to(plain, "-");
	void *after = kmem_cache_alloc(plain, GFP_KERNEL | __GFP_ACCOUNT);
	NEED(after && mem_cgroup_from_obj(after) == group);
	set_active_memcg(before);
	kmem_cache_free_bulk(plain, 6, objects);
	kmem_cache_free(plain, own);
	kmem_cache_free(plain, after);
	kmem_cache_shrink(plain);
	NEED(is_as_before(plain) && drained(group) == 0);
	mem_cgroup_put(group);
	mem_cgroup_put(private);
	kmem_cache_destroy(cache);
	gone(plain);
}

static void forked(void)
{
	struct kmem_cache *cache = make("forked", 64);
	void *before = get(cache);

	switch_to(cache, "FZPU");
	void *during = get(cache);
	int status;
	pid_t child = fork();

	NEED(child >= 0);
	if (!child) {
		NEED(is_debugged(cache, during));
		kmem_cache_free(cache, during);
		switch_to(cache, "-");
		kmem_cache_free(cache, before);
		NEED(is_as_before(cache));
		gone(cache);
		_exit(0);
	}
	NEED(waitpid(child, &status, 0) == child && status == 0);
	kmem_cache_free(cache, during);
	kmem_cache_free(cache, before);
	switch_to(cache, "-");
	gone(cache);
}

static unsigned long calls_before_refusal;

static bool refuse_later(const char *call)
{
	return strcmp(call, "fence") != 0 && !calls_before_refusal--;
}

/* Each system call of the switch is refused in turn: nothing has changed then, and all goes on. */
static void short_of_memory(void)
{
	struct kmem_cache *cache = NULL;
	int error = -ENOMEM;
	char name[32];

	for (unsigned refused = 0; refused < 50 && error; refused++) {
		/* New caches until the stock of metadata is used up, and the system call is refused. */
		for (unsigned i = 0; i < 400; i++) {
			snprintf(name, sizeof(name), "short-%u-%u", refused, i);
			cache = make(name, 64);
			calls_before_refusal = refused;
			km_os_fault = refuse_later;
			error = kmem_cache_set_debug(cache, "FZPU");
			km_os_fault = NULL;
			NEED(error == 0 || error == -ENOMEM);
			NEED(kmem_cache_debug_flags(cache) == (error ? 0 : FZPU));
			void *object = get(cache);
			NEED(error ? !cache->ext.shadows || !cache->ext.shadows->out : is_debugged(cache, object));
			kmem_cache_free(cache, object);
			if (error)
				break;
		}
	}
	NEED(kmem_check_all() == 0);
}

/*
 * With a debug shadow cache, objects of merged caches would count as the cache's: two sizes must not
 * share the shadow.
 */
static void not_merged(void)
{
	struct kmem_cache *first, *second;

	km_options.merge = true;
	first = make("first", 60);
	switch_to(first, "FZPU");
	second = make("second", 64);
	NEED(first != second);
	kmem_cache_free(second, get(second));
	switch_to(first, "-");
	gone(second);
	gone(first);
}

/* A call that never waits gets no debugged object, and so no object. */
static void without_waiting(void)
{
	struct kmem_cache *cache = make("without waiting", 64);

	switch_to(cache, "FZPU");
	void *during = get(cache);
	errno = 0;
	CHECK(!kmem_cache_alloc_nolock(cache, 0, NUMA_NO_NODE) && errno == ENOMEM);
	switch_to(cache, "-");
	kmem_cache_free(cache, during);
	kmem_cache_shrink(cache);
	NEED(is_as_before(cache));
	void *after = kmem_cache_alloc_nolock(cache, 0, NUMA_NO_NODE);
	NEED(after);
	kmem_cache_free_nolock(cache, after);
	kmem_cache_destroy(cache);
}

/* Charged kmalloc blocks know the requested bytes, too, by each path. */
static void sizes_charged(void)
{
	if (slob)
		return;
	set_active_memcg(group_below(NULL, "group"));
	unsigned char *before = kmalloc(50, GFP_KERNEL_ACCOUNT), *many[8];
	struct kmem_cache *cache = kmem_cache_of(before);
	NEED(strncmp(cache->registry.name, "kmalloc-cg-", 11) == 0);
	switch_to(cache, "FZP");
	unsigned char *during = kmalloc(50, GFP_KERNEL_ACCOUNT), *zeros = kzalloc(51, GFP_KERNEL_ACCOUNT);
	CHECK(ksize(during) == 50 && ksize(before) == 64 && ksize(zeros) == 51 && all(zeros, 0, 51));
	((unsigned char *)blind(during))[50] ^= 1;
	CHECK(kmem_cache_validate(cache) == 1 && kmem_cache_validate(cache) == 0);
	NEED(kmalloc_bulk(60, GFP_KERNEL_ACCOUNT, 8, (void **)many));
	CHECK(ksize(many[7]) == 60);
	kfree_bulk(8, (void **)many);
	kfree(zeros);
	switch_to(cache, "-");
	kfree(during);
	kmem_cache_shrink(cache);
	NEED(is_as_before(cache));
	void *after = kmalloc(50, GFP_KERNEL_ACCOUNT);
	NEED(ksize(after) == 64);
	kfree(after);
	kfree(before);
}

static const struct test_case cases[] = {
	{ "on and off", on_and_off }, { "sizes that are charged", sizes_charged },
	{ "without waiting", without_waiting }, { "other flags", other_flags }, { "by every call", by_every_call },
	{ "sheaves", sheaves }, { "constructed", constructed }, { "constructed, waits", constructed_waits },
	{ "typesafe", typesafe }, { "sizes", sizes },
	{ "shown as one", shown_as_one }, { "one limit", one_limit }, { "refused", refused },
	{ "made with", made_with }, { "destroyed", destroyed }, { "bad frees", bad_frees }, { "charged", charged },
	{ "forked", forked }, { "not merged", not_merged },
	{ "short of memory", short_of_memory },
};
API_MAIN_OPTIONS(cases, ",misuse:warn")
