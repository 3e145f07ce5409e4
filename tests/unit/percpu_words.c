/*
 * percpu_words.c: words of the CPUs' areas: all room can be allocated, without overlap. Each word is aligned to its
 * size, and zero on each CPU after any former use. Each freed word is found again, in any size and order.
 * Disciplines: all.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <kmem/inline.h>
#include <kmem/kmem.h>

#include "base/cc.h"
#include "percpu/pcpu.h"
#include "kit/inside.h"
#include "kit/random.h"

TEST_IS_INSIDE

#define WORDS ((1u << KMEM_AREA_SHIFT) / 8)

static struct run {
	uint32_t offset, bytes;
} runs[WORDS];
static unsigned char taken[WORDS];

static void need(bool truth, const char *what)
{
	if (truth)
		return;
	printf("%s\n", what);
	exit(1);
}

/* On each CPU with its area online: adds the words up as numbers, and sets each to `value`. */
static uint64_t sum_and_set(const struct run *run, uint64_t value)
{
	uint64_t sum = 0;

	km_for_each_cpu(cpu)
		for (uint32_t at = 0; at < run->bytes; at += 8) {
			uint64_t *word = (uint64_t *)(km_area(cpu) + run->offset + at);

			sum += *word;
			*word = value;
		}
	return sum;
}

static bool take(struct run *run, uint32_t bytes)
{
	*run = (struct run){ km_percpu_alloc(bytes), bytes };
	if (!run->offset)
		return false;
	need(run->offset % bytes == 0, "not aligned");
	need(sum_and_set(run, 1) == 0, "not zero");
	for (uint32_t i = 0; i < bytes / 8; i++)
		need(!taken[run->offset / 8 + i]++, "given out twice");
	return true;
}

static void give(const struct run *run)
{
	memset(&taken[run->offset / 8], 0, run->bytes / 8);
	km_percpu_free(run->offset, run->bytes);
}

/* Down to single words, until there is nothing left. */
static unsigned take_all(unsigned count)
{
	for (uint32_t bytes = 4096; bytes >= 8; bytes /= 2)
		while (take(&runs[count], bytes))
			count++;
	return count;
}

static unsigned words_taken(void)
{
	unsigned words = 0;

	for (unsigned i = 0; i < WORDS; i++)
		words += taken[i];
	return words;
}

/* A cache leaves words of its discipline: a lock, a number that rises with each call. */
static void use_words(void)
{
	struct kmem_cache *cache = kmem_cache_create("words", 64, NULL, 0);

	need(cache, "a cache");
	for (int i = 0; i < 100; i++)
		kmem_cache_free(cache, kmem_cache_alloc(cache, GFP_KERNEL));
	kmem_cache_destroy(cache);
}

int main(void)
{
	kfree(kmalloc(1, GFP_KERNEL));
	use_words();
	unsigned count = take_all(0), words = words_taken();

	for (int round = 0; round < 20; round++) {
		/* Some go, in no order; they come back as what they were, or smaller. */
		for (int i = 0; i < 200; i++) {
			struct run *run = &runs[random_below(count)], again;

			give(run);
			again = *run;
			need(take(run, again.bytes) && run->offset == again.offset, "a run that was given back");
		}
		for (unsigned gone = 0; gone < count / 3; gone++) {
			unsigned i = random_below(count);

			give(&runs[i]);
			runs[i] = runs[--count];
		}
		count = take_all(count);
		need(words_taken() == words, "words are lost");
	}
	while (count)
		give(&runs[--count]);
	count = take_all(0);
	need(words_taken() == words, "words are lost in the end");
	printf("%u words in %u runs\n", words, count);
	return 0;
}
