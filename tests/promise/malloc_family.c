/*
 * malloc_family.c: malloc and its family follow the standards and glibc's manual: alignment, errno, limits,
 * waste, realloc, the aligned functions, calloc's zeros over dirty memory, and malloc's own statistics.
 * Disciplines: all
 */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <malloc.h>
#include <pthread.h>
#include <stdio_ext.h>
#include <sys/wait.h>
#include <unistd.h>

#include "kit/ageless.h"
#include "kit/malloc.h"
#include "kmalloc/size_classes.h"

/* Up to here, classes are a unit apart; above, an object has less than a part of its doubling to spare. */
#define EVEN (KM_MALLOC_UNIT * KM_MALLOC_EVEN)

void *pvalloc(size_t bytes);	/* musl has no declaration */
__attribute__((weak)) void free_sized(void *p, size_t size);
__attribute__((weak)) void free_aligned_sized(void *p, size_t align, size_t size);

#ifdef __GLIBC__
/* glibc's exports beside the standard names, without declarations in a header. */
void *__libc_malloc(size_t size);
void *__libc_calloc(size_t n, size_t size);
void *__libc_realloc(void *p, size_t size);
void *__libc_memalign(size_t align, size_t size);
void *__libc_valloc(size_t size);
void *__libc_pvalloc(size_t size);
/* A name in the archive and in libraries in the place of libc's malloc. */
__attribute__((weak)) int __posix_memalign(void **result, size_t align, size_t size);
void __libc_free(void *p);
#endif

/* volatile: the compiler must not know. */
static volatile size_t huge = PTRDIFF_MAX, all = SIZE_MAX;

static void test_sizes(void)
{
	for (size_t size = 0; size < 80000; size += size < 4200 ? 1 : 61) {
		errno = 77;
		unsigned char *p = malloc(size);

		NEED(p && errno == 77, "(size %zu)", size);
		NEED((uintptr_t)p % 16 == 0, "(size %zu at %p)", size, (void *)p);
		size_t usable = malloc_usable_size(p);
		NEED(usable >= size, "(size %zu usable %zu)", size, usable);
		/* A block of pages wastes less than a page: engine slob has them from a page on. */
		int pages = !kmem_cache_of(p) && usable - size < 4096;
		size_t split = size > KM_MALLOC_MAX_SMALL ? KM_LARGE_CACHE_SPLIT : KM_MALLOC_SPLIT;
		NEED(size <= EVEN || (usable - size) * split <= size || pages, "(size %zu usable %zu)", size, usable);
		NEED(size > EVEN || usable <= size + KM_MALLOC_UNIT, "(size %zu usable %zu)", size, usable);
		memset(HELD(p), 0xa5, usable);
		errno = 78;
		free(p);
		NEED(errno == 78);
	}
	NEED(malloc_usable_size(NULL) == 0);
}

static void test_unique(void)
{
	void *zero[100];

	for (int i = 0; i < 100; i++) {
		zero[i] = malloc(0);
		NEED(zero[i]);
		for (int j = 0; j < i; j++)
			NEED(zero[i] != zero[j]);
	}
	for (int i = 0; i < 100; i++)
		free(zero[i]);
	free(NULL);
}

static void test_large(void)
{
	static const size_t sizes[] = { KM_MALLOC_MAX_SMALL + 1, 2 * KM_MALLOC_MAX_SMALL, 100000, 1 << 20,
					(4 << 20) - 1, 4 << 20, (4 << 20) + 1, 5000000, 64 << 20 };

	for (size_t i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++) {
		unsigned char *p = malloc(sizes[i]);

		NEED(p && (uintptr_t)p % 16 == 0);
		NEED(malloc_usable_size(p) - sizes[i] < 4096, "(%zu)", sizes[i]);
		p[0] = p[sizes[i] - 1] = 1;
		free(p);
	}
}

static void expect_failure(const void *p, int line)
{
	NEED(!p && errno == ENOMEM, "(line %d)", line);
	errno = 0;
}
#define FAILS(call) expect_failure((errno = 0, (call)), __LINE__)

static void test_limits(void)
{
	void *kept = malloc(10);

	strcpy(kept, "kept");
	FAILS(malloc(huge + 1));
	FAILS(malloc(huge));
	FAILS(malloc(all));
	FAILS(malloc(huge / 2));
	FAILS(calloc(huge, 3));
	FAILS(calloc(all / 16 + 2, 16));
	FAILS(calloc(1, huge + 1));
	FAILS(realloc(kept, huge + 1));
	FAILS(realloc(kept, huge));
	FAILS(reallocarray(kept, huge, 4));
	FAILS(aligned_alloc(64, huge + 1));
	FAILS(aligned_alloc(4096, all));
	FAILS(memalign((size_t)1 << 62, huge));
	FAILS(pvalloc(all));
	FAILS(valloc(all));
	NEED(strcmp(kept, "kept") == 0);
	free(kept);
}

static void test_realloc(void)
{
	static const size_t sizes[] = { 1, 16, 17, 100, 128, 129, 1000, 5000, 32768, 32769, 70000,
					300000, 4 << 20, (4 << 20) + 1, 9 << 20, 20 << 20 };
	const size_t count = sizeof(sizes) / sizeof(sizes[0]);

	for (size_t from = 0; from < count; from++)
		for (size_t to = 0; to < count; to++) {
			unsigned char *p = malloc(sizes[from]);
			size_t least = sizes[from] < sizes[to] ? sizes[from] : sizes[to];

			fill(p, sizes[from], (unsigned)from);
			errno = 5;
			p = realloc(p, sizes[to]);
			NEED(p && errno == 5 && (uintptr_t)p % 16 == 0);
			NEED(malloc_usable_size(p) >= sizes[to]);
			NEED(is_filled(p, least, (unsigned)from), "(%zu to %zu)", sizes[from],
			      sizes[to]);
			p[sizes[to] - 1] = 1;
			free(p);
		}
	NEED(realloc(malloc(10), 0) == NULL);
	char *p = realloc(NULL, 20);
	NEED(p);
	NEED(reallocarray(p, 10, 10));
	/* realloc shrinks the block in place: the surplus pages go back, and the rest stays. */
	p = malloc(3 << 20);
	fill(p, 3 << 20, 9);
	for (size_t bytes = 3 << 20; bytes > 40000; bytes -= bytes / 3) {
		char *q = realloc(p, bytes);

		NEED(q == p && malloc_usable_size(p) - bytes <= bytes / 7 + 4096, "(%zu of %zu)",
		      bytes, malloc_usable_size(p));
	}
	NEED(is_filled(p, 40000, 9));
	free(p);
	/* Grown byte by byte: mostly in place. */
	p = NULL;
	size_t moves = 0;
	for (size_t bytes = 1; bytes <= 300000; bytes += 1 + bytes / 100) {
		char *q = realloc(p, bytes);

		NEED(q);
		moves += q != p;
		p = q;
		p[bytes - 1] = (char)bytes;
	}
	NEED(moves < 150, "(%zu)", moves);
	free(p);
}

static void test_aligned(void)
{
	for (size_t align = 1; align <= (size_t)64 << 20; align *= 2)
		for (size_t size = 0; size < 200000; size = size * 3 + 1) {
			void *p = (void *)-1;
			int error = posix_memalign(&p, align, size);

			if (align < sizeof(void *)) {
				NEED(error == EINVAL && p == (void *)-1);
			} else {
				NEED(error == 0 && (uintptr_t)p % align == 0, "(align %zu)", align);
				NEED(malloc_usable_size(p) >= size);
				memset(p, 1, size);
				free(p);
			}
			p = aligned_alloc(align, size);
			NEED(p && (uintptr_t)p % align == 0 && (uintptr_t)p % 16 == 0);
			memset(p, 2, size);
			free_aligned_sized(p, align, size);
			p = memalign(align, size);
			NEED(p && (uintptr_t)p % align == 0);
			memset(p, 3, size);
			p = realloc(p, size + 100);
			NEED(p);
			free_sized(p, size + 100);
		}
	void *p = (void *)-1;
	errno = 9;
	NEED(posix_memalign(&p, 24, 8) == EINVAL && posix_memalign(&p, 0, 8) == EINVAL && errno == 9);
	/* Callers print errno, so errno must be as with glibc. */
	NEED(posix_memalign(&p, 64, huge + 1) == ENOMEM && p == (void *)-1 && errno == ENOMEM);
	errno = 9;
	NEED(posix_memalign(&p, 64, 100) == 0 && errno == 9);
	free(p);
	errno = 0;
	NEED(!aligned_alloc(48, 96) && errno == EINVAL);
	NEED(!memalign(huge * 2 + 1, 96) && errno == EINVAL);
	p = memalign(48, 96);		/* rounded up to 64 */
	NEED(p && (uintptr_t)p % 64 == 0);
	free(p);
	p = valloc(10);
	NEED(p && (uintptr_t)p % 4096 == 0);
	free(p);
	p = pvalloc(4097);
	NEED(p && (uintptr_t)p % 4096 == 0 && malloc_usable_size(p) >= 8192);
	free(p);
}

static void test_calloc(void)
{
	static void *dirty[64];

	for (size_t size = 1; size < 10 << 20; size = size * 2 + 1) {
		size_t count = size < 1 << 20 ? 64 : 2;

		for (size_t i = 0; i < count; i++)
			memset(dirty[i] = malloc(size), 0xff, size);
		for (size_t i = 0; i < count; i++)
			free(dirty[i]);
		for (size_t i = 0; i < count; i++) {
			unsigned char *p = dirty[i] = calloc(1, size);

			NEED(p && !p[0] && !memcmp(p, p + 1, size - 1), "(size %zu)", size);
		}
		for (size_t i = 0; i < count; i++)
			free(dirty[i]);
	}
	free(calloc(0, 5));
	free(calloc(5, 0));
}

/* Calls of glibc; other libraries lack them. */
static void test_telling(void)
{
#ifdef __GLIBC__
	char *text = NULL;
	size_t length = 0;
	void *p = malloc(50000), *q = malloc(10 << 20);
	struct mallinfo2 info = mallinfo2();

	NEED(info.uordblks >= 50000 && info.arena >= info.uordblks);
	NEED(info.uordblks + info.fordblks == info.arena);
	NEED(info.hblks >= 1 && info.hblkhd >= 10 << 20);
	FILE *stream = open_memstream(&text, &length);
	NEED(malloc_info(1, stream) == EINVAL);
	NEED(malloc_info(0, stream) == 0);
	fclose(stream);
	NEED(strstr(text, "<malloc version=") && strstr(text, "</malloc>\n"));
	NEED((strstr(text, "\"malloc-") || strstr(text, "\"kmalloc\"")));
	free(text);
	free(p);
	free(q);
	NEED(mallopt(M_MMAP_THRESHOLD, 1 << 20) == 1 && mallopt(12345, 0) == 0);
	NEED(malloc_trim(0) == 1);	/* the block of 50000 bytes, at least */
	malloc_stats();
#endif
}

#ifdef __GLIBC__
static ssize_t end_thread(void *cookie, const char *text, size_t bytes)
{
	(void)text;
	if (++*(int *)cookie == 3)
		pthread_exit(NULL);
	return (ssize_t)bytes;
}

static void *tell(void *stream)
{
	malloc_info(0, stream);
	return NULL;
}

static size_t in_use(void)
{
	struct mallinfo2 info = mallinfo2();

	return info.uordblks + info.hblkhd;
}

/* A thread that ends or is cancelled while malloc_info prints leaves no memory behind. */
static void test_cancelled(void)
{
	size_t before = 0;

	for (int i = 0; i < 60; i++) {
		int writes = 0;
		FILE *stream = fopencookie(&writes, "w", (cookie_io_functions_t){ .write = end_thread });
		pthread_t thread;

		setvbuf(stream, NULL, _IONBF, 0);
		__fsetlocking(stream, FSETLOCKING_BYCALLER);
		NEED(pthread_create(&thread, NULL, tell, stream) == 0 && pthread_join(thread, NULL) == 0);
		NEED(writes == 3);
		fclose(stream);
		if (i == 9)
			before = in_use();
	}
	/* Fifty arrays of figures are half a megabyte. */
	NEED(in_use() < before + 100000, "(%zu bytes for %zu)", in_use(), before);
}

/* A program with a file of its own at descriptor 2 finds only its own data in the file. */
static void test_stats_elsewhere(void)
{
	char path[] = "/tmp/malloc_family.XXXXXX", text[100];
	int status;
	pid_t child = fork();

	if (!child) {
		close(2);
		int fd = mkstemp(path);
		unlink(path);
		if (fd != 2 || write(fd, "data", 4) != 4)
			_exit(1);
		malloc_stats();
		_exit(pread(fd, text, sizeof(text), 0) == 4 ? 0 : 2);
	}
	NEED(child > 0 && waitpid(child, &status, 0) == child && status == 0, "(%#x)", status);
}
#endif

static void test_libc_uses_it(void)
{
	char *line = NULL, *text = strdup("a string");

	NEED(text && kmem_cache_of(text));
	free(text);
	NEED(asprintf(&line, "%d%s", 5, "x") == 2 && kmem_cache_of(line));
	free(line);
}

/* Blocks from the allocation function of one name go to the free of another, as in wrappers of malloc. */
static void test_other_names(void)
{
#ifdef __GLIBC__
	void *p = NULL;

	for (size_t size = 1; size < 200000; size *= 3) {
		void *blocks[] = { __libc_malloc(size), __libc_calloc(2, size), __libc_realloc(malloc(1), size),
				   __libc_memalign(64, size), __libc_valloc(size), __libc_pvalloc(size) };

		for (size_t i = 0; i < sizeof(blocks) / sizeof(blocks[0]); i++) {
			NEED(blocks[i] && malloc_usable_size(blocks[i]) >= size, "(%zu, size %zu)", i, size);
			blocks[i] = realloc(blocks[i], size + 100);
			(i % 2 ? free : __libc_free)(blocks[i]);
		}
	}
	NEED(__posix_memalign && __posix_memalign(&p, 256, 100) == 0 && (uintptr_t)p % 256 == 0);
	free(p);
	__libc_free(malloc(100));
	__libc_free(NULL);
#endif
}

int main(int argc, char **argv)
{
	(void)argc;
	ageless(argv);
	check_ours();
	test_other_names();
	test_sizes();
	test_unique();
	test_large();
	test_limits();
	test_realloc();
	test_aligned();
	test_calloc();
	test_telling();
#ifdef __GLIBC__
	test_cancelled();
	test_stats_elsewhere();
#endif
	test_libc_uses_it();
	return 0;
}
