/*
 * A program that forks, and then executes itself, again and again, while another thread allocates; restless vfork:
 * one of its threads waits for a child of vfork for a minute; restless vforks: the first thread does so for a third
 * of a second, again and again, beside threads without waits. The program waits to be killed.
 */
#define _GNU_SOURCE
#include <kmem/kmem.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <signal.h>
#include <unistd.h>

static void *work(void *arg)
{
	for (;;)
		kfree(kmalloc(100, GFP_KERNEL));
	return arg;
}

static volatile int begins;

static void *wait_for_child(void *arg)
{
	begins = 1;
	if (vfork() == 0) {
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		sleep(60);
		_exit(0);
	}
	return arg;
}

static void *wait_for_nothing(void *arg)
{
	for (;;)
		pause();
	return arg;
}

static void ready(void)
{
	printf("ready\n");
	fflush(stdout);
}

int main(int argc, char **argv)
{
	pthread_t thread;

	for (int i = 0; i < 50000; i++)
		if (!kmalloc(200, GFP_KERNEL))
			return 1;
	if (argc > 1 && !strcmp(argv[1], "vfork")) {
		pthread_create(&thread, NULL, wait_for_child, NULL);
		while (!begins)
			usleep(1000);
		usleep(200000);
		ready();
		for (;;)
			pause();
	}
	if (argc > 1 && !strcmp(argv[1], "vforks")) {
		for (int i = 0; i < 4; i++)
			pthread_create(&thread, NULL, wait_for_nothing, NULL);
		ready();
		for (;;) {
			if (vfork() == 0) {
				prctl(PR_SET_PDEATHSIG, SIGKILL);
				usleep(330000);
				_exit(0);
			}
			wait(NULL);
		}
	}
	if (argc == 1)
		ready();
	pthread_create(&thread, NULL, work, NULL);
	for (int i = 0; i < 20; i++) {
		if (fork() == 0)
			_exit(0);
		wait(NULL);
		usleep(1000);
	}
	execl(argv[0], argv[0], "again", (char *)NULL);
	return 1;
}
