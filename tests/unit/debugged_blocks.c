/*
 * debugged_blocks: debugged blocks of whole pages (KMEM_DEBUG, "large"): a write behind a block, to a freed block, or
 * over the library's data behind the block, and a second free are reported at the next check: at the free, at a
 * shrinking krealloc, in kmem_check_all, and at the end of the block's wait; a sized free compares the requested
 * bytes. Each letter alone has its own effect only. A waiting block is freed in profiles. A block above 4 MiB can be
 * freed after any action of its user on the pages, also in a child without the pages. A shrink, and a request that
 * would be refused, free the waiting blocks.
 */
#define _GNU_SOURCE
#include <stdint.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/wait.h>

#include <kmem/kmem.h>
#include <kmem/stats.h>

#include "kit/cases.h"
#include "kit/heard.h"

#include "cache/cache.h"
#include "page/huge.h"
#include "alloc/profile_record.h"

#define BYTES 100000u

static const char *letters;

static bool with(char letter)
{
	return strchr(letters, letter) != NULL;
}

static char *get(size_t bytes)
{
	char *p = HELD((char *)kmalloc(bytes, GFP_KERNEL));

	NEED(p);
	memset(p, 1, bytes);
	return p;
}

static void written_behind(void)
{
	char *p = get(BYTES);
	const char *zone = with('Z') ? "kmalloc Redzone overwritten" : NULL;

	p[BYTES] = 1;
	SAYS(zone, kmem_check_all());
	/* The damage was repaired. */
	SAYS(NULL, kmem_check_all());
	p[BYTES + 50] = 1;
	SAYS(zone, p = krealloc(p, BYTES - 1000, GFP_KERNEL));
	NEED(p);
	/* These bytes, formerly the user's, are behind the block now. */
	p[BYTES - 500] = 2;
	SAYS(zone, kfree(p));
}

static void written_when_free(void)
{
	char *p = get(BYTES);

	SAYS(NULL, kfree(p));
	if (!with('P'))
		return;
	CHECK(p[0] == 0x6b && p[BYTES - 1] == (char)0xa5);
	p[5] = 1;
	SAYS("Poison overwritten", CHECK(kmem_check_all() != 0));
	p[BYTES - 1] = 1;
	SAYS("End Poison overwritten", CHECK(kmem_check_all() != 0));
	CHECK(kmem_check_all() == 0);
	/* Found as well when later frees push the block out. */
	p[6] = 1;
	listen_to_library();
	for (unsigned i = 0; i < 70; i++)
		kfree(get(BYTES));
	CHECK(strstr(heard(), "Poison overwritten"));
}

static void freed_twice(void)
{
	char *p = get(BYTES);

	SAYS(NULL, kfree(p));
	if (with('P'))
		SAYS("Object already free", kfree(p));
}

/* The record is at the end of the last page. */
static void record_overwritten(void)
{
	char *p = get(BYTES);
	size_t bytes = km_large_bytes(p);

	memset(p + bytes - 16, 0x55, 8);
	/* The requested bytes and the caller are not known any more. */
	SAYS(NULL, kmem_check_all());
	SAYS("kmalloc Redzone overwritten", kfree(p));
	p = get(BYTES);
	memset(p + bytes - 8, 0x55, 8);
	CHECK(ksize(p) <= bytes);
	SAYS("kmalloc Redzone overwritten", kfree(p));
}

/* Blocks of all sizes wait, some long, some not at all. */
static void of_all_sizes(void)
{
	static const size_t sizes[] = {
		8200, 200000, 300000, 1 << 20, 3 << 20, KMALLOC_MAX_SIZE - 1, KMALLOC_MAX_SIZE,
	};

	listen_to_library();
	for (unsigned i = 0; i < 8; i++)
		for (size_t s = 0; s < sizeof(sizes) / sizeof(sizes[0]); s++) {
			char *p = get(sizes[s]);

			CHECK(ksize(p) >= sizes[s]);
			p = krealloc(p, sizes[s] / 2 + 1, GFP_KERNEL);
			NEED(p && p[0] == 1 && p[sizes[s] / 2] == 1);
			p = krealloc(p, sizes[s], GFP_KERNEL);
			NEED(p && p[sizes[s] / 2] == 1);
			kfree(p);
		}
	CHECK(kmem_check_all() == 0);
	CHECK(!heard()[0], "%s", heard_text);
}

/* A sized free: with the requested bytes, and no others. */
static bool fits(const void *p, size_t bytes, size_t align, bool resized)
{
	struct km_sized call = { .size = bytes, .align = align, .resized = resized, .function = "free_sized" };

	return km_size_fits(p, &call);
}

static void named_sizes(void)
{
	char *p = get(BYTES);

	CHECK(fits(p, BYTES, 1, false));
	SAYS("free_sized of 99999 bytes", CHECK(!fits(p, BYTES - 1, 1, false)));
	SAYS("free_sized of 100001 bytes", CHECK(!fits(p, BYTES + 1, 1, false)));
	CHECK(fits(p, BYTES - 1, 1, true) && fits(p, BYTES - 1, 4096, false));
	kfree(p);
	/* A free block is left to its free. */
	CHECK(fits(p, 7, 1, false) || !with('P'));
	CHECK(fits(NULL, 7, 1, false) && fits(ZERO_SIZE_PTR, 7, 1, false));
	p = get(100);
	CHECK(fits(p, 100, 1, false));
	if (with('Z')) {
		SAYS("free_sized of 99 bytes", CHECK(!fits(p, 99, 1, false)));
		SAYS("free_sized of 101 bytes", CHECK(!fits(p, 101, 1, false)));
	} else {
		SAYS("free_sized of 1000 bytes", CHECK(!fits(p, 1000, 1, false)));
		SAYS("free_sized of 10 bytes", CHECK(!fits(p, 10, 1, false)));
	}
	kfree(p);
	CHECK(fits(p, 7, 1, false));
}

/* Of guarded objects: every allocation is one here, as long as there is room. */
static void guarded_sizes(void)
{
	char *p = get(1000);

	NEED(km_is_guarded(p));
	CHECK(fits(p, 1000, 1, false) && fits(p, 600, 1, true));
	SAYS("free_sized of 1001 bytes", CHECK(!fits(p, 1001, 1, false)));
	SAYS("free_sized of 999 bytes", CHECK(!fits(p, 999, 1, false)));
	SAYS("free_sized of 300 bytes", CHECK(!fits(p, 300, 1, true)));
	kfree(p);
	CHECK(fits(p, 7, 1, false));
}

static unsigned long seen_out(void)
{
	const struct kmem_profile_record *record = km_profile_ops->record;
	unsigned long out = 0;

	for (size_t i = 0; i < record->slots; i++)
		out += record->slot[i].p > 1;
	return out;
}

/*
 * A profile with a sample for each of these counts a block as allocated until its free, not until the end of its
 * wait.
 */
static void in_a_profile(void)
{
	unsigned long before = seen_out();
	char *p[4];

	for (unsigned i = 0; i < 4; i++)
		p[i] = get(i % 2 ? BYTES : 3 << 20);
	CHECK_EQUAL(seen_out(), before + 4);
	for (unsigned i = 0; i < 4; i++)
		kfree(p[i]);
	CHECK(p[2][0] == 0x6b && p[3][0] == 0x6b);
	CHECK_EQUAL(seen_out(), before);
	for (unsigned i = 0; i < 70; i++)
		kfree(get(BYTES));
	CHECK_EQUAL(seen_out(), before);
}

#define ABOVE	((size_t)5 << 20)

static char *get_above(void)
{
	char *p = HELD((char *)kvmalloc(ABOVE, GFP_KERNEL));

	NEED(p);
	memset(p, 1, ABOVE);
	return p;
}

static void protected_by_its_user(void)
{
	for (unsigned i = 0; i < 8; i++) {
		char *p = get_above();

		NEED(!mprotect(p + (i % 2 ? ABOVE / 2 : 0), i % 2 ? 4096 : ABOVE, i % 4 < 2 ? PROT_NONE : PROT_READ));
		SAYS(NULL, kvfree(p));
	}
	SAYS(NULL, kmem_check_all());
}

/*
 * A child frees blocks missing in the child, or present as zeros, or other blocks that push such a
 * block out.
 */
static void kept_from_children(void)
{
	static const int advice[] = { MADV_DONTFORK, MADV_WIPEONFORK };

	for (unsigned i = 0; i < 4; i++) {
		char *p = get_above();
		int status;

		NEED(!madvise(p, ABOVE, advice[i % 2]));
		if (i >= 2)
			SAYS(NULL, kvfree(p));
		fflush(NULL);
		pid_t child = fork();
		if (!child) {
			if (i < 2)
				SAYS(NULL, kvfree(p));
			for (unsigned j = 0; j < 4; j++)
				SAYS(NULL, kvfree(get_above()));
			_exit(failures != 0);
		}
		NEED(child > 0 && waitpid(child, &status, 0) == child);
		CHECK(status == 0, "%u: status %#x", i, (unsigned)status);
		if (i < 2)
			SAYS(NULL, kvfree(p));
	}
}

/* Frees blocks of all places of the quarantine: 46 MiB. */
static void let_wait(void)
{
	for (unsigned i = 0; i < 2; i++)
		kvfree(kvmalloc(15 << 20, GFP_KERNEL));
	for (unsigned i = 0; i < 64; i++)
		kfree(get(250000));
}

static size_t blocks_there(void)
{
	return km_load(&km_large.blocks) + km_load(&km_huge.blocks);
}

static void freed_by_a_shrink(void)
{
	let_wait();
	char *p = get(BYTES);
	SAYS(NULL, kfree(p));
	CHECK(blocks_there() == (with('P') ? 66 : 0), "%zu", blocks_there());
	if (with('P')) {
		p[5] = 1;
		SAYS("Poison overwritten", kmem_shrink_all());
	}
	SAYS(NULL, kmem_shrink_all());
	CHECK(blocks_there() == 0, "%zu", blocks_there());
	CHECK(kmem_check_all() == 0);
}

static void freed_before_a_refusal(void)
{
	const struct rlimit limit = { 104ul << 20, RLIM_INFINITY }, none = { RLIM_INFINITY, RLIM_INFINITY };
	void *p;

	let_wait();
	NEED(!setrlimit(RLIMIT_DATA, &limit));
	SAYS(NULL, p = kvmalloc(50 << 20, GFP_KERNEL));
	NEED(!setrlimit(RLIMIT_DATA, &none));
	CHECK(p);
	kvfree(p);
}

static const struct test_case cases[] = {
	{ "written behind", written_behind }, { "written when free", written_when_free },
	{ "freed twice", freed_twice }, { "record overwritten", record_overwritten },
	{ "of all sizes", of_all_sizes }, { "named sizes", named_sizes },
	{ "protected by its user", protected_by_its_user }, { "kept from children", kept_from_children },
	{ "freed by a shrink", freed_by_a_shrink }, { "freed before a refusal", freed_before_a_refusal },
};
static const struct test_case guarded[] = { { "guarded sizes", guarded_sizes } };
static const struct test_case profiled[] = { { "in a profile", in_a_profile } };

int main(int argc, char **argv)
{
	static const char *const variants[] = { "FZPU", "FZ", "FP", "FU" };
	char text[64];
	int failed = 0;

	letters = argc > 1 ? argv[1] : "";
	if (strcmp(letters, "guarded") == 0)
		return run_cases(guarded, 1, letters);
	if (strcmp(letters, "profiled") == 0)
		return run_cases(profiled, 1, letters);
	if (argc > 1)
		return run_cases(cases, sizeof(cases) / sizeof(cases[0]), letters);
	for (size_t i = 0; i < sizeof(variants) / sizeof(variants[0]); i++) {
		snprintf(text, sizeof(text), "%s,large,kmalloc-*;-", variants[i]);
		setenv("KMEM_DEBUG", text, 1);
		failed |= again(argv[0], variants[i], "misuse:warn") != 0;
	}
	setenv("KMEM_DEBUG", "FZPU,large;-", 1);
	failed |= again(argv[0], "profiled", "profile:1024") != 0;
	unsetenv("KMEM_DEBUG");
	failed |= again(argv[0], "guarded", "guard:each") != 0;
	return failed;
}
