/*
 * loading.c: for debug_loading: a program and, with PLUGIN, its plugin library, whose constructor waits for the end
 * of a thread of the program, like a constructor that waits for a mutex. The thread allocates: until SIGUSR1; or,
 * with an argument, until a function chosen to fail has failed, and another one has not.
 */
#include <dlfcn.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#ifdef PLUGIN
void wait_for_thread(void);
__attribute__((constructor)) static void construct(void)
{
	wait_for_thread();
}
#else

#define MANY 600

static volatile sig_atomic_t loads, ends, fails;
static pthread_t thread;

static void on_signal(int number)
{
	ends = number;
}

void wait_for_thread(void)
{
	loads = 1;
	pthread_join(thread, NULL);
}

void *who_fails(size_t bytes)
{
	void *volatile p = malloc(bytes);

	return p;
}

void *who_does_not(size_t bytes)
{
	void *volatile p = malloc(bytes);

	return p;
}

static void *work(void *unused)
{
	static void *block[MANY];

	while (!loads)
		usleep(1000);
	if (fails && (who_fails(100) || !who_does_not(100)))
		exit(1);
	if (!fails) {
		puts("ready");
		fflush(stdout);
	}
	while (!fails && !ends) {
		for (int i = 0; i < MANY; i++)
			block[i] = malloc(56);
		for (int i = 0; i < MANY; i++)
			free(block[i]);
	}
	return unused;
}

int main(int count, char **words)
{
	(void)words;
	fails = count > 1;
	signal(SIGUSR1, on_signal);
	if (pthread_create(&thread, NULL, work, NULL) || !dlopen("./plugin.so", RTLD_NOW)) {
		fprintf(stderr, "%s\n", dlerror());
		return 1;
	}
	return 0;
}
#endif
