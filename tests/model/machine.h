/*
 * machine.h: a byte-code of allocator operations, and a trivially right model: a table of allocated objects, with
 * address, length and contents. After each operation the model knows the required state: objects do not overlap,
 * are aligned, keep their contents, are zeroed or constructed on request, and the library's counts agree. Used by
 * the random programs (model.c) and by the fuzzer (fuzz.c).
 *
 * An operation is four bytes: the operation and three operands. Any bytes are a valid program: operands are taken
 * modulo the table's sizes. So operations can be deleted from a failing program until no more can go.
 */
#ifndef MODEL_MACHINE_H
#define MODEL_MACHINE_H

#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include <errno.h>
#include <sched.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include <kmem/kmem.h>
#include <kmem/stats.h>

#define MAX_CACHES	8
#define MAX_LIVE	1024
#define MAX_BYTES	((size_t)24 << 20)	/* of allocated bytes, so that a program stays small */
#define OP_BYTES	4

enum op {
	OP_ALLOC, OP_ZALLOC, OP_NOWAIT, OP_FREE, OP_BULK_ALLOC, OP_BULK_FREE, OP_KFREE_BULK, OP_KMALLOC,
	OP_KZALLOC, OP_KREALLOC, OP_KMALLOC_BULK, OP_KVMALLOC, OP_KVREALLOC, OP_SHRINK, OP_SHRINK_ALL,
	OP_CREATE, OP_DESTROY, OP_MIGRATE, OP_WALK, OP_CHECK, OP_MIN_PARTIAL, OP_FORK, OP_FREE_ALL,
	OP_LOOK, OP_PREFILL, OP_FROM_SHEAF, OP_REFILL, OP_RETURN, NR_OPS
};

static const char *const op_names[NR_OPS] = {
	"alloc", "zalloc", "nowait", "free", "bulk_alloc", "bulk_free", "kfree_bulk", "kmalloc", "kzalloc",
	"krealloc", "kmalloc_bulk", "kvmalloc", "kvrealloc", "shrink", "shrink_all", "create", "destroy",
	"migrate", "walk", "check", "min_partial", "fork", "free_all", "look", "prefill", "from_sheaf",
	"refill", "return",
};

/* How likely a random byte is each of them, in 1/128. */
static const struct { uint8_t op, weight; } weights[] = {
	{ OP_ALLOC, 14 }, { OP_ZALLOC, 6 }, { OP_NOWAIT, 4 }, { OP_FREE, 15 }, { OP_BULK_ALLOC, 12 },
	{ OP_BULK_FREE, 12 }, { OP_KFREE_BULK, 6 }, { OP_KMALLOC, 9 }, { OP_KZALLOC, 4 },
	{ OP_KREALLOC, 6 }, { OP_KMALLOC_BULK, 3 }, { OP_KVMALLOC, 2 }, { OP_KVREALLOC, 2 },
	{ OP_SHRINK, 3 }, { OP_SHRINK_ALL, 1 }, { OP_CREATE, 4 }, { OP_DESTROY, 2 }, { OP_MIGRATE, 5 },
	{ OP_WALK, 2 }, { OP_CHECK, 3 }, { OP_MIN_PARTIAL, 1 }, { OP_FORK, 1 }, { OP_FREE_ALL, 1 },
	{ OP_LOOK, 2 }, { OP_PREFILL, 2 }, { OP_FROM_SHEAF, 3 }, { OP_REFILL, 1 }, { OP_RETURN, 2 },
};

struct model_cache {
	struct kmem_cache *cache;	/* NULL: none in this place */
	unsigned size, align;
	slab_flags_t flags;
	bool constructed;
	size_t live;
	struct slab_sheaf *sheaf;	/* one at a time; NULL: none */
	unsigned in_sheaf;		/* objects in the sheaf */
};

struct model_object {
	unsigned char *p;
	size_t bytes;
	uint32_t seed;			/* of the contents */
	int cache;			/* index, or KMALLOC */
};
#define KMALLOC (-1)

struct machine {
	struct model_cache caches[MAX_CACHES];
	struct model_object live[MAX_LIVE];
	size_t count, bytes;
	uint32_t next_seed;
	size_t at;			/* number of the operation */
	const char *name;
	char why[256];
	bool failed, is_child;
	bool slob;			/* objects do not name their cache, and kmalloc cuts to the byte */
};

/* ------------------------------------------------------------------ what must be true */

static void fail(struct machine *m, const char *format, ...) __attribute__((format(printf, 2, 3)));
static void fail(struct machine *m, const char *format, ...)
{
	va_list arguments;

	if (m->failed)
		return;
	m->failed = true;
	va_start(arguments, format);
	vsnprintf(m->why, sizeof(m->why), format, arguments);
	va_end(arguments);
}

/* The 8 bytes at offset `at` of an object. */
static uint64_t word_of(uint32_t seed, size_t at)
{
	return (seed * 0x9e3779b97f4a7c15ull ^ at * 0xc2b2ae3d27d4eb4full) | 0x0100000000000080ull;
}

/* The next offset to write and to check: all offsets, and one a line beyond 32 KiB. */
static size_t next_word(size_t at, size_t bytes)
{
	return at < 32768 || at + 4096 > bytes ? at + 8 : at + 64;
}

/* A constructor knows only the address. */
#define CONSTRUCTED 0xc7
#define CONSTRUCTOR(n) static void construct_##n(void *p) { memset(p, CONSTRUCTED, n); }
CONSTRUCTOR(24)
CONSTRUCTOR(64)
CONSTRUCTOR(200)
CONSTRUCTOR(1000)

static void write_content(struct machine *m, struct model_object *object)
{
	if (object->cache != KMALLOC && m->caches[object->cache].constructed)
		return;
	for (size_t at = 0; at < object->bytes; at = next_word(at, object->bytes)) {
		uint64_t word = word_of(object->seed, at);
		size_t left = object->bytes - at;

		memcpy(object->p + at, &word, left < 8 ? left : 8);
	}
}

static bool content_holds(struct machine *m, const struct model_object *object, size_t bytes)
{
	bool constructed = object->cache != KMALLOC && m->caches[object->cache].constructed;

	for (size_t at = 0; at < bytes; at = next_word(at, object->bytes)) {
		uint64_t want = word_of(object->seed, at), is;
		size_t left = bytes - at;

		if (constructed)
			memset(&want, CONSTRUCTED, sizeof(want));
		is = want;
		memcpy(&is, object->p + at, left < 8 ? left : 8);
		if (is != want) {
			fail(m, "%s: %p of %zu bytes: at offset %zu is %016lx and not %016lx", m->name,
			     (void *)object->p, object->bytes, at, (unsigned long)is,
			     (unsigned long)want);
			return false;
		}
	}
	return true;
}

static bool is_zero(const unsigned char *p, size_t bytes)
{
	return !bytes || (!p[0] && !memcmp(p, p + 1, bytes - 1));
}

static size_t kmalloc_align(const struct machine *m, size_t bytes)
{
	size_t real = m->slob && bytes < 4088 ? bytes : kmalloc_size_roundup(bytes);

	if (m->slob && bytes < 4088 && bytes % 8)
		return 8;
	if (real > KMALLOC_MAX_SIZE)
		return 4096;
	/* Whole pages: by the requested size, and to a page. */
	if (real > KMALLOC_MAX_CACHE_SIZE || (m->slob && bytes >= 4088))
		return (bytes & -bytes) > 4096 ? bytes & -bytes : 4096;
	return real & -real;
}

/* Records a new object. Returns: false for an impossible one. */
static bool born(struct machine *m, void *pointer, size_t bytes, int cache, size_t align, bool zero)
{
	unsigned char *p = pointer;
	struct model_object *object = &m->live[m->count];

	if ((uintptr_t)p & (align - 1))
		fail(m, "%s: %p is not aligned to %zu", m->name, pointer, align);
	for (size_t i = 0; i < m->count; i++)
		if (p < m->live[i].p + m->live[i].bytes && m->live[i].p < p + bytes)
			fail(m, "%s: %p of %zu bytes overlaps %p of %zu", m->name, pointer, bytes,
			     (void *)m->live[i].p, m->live[i].bytes);
	if (zero && !m->failed && !is_zero(p, bytes))
		fail(m, "%s: %p of %zu bytes is not zero", m->name, pointer, bytes);
	*object = (struct model_object){ p, bytes, m->next_seed++, cache };
	if (!zero && !m->failed && cache != KMALLOC && m->caches[cache].constructed)
		content_holds(m, object, bytes);
	if (m->failed)
		return false;
	m->count++;
	m->bytes += bytes;
	if (cache != KMALLOC)
		m->caches[cache].live++;
	write_content(m, object);
	return true;
}

/* Checks an object for the last time and forgets the object; the caller frees it. */
static void *died(struct machine *m, size_t i)
{
	struct model_object *object = &m->live[i];
	void *p = object->p;

	content_holds(m, object, object->bytes);
	m->bytes -= object->bytes;
	if (object->cache != KMALLOC)
		m->caches[object->cache].live--;
	m->live[i] = m->live[--m->count];
	return p;
}

static bool room(const struct machine *m, size_t objects, size_t bytes)
{
	return m->count + objects <= MAX_LIVE && m->bytes + objects * bytes <= MAX_BYTES;
}

/* ------------------------------------------------------------------ operands */

static struct model_cache *some_cache(struct machine *m, unsigned operand, int *index)
{
	for (int i = 0; i < MAX_CACHES; i++) {
		*index = (int)((operand + (unsigned)i) % MAX_CACHES);
		if (m->caches[*index].cache)
			return &m->caches[*index];
	}
	return NULL;
}

/* Small ones often, all size classes, now and then whole pages. */
static size_t some_size(unsigned a, unsigned b)
{
	unsigned top = a % 16;

	if (top == 15)
		return (size_t)(b + 1) * 8192;
	return ((size_t)1 << top) + b * ((size_t)1 << top) / 256;
}

static size_t some_count(unsigned operand)
{
	static const uint8_t often[] = { 1, 2, 3, 8, 16, 30, 31, 32, 62, 63, 64, 124, 125, 250 };

	return operand < 128 ? often[operand % sizeof(often)] : operand;
}

/* ------------------------------------------------------------------ operations: in */

/* Mostly from any node, now and then from a named node, existing or not. */
static void op_alloc(struct machine *m, unsigned a, gfp_t gfp, bool zalloc, unsigned where)
{
	int index;
	struct model_cache *c = some_cache(m, a, &index);

	if (!c || !room(m, 1, c->size))
		return;
	bool zero = zalloc && !c->constructed;
	void *p = zero ? kmem_cache_zalloc(c->cache, gfp) :
		  where % 4 == 3 ? kmem_cache_alloc_node(c->cache, gfp, (int)(where / 4 % 3)) :
		  kmem_cache_alloc(c->cache, gfp);
	if (p)
		born(m, p, c->size, index, c->align, zero);
	else if (gfp & __GFP_DIRECT_RECLAIM)
		fail(m, "%s: NULL", m->name);
}

static void op_kmalloc(struct machine *m, unsigned a, unsigned b, bool zero)
{
	size_t bytes = some_size(a, b);

	if (bytes > KMALLOC_MAX_SIZE || !room(m, 1, bytes))
		return;
	void *p = zero ? kzalloc(bytes, GFP_KERNEL) : kmalloc(bytes, GFP_KERNEL);
	if (!p)
		fail(m, "%s(%zu): NULL", m->name, bytes);
	else
		born(m, p, bytes, KMALLOC, kmalloc_align(m, bytes), zero);
}

static void op_kvmalloc(struct machine *m, unsigned a, unsigned b)
{
	size_t bytes = ((size_t)a * 256 + b + 1) * 112;

	if (!room(m, 1, bytes))
		return;
	void *p = a & 1 ? kvzalloc(bytes, GFP_KERNEL) : kvmalloc(bytes, GFP_KERNEL);
	if (!p)
		fail(m, "%s(%zu): NULL", m->name, bytes);
	else
		born(m, p, bytes, KMALLOC, kmalloc_align(m, bytes), a & 1);
}

static void op_krealloc(struct machine *m, unsigned a, unsigned b, unsigned c, bool kv)
{
	size_t i, bytes = kv ? ((size_t)b * 256 + c + 1) * 112 : some_size(b, c);

	if (!m->count || !room(m, 1, bytes) || (!kv && bytes > KMALLOC_MAX_SIZE))
		return;
	for (i = a % m->count; i < m->count && m->live[i].cache != KMALLOC; i++)
		;
	if (i == m->count)
		return;
	struct model_object old = m->live[i];
	bool zero = a & 1;
	gfp_t gfp = zero ? GFP_KERNEL | __GFP_ZERO : GFP_KERNEL;
	size_t usable = ksize(old.p), keep = old.bytes < bytes ? old.bytes : bytes;
	/* Between what was asked for and what is usable there may be anything. */
	if (usable < old.bytes)
		fail(m, "%s: ksize %zu of %zu bytes", m->name, usable, old.bytes);
	unsigned char *p = kv ? kvrealloc(old.p, bytes, gfp) : krealloc(old.p, bytes, gfp);
	if (!p) {
		fail(m, "%s(%zu): NULL", m->name, bytes);
		return;
	}
	struct model_object moved = { p, old.bytes, old.seed, KMALLOC };
	content_holds(m, &moved, keep);
	if (zero && bytes > usable && !is_zero(p + usable, bytes - usable))
		fail(m, "%s: beyond the old %zu bytes it is not zero", m->name, usable);
	m->bytes -= old.bytes;
	m->live[i] = m->live[--m->count];
	if (!m->failed)
		born(m, p, bytes, KMALLOC, ARCH_KMALLOC_MINALIGN, false);
}

static void op_bulk_alloc(struct machine *m, unsigned a, unsigned b, unsigned c)
{
	int index;
	struct model_cache *cache = some_cache(m, a, &index);
	size_t n = some_count(b);
	void *objects[256];

	if (!cache || !room(m, n, cache->size))
		return;
	bool zero = c % 4 == 0 && !cache->constructed;
	if (!kmem_cache_alloc_bulk(cache->cache, zero ? GFP_KERNEL | __GFP_ZERO : GFP_KERNEL, n,
				   objects)) {
		fail(m, "%s(%zu): false", m->name, n);
		return;
	}
	for (size_t i = 0; i < n; i++)
		born(m, objects[i], cache->size, index, cache->align, zero);
}

static void op_kmalloc_bulk(struct machine *m, unsigned a, unsigned b, unsigned c)
{
	size_t n = some_count(c) % 64 + 1, bytes = some_size(a % 14, b);
	void *objects[256];

	if (!room(m, n, bytes))
		return;
	if (!kmalloc_bulk(bytes, GFP_KERNEL, n, objects)) {
		fail(m, "%s(%zu, %zu): false", m->name, bytes, n);
		return;
	}
	for (size_t i = 0; i < n; i++)
		born(m, objects[i], bytes, KMALLOC, kmalloc_align(m, bytes), false);
}

#include "sheaves.h"

/* ------------------------------------------------------------------ operations: out */

static void op_bulk_free(struct machine *m, unsigned a, unsigned b, unsigned c)
{
	int index;
	struct model_cache *cache = some_cache(m, a, &index);
	size_t n = 0, most = some_count(b), step = c % 7 + 1;
	void *objects[256];

	if (!cache)
		return;
	for (size_t i = 0; i < m->count && n < most;) {
		if (m->live[i].cache != index || i % step) {
			i++;
			continue;
		}
		objects[n++] = died(m, i);
		if (c % 5 == 0 && n < most)
			objects[n++] = NULL;
	}
	kmem_cache_free_bulk(cache->cache, n, objects);
}

static void op_kfree_bulk(struct machine *m, unsigned a, unsigned b, unsigned c)
{
	size_t n = 0, most = some_count(a), step = b % 11 + 1;
	void *objects[256];

	for (size_t i = c; i < m->count && n < most; i += step) {
		if (m->slob && m->live[i].cache != KMALLOC)
			continue;
		objects[n++] = died(m, i);
		if (c % 6 == 0 && n < most)
			objects[n++] = NULL;
	}
	if (c & 1)
		kmem_cache_free_bulk(NULL, n, objects);
	else
		kfree_bulk(n, objects);
}

static void free_object(struct machine *m, size_t i, unsigned how)
{
	int cache = m->live[i].cache;
	void *p = died(m, i);

	if (cache != KMALLOC && (how % 2 == 0 || m->slob))
		kmem_cache_free(m->caches[cache].cache, p);
	else if (how % 4 == 1 && (cache == KMALLOC || !m->caches[cache].constructed))
		kfree_sensitive(p);
	else
		kfree(p);
}

static void free_all_of(struct machine *m, int cache, unsigned how)
{
	if (how & 1) {
		for (size_t i = m->count; i-- > 0;)
			if (m->live[i].cache == cache)
				free_object(m, i, how);
	} else {
		for (size_t i = 0; i < m->count;)
			if (m->live[i].cache == cache)
				free_object(m, i, how);
			else
				i++;
	}
}

/* ------------------------------------------------------------------ operations: caches */

static void op_create(struct machine *m, unsigned a, unsigned b, unsigned c)
{
	static const struct { unsigned size; void (*ctor)(void *); } made[] = {
		{ 24, construct_24 }, { 64, construct_64 }, { 200, construct_200 }, { 1000, construct_1000 },
	};
	static const slab_flags_t flags[] = { 0, 0, 0, SLAB_HWCACHE_ALIGN, SLAB_TYPESAFE_BY_RCU,
					      SLAB_CONSISTENCY_CHECKS, SLAB_NO_SHEAVES,
					      SLAB_RECLAIM_ACCOUNT };
	static const unsigned aligns[] = { 0, 0, 0, 8, 16, 64, 256, 4096 };
	struct kmem_cache_args args = { .align = aligns[c % 8] };
	struct model_cache *place = &m->caches[a % MAX_CACHES];
	char name[16];

	if (place->cache)
		return;
	*place = (struct model_cache){
		.size = (unsigned)some_size(b % 14, c), .flags = flags[b / 16 % 8],
	};
	if (b % 5 == 0) {
		place->constructed = true;
		place->size = made[c % 4].size;
		args.ctor = made[c % 4].ctor;
	}
	if (c % 3 == 0)
		args.sheaf_capacity = b * 4 % 1000;
	snprintf(name, sizeof(name), "model-%u", a % MAX_CACHES);
	place->cache = kmem_cache_create(name, place->size, &args, place->flags);
	if (!place->cache)
		fail(m, "%s(%u, align %u): NULL", m->name, place->size, args.align);
	place->align = args.align ? args.align : ARCH_SLAB_MINALIGN;
	if (place->flags & SLAB_HWCACHE_ALIGN && place->size > 32 && place->align < 64)
		place->align = 64;
}

static void check_empty(struct machine *m, struct model_cache *c)
{
	struct kmem_cache_stats stats;

	if (kmem_cache_shrink(c->cache) && !(c->flags & SLAB_TYPESAFE_BY_RCU))
		fail(m, "%s: slabs remain of an empty cache", m->name);
	kmem_cache_get_stats(c->cache, &stats);
	if (stats.active_objects || stats.shelf_objects)
		fail(m, "%s: %lu active and %lu in sheaves of an empty cache", m->name,
		     stats.active_objects, stats.shelf_objects);
}

static void op_destroy(struct machine *m, unsigned a, unsigned b)
{
	int index;
	struct model_cache *c = some_cache(m, a, &index);

	if (!c)
		return;
	free_all_of(m, index, b);
	return_sheaf(c, GFP_KERNEL);
	if (b & 1)
		check_empty(m, c);
	kmem_cache_destroy(c->cache);
	c->cache = NULL;
}

/* ------------------------------------------------------------------ operations: the rest */

/* The operand selects one of the process's CPUs, or all of them. */
static void op_migrate(unsigned a)
{
	static cpu_set_t all;
	cpu_set_t one;

	if (!CPU_COUNT(&all) && sched_getaffinity(0, sizeof(all), &all))
		return;
	unsigned wanted = a % ((unsigned)CPU_COUNT(&all) + 1);
	CPU_ZERO(&one);
	for (unsigned cpu = 0; cpu < CPU_SETSIZE; cpu++)
		if (CPU_ISSET(cpu, &all) && wanted-- == 0)
			CPU_SET(cpu, &one);
	sched_setaffinity(0, sizeof(one), CPU_COUNT(&one) ? &one : &all);
}

struct walked {
	struct machine *m;
	int cache;
	size_t count, unknown;
};

static int walked_one(void *object, void *arg)
{
	struct walked *walked = arg;

	for (size_t i = 0; i < walked->m->count; i++)
		if (walked->m->live[i].p == object && walked->m->live[i].cache == walked->cache) {
			walked->count++;
			return 0;
		}
	/* Objects in a sheaf have no user yet. */
	if (walked->unknown++ < walked->m->caches[walked->cache].in_sheaf)
		return 0;
	fail(walked->m, "%s: %p is not allocated", walked->m->name, object);
	return 1;
}

static void op_walk(struct machine *m, unsigned a)
{
	struct walked walked = { m, 0, 0, 0 };
	struct model_cache *c = some_cache(m, a, &walked.cache);

	if (!c)
		return;
	if (kmem_cache_walk(c->cache, walked_one, &walked) == -EOPNOTSUPP && m->slob)
		return;
	if (walked.count != c->live || walked.unknown != c->in_sheaf)
		fail(m, "%s: %zu visited, %zu allocated; %zu others, %u in a sheaf", m->name, walked.count,
		     c->live, walked.unknown, c->in_sheaf);
}

/* Everything: contents, counts, the library's own invariants. */
static void op_check(struct machine *m)
{
	struct kmem_cache_stats stats;

	for (size_t i = 0; i < m->count && !m->failed; i++)
		content_holds(m, &m->live[i], m->live[i].bytes);
	for (int i = 0; i < MAX_CACHES; i++) {
		if (!m->caches[i].cache)
			continue;
		kmem_cache_get_stats(m->caches[i].cache, &stats);
		if (stats.active_objects != m->caches[i].live + m->caches[i].in_sheaf)
			fail(m, "%s: %s counts %lu, %zu allocated and %u in a sheaf", m->name,
			     stats.name, stats.active_objects, m->caches[i].live,
			     m->caches[i].in_sheaf);
	}
	if (kmem_check_all())
		fail(m, "%s: kmem_check_all", m->name);
}

static void op_look(struct machine *m, unsigned a)
{
	if (!m->count)
		return;
	struct model_object *object = &m->live[a % m->count];
	size_t usable = m->slob && object->cache != KMALLOC ? object->bytes : ksize(object->p);

	if (usable < object->bytes)
		fail(m, "%s: ksize %zu of %zu bytes", m->name, usable, object->bytes);
	struct kmem_cache *cache = kmem_cache_of(object->p);
	if (object->cache != KMALLOC && cache != (m->slob && object->bytes < 4096 ?
						  NULL : m->caches[object->cache].cache))
		fail(m, "%s: kmem_cache_of(%p) is another", m->name, (void *)object->p);
	if (object->bytes > 16 && kmem_cache_of(object->p + 1))
		fail(m, "%s: kmem_cache_of inside of an object", m->name);
}

static void op_shrink(struct machine *m, unsigned a)
{
	int index;
	struct model_cache *c = some_cache(m, a, &index);

	if (c && kmem_cache_shrink(c->cache) != 1 && c->live + c->in_sheaf && !m->slob)
		fail(m, "%s: no slab, and %zu allocated", m->name, c->live);
}

static void op_min_partial(struct machine *m, unsigned a, unsigned b)
{
	int index;
	struct model_cache *c = some_cache(m, a, &index);

	if (!c)
		return;
	if (kmem_cache_set_min_partial(c->cache, b))
		fail(m, "%s: refused", m->name);
	if (kmem_cache_min_partial(c->cache) != b)
		fail(m, "%s: not kept", m->name);
}

static void run_ops(struct machine *m, const uint8_t *code, size_t ops, size_t from, size_t to);
static void finish(struct machine *m);

/*
 * The child does the next operations and frees all objects; the parent does the operations as well,
 * afterwards.
 */
static void op_fork(struct machine *m, const uint8_t *code, size_t ops, unsigned a)
{
	int status;

	if (m->is_child)
		return;
	fflush(NULL);
	pid_t pid = fork();
	if (pid < 0)
		return;
	if (!pid) {
		size_t next = m->at + 1, more = a % 64;

		m->is_child = true;
		run_ops(m, code, ops, next, next + more < ops ? next + more : ops);
		finish(m);
		if (m->failed)
			dprintf(2, "in a child: operation %zu: %s\n", m->at, m->why);
		_exit(m->failed);
	}
	if (waitpid(pid, &status, 0) != pid || status)
		fail(m, "%s: the child ended with status 0x%x", m->name, status);
}

/* ------------------------------------------------------------------ programs */

static enum op decode(uint8_t byte)
{
	unsigned left = byte % 128;

	for (size_t i = 0; i < sizeof(weights) / sizeof(weights[0]); i++) {
		if (left < weights[i].weight)
			return weights[i].op;
		left -= weights[i].weight;
	}
	return OP_CHECK;
}

static void run_op(struct machine *m, const uint8_t *code, size_t ops)
{
	const uint8_t *op = code + m->at * OP_BYTES;
	unsigned a = op[1], b = op[2], c = op[3];
	enum op what = decode(op[0]);
	int index;

	m->name = op_names[what];
	switch (what) {
	case OP_ALLOC: op_alloc(m, a, GFP_KERNEL, false, b); break;
	case OP_ZALLOC: op_alloc(m, a, GFP_KERNEL, true, b); break;
	case OP_NOWAIT: op_alloc(m, a, b & 1 ? GFP_NOWAIT : GFP_ATOMIC, c & 1, c); break;
	case OP_FREE:
		if (m->count)
			free_object(m, (a * 256 + b) % m->count, c);
		break;
	case OP_BULK_ALLOC: op_bulk_alloc(m, a, b, c); break;
	case OP_BULK_FREE: op_bulk_free(m, a, b, c); break;
	case OP_KFREE_BULK: op_kfree_bulk(m, a, b, c); break;
	case OP_KMALLOC: op_kmalloc(m, a, b, false); break;
	case OP_KZALLOC: op_kmalloc(m, a, b, true); break;
	case OP_KREALLOC: op_krealloc(m, a, b, c, false); break;
	case OP_KMALLOC_BULK: op_kmalloc_bulk(m, a, b, c); break;
	case OP_KVMALLOC: op_kvmalloc(m, a, b); break;
	case OP_KVREALLOC: op_krealloc(m, a, b, c, true); break;
	case OP_SHRINK: op_shrink(m, a); break;
	case OP_SHRINK_ALL: kmem_shrink_all(); break;
	case OP_CREATE: op_create(m, a, b, c); break;
	case OP_DESTROY: op_destroy(m, a, b); break;
	case OP_MIGRATE: op_migrate(a); break;
	case OP_WALK: op_walk(m, a); break;
	case OP_CHECK: op_check(m); break;
	case OP_MIN_PARTIAL: op_min_partial(m, a, b); break;
	case OP_FORK: op_fork(m, code, ops, a); break;
	case OP_FREE_ALL:
		if (some_cache(m, a, &index))
			free_all_of(m, index, b);
		break;
	case OP_LOOK: op_look(m, a * 256 + b); break;
	case OP_PREFILL: op_prefill(m, a, b); break;
	case OP_FROM_SHEAF: op_from_sheaf(m, a, b, c); break;
	case OP_REFILL: op_refill(m, a, b); break;
	case OP_RETURN: op_return(m, a, b); break;
	case NR_OPS: break;
	}
}

static void run_ops(struct machine *m, const uint8_t *code, size_t ops, size_t from, size_t to)
{
	for (m->at = from; m->at < to && !m->failed; m->at++)
		run_op(m, code, ops);
	/* The place of the failure, not the place behind. */
	if (m->failed && m->at > from)
		m->at--;
}

/* All is freed: nothing may be left, of any cache. */
static void finish(struct machine *m)
{
	if (m->failed)
		return;
	m->name = "at the end";
	op_check(m);
	while (m->count && !m->failed)
		free_object(m, m->count - 1, (unsigned)m->count);
	for (int i = 0; i < MAX_CACHES && !m->failed; i++) {
		if (!m->caches[i].cache)
			continue;
		return_sheaf(&m->caches[i], GFP_KERNEL);
		check_empty(m, &m->caches[i]);
		kmem_cache_destroy(m->caches[i].cache);
	}
	if (!m->failed && kmem_check_all())
		fail(m, "%s: kmem_check_all", m->name);
}

/*
 * Runs a program from an empty table. Returns: 0, or 1 + the operation that failed, with the reason in
 * m->why.
 */
static size_t machine_run(struct machine *m, const uint8_t *code, size_t bytes)
{
	size_t ops = bytes / OP_BYTES;

	memset(m, 0, sizeof(*m));
	m->next_seed = 1;
	m->name = "the first cache";
	/* A cache to allocate from, for any program. */
	op_create(m, 0, 0x21, 5);
	struct kmem_cache_stats stats;
	kmem_cache_get_stats(m->caches[0].cache, &stats);
	m->slob = strcmp(stats.engine, "slob") == 0;
	run_ops(m, code, ops, 0, ops);
	finish(m);
	return m->failed ? m->at + 1 : 0;
}

#endif
