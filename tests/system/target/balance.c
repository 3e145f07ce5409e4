/*
 * balance.c: a program with blocks touched in part, some of them freed. The program prints the KiB touched in its
 * blocks, the KiB of cached mappings, and "ready", and waits.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <kmem/kmem.h>

#define HALVES	100
#define WHOLES	300
#define OBJECTS	200000

#define MIB	((size_t)1 << 20)

static size_t touched, ready;

static void *want(void *p)
{
	if (!p)
		exit(3);
	return p;
}

static void *write_to(void *p, size_t bytes)
{
	touched += bytes;
	return memset(p, 1, bytes);
}

/* Blocks above 4 MiB: half written, one of them cached, moved by growth and partly written, cut. */
static void big_blocks(void)
{
	static const size_t sizes[] = { 5 * MIB, 40 * MIB, 200 * MIB };
	char *p, *gone = want(kvmalloc(30 * MIB, GFP_KERNEL));

	for (int i = 0; i < 3; i++)
		write_to(want(kvmalloc(sizes[i], GFP_KERNEL)), sizes[i] / 2);
	p = write_to(want(kvmalloc(24 * MIB, GFP_KERNEL)), 24 * MIB);
	write_to((char *)want(kvrealloc(p, 100 * MIB, GFP_KERNEL)) + 24 * MIB, 10 * MIB);
	p = write_to(want(kvmalloc(60 * MIB, GFP_KERNEL)), 60 * MIB);
	want(kvrealloc(p, 20 * MIB, GFP_KERNEL));
	touched -= 40 * MIB;
	memset(gone, 1, 13 * MIB);
	kvfree(gone);
	ready += 13 * MIB;
}

/* Read, and not written: no memory, but one page of the system's. */
static void only_read(void)
{
	char *p[30];
	static volatile char sum;

	for (int i = 0; i < 30; i++) {
		p[i] = want(kvmalloc(3 * MIB, GFP_KERNEL));
		for (size_t at = 0; at < 3 * MIB; at += 4096)
			sum += p[i][at];
	}
	for (int i = 0; i < 10; i++)
		kvfree(p[i]);
}

int main(void)
{
	static char *whole[WHOLES];

	big_blocks();

	for (int i = 0; i < HALVES; i++) {
		char *half = want(kvmalloc(1 << 20, GFP_KERNEL));

		write_to(half, 1 << 19);
	}
	for (int i = 0; i < WHOLES; i++) {
		whole[i] = want(kvmalloc(270000, GFP_KERNEL));
		write_to(whole[i], ksize(whole[i]));
	}
	for (int i = 0; i < OBJECTS; i++)
		write_to(want(kmalloc(128, GFP_KERNEL)), 128);
	for (int i = 0; i < WHOLES; i += 25) {
		touched -= ksize(whole[i]);
		kvfree(whole[i]);
	}
	only_read();
	printf("touched %zu\nkept %zu\nready\n", touched >> 10, ready >> 10);
	fflush(stdout);
	pause();
	return 0;
}
