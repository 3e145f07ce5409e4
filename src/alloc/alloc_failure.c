/*
 * alloc_failure.c: the line on standard error for a failed allocation: the reason, and a limit of the rate.
 * Invariant: takes no lock, and allocates nothing; makes system calls only if the request may wait.
 */
#include <errno.h>

#include "alloc_ops.h"

static const struct {
	gfp_t bits;
	const char *name;
} gfp_names[] = {
#define gfp_name(bits) { bits, #bits }
	gfp_name(GFP_KERNEL_ACCOUNT), gfp_name(GFP_KERNEL), gfp_name(GFP_NOFS), gfp_name(GFP_NOIO),
	gfp_name(GFP_ATOMIC), gfp_name(GFP_NOWAIT), gfp_name(__GFP_ZERO), gfp_name(__GFP_ACCOUNT),
	gfp_name(__GFP_THISNODE), gfp_name(__GFP_DIRECT_RECLAIM), gfp_name(__GFP_KSWAPD_RECLAIM), gfp_name(__GFP_HIGH),
	gfp_name(__GFP_IO), gfp_name(__GFP_FS), gfp_name(__GFP_NOWARN), gfp_name(__GFP_RETRY_MAYFAIL),
	gfp_name(__GFP_NOFAIL), gfp_name(__GFP_NORETRY), gfp_name(__GFP_MEMALLOC), gfp_name(__GFP_NOMEMALLOC),
	gfp_name(__GFP_RECLAIMABLE), gfp_name(__GFP_COMP), gfp_name(__GFP_FULLEST),
#undef gfp_name
};

/* Writes gfp as a number with the names of the bits: 0xcc0(GFP_KERNEL). Kernel: the same form, with the kernel's
 * numbers. */
static void name_gfp(char *text, size_t bytes, gfp_t gfp)
{
	size_t length = km_format(text, bytes, "0x%x(", gfp);
	const char *between = "";

	for (size_t i = 0; i < km_array_count(gfp_names); i++) {
		if ((gfp & gfp_names[i].bits) != gfp_names[i].bits)
			continue;
		length += km_format(text + length, bytes - length, "%s%s", between, gfp_names[i].name);
		gfp &= ~gfp_names[i].bits;
		between = "|";
	}
	km_format(text + length, bytes - length, ")");
	km_debug(length < bytes && !gfp, "the gfp bits have names");
}

void km_alloc_tell_failed(const char *name, uint64_t bytes, gfp_t gfp, const char *reason, const char *suffix)
{
	char names[200];

	name_gfp(names, sizeof(names), gfp);
	km_warn("%s: unable to allocate %lu bytes, gfp=%s, reason: %s%s", name, (unsigned long)bytes, names, reason,
		suffix);
}

/* Prints the line about a failed allocation, at a limited rate. Refusals by a cache's own limit have a rate limit of
 * their own (`refusals`). */
static void tell(const char *name, size_t bytes, gfp_t gfp)
{
	static struct km_ratelimit others;
	struct kmem_cache *limited = km_thread.slab_limited;
	char reason[80], suffix[KM_RATELIMIT_SUFFIX];

	if (limited && __builtin_strcmp(limited->registry.name, name))
		limited = NULL;
	km_thread.slab_limited = NULL;
	if (!km_ratelimit(limited ? &limited->state.refusals : &others, suffix))
		return;
	if (limited)
		km_format(reason, sizeof(reason), "limit of the cache (%lu bytes)",
			  (unsigned long)km_load(&limited->tune.limit));
	else if (gfp & __GFP_THISNODE)
		km_format(reason, sizeof(reason), "memory node");
	else
		km_os_tell_shortage(reason, sizeof(reason), bytes);
	km_alloc_tell_failed(name, bytes, gfp, reason, suffix);
}

bool km_gfp_tells(gfp_t gfp)
{
	return !(gfp & (__GFP_NOWARN | __GFP_NOFAIL)) && km_gfp_may_wait(gfp);
}

void *km_alloc_failed(const char *name, size_t size, gfp_t gfp, int error)
{
	if (gfp & __GFP_NOFAIL)
		km_panic("%s: out of memory, %lu bytes with __GFP_NOFAIL", name, (unsigned long)size);
	if (km_gfp_tells(gfp))
		tell(name, size, gfp);
	km_debug(error, "a failed call has a reason");
	errno = error;
	return NULL;
}

void *km_miss_failed(const struct kmem_cache *cache, const struct km_request *request)
{
	return km_alloc_failed(cache->registry.name, request->bytes ?: cache->layout.object_size, request->gfp, ENOMEM);
}
