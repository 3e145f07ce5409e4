/*
 * probe.c: tests that malloc in this process is the peer's, and works. scripts/peers links the program with a peer's
 * archive, or preloads the peer's shared object.
 *
 * Usage: probe static | probe PATH
 *
 * Exit status 0: the malloc family is in this program (so malloc came from the archive), or in the shared object PATH,
 * and threads can allocate, write, grow and free blocks, also blocks of other threads.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <malloc.h>
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

enum { THREADS = 4, SLOTS = 512, STEPS = 100000 };

static void *slots[SLOTS];

/* Object of a function: load address and path. */
static Dl_info object_of(void *function)
{
	Dl_info info = { 0 };

	dladdr(function, &info);
	return info;
}

static int same_file(const char *a, const char *b)
{
	struct stat x, y;

	if (stat(a, &x) || stat(b, &y))
		return 0;
	return x.st_dev == y.st_dev && x.st_ino == y.st_ino;
}

/* Reports each function outside the wanted object. Returns: the number of these functions. */
static int misplaced(const char *wanted)
{
	static const struct {
		const char *name;
		void *address;
	} family[] = {
		{ "malloc", malloc },		  { "free", free },
		{ "calloc", calloc },		  { "realloc", realloc },
		{ "aligned_alloc", aligned_alloc }, { "posix_memalign", posix_memalign },
		{ "malloc_usable_size", malloc_usable_size },
	};
	void *self = object_of((void *)misplaced).dli_fbase;
	int count = 0;

	for (size_t i = 0; i < sizeof(family) / sizeof(family[0]); i++) {
		Dl_info info = object_of(family[i].address);
		int right = strcmp(wanted, "static") == 0 ? info.dli_fbase == self :
				info.dli_fname && same_file(info.dli_fname, wanted);

		if (!right) {
			printf("%s lies in %s, not in %s\n", family[i].name,
			       info.dli_fname ? info.dli_fname : "nothing", wanted);
			count++;
		}
	}
	return count;
}

/*
 * Fills a table shared by all threads, and frees blocks of other threads. The first two words of a block hold the
 * block's size, so a block with two owners shows two sizes.
 */
static void *worker(void *seed)
{
	uint64_t state = (uintptr_t)seed * 0x9e3779b97f4a7c15u + 1;

	for (int i = 0; i < STEPS; i++) {
		state = state * 6364136223846793005u + 1442695040888963407u;
		size_t size = 16 + (state >> 33) % (i % 1000 == 0 ? 1u << 20 : 2000);
		size_t *block = i % 3 == 0 ? calloc(1, size) : malloc(size);

		if (!block || (i % 3 == 0 && (block[0] || block[1])))
			return "malloc failed, or calloc did not clear";
		block[0] = block[1] = size;
		if (i % 5 == 0)
			block = realloc(block, size * 2);
		if (!block || block[0] != size || malloc_usable_size(block) < size)
			return "realloc lost the contents";
		block = __atomic_exchange_n(&slots[(state >> 20) % SLOTS], block, __ATOMIC_ACQ_REL);
		if (block && block[0] != block[1])
			return "a block was given twice";
		free(block);
	}
	return NULL;
}

int main(int argc, char **argv)
{
	pthread_t threads[THREADS];
	void *page = NULL;
	int bad = misplaced(argc > 1 ? argv[1] : "static");

	if (posix_memalign(&page, 4096, 100) || (uintptr_t)page % 4096) {
		puts("posix_memalign does not align");
		bad++;
	}
	free(page);
	for (int i = 0; i < THREADS; i++)
		pthread_create(&threads[i], NULL, worker, (void *)(uintptr_t)(i + 1));
	for (int i = 0; i < THREADS; i++) {
		void *complaint;

		pthread_join(threads[i], &complaint);
		if (complaint) {
			puts(complaint);
			bad++;
		}
	}
	printf("probe: malloc of %s: %s\n", argc > 1 ? argv[1] : "static", bad ? "bad" : "good");
	return bad != 0;
}
