/*
 * planted.c: for debug_switch: a program unaware of libkmem that allocates and frees blocks of some sizes all the
 * time. SIGUSR1: writes to a freed block of 56 bytes, and goes on. SIGUSR2: prints "still", and pauses until the
 * next one.
 */
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define MANY 600

static volatile sig_atomic_t mistake, sleeps;

static void on_signal(int number)
{
	if (number == SIGUSR1)
		mistake = 1;
	else
		sleeps = !sleeps;
}

static void *who_allocates(size_t bytes)
{
	char *p = malloc(bytes);

	if (!p)
		abort();
	memset(p, 1, bytes);
	return p;
}

static void who_frees(void *p)
{
	free(p);
}

int main(void)
{
	static char *block[MANY], *other[MANY];

	signal(SIGUSR1, on_signal);
	signal(SIGUSR2, on_signal);
	for (unsigned round = 0;; round++) {
		for (int i = 0; i < MANY; i++) {
			block[i] = who_allocates(56);
			other[i] = who_allocates(120);
		}
		char *freed = block[MANY / 2];
		for (int i = 0; i < MANY; i++) {
			who_frees(block[i]);
			who_frees(other[i]);
		}
		if (mistake)
			freed[8] = 'x';
		if (!round) {
			puts("ready");
			fflush(stdout);
		}
		if (sleeps) {
			puts("still");
			fflush(stdout);
		}
		while (sleeps)
			usleep(1000);
		usleep(200);
	}
}
