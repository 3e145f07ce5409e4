/*
 * guard: guarded objects find each kind of mistake through kmem_cache, kmalloc, malloc and the bulk calls, for each
 * engine, each in a process of its own; the test checks the end of the process and the report. Under misuse:warn the
 * process goes on, and works. A correct use is not reported.
 */
#define _GNU_SOURCE
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <kmem/kmem.h>
#include <kmem/stats.h>

#include "cache/cache.h"

#include "steps.h"

#define SIZE 40
#define PAGE 4096	/* from any byte of an object's page to the next page */

#define NEED(condition)                                                                            \
	((condition) ? (void)0 : (dprintf(2, "case: %s does not hold\n", #condition), _exit(3)))

static void *blind(void *p)
{
	__asm__ volatile("" : "+r"(p));
	return p;
}

/* ------------------------------------------------------------------ interfaces */

static struct kmem_cache *mine, *other;

static void *cache_get(void)
{
	if (!mine)
		NEED((mine = kmem_cache_create("mine", SIZE, NULL, 0)));
	return kmem_cache_alloc(mine, GFP_KERNEL);
}

static void cache_put(void *p) { kmem_cache_free(mine, p); }
static void *kmalloc_get(void) { return kmalloc(SIZE, GFP_KERNEL); }
static void kmalloc_put(void *p) { kfree(p); }
static void *malloc_get(void) { return malloc(SIZE); }
static void malloc_put(void *p) { free(p); }

/* Of many, one is guarded. */
static void *bulk_get(void)
{
	void *objects[16];

	if (!mine)
		NEED((mine = kmem_cache_create("mine", SIZE, NULL, 0)));
	NEED(kmem_cache_alloc_bulk(mine, GFP_KERNEL, 16, objects));
	for (unsigned i = 0; i < 16; i++)
		if (km_is_guarded(objects[i])) {
			void *p = objects[i];

			objects[i] = objects[15];
			kmem_cache_free_bulk(mine, 15, objects);
			return p;
		}
	NEED(!"one of them is guarded");
	return NULL;
}

static void bulk_put(void *p) { kmem_cache_free_bulk(mine, 1, &p); }

static const struct door {
	const char *name;
	void *(*get)(void);
	void (*put)(void *p);
} doors[] = {
	{ "cache", cache_get, cache_put }, { "kmalloc", kmalloc_get, kmalloc_put },
	{ "malloc", malloc_get, malloc_put }, { "bulk", bulk_get, bulk_put },
}, *door;

static volatile unsigned char *get(void)
{
	unsigned char *p = blind(door->get());

	NEED(p && km_is_guarded(p));
	memset(p, 0x11, SIZE);
	return p;
}

static void put(volatile unsigned char *p)
{
	door->put(blind((void *)p));
}

/* ------------------------------------------------------------------ kinds */

static void read_behind(void) { (void)get()[PAGE]; }
static void read_before(void) { (void)*(get() - PAGE); }
static void write_behind(void) { get()[PAGE] = 1; }

/* At one edge the next page faults; at the other edge the free reports the damage in the object's own page. */
static void write_around(void)
{
	volatile unsigned char *p = get();

	*(p - 1) = 0;
	p[SIZE] = 0;
	put(p);
}

static void read_freed(void)
{
	volatile unsigned char *p = get();

	put(p);
	(void)p[SIZE - 1];
}

static void write_freed(void)
{
	volatile unsigned char *p = get();

	put(p);
	p[0] = 1;
}

static void write_freed_later(void)
{
	volatile unsigned char *p = get();

	put(p);
	for (unsigned i = 0; i < 100; i++)
		put(get());
	p[0] = 1;
}

static void *touch(void *p)
{
	*(volatile char *)p = 1;
	return NULL;
}

static void write_freed_by_thread(void)
{
	volatile unsigned char *p = get();
	pthread_t thread;

	put(p);
	NEED(!pthread_create(&thread, NULL, touch, (void *)p));
	pthread_join(thread, NULL);
}

static void freed_twice(void)
{
	volatile unsigned char *p = get();

	put(p);
	put(p);
}

static void freed_twice_later(void)
{
	volatile unsigned char *p = get();

	put(p);
	for (unsigned i = 0; i < 100; i++)
		put(get());
	put(p);
}

static void interior(void)
{
	volatile unsigned char *p = get();

	put(p + 8);
}

static void into_other_cache(void)
{
	volatile unsigned char *p = get();

	NEED((other = kmem_cache_create("other", 80, NULL, 0)));
	kmem_cache_free(other, blind((void *)p));
}

/* A handler that interrupts the report finds the report's thread at work, and waits for no lock. */
static void on_alarm(int number)
{
	(void)number;
	_exit(9);
}

static void in_child_of_fork(void)
{
	volatile unsigned char *p = get();
	int status;

	put(p);
	pid_t child = fork();
	if (!child) {
		signal(SIGALRM, on_alarm);
		alarm(580);
		p[1] = 1;
		_exit(0);
	}
	waitpid(child, &status, 0);
	if (WIFSIGNALED(status))
		raise(WTERMSIG(status));
	_exit(WEXITSTATUS(status));
}

static void nothing_wrong(void)
{
	for (unsigned i = 0; i < 1000; i++) {
		volatile unsigned char *p = blind(door->get());

		memset((void *)p, 0x22, SIZE);
		put(p);
	}
}

#define FAULT(kind, title) { #kind, kind, title, NULL, SIGSEGV }
#define FREE(kind, title, phrase) { #kind, kind, title, phrase, SIGABRT }
static const struct kind {
	const char *name;
	void (*run)(void);
	const char *title, *phrase;
	int end;
} kinds[] = {
	FAULT(read_behind, "out-of-bounds read"), FAULT(read_before, "out-of-bounds read"),
	FAULT(write_behind, "out-of-bounds write"),
	{ "write_around", write_around, "", "", 0 },
	FAULT(read_freed, "use-after-free read"), FAULT(write_freed, "use-after-free write"),
	FAULT(write_freed_later, "use-after-free write"), FAULT(write_freed_by_thread, "use-after-free write"),
	FAULT(in_child_of_fork, "use-after-free write"),
	FREE(freed_twice, "double-free", "object already free"),
	FREE(freed_twice_later, "double-free", "object already free"),
	FREE(interior, "invalid free", "pointer is not the start of an object"),
	FREE(into_other_cache, "invalid free", "object belongs to different cache"),
	{ "nothing_wrong", nothing_wrong, NULL, NULL, 0 },
};

static int child(const char *kind, const char *by)
{
	struct rlimit none = { 0, 0 };

	setrlimit(RLIMIT_CORE, &none);
	alarm(580);
	for (size_t i = 0; i < sizeof(doors) / sizeof(doors[0]); i++)
		if (!strcmp(doors[i].name, by))
			door = &doors[i];
	for (size_t i = 0; i < sizeof(kinds) / sizeof(kinds[0]); i++)
		if (!strcmp(kinds[i].name, kind))
			kinds[i].run();
	NEED(kmem_check_all() == 0);
	put(blind(door->get()));
	return 0;
}

/* ------------------------------------------------------------------ the parent */

static int run(const struct kind *kind, const struct door *by, const char *engine, const char *mode, char *said,
	       size_t bytes)
{
	char options[96];
	size_t length = 0;
	int err[2], status;
	ssize_t n;

	snprintf(options, sizeof(options), "guard:each,engine:%s,misuse:%s", engine, mode);
	if (pipe(err))
		return -1;
	pid_t pid = fork();
	if (!pid) {
		setenv("KMEM_OPTIONS", options, 1);
		dup2(err[1], 2);
		execl("/proc/self/exe", "guard", kind->name, by->name, NULL);
		_exit(4);
	}
	close(err[1]);
	while (length < bytes - 1 && (n = read(err[0], said + length, bytes - 1 - length)) > 0)
		length += (size_t)n;
	said[length] = '\0';
	close(err[0]);
	waitpid(pid, &status, 0);
	return status;
}

/* Checks the title, the object, the stack of its allocation, and for a freed object the stack of the free. */
static bool fits(const struct kind *kind, const char *said)
{
	char title[128];

	if (!kind->title)
		return !*said;
	snprintf(title, sizeof(title), "libkmem: BUG: KFENCE: %s", kind->title);
	const char *bug = strstr(said, title);
	if (!bug || (kind->phrase && !strstr(bug, kind->phrase)) || !strstr(bug, ", size=40, cache="))
		return false;
	if (kind->run == into_other_cache && !strstr(bug, "kmem_cache_free(other, 0x"))
		return false;
	if (*kind->title && !strstr(bug, TOLD))
		return false;
	if (!strstr(bug, "libkmem: allocated by thread "))
		return false;
	bool freed = strstr(kind->title, "use-after") || strstr(kind->title, "double");
	return !freed == !strstr(bug, "libkmem: freed by thread ");
}

static bool ended(const struct kind *kind, bool warn, int status)
{
	if (!kind->title || warn)
		return status == 0;
	if (!kind->end)
		return WIFSIGNALED(status);
	return WIFSIGNALED(status) && WTERMSIG(status) == kind->end;
}

int main(int argc, char **argv)
{
	static const char *const engines[] = { KM_ENGINE_NAMES }, *const modes[] = { "abort", "warn" };
	enum { DOORS = sizeof(doors) / sizeof(doors[0]), KINDS = sizeof(kinds) / sizeof(kinds[0]) };
	static char said[65536];
	int failed = 0, total = 0;

	if (argc == 3)
		return child(argv[1], argv[2]);
	for (size_t e = 0; e < sizeof(engines) / sizeof(engines[0]); e++)
		for (size_t i = 0; i < KINDS * DOORS * 2; i++) {
			const struct kind *kind = &kinds[i / (DOORS * 2)];
			const struct door *by = &doors[i % DOORS];
			bool warn = i / DOORS % 2;
			int status = run(kind, by, engines[e], modes[warn], said, sizeof(said));

			total++;
			if (ended(kind, warn, status) && fits(kind, said))
				continue;
			printf("%s, %s, %s, misuse:%s: status 0x%x\n said:\n%s\n", kind->name, by->name, engines[e],
			       modes[warn], (unsigned)status, said);
			failed++;
		}
	printf("%d of %d ended as they should\n", total - failed, total);
	return failed != 0;
}
