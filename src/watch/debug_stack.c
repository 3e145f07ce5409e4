/*
 * debug_stack.c: where calls come from: the stack of a call into the library, and an address as a file with an offset.
 * Invariant: nothing here allocates, or waits; libc is asked for a stack only once it has been prepared for that.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <link.h>
#include <sys/auxv.h>

#include "../port/bits.h"
#include "../port/os.h"
#include "debug.h"

/*
 * The compiler's unwinder, which is there where C++ is, and else a library that is loaded when it is wanted. libc's
 * backtrace() is the same one, but goes on through the frame of a signal: the code that was interrupted may have moved
 * its stack pointer without saying so, and the step behind it read anything.
 */
struct _Unwind_Context;
typedef int trace_fn(struct _Unwind_Context *context, void *arg);
#define GO_ON	0
#define STOP	5
extern int _Unwind_Backtrace(trace_fn *trace, void *arg) __attribute__((weak));
extern uintptr_t _Unwind_GetIPInfo(struct _Unwind_Context *context, int *before) __attribute__((weak));
#pragma weak dlopen
#pragma weak dlsym

/* Frames of the library that a call may pass before it is here, and a few more. */
#define OWN_FRAMES	12u

static struct {
	int (*backtrace)(trace_fn *trace, void *arg);	/* set last; NULL: nobody can be asked */
	uintptr_t (*ip)(struct _Unwind_Context *context, int *before);
	uintptr_t start, bytes;		/* of this shared object's code; 0: it is none */
} unwinder;
static km_tls bool asking;		/* it is at work in this thread */

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

/* As it was started; libc has its name from the kernel. */
static const char *program(void)
{
	const char *name = (const char *)getauxval(AT_EXECFN);

	return name ?: "/proc/self/exe";
}

const char *km_debug_place(uintptr_t address, char *text, size_t bytes)
{
	struct search search = { .address = address };

	if (!dl_iterate_phdr(look, &search))
		km_format(text, bytes, "%p", (void *)address);
	else
		km_format(text, bytes, "%s+0x%lx", *search.name ? search.name : program(), search.offset);
	return text;
}

/* ------------------------------------------------------------------ a stack */

/* Where the library is a part of the program its frames are not told from others. */
static void find_own(void)
{
	struct search search = { .address = (uintptr_t)find_own };

	if (!dl_iterate_phdr(look, &search) || !*search.name)
		return;
	unwinder.start = search.start;
	unwinder.bytes = search.bytes;
}

struct frames {
	uintptr_t address[KM_DEBUG_FRAMES + OWN_FRAMES];
	unsigned count;
};

static int note(struct _Unwind_Context *context, void *arg)
{
	struct frames *frames = arg;
	int interrupted = 0;
	uintptr_t address = unwinder.ip(context, &interrupted);

	if (!address || frames->count == km_array_count(frames->address))
		return STOP;
	km_debug(frames->count < km_array_count(frames->address), "a frame has a place");
	frames->address[frames->count++] = address;
	return interrupted ? STOP : GO_ON;
}

void km_debug_stack_ready(bool tracks)
{
	struct frames frames = { .count = 0 };

	if ((!tracks && !km_debug_may_track()) || km_load(&unwinder.backtrace))
		return;
	void *library = !_Unwind_Backtrace && dlopen && dlsym ? dlopen("libgcc_s.so.1", RTLD_NOW) : NULL;
	int (*backtrace)(trace_fn *trace, void *arg) = _Unwind_Backtrace;
	unwinder.ip = _Unwind_GetIPInfo;
	if (library) {
		*(void **)&backtrace = dlsym(library, "_Unwind_Backtrace");
		*(void **)&unwinder.ip = dlsym(library, "_Unwind_GetIPInfo");
	}
	if (!backtrace || !unwinder.ip)
		return;
	find_own();
	/* The first time it may allocate. */
	asking = true;
	backtrace(note, &frames);
	asking = false;
	/* Release pairs with km_debug_track: the rest is known. */
	km_store_release(&unwinder.backtrace, backtrace);
}

static bool is_own(uintptr_t address)
{
	return address - unwinder.start < unwinder.bytes;
}

/* Its own frame is the first. */
static km_noinline void ask(struct frames *frames)
{
	int (*backtrace)(trace_fn *trace, void *arg) = km_load_acquire(&unwinder.backtrace);
	int saved_errno = errno;

	if (backtrace && !asking) {
		asking = true;
		backtrace(note, frames);
		asking = false;
	}
	errno = saved_errno;
}

void km_debug_track(struct km_debug_track *track)
{
	struct frames frames = { .count = 0 };
	unsigned passed = 0;

	ask(&frames);
	if (!frames.count)
		frames.address[frames.count++] = (uintptr_t)__builtin_return_address(0);
	while (passed < frames.count && is_own(frames.address[passed]))
		passed++;
	/* Where that is not told all of them are said, but the two that are here. */
	if (!passed || passed == frames.count)
		passed = km_min(2u, frames.count - 1);
	unsigned count = km_min(frames.count - passed, KM_DEBUG_FRAMES);
	km_debug(count, "a call comes from somewhere");
	__builtin_memset(track, 0, sizeof(*track));
	__builtin_memcpy(track->frame, frames.address + passed, count * sizeof(*track->frame));
	track->when = km_os_now_ms();
	track->cpu = km_os_getcpu();
	track->thread = km_os_thread();
}
