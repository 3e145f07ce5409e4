/*
 * atexit.c: KMEM_STATS=FILE makes a program leave its statistics behind: when it ends, the JSON of kmem_print_json
 * goes to FILE ("%p" in the name becomes the process's number), or slabinfo to stderr where FILE is "-". Invariant:
 * where two copies of the library are in one process, the one that the program uses is the one that writes.
 */
#include <kmem/stats.h>

#include "../cache/cache.h"
#include "../port/die.h"
#include "../port/os.h"
#include "../port/stderr.h"

/* The name as the loader binds it, and this copy's own: they differ where another copy came first. */
KMEM_API int kmem_copy_in_use;
extern int km_own_copy __attribute__((alias("kmem_copy_in_use"), visibility("hidden")));

static char path[1024];

/* Early: programs that rewrite their title overwrite their environment. */
__attribute__((constructor(102))) static void remember_path(void)
{
	int length = km_os_getenv("KMEM_STATS", path, sizeof(path));

	if (length >= (int)sizeof(path))
		km_warn("KMEM_STATS: longer than %lu bytes, ignored", sizeof(path) - 1);
	if (length < 0 || length >= (int)sizeof(path))
		path[0] = '\0';
}

static void expand(char *to, size_t bytes)
{
	size_t length = 0;

	for (const char *from = path; *from && length + 16 < bytes; from++) {
		if (from[0] == '%' && from[1] == 'p') {
			length += km_format(to + length, bytes - length, "%u", km_os_pid());
			from++;
		} else {
			to[length++] = *from;
		}
	}
	km_debug(length < bytes, "a name ends in its array");
	to[length] = '\0';
}

/*
 * One of the first destructors to be registered, so one of the last to run: GNU's programs have closed their stderr by
 * then, and its duplicate is written to.
 */
__attribute__((destructor(102))) static void leave_statistics(void)
{
	char name[1100];
	int *in_use = &kmem_copy_in_use;
	int fd;

	/* Two names of one address are taken for two addresses, where it is seen which one this is. */
	__asm__("" : "+r"(in_use));
	if (!path[0] || in_use != &km_own_copy || !km_ready)
		return;
	/* exit in a handler that struck inside of us: locks may be held for ever. */
	if (km_front_busy) {
		km_warn("KMEM_STATS: the program ended inside of the allocator, no statistics");
		return;
	}
	if (__builtin_strcmp(path, "-") == 0) {
		fd = km_stderr(false);
		if (fd >= 0)
			kmem_print_slabinfo(fd);
		return;
	}
	expand(name, sizeof(name));
	fd = km_os_open_truncated(name);
	if (fd < 0) {
		km_warn("KMEM_STATS: can't write %s", name);
		return;
	}
	if (kmem_print_json(fd))
		km_warn("KMEM_STATS: can't write %s", name);
	km_os_close(fd);
}
