/*
 * slabinfo_grammar: feeds texts to kmem_slabinfo_write, the reader of writes to /proc/slabinfo (texts.h), beside a
 * reader of the test's own: both give the same result, and the named cache has the numbers of the text, or its former
 * ones.
 */
#define _GNU_SOURCE
#include <errno.h>

#include <kmem/kmem.h>
#include <kmem/stats.h>

#include "model/texts.h"

#define MOST_WRITTEN	128u
#define MOST_LIMIT	126

struct numbers {
	long limit, batchcount, shared;
};

static struct kmem_cache *tuned, *other;
static struct numbers has;

static struct numbers numbers_of(struct kmem_cache *cache)
{
	struct kmem_cache_stats stats;

	kmem_cache_get_stats(cache, &stats);
	return (struct numbers){ stats.limit, stats.batchcount, stats.shared_factor };
}

static void need_numbers(const char *text)
{
	struct numbers now = numbers_of(tuned);

	need(now.limit == has.limit && now.batchcount == has.batchcount && now.shared == has.shared, text,
	     "the cache has other numbers");
}

/*
 * Behind blanks, with a sign or without, of an int's range without its last number. Returns: false if there
 * is none.
 */
static bool read_int(const char **at, long *number)
{
	size_t digits, sign;

	*at += strspn(*at, " \t\n");
	sign = **at == '-';
	digits = strspn(*at + sign, "0123456789");
	if (!digits)
		return false;
	errno = 0;
	*number = strtol(*at, NULL, 10);
	*at += sign + digits;
	return !errno && *number <= INT32_MAX && *number >= -INT32_MAX;
}

/* The expected answer. The expected settings are in `has`. */
static int model(const char *text)
{
	const char *at = strchrnul(text, ' ');
	size_t length = (size_t)(at - text);
	struct numbers to;

	if (strlen(text) > MOST_WRITTEN || !read_int(&at, &to.limit) || !read_int(&at, &to.batchcount) ||
	    !read_int(&at, &to.shared))
		return -EINVAL;
	bool is_other = length == 6 && !strncmp(text, "untold", 6);
	if (!is_other && (length != 5 || strncmp(text, "tuned", 5) != 0))
		return -EINVAL;
	if (to.limit <= 0 || to.batchcount <= 0 || to.shared < 0 || to.batchcount > to.limit)
		return 0;
	if (is_other)
		return -EOPNOTSUPP;
	if (to.limit > MOST_LIMIT || to.shared > UINT16_MAX)
		return -ERANGE;
	has = to;
	return 0;
}

static void try_text(const char *text)
{
	if (!tuned) {
		struct kmem_cache_args slab = { .engine = "slab" }, slub = { .engine = "slub" };

		tuned = kmem_cache_create("tuned", 64, &slab, 0);
		other = kmem_cache_create("untold", 64, &slub, 0);
		need(tuned && other, text, "there are two caches");
		has = numbers_of(tuned);
	}
	int result = model(text), really = kmem_slabinfo_write(text);
	need(really == result || really == -ENOMEM, text, "it is taken, or refused");
	if (really == -ENOMEM)
		has = numbers_of(tuned);
	need_numbers(text);
}

TEXTS_TEST("slabinfo_grammar", "0123456789- \t\ntuned")
