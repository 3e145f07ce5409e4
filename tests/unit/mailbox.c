/*
 * mailbox: what is written into the mailbox from outside is served by a miss, answered once, and believed in nothing: a
 * look at a cache, which tells damages to who asks and ends nothing; requests of random bytes, names and letters
 * without an end, numbers that come back, while threads allocate and free, and in the child of a fork. SEED=n; with
 * CHECK_LONG=1 for an hour. Disciplines: all.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <kmem/kmem.h>
#include <kmem/stats.h>

#include "cache/cache.h"
#include "cache/mail.h"
#include "kit/check.h"
#include "watch/switch.h"

#define ROUNDS 800u

static struct kmem_cache *cache;
static int stop;

/* Calls the engine, and so the tick. */
static void miss(void)
{
	void *objects[600];

	for (size_t i = 0; i < km_array_count(objects); i++)
		NEED((objects[i] = kmem_cache_alloc(cache, GFP_KERNEL)));
	for (size_t i = 0; i < km_array_count(objects); i++)
		kmem_cache_free(cache, objects[i]);
	kmem_cache_shrink(cache);
}

/* As another process does. */
static void write_there(void *to, const void *from, size_t bytes)
{
	struct iovec local = { (void *)(uintptr_t)from, bytes }, remote = { to, bytes };

	if (process_vm_writev(getpid(), &local, 1, &remote, 1, 0) != (ssize_t)bytes)
		memcpy(to, from, bytes);
}

/* Its result, served within a few misses. */
static int ask(uint32_t number, const struct km_mail_request *request)
{
	write_there(&km_mail.request, request, sizeof(*request));
	write_there(&km_mail.asked, &number, sizeof(number));
	for (int i = 0; i < 1000 && km_load_acquire(&km_mail.answered) != number; i++)
		miss();
	NEED(km_mail.answered == number && !memcmp(&km_mail.done, request, sizeof(*request)));
	return km_mail.result;
}

static int ask_for(uint32_t number, const char *name, const char *letters)
{
	struct km_mail_request request = { .command = KM_MAIL_DEBUG };

	memcpy(request.cache, name, strnlen(name, sizeof(request.cache)));
	memcpy(request.letters, letters, strnlen(letters, sizeof(request.letters)));
	return ask(number, &request);
}

static void shrinks(void)
{
	struct km_mail_request shrink = { .command = KM_MAIL_SHRINK, .cache = "mailbox" };

	NEED(ask(21, &shrink) == 0);
	strcpy(shrink.cache, "nobody");
	NEED(ask(22, &shrink) == -ENOENT);
	memset(shrink.cache, 'x', sizeof(shrink.cache));
	NEED(ask(23, &shrink) == -EINVAL);
	memset(shrink.cache, 0, sizeof(shrink.cache));
	NEED(ask(24, &shrink) == 0);
}

static int validated(uint32_t number, const char *name)
{
	struct km_mail_request request = { .command = KM_MAIL_VALIDATE };

	memcpy(request.cache, name, strnlen(name, sizeof(request.cache)));
	return ask(number, &request);
}

/* A damage is told to who asks, and mended; the process goes on, though misuse ends it. */
static void looked_at(void)
{
	const struct km_mail_report *report = &km_control_report;

	NEED(ask_for(30, "mailbox", "FZPU") == 0);
	unsigned char *p = kmem_cache_alloc(cache, GFP_KERNEL);
	NEED(p && validated(31, "mailbox") == 0 && report->number == 31 && !report->damages);
	p[kmem_cache_size(cache)] ^= 1;
	NEED(validated(32, "mailbox") == 0 && report->number == 32 && report->damages == 1);
	NEED(memmem(report->text, report->length, "Right Redzone overwritten", 25));
	NEED(validated(33, "mailbox") == 0 && report->number == 33 && !report->damages && !report->length);
	p[kmem_cache_size(cache)] ^= 1;
	NEED(validated(34, "*") == 0 && report->damages == 1 && report->length);
	NEED(report->length <= sizeof(report->text));
	kmem_cache_free(cache, p);
	NEED(ask_for(35, "mailbox", "-") == 0);
}

static void by_the_book(void)
{
	NEED(km_mail.version == KM_MAIL_VERSION);
	NEED(ask_for(1, "mailbox", "FZ") == 0);
	NEED(kmem_cache_debug_flags(cache) == (SLAB_CONSISTENCY_CHECKS | SLAB_RED_ZONE));
	NEED(ask_for(2, "mailbox", "-") == 0 && kmem_cache_debug_flags(cache) == 0);
	NEED(ask_for(3, "nobody", "F") == -ENOENT);
	NEED(ask_for(4, "mailbox", "X") == -EINVAL);
	NEED(ask_for(5, "", "F") == -EINVAL);
	/* No NUL within what there is room for. */
	NEED(ask_for(6, "a name of thirty-two characters.", "F") == -EINVAL);
	NEED(ask_for(7, "mailbox", "FZPUFZPUFZPUFZPU") == -EINVAL);
	NEED(ask(8, &(struct km_mail_request){ .command = 77, .cache = "mailbox", .letters = "F" }) == -EINVAL);
	NEED(ask(9, &(struct km_mail_request){ .command = KM_MAIL_LEAKS }) == -ENODATA);
	NEED(ask_for(10, "mailbox", "U") == 0);
	NEED(ask(11, &(struct km_mail_request){ .command = KM_MAIL_LEAKS }) == 0);
	NEED(ask_for(12, "mailbox", "-") == 0 && kmem_cache_debug_flags(cache) == 0);
	NEED(validated(20, "nobody") == -ENOENT && validated(21, "") == -EINVAL);
	NEED(validated(22, "a name of thirty-two characters.") == -EINVAL);
	/* The same number is no new request. */
	struct km_mail_request again = { .command = KM_MAIL_DEBUG, .cache = "mailbox", .letters = "F" };
	write_there(&km_mail.request, &again, sizeof(again));
	miss();
	NEED(kmem_cache_debug_flags(cache) == 0);
}

static void *churn(void *unused)
{
	void *held[64] = { NULL };

	for (unsigned i = 0; !__atomic_load_n(&stop, __ATOMIC_RELAXED); i++) {
		void **slot = &held[i * 7 % 64];

		if (*slot)
			kmem_cache_free(cache, *slot);
		*slot = kmem_cache_alloc(cache, GFP_KERNEL);
	}
	for (unsigned i = 0; i < 64; i++)
		if (held[i])
			kmem_cache_free(cache, held[i]);
	return unused;
}

static void fill(struct km_mail_request *request)
{
	static const char *const names[] = { "mailbox", "kmalloc-64", "kmalloc-1k", "", "large-16384" };
	static const char letters[] = "FZPU-fzpX";

	for (size_t i = 0; i < sizeof(*request); i++)
		((char *)request)[i] = (char)random();
	if (random() % 4)
		request->command = random() % 4 ? KM_MAIL_DEBUG : KM_MAIL_VALIDATE;
	if (random() % 4)
		strcpy(request->cache, names[random() % 5]);
	if (random() % 4) {
		size_t i = 0;

		while (i < KM_MAIL_LETTERS - 1 && random() % 4)
			request->letters[i++] = letters[random() % 9];
		request->letters[i] = '\0';
	}
}

static void fuzz(void)
{
	pthread_t threads[2];

	for (int i = 0; i < 2; i++)
		NEED(pthread_create(&threads[i], NULL, churn, NULL) == 0);
	/* What these have in hand would look like damage. */
	NEED(validated(40, "mailbox") == -EBUSY && validated(41, "*") == -EBUSY);
	time_t end = time(NULL) + (getenv("CHECK_LONG") ? 3600 : 0);

	for (unsigned i = 0; i < ROUNDS || time(NULL) < end; i++) {
		struct km_mail_request request;
		uint32_t number = (uint32_t)random();

		fill(&request);
		/* Its parts in any order, and not always all of it. */
		write_there(&km_mail.asked, &number, sizeof(number));
		write_there((char *)&km_mail.request + random() % sizeof(request), &request, 1);
		write_there(&km_mail.request, &request, sizeof(request) - (size_t)random() % 8);
		if (random() % 16 == 0)
			write_there(&km_mail.answered, &number, sizeof(number));
		if (random() % 4 == 0)
			miss();
	}
	__atomic_store_n(&stop, 1, __ATOMIC_RELAXED);
	for (int i = 0; i < 2; i++)
		pthread_join(threads[i], NULL);
}

int main(void)
{
	const char *wanted = getenv("SEED");
	unsigned seed = wanted ? (unsigned)atoi(wanted) : (unsigned)getpid();
	int status;

	printf("SEED=%u\n", seed);
	fflush(stdout);
	srandom(seed);
	cache = kmem_cache_create("mailbox", 64, NULL, 0);
	by_the_book();
	shrinks();
	looked_at();
	pid_t child = fork();
	NEED(child >= 0);
	if (!child) {
		NEED(ask_for(99, "mailbox", "P") == 0 && kmem_cache_debug_flags(cache) == SLAB_POISON);
		_exit(0);
	}
	NEED(waitpid(child, &status, 0) == child && status == 0);
	fuzz();
	NEED(ask_for(12345, "mailbox", "-") == 0);
	kmem_cache_shrink(cache);
	NEED(!cache->siblings->out && kmem_check_all() == 0);
	kmem_cache_destroy(cache);
	return 0;
}
