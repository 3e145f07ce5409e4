/*
 * stack_callees: a stack calls no function with a lock, no allocation and no loader. This program has libgcc's and the
 * dynamic linker's functions of its own, and each call fails the test: also with the first stacks of threads at once,
 * and while a cache is made and switched, and objects come and go.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <link.h>
#include <pthread.h>
#include <signal.h>

#include <kmem/kmem.h>
#include <kmem/stats.h>

#include "kit/check.h"
#include "ext/debug/debug.h"

#if defined(DLFO_STRUCT_HAS_EH_DBASE)
#define THREADS 4

static unsigned called;

#define CALLED(name, type, ...)                                                                    \
	type name(__VA_ARGS__);                                                                    \
	type name(__VA_ARGS__)                                                                     \
	{                                                                                          \
		__atomic_fetch_add(&called, 1, __ATOMIC_RELAXED);                                  \
		fprintf(stderr, "FAIL a stack called " #name "\n");                                \
		return 0;                                                                          \
	}

CALLED(_Unwind_Backtrace, int, void *trace, void *arg)
CALLED(_Unwind_GetIPInfo, uintptr_t, void *context, int *before)
CALLED(_Unwind_Find_FDE, const void *, void *address, void *bases[3])
CALLED(dlopen, void *, const char *name, int flags)
CALLED(dlsym, void *, void *handle, const char *name)
CALLED(dladdr, int, const void *address, Dl_info *info)
CALLED(dl_iterate_phdr, int, int (*look)(struct dl_phdr_info *info, size_t bytes, void *arg), void *arg)

static pthread_barrier_t barrier;
static struct kmem_cache *cache[THREADS];

static __attribute__((noinline)) void take(struct kmem_cache *from)
{
	void *p = kmem_cache_alloc(from, GFP_KERNEL);
	struct km_stack_track track;

	NEED(p);
	km_debug_read_mark(km_debug_marks(kmem_cache_of(p), p), &track);
	CHECK(track.frame[0] - (uintptr_t)take < 400 && track.frame[1]);
	kmem_cache_free(from, p);
}

static void *at_once(void *arg)
{
	struct kmem_cache **mine = arg;

	pthread_barrier_wait(&barrier);
	take(*mine);
	return NULL;
}

/* A handler has a stack up to the interrupted code, and no further. */
static unsigned depth;
static uintptr_t last;

static void handler(int number)
{
	void *p = kmem_cache_alloc(cache[0], GFP_KERNEL);
	struct km_stack_track track;

	(void)number;
	km_debug_read_mark(km_debug_marks(cache[0], p), &track);
	for (depth = 0; depth < KM_STACK_FRAMES && track.frame[depth]; depth++)
		last = track.frame[depth];
	kmem_cache_free(cache[0], p);
}

/* Two bytes: ud2; aarch64: udf. */
void strikes(void);
#if defined(__x86_64__)
#define TRAP "ud2"
#else
#define TRAP "udf #0"
#endif
__asm__(".text\n.type strikes, %function\nstrikes:\n.cfi_startproc\n" TRAP "\n.cfi_endproc\n.size strikes, .-strikes");
static __attribute__((noinline)) void struck(void);

static void leave(int number)
{
	struct km_stack_tables tables;

	handler(number);
	/* An emulator has the code behind a handler in no file: a stack ends there. */
	CHECK((depth == 3 && last == (uintptr_t)strikes) || (depth == 2 && !km_stack_tables_of(last, &tables)),
	      "%u frames", depth);
	CHECK(!called);
	_exit(failures || called);
}

static void struck(void)
{
	signal(SIGILL, leave);
	strikes();
	__asm__ volatile("");
}

int main(void)
{
	pthread_t thread[THREADS];
	char name[8];

	for (unsigned i = 0; i < THREADS; i++) {
		snprintf(name, sizeof(name), "c%u", i);
		NEED((cache[i] = kmem_cache_create(name, 64, NULL, SLAB_STORE_USER)));
	}
	pthread_barrier_init(&barrier, NULL, THREADS);
	for (unsigned i = 0; i < THREADS; i++)
		NEED(!pthread_create(&thread[i], NULL, at_once, &cache[i]));
	for (unsigned i = 0; i < THREADS; i++)
		pthread_join(thread[i], NULL);
	CHECK(!called);
	struct kmem_cache *later = kmem_cache_create("later", 64, NULL, 0);
	NEED(later && !kmem_cache_set_debug(later, "U"));
	kmem_cache_free(later, kmem_cache_alloc(later, GFP_KERNEL));
	CHECK(kmem_print_leaks(2) == 0);
	CHECK(!called);
	struck();
	return 1;
}
#else
int main(void)
{
	printf("libc says without a lock only since glibc 2.35 which file an address is in\n");
	return 77;
}
#endif
