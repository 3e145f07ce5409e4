/*
 * debug_stack.c: where calls come from: the stack of a call into the library, and an address as a file with an offset.
 * Invariant: nothing here allocates, or waits; libc is asked for a stack only once it has been prepared for that.
 */
#define _GNU_SOURCE
#include <link.h>

#include "../port/bits.h"
#include "../port/os.h"
#include "debug.h"

/* Glibc's; other libraries have none. Its first call allocates. */
extern int backtrace(void **frames, int most) __attribute__((weak));

/* Frames of the library that a call may pass before it is here, and a few more. */
#define OWN_FRAMES	12u

static struct {
	uintptr_t start, bytes;
} own;					/* this shared object's code; 0: it is none */
static bool ready;			/* backtrace() allocates no more */
static km_tls bool asking;		/* ... and is not called while it is at work in this thread */

/* ------------------------------------------------------------------ objects of the process */

struct search {
	uintptr_t address, offset;
	uintptr_t start, bytes;		/* of the part that it is in */
	const char *name;		/* "": the program */
};

static int look(struct dl_phdr_info *info, size_t bytes km_unused, void *arg)
{
	struct search *search = arg;

	for (unsigned i = 0; i < info->dlpi_phnum; i++) {
		const ElfW(Phdr) *header = &info->dlpi_phdr[i];
		uintptr_t start = info->dlpi_addr + header->p_vaddr;

		if (header->p_type != PT_LOAD || search->address - start >= header->p_memsz)
			continue;
		search->offset = search->address - info->dlpi_addr;
		search->start = start;
		search->bytes = header->p_memsz;
		search->name = info->dlpi_name ?: "";
		return 1;
	}
	return 0;
}

const char *km_debug_place(uintptr_t address, char *text, size_t bytes)
{
	struct search search = { .address = address };

	if (!dl_iterate_phdr(look, &search))
		km_format(text, bytes, "%p", (void *)address);
	else
		km_format(text, bytes, "%s+0x%lx", *search.name ? search.name : "/proc/self/exe", search.offset);
	return text;
}

/* ------------------------------------------------------------------ a stack */

/* Where the library is a part of the program its frames are not told from others. */
static void find_own(void)
{
	struct search search = { .address = (uintptr_t)find_own };

	if (!dl_iterate_phdr(look, &search) || !*search.name)
		return;
	own.start = search.start;
	own.bytes = search.bytes;
}

void km_debug_stack_ready(bool tracks)
{
	void *frames[4];

	if ((!tracks && !km_debug_may_track()) || !backtrace || km_load(&ready))
		return;
	find_own();
	asking = true;
	(void)backtrace(frames, 4);
	asking = false;
	/* Release pairs with km_debug_track: the library's bounds are known. */
	km_store_release(&ready, true);
}

static bool is_own(uintptr_t address)
{
	return address - own.start < own.bytes;
}

/* The one that is known where nobody can be asked. */
static km_noinline unsigned by_return(uintptr_t *frames)
{
	frames[0] = (uintptr_t)__builtin_extract_return_addr(__builtin_return_address(0));
	return 1;
}

void km_debug_track(struct km_debug_track *track)
{
	uintptr_t frames[KM_DEBUG_FRAMES + OWN_FRAMES] = { 0 };
	unsigned count = 0, passed = 0;

	if (km_load_acquire(&ready) && !asking) {
		asking = true;
		int n = backtrace((void **)frames, (int)km_array_count(frames));
		asking = false;
		count = n > 0 ? (unsigned)n : 0;
	}
	if (!count)
		count = by_return(frames);
	while (passed < count && is_own(frames[passed]))
		passed++;
	if (!passed || passed == count)
		passed = count > 1;
	count = km_min(count - passed, KM_DEBUG_FRAMES);
	km_debug(count, "a call comes from somewhere");
	__builtin_memset(track, 0, sizeof(*track));
	__builtin_memcpy(track->frame, frames + passed, count * sizeof(*frames));
	track->when = km_os_now_ms();
	track->cpu = km_os_getcpu();
	track->thread = km_os_thread();
}
