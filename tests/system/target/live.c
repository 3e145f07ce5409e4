/*
 * A program to be read from another process. live quiet|many|fork|busy|churn FILE: allocates, writes its own
 * figures as JSON into FILE, prints an object's address and "ready", and then waits to be killed (busy, churn: goes
 * on allocating). many: more large blocks than separate mappings. SIGUSR1: executes another program; SIGHUP:
 * itself, from its beginning, named "exe"; SIGUSR2: has a child that ends with the parent.
 */
#define _GNU_SOURCE
#include <fcntl.h>
#include <kmem/kmem.h>
#include <kmem/stats.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <unistd.h>

#define THREADS 3

static void *shown;	/* an object */

static unsigned random_of(unsigned long *state)
{
	*state = *state * 6364136223846793005ul + 1442695040888963407ul;
	return (unsigned)(*state >> 33);
}

static void *want(void *p)
{
	if (!p)
		exit(3);
	return p;
}

/* Objects here and there, some freed again, large ones as well. Never freed: on purpose. */
static void populate(void)
{
	struct kmem_cache *mine = kmem_cache_create("live \"mine\"", 100, NULL, 0);
	struct kmem_cache *built = kmem_cache_create("built", 24, 8, SLAB_HWCACHE_ALIGN, NULL);
	unsigned long state = 1;
	void *some[500];

	for (int i = 0; i < 12345; i++)
		shown = want(kmem_cache_alloc(mine, GFP_KERNEL));
	for (int i = 0; i < 77; i++)
		want(kmem_cache_alloc(built, GFP_KERNEL));
	for (int i = 0; i < 500; i++)
		some[i] = want(kmalloc(random_of(&state) % 9000 + 1, GFP_KERNEL));
	for (int i = 0; i < 500; i += 3)
		kfree(some[i]);
	want(kmalloc(100000, GFP_KERNEL));
	/* One of them is cached. */
	for (int i = 0; i < 6; i++)
		some[i] = want(kvmalloc(10 << 20, GFP_KERNEL));
	kvfree(some[0]);
}

static void say(const char *file, const char *suffix)
{
	char name[4096];

	snprintf(name, sizeof(name), "%s%s", file, suffix);
	int fd = open(name, O_CREAT | O_TRUNC | O_WRONLY, 0644);
	if (fd < 0 || kmem_print_json(fd) || close(fd))
		exit(4);
}

static void ready(void)
{
	char text[64];
	/* Not by stdio: preloaded, the buffer of stdio would be another block after the figures. */
	int length = snprintf(text, sizeof(text), "object %p\nready\n", shown);

	if (write(1, text, (size_t)length) != length)
		exit(5);
}

static void *allocate(void *arg)
{
	unsigned long state = (unsigned long)arg;
	void *slots[1000] = { NULL };

	for (;;) {
		void **slot = &slots[random_of(&state) % 1000];

		kfree(*slot);
		*slot = kmalloc(random_of(&state) % 2000, GFP_KERNEL);
	}
	return NULL;
}

/* Caches come and go, as fast as they can. */
static void *churn(void *arg)
{
	for (unsigned i = 0;; i++) {
		struct kmem_cache *cache = kmem_cache_create_args(i & 1 ? "odd" : "even", 64 + i % 500,
								  NULL, 0);
		void *object = want(kmem_cache_alloc(want(cache), GFP_KERNEL));

		kmem_cache_free(cache, object);
		if (arg && i % 64 == 0)
			kmem_shrink_all();
		kmem_cache_destroy(cache);
		if (!arg)
			usleep(50);
	}
	return NULL;
}

static char **words;

static void become(int number)
{
	sigset_t none;

	sigemptyset(&none);
	sigprocmask(SIG_SETMASK, &none, NULL);
	if (number == SIGUSR1)
		execlp("sleep", "sleep", "1000", NULL);
	else
		execv("/proc/self/exe", words);
	_exit(7);
}

static void have_child(int number)
{
	(void)number;
	if (fork())
		return;
	/* Ends with its parent. */
	prctl(PR_SET_PDEATHSIG, SIGKILL);
	for (;;)
		pause();
}

int main(int argc, char **argv)
{
	pthread_t thread;

	if (argc != 3)
		return 2;
	words = argv;
	signal(SIGUSR1, become);
	signal(SIGHUP, become);
	signal(SIGUSR2, have_child);
	populate();
	for (int i = 0; i < 1030 && !strcmp(argv[1], "many"); i++)
		want(kvmalloc(5 << 20, GFP_KERNEL));
	say(argv[2], "");
	if (!strcmp(argv[1], "fork") && fork() == 0) {
		populate();
		say(argv[2], ".child");
		printf("child %d\n", (int)getpid());
		fflush(stdout);
	} else if (!strcmp(argv[1], "busy") || !strcmp(argv[1], "churn")) {
		for (unsigned long i = 0; i < THREADS; i++)
			if (pthread_create(&thread, NULL, allocate, (void *)(i + 1)))
				return 6;
		if (pthread_create(&thread, NULL, churn, !strcmp(argv[1], "churn") ? argv : NULL))
			return 6;
	}
	ready();
	for (;;)
		pause();
}
