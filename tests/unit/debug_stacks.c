/*
 * debug_stacks: the stack of a call begins in the program, also with the library linked into the program. Neither the
 * recording nor the print of a stack waits for a lock of the dynamic linker: a child of fork has the lock in the
 * state of another thread.
 */
#define _GNU_SOURCE
#include <fcntl.h>
#include <link.h>
#include <pthread.h>
#include <semaphore.h>
#include <sys/wait.h>

#include <kmem/kmem.h>
#include <kmem/stats.h>

#include "kit/check.h"
#include "kit/clock.h"
#include "ext/debug/debug.h"

#define LONGEST	400u		/* bytes of a function here */

static struct kmem_cache *cache;

static __attribute__((noinline)) void *get_one(void)
{
	void *p = kmem_cache_alloc(cache, GFP_KERNEL);

	__asm__ volatile("" : "+r"(p));
	return p;
}

static __attribute__((noinline)) void give_one(void *p)
{
	kmem_cache_free(cache, p);
	__asm__ volatile("");
}

static __attribute__((noinline)) void *get_many(void)
{
	void *many[3];

	NEED(kmem_cache_alloc_bulk(cache, GFP_KERNEL, 3, many));
	kmem_cache_free(cache, many[0]);
	kmem_cache_free(cache, many[2]);
	return many[1];
}

static __attribute__((noinline)) void give_many(void *p)
{
	void *many[] = { p, get_one() };

	kmem_cache_free_bulk(cache, 2, many);
	__asm__ volatile("");
}

static bool began_in(const struct kmem_record_mark *mark, uintptr_t function)
{
	struct km_stack_track track;

	km_debug_read_mark(mark, &track);
	return track.frame[0] - function < LONGEST;
}

static void begins_in_program(void)
{
	void *p = get_one();
	struct kmem_record_mark *marks = km_debug_marks(cache, p);

	CHECK(began_in(&marks[0], (uintptr_t)get_one));
	give_one(p);
	CHECK(began_in(&marks[1], (uintptr_t)give_one));
	p = get_many();
	marks = km_debug_marks(cache, p);
	CHECK(began_in(&marks[0], (uintptr_t)get_many));
	give_many(p);
	CHECK(began_in(&marks[1], (uintptr_t)give_many));
}

#ifdef __GLIBC__
static sem_t inside, over;

static int stay(struct dl_phdr_info *info, size_t bytes, void *arg)
{
	(void)info, (void)bytes, (void)arg;
	sem_post(&inside);
	sem_wait(&over);
	return 1;
}

static void *hold_lock(void *arg)
{
	dl_iterate_phdr(stay, arg);
	return NULL;
}

/* The child has damage to report, with the two stacks of the object. */
static void child_reports(void)
{
	pthread_t other;
	int status;

	sem_init(&inside, 0, 0);
	sem_init(&over, 0, 0);
	give_one(get_one());
	NEED(!pthread_create(&other, NULL, hold_lock, NULL));
	sem_wait(&inside);
	pid_t pid = fork();
	if (!pid) {
		alarm(580);
		dup2(open("/dev/null", O_WRONLY), 2);
		char *p = get_one();
		p[64] = 1;
		give_one(p);
		_exit(0);
	}
	NEED(waitpid(pid, &status, 0) == pid);
	CHECK(status == 0);
	sem_post(&over);
	pthread_join(other, NULL);
}
#endif

int main(void)
{
	km_misuse_set(KM_MISUSE_WARN);
	cache = kmem_cache_create("mine", 64, NULL, SLAB_RED_ZONE | SLAB_STORE_USER);
	NEED(cache);
	begins_in_program();
#ifdef __GLIBC__
	child_reports();
#endif
	CHECK(kmem_cache_validate(cache) == 0);
	return failures != 0;
}
