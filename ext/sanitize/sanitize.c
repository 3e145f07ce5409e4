/*
 * sanitize.c: what sanitizers export, by weak references, and the client requests of valgrind. Invariant: what is not
 * there is not called.
 */
#include "sanitize.h"

#include "os/die.h"

/* <sanitizer/asan_interface.h>, lsan_interface.h, tsan_interface.h: not there where no sanitizer is. */
#define WEAK __attribute__((weak))
WEAK void __asan_poison_memory_region(const volatile void *p, size_t bytes);
WEAK void __asan_unpoison_memory_region(const volatile void *p, size_t bytes);
WEAK void __lsan_register_root_region(const void *p, size_t bytes);
WEAK void __lsan_unregister_root_region(const void *p, size_t bytes);
WEAK void __tsan_acquire(void *p);
WEAK void __tsan_release(void *p);

/*
 * Valgrind's client requests, as its manual and its header's comments describe them: instructions that do nothing, in
 * an order that no compiler makes; where valgrind runs the program it reads the request instead. 0 without it.
 */
enum request {
	RUNNING_ON_VALGRIND = 0x1001, MALLOCLIKE_BLOCK = 0x1301, FREELIKE_BLOCK = 0x1302, RESIZEINPLACE_BLOCK = 0x130b,
	CHANGE_ERR_DISABLEMENT = 0x1801,
	MAKE_MEM_NOACCESS = 0x4d430000, MAKE_MEM_DEFINED = 0x4d430002,	/* memcheck's: 'M', 'C' */
};

static uintptr_t valgrind(uintptr_t request, uintptr_t a, uintptr_t b, uintptr_t c, uintptr_t d)
{
	volatile uintptr_t words[6] = { request, a, b, c, d, 0 };
	uintptr_t result = 0;

#if defined(__x86_64__)
	__asm__ volatile("rolq $3, %%rdi\n\trolq $13, %%rdi\n\trolq $61, %%rdi\n\trolq $51, %%rdi\n\txchgq %%rbx, %%rbx"
			 : "+d"(result) : "a"(words) : "cc", "memory");
#elif defined(__aarch64__)
	register uintptr_t x3 __asm__("x3") = result;
	register volatile uintptr_t *x4 __asm__("x4") = words;

	__asm__ volatile("ror x12, x12, #3\n\tror x12, x12, #13\n\tror x12, x12, #51\n\tror x12, x12, #61\n\t"
			 "orr x10, x10, x10" : "+r"(x3) : "r"(x4) : "cc", "memory");
	result = x3;
#else
	(void)words;
#endif
	return result;
}

static void start(void)
{
	/* A library that is built with a sanitizer is itself what that watches. */
#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
	km_sanitizer.address = __asan_poison_memory_region && __asan_unpoison_memory_region;
	km_sanitizer.thread = __tsan_acquire && __tsan_release;
	km_sanitizer.valgrind = valgrind(RUNNING_ON_VALGRIND, 0, 0, 0, 0) != 0;
	km_sanitizer.objects = km_sanitizer.address || km_sanitizer.thread || km_sanitizer.valgrind;
	km_sanitizer.any = km_sanitizer.objects || __lsan_register_root_region;
	km_debug(!km_sanitizer.any || km_sanitizer_ops == &km_sanitizing, "a sanitizer is told by the hook");
#endif
}

static void root_comes(const void *p, size_t bytes)
{
	if (__lsan_register_root_region && __lsan_unregister_root_region)
		__lsan_register_root_region(p, bytes);
}

static void root_goes(const void *p, size_t bytes)
{
	if (__lsan_register_root_region && __lsan_unregister_root_region)
		__lsan_unregister_root_region(p, bytes);
}

static void memory_on(const void *p, size_t bytes)
{
	if (km_sanitizer.address)
		__asan_unpoison_memory_region(p, bytes);
	if (km_sanitizer.valgrind)
		valgrind(MAKE_MEM_DEFINED, (uintptr_t)p, bytes, 0, 0);
}

static void memory_off(const void *p, size_t bytes)
{
	if (km_sanitizer.address)
		__asan_poison_memory_region(p, bytes);
	if (km_sanitizer.valgrind)
		valgrind(MAKE_MEM_NOACCESS, (uintptr_t)p, bytes, 0, 0);
}

/* The code of AddressSanitizer is in the program, not in ours. */
static void reports_off(void)
{
	if (km_sanitizer.valgrind)
		valgrind(CHANGE_ERR_DISABLEMENT, 1, 0, 0, 0);
}

static void reports_on(void)
{
	if (km_sanitizer.valgrind)
		valgrind(CHANGE_ERR_DISABLEMENT, (uintptr_t)-1, 0, 0, 0);
}

static void handed_out(const void *p)
{
	if (km_sanitizer.thread)
		__tsan_release((void *)p);
}

static void handed_in(const void *p)
{
	if (km_sanitizer.thread)
		__tsan_acquire((void *)p);
}

static void pages_handed_out(const void *p, size_t bytes)
{
	for (size_t at = 0; km_sanitizer.thread && at < bytes; at += KM_PAGE_SIZE)
		__tsan_release((char *)p + at);
}

static void pages_handed_in(const void *p, size_t bytes)
{
	for (size_t at = 0; km_sanitizer.thread && at < bytes; at += KM_PAGE_SIZE)
		__tsan_acquire((char *)p + at);
}

static void object_begins(void *p, size_t bytes, bool has_content)
{
	handed_in(p);
	if (km_sanitizer.address)
		__asan_unpoison_memory_region(p, bytes);
	if (km_sanitizer.valgrind)
		valgrind(MALLOCLIKE_BLOCK, (uintptr_t)p, bytes, 0, has_content);
}

static void object_resized(void *p, size_t before, size_t bytes)
{
	km_debug(bytes <= before, "an object that is resized has room");
	if (km_sanitizer.address) {
		__asan_poison_memory_region(p, before);
		__asan_unpoison_memory_region(p, bytes);
	}
	if (km_sanitizer.valgrind && before != bytes)
		valgrind(RESIZEINPLACE_BLOCK, (uintptr_t)p, before, bytes, 0);
}

static void object_ends(void *p, size_t bytes)
{
	handed_out(p);
	if (km_sanitizer.address)
		__asan_poison_memory_region(p, bytes);
	if (km_sanitizer.valgrind)
		valgrind(FREELIKE_BLOCK, (uintptr_t)p, 0, 0, 0);
}

const struct km_sanitizer_ops km_sanitizing = {
	.start = start, .hooks = &km_sanitizer_hooks,
	.root_comes = root_comes, .root_goes = root_goes, .memory_on = memory_on,
	.memory_off = memory_off, .reports_off = reports_off, .reports_on = reports_on,
	.handed_out = handed_out, .handed_in = handed_in, .pages_handed_out = pages_handed_out,
	.pages_handed_in = pages_handed_in, .object_begins = object_begins,
	.object_resized = object_resized, .object_ends = object_ends,
};
KM_REGISTER(km_sanitizer_ops, km_sanitizing);
