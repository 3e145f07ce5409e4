/*
 * wrong.c: programs with wrong memory use, one kind at a time: `wrong KIND DOOR SIZE`. The code depends on no
 * allocator: it runs with any preloaded one, and uses libkmem's functions where they exist. A byte on descriptor
 * 3 tells the progress, so that the caller knows the time of the detection; a case that ends well was not
 * detected.
 *
 * `wrong --list` prints a line for each kind: its name, its class, the sizes, the interfaces, and a description.
 */
#define _GNU_SOURCE
#include <malloc.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <unistd.h>

#include <kmem/kmem.h>
#include <kmem/stats.h>

#pragma weak kmem_cache_create_args
#pragma weak kmem_cache_alloc
#pragma weak kmem_cache_free
#pragma weak kmem_cache_alloc_bulk
#pragma weak kmem_cache_free_bulk

#ifdef __clang__
KMEM_API void *kmalloc(size_t size, gfp_t gfp) __attribute__((weak));
#else
#pragma weak kmem_called_kmalloc	/* kmalloc itself is inline (kmem.h) */
#endif
#pragma weak kmalloc_account
#pragma weak kzalloc
#pragma weak krealloc
#pragma weak kvmalloc
#pragma weak ksize
#pragma weak kfree
#pragma weak kfree_bulk
#pragma weak kmem_check_all

/* C++'s operators, by the names that compilers use. */
void *cxx_new(size_t size) __asm__("_Znwm");
void cxx_delete(void *p) __asm__("_ZdlPv");
void cxx_delete_sized(void *p, size_t size) __asm__("_ZdlPvm");

#define OTHERS 1000

/* Hides the origin of the result from the compiler. */
static void *blind(void *p)
{
	__asm__ volatile("" : "+r"(p) : : "memory");
	return p;
}

/* ------------------------------------------------------------------ progress */

/* The last step done. A program stopped before the first step was detected at once. */
enum stage { ABOUT_TO = '0', DONE, FREED, OTHERS_CAME, CHECKED, READ_OTHER };

static void stage(enum stage reached)
{
	char text = (char)reached;

	if (write(3, &text, 1) != 1)
		_exit(9);
}

/* ------------------------------------------------------------------ interfaces */

static size_t size;
static struct kmem_cache *mine, *other;

static struct kmem_cache *cache(struct kmem_cache **one, const char *name)
{
	if (!*one)
		*one = kmem_cache_create(name, (unsigned)size, NULL, 0);
	if (!*one)
		_exit(9);
	return *one;
}

static void *cache_get(size_t bytes) { (void)bytes; return kmem_cache_alloc(cache(&mine, "mine"), GFP_KERNEL); }
static void cache_put(void *p) { kmem_cache_free(mine, p); }
static void *kmalloc_get(size_t bytes)
{
	return bytes > KMALLOC_MAX_SIZE ? kvmalloc(bytes, GFP_KERNEL) : kmalloc(bytes, GFP_KERNEL);
}
static void kmalloc_put(void *p) { kfree(p); }
static void *malloc_get(size_t bytes) { return malloc(bytes); }
static void malloc_put(void *p) { free(p); }
static void *new_get(size_t bytes) { return cxx_new(bytes); }
static void new_put(void *p) { cxx_delete(p); }

static const struct door {
	char letter;
	const char *name;
	void *(*get)(size_t bytes);
	void (*put)(void *p);
} doors[] = {
	{ 'c', "cache", cache_get, cache_put },
	{ 'k', "kmalloc", kmalloc_get, kmalloc_put },
	{ 'm', "malloc", malloc_get, malloc_put },
	{ 'n', "new", new_get, new_put },
}, *door;

static unsigned char *get(void)
{
	unsigned char *p = blind(door->get(size));

	if (!p)
		_exit(9);
	memset(p, 0x11, size);
	return p;
}

static void put(void *p)
{
	door->put(blind(p));
}

/* Other objects were allocated before: so the object is not alone in its slab, nor the first one ever freed. */
static unsigned char *get_among_others(void)
{
	unsigned char *before[16];

	for (int i = 0; i < 16; i++)
		before[i] = get();
	for (int i = 0; i < 16; i += 5)
		put(before[i]);
	return get();
}

static void others_come_and_go(void)
{
	unsigned n = size > 65536 ? 8 : OTHERS;
	static unsigned char *others[OTHERS];

	for (unsigned i = 0; i < n; i++)
		others[i] = get();
	for (unsigned i = 0; i < n; i++)
		put(others[i]);
	stage(OTHERS_CAME);
	if (kmem_check_all)
		kmem_check_all();
	stage(CHECKED);
}

/* ------------------------------------------------------------------ writes beside the object */

static void write_beside(long from, size_t bytes, int value)
{
	unsigned char *p = get_among_others();

	stage(ABOUT_TO);
	memset(blind(p + from), value, bytes);
	stage(DONE);
	put(p);
	stage(FREED);
	others_come_and_go();
}

static void over_by_one(void) { write_beside((long)size, 1, 0x41); }
static void over_by_zero(void) { write_beside((long)size, 1, 0); }
static void over_by_word(void) { write_beside((long)size, 8, 0x41); }
static void over_by_many(void) { write_beside((long)size, 64, 0x41); }
static void under_by_one(void) { write_beside(-1, 1, 0x41); }
static void under_by_word(void) { write_beside(-8, 8, 0x41); }
static void under_by_many(void) { write_beside(-32, 32, 0x41); }

/* Of many objects, the one with the highest address: somewhere behind it a slab ends. */
static void over_slab_end(void)
{
	unsigned char *highest = get_among_others();

	for (int i = 0; i < OTHERS; i++) {
		unsigned char *p = get();

		highest = p > highest ? p : highest;
	}
	stage(ABOUT_TO);
	memset(blind(highest + size), 0x41, 16);
	stage(DONE);
	put(highest);
	stage(FREED);
	others_come_and_go();
}

/* ------------------------------------------------------------------ uses after the free */

static void write_after_free(size_t from, size_t bytes)
{
	unsigned char *p = get_among_others();

	put(p);
	stage(ABOUT_TO);
	memset(blind(p + from), 0x41, bytes);
	stage(DONE);
	stage(FREED);
	others_come_and_go();
}

static void stale_write_first(void) { write_after_free(0, 1); }
static void stale_write_word(void) { write_after_free(0, size < 8 ? size : 8); }
static void stale_write_middle(void) { write_after_free(size / 2 & ~(size_t)7, size < 8 ? 1 : 8); }
static void stale_write_last(void) { write_after_free(size - 1, 1); }

/* After further frees, with the object deeper in the list. */
static void stale_write_later(void)
{
	unsigned char *p = get_among_others(), *rest[100];

	for (int i = 0; i < 100; i++)
		rest[i] = get();
	put(p);
	for (int i = 0; i < 100; i++)
		put(rest[i]);
	stage(ABOUT_TO);
	p[0] ^= 0x41;
	stage(DONE);
	stage(FREED);
	others_come_and_go();
}

static void read_after_free(size_t from)
{
	unsigned char *p = get_among_others();

	put(p);
	stage(ABOUT_TO);
	unsigned char found = *(volatile unsigned char *)blind(p + from);
	stage(found == 0x11 ? DONE : READ_OTHER);
	if (found == 0x11)
		stage(FREED);
}

static void stale_read_first(void) { read_after_free(0); }
static void stale_read_last(void) { read_after_free(size - 1); }

/* ------------------------------------------------------------------ frees too many */

/* The second free is done; the object may now be given out twice. */
static void second_free_done(void)
{
	stage(DONE);
	stage(FREED);
	others_come_and_go();
}

static void twice_at_once(void)
{
	unsigned char *p = get_among_others();

	put(p);
	stage(ABOUT_TO);
	put(p);
	second_free_done();
}

static void twice_after(unsigned others)
{
	static unsigned char *rest[OTHERS];
	unsigned char *p = get_among_others();

	for (unsigned i = 0; i < others; i++)
		rest[i] = get();
	put(p);
	for (unsigned i = 0; i < others; i++)
		put(rest[i]);
	stage(ABOUT_TO);
	put(p);
	second_free_done();
}

static void twice_after_one(void) { twice_after(1); }
static void twice_after_many(void) { twice_after(size > 65536 ? 8 : OTHERS); }

static void *put_in_thread(void *p)
{
	put(p);
	return NULL;
}

static void twice_by_threads(void)
{
	unsigned char *p = get_among_others();
	pthread_t thread;

	put(p);
	stage(ABOUT_TO);
	if (pthread_create(&thread, NULL, put_in_thread, p))
		_exit(9);
	pthread_join(thread, NULL);
	second_free_done();
}

/*
 * A free by an old pointer, after another allocation of the object: no allocator can know. The new user's
 * free is one too many.
 */
static void twice_after_reuse(void)
{
	unsigned char *p = get_among_others(), *q = NULL;

	put(p);
	for (int i = 0; i < 3 * OTHERS && q != p; i++)
		q = get();
	if (q != p) {				/* the address was not reused: another case */
		stage(READ_OTHER);
		_exit(0);
	}
	put(p);
	stage(ABOUT_TO);
	put(q);
	second_free_done();
}

static void twice_in_bulk(void)
{
	void *all[40];

	for (int i = 0; i < 40; i++)
		all[i] = get();
	all[20] = all[3];
	stage(ABOUT_TO);
	if (door->letter == 'c')
		kmem_cache_free_bulk(mine, 40, all);
	else
		kfree_bulk(40, all);
	second_free_done();
}

static void *resize(void *p, size_t bytes)
{
	return door->letter == 'k' ? krealloc(p, bytes, GFP_KERNEL) : realloc(p, bytes);
}

/* realloc moved the block, and the old pointer is freed as well. */
static void twice_after_realloc(void)
{
	unsigned char *p = get_among_others(), *q = blind(resize(p, size * 10));

	if (q == p) {				/* the block grew in place: the old pointer is valid */
		stage(READ_OTHER);
		_exit(0);
	}
	stage(ABOUT_TO);
	put(p);
	second_free_done();
}

static void realloc_after_free(void)
{
	unsigned char *p = get_among_others();

	put(p);
	stage(ABOUT_TO);
	p = blind(resize(blind(p), size * 10));
	second_free_done();
}

static void size_after_free(void)
{
	unsigned char *p = get_among_others();

	put(p);
	stage(ABOUT_TO);
	(void)blind((void *)(door->letter == 'k' ? ksize(blind(p)) : malloc_usable_size(blind(p))));
	stage(DONE);
	stage(FREED);
}

/* ------------------------------------------------------------------ frees of what is no object */

static void free_wrongly(void *p)
{
	stage(ABOUT_TO);
	put(p);
	stage(DONE);
	stage(FREED);
	others_come_and_go();
}

static void interior_by_one(void) { free_wrongly(get_among_others() + 1); }
static void interior_by_word(void) { free_wrongly(get_among_others() + 8); }
static void interior_by_16(void) { free_wrongly(get_among_others() + 16); }
static void interior_half(void) { free_wrongly(get_among_others() + (size / 2 & ~(size_t)15)); }
static void before_it(void) { free_wrongly(get_among_others() - 16); }

static void of_stack(void)
{
	char here[256] __attribute__((aligned(64)));

	get_among_others();
	memset(here, 0, sizeof(here));
	free_wrongly(here + 64);
}

static char data[8192] __attribute__((aligned(4096)));
static void of_data(void) { get_among_others(); free_wrongly(data + 4096); }
static void of_code(void) { get_among_others(); free_wrongly((char *)(void *)of_data); }
static void of_nothing(void) { get_among_others(); free_wrongly((void *)0x7000); }

static void of_mapping(void)
{
	char *p = mmap(NULL, 65536, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	get_among_others();
	free_wrongly(p + 4096);
}

/* Of one cache, freed to another of the same size. */
static void other_cache(void)
{
	unsigned char *p = get_among_others();

	cache(&other, "other");
	stage(ABOUT_TO);
	kmem_cache_free(other, blind(p));
	stage(DONE);
	stage(FREED);
	others_come_and_go();
}

/* In an array among good ones. */
static void other_cache_in_bulk(void)
{
	void *all[40];
	unsigned char *p = get_among_others();

	cache(&other, "other");
	for (int i = 0; i < 40; i++)
		all[i] = kmem_cache_alloc(other, GFP_KERNEL);
	all[20] = p;
	stage(ABOUT_TO);
	kmem_cache_free_bulk(other, 40, all);
	stage(DONE);
	stage(FREED);
	others_come_and_go();
}

static void twice_to_other_cache(void)
{
	unsigned char *p = get_among_others();

	cache(&other, "other");
	put(p);
	stage(ABOUT_TO);
	kmem_cache_free(other, blind(p));
	second_free_done();
}

static void wrong_size(void)
{
	unsigned char *p = get_among_others();

	stage(ABOUT_TO);
	cxx_delete_sized(blind(p), size * 4);
	stage(DONE);
	stage(FREED);
	others_come_and_go();
}

/* ------------------------------------------------------------------ the list */

#define SMALL "8 24 40 64 100 192 500 1024 2000 4096 8192"
#define SOME "24 64 500 4096"
#define LARGE "20000 300000 8388608"
static const struct kind {
	const char *name;
	void (*run)(void);
	const char *class, *sizes, *doors, *words;
} kinds[] = {
	{ "over_by_one", over_by_one, "write", SMALL, "ckmn", "1 byte behind the object" },
	{ "over_by_zero", over_by_zero, "write", SMALL, "ckmn", "a zero byte behind the object" },
	{ "over_by_word", over_by_word, "write", SMALL, "ckmn", "8 bytes behind" },
	{ "over_by_many", over_by_many, "write", SMALL, "ckmn", "64 bytes behind" },
	{ "over_slab_end", over_slab_end, "write", SOME, "ckmn", "16 bytes behind the highest of 1,000 objects" },
	{ "under_by_one", under_by_one, "write", SMALL, "ckmn", "1 byte in front" },
	{ "under_by_word", under_by_word, "write", SMALL, "ckmn", "8 bytes in front" },
	{ "under_by_many", under_by_many, "write", SMALL, "ckmn", "32 bytes in front" },
	{ "stale_write_first", stale_write_first, "stale write", SMALL, "ckmn", "first byte" },
	{ "stale_write_word", stale_write_word, "stale write", SMALL, "ckmn", "first 8 bytes" },
	{ "stale_write_middle", stale_write_middle, "stale write", SMALL, "ckmn", "8 bytes in the middle" },
	{ "stale_write_last", stale_write_last, "stale write", SMALL, "ckmn", "last byte" },
	{ "stale_write_later", stale_write_later, "stale write", SOME, "ckmn", "first byte, after 100 other frees" },
	{ "stale_read_first", stale_read_first, "stale read", SMALL, "ckmn", "first byte" },
	{ "stale_read_last", stale_read_last, "stale read", SMALL, "ckmn", "last byte" },
	{ "twice_at_once", twice_at_once, "second free", SMALL, "ckmn", "twice in a row" },
	{ "twice_after_one", twice_after_one, "second free", SMALL, "ckmn", "again after another free" },
	{ "twice_after_many", twice_after_many, "second free", SOME, "ckmn", "again after 1,000 other frees" },
	{ "twice_by_threads", twice_by_threads, "second free", SOME, "ckmn", "again by another thread" },
	{ "twice_after_reuse", twice_after_reuse, "second free", SOME, "ckmn",
	  "by the former user, then by the new user" },
	{ "twice_in_bulk", twice_in_bulk, "second free", SOME, "ck", "twice in one bulk free" },
	{ "twice_after_realloc", twice_after_realloc, "second free", SOME, "km", "after realloc moved the object" },
	{ "realloc_after_free", realloc_after_free, "second free", SOME, "km", "realloc of a freed object" },
	{ "size_after_free", size_after_free, "second free", SOME, "km", "size query of a freed object" },
	{ "twice_to_other_cache", twice_to_other_cache, "second free", SOME, "c", "again, to another cache" },
	{ "other_cache", other_cache, "foreign free", SOME, "c", "to another cache" },
	{ "other_cache_in_bulk", other_cache_in_bulk, "foreign free", SOME, "c", "to another cache, in a bulk free" },
	{ "interior_by_one", interior_by_one, "foreign free", SOME, "ckmn", "address of the second byte" },
	{ "interior_by_word", interior_by_word, "foreign free", SOME, "ckmn", "address of the second word" },
	{ "interior_by_16", interior_by_16, "foreign free", SOME, "ckmn", "address 16 bytes inside" },
	{ "interior_half", interior_half, "foreign free", "64 500 4096", "ckmn", "address of the middle" },
	{ "before_it", before_it, "foreign free", SOME, "ckmn", "address 16 bytes in front" },
	{ "of_stack", of_stack, "foreign free", "64", "ckmn", "a variable on the stack" },
	{ "of_data", of_data, "foreign free", "64", "ckmn", "a static variable" },
	{ "of_code", of_code, "foreign free", "64", "ckmn", "a function" },
	{ "of_nothing", of_nothing, "foreign free", "64", "ckmn", "an address without memory" },
	{ "of_mapping", of_mapping, "foreign free", "64", "ckmn", "memory mapped by the program" },
	{ "wrong_size", wrong_size, "foreign free", SOME, "n", "sized delete with another size" },
	{ "large_over_by_one", over_by_one, "write", LARGE, "kmn", "large block: 1 byte behind" },
	{ "large_over_by_many", over_by_many, "write", LARGE, "kmn", "large block: 64 bytes behind" },
	{ "large_under_by_many", under_by_many, "write", LARGE, "kmn", "large block: 32 bytes in front" },
	{ "large_stale_write", stale_write_first, "stale write", LARGE, "kmn", "large block: first byte" },
	{ "large_stale_read", stale_read_first, "stale read", LARGE, "kmn", "large block: first byte" },
	{ "large_twice_at_once", twice_at_once, "second free", LARGE, "kmn", "large block: twice in a row" },
	{ "large_twice_after_one", twice_after_one, "second free", LARGE, "kmn",
	  "large block: again after another free" },
	{ "large_interior", interior_half, "foreign free", LARGE, "kmn", "large block: address of the middle" },
};

int main(int argc, char **argv)
{
	struct rlimit none = { 0, 0 };
	const struct kind *kind = NULL;

	if (argc == 2 && !strcmp(argv[1], "--list")) {
		for (size_t i = 0; i < sizeof(kinds) / sizeof(kinds[0]); i++)
			printf("%s\t%s\t%s\t%s\t%s\n", kinds[i].name, kinds[i].class, kinds[i].sizes, kinds[i].doors,
			       kinds[i].words);
		return 0;
	}
	if (argc != 4)
		return 9;
	setrlimit(RLIMIT_CORE, &none);
	alarm(580);
	for (size_t i = 0; i < sizeof(kinds) / sizeof(kinds[0]); i++)
		if (!strcmp(kinds[i].name, argv[1]))
			kind = &kinds[i];
	for (size_t i = 0; i < sizeof(doors) / sizeof(doors[0]); i++)
		if (!strcmp(doors[i].name, argv[2]))
			door = &doors[i];
	size = strtoul(argv[3], NULL, 10);
	if (!kind || !door || !size)
		return 9;
	kind->run();
	_exit(0);
}
