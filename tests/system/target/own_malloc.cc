/*
 * own_malloc.cc: a program with a malloc of its own: a pool (POOL), a wrapper of the next malloc (NEXT), a pool
 * behind libc's own names (LIBC), or a pool with posix_memalign (MEMALIGN). Each function of the family not defined
 * here returns blocks of the same malloc, or fails; a foreign block at the pool's free ends the program.
 */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include <cerrno>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <dlfcn.h>
#include <malloc.h>
#include <new>
#include <unistd.h>

static unsigned long served, freed;

#ifdef NEXT
template <class F> static F next(const char *name) { return (F)dlsym(RTLD_NEXT, name); }
extern "C" void *malloc(size_t n) { served++; return next<void *(*)(size_t)>("malloc")(n); }
extern "C" void free(void *p) { freed++; next<void (*)(void *)>("free")(p); }
extern "C" void *realloc(void *p, size_t n) { served++; return next<void *(*)(void *, size_t)>("realloc")(p, n); }
static bool is_own(const void *) { return true; }
/* Blocks are the library's, so its other functions need not call this malloc. */
static const bool goes_by = false;
#else
static const bool goes_by = true;
alignas(4096) static char pool[64 << 20];
static size_t used;

static bool is_own(const void *p) { return (uintptr_t)p - (uintptr_t)pool < sizeof(pool); }

static void *cut(size_t n, size_t align)
{
	size_t at = (__atomic_fetch_add(&used, (n + 3 * align) & -align, __ATOMIC_RELAXED) + 2 * align - 1) & -align;

	if (n > sizeof(pool) || at + n > sizeof(pool)) {
		errno = ENOMEM;
		return nullptr;
	}
	((size_t *)(pool + at))[-1] = n;
	served++;
	return pool + at;
}

#ifdef LIBC
extern "C" void *__libc_memalign(size_t, size_t);
extern "C" void __libc_free(void *);
extern "C" void *malloc(size_t n) { return n > 10000 ? __libc_memalign(64, n) : cut(n, 16); }
#else
extern "C" void *malloc(size_t n) { return cut(n, 16); }
#endif

extern "C" void free(void *p)
{
	if (p && !is_own(p)) {
#ifdef LIBC
		__libc_free(p);
		return;
#endif
		(void)!write(2, "a stranger is freed\n", 20);
		_exit(3);
	}
	freed += p != nullptr;
}

extern "C" void *realloc(void *p, size_t n)
{
	void *q = malloc(n);
	size_t had = p && is_own(p) ? ((size_t *)p)[-1] : 0;

	return p && q ? memcpy(q, p, had < n ? had : n) : q;
}

extern "C" void *calloc(size_t a, size_t b)
{
	void *p = malloc(a * b);

	return p ? memset(p, 0, a * b) : p;
}

#ifdef MEMALIGN
extern "C" int posix_memalign(void **result, size_t align, size_t n)
{
	return (*result = cut(n, align)) ? 0 : ENOMEM;
}
#endif
#endif

extern "C" void free_sized(void *, size_t) __attribute__((weak));

#define NEED(truth) do if (!(truth)) { dprintf(2, "line %d: %s\n", __LINE__, #truth); _exit(1); } while (0)
#define BARRIER(p) __asm__ volatile("" : "+r"(p) : : "memory")

/* A block of the program's malloc, or NULL, if a failure is permitted. */
static void check(void *p, size_t align, bool refusable, size_t size = 100)
{
	BARRIER(p);
	NEED(p || refusable);
	NEED(p || errno == ENOMEM);
	if (!p)
		return;
#ifndef LIBC
	NEED(is_own(p));
#endif
	NEED((uintptr_t)p % align == 0);
	memset(p, 1, size);
	free(p);
}

struct alignas(64) wide { char byte[64]; };

int main()
{
#if defined(MEMALIGN) || defined(NEXT)
	const bool refusable = false;
#else
	const bool refusable = true;
#endif
	unsigned long before = served;
	int *a = (int *)reallocarray(nullptr, 10, sizeof(*a));

	for (int i = 0; i < 10; i++)
		a[i] = i;
	a = (int *)reallocarray(a, 1000, sizeof(*a));
	NEED(a && a[9] == 9 && served == before + 2);
	free(a);
	NEED(!reallocarray(nullptr, SIZE_MAX / 2, 4) && errno == ENOMEM);
	for (size_t align = 16; align <= 4096; align *= 2) {
		void *p = nullptr;

		check(aligned_alloc(align, align + 100), align, refusable);
		check(memalign(align, 100), align, refusable);
		int error = posix_memalign(&p, align, 100);
		NEED(!error || (refusable && error == ENOMEM && !p));
		errno = error;
		check(p, align, refusable);
	}
	check(valloc(100), 4096, refusable);
	check(pvalloc(100), 4096, refusable, 4096);
	NEED(!aligned_alloc(64, SIZE_MAX - 100) && errno == ENOMEM);
	check(new char[100], 1, false);
	check(new (std::nothrow) char[100], 1, false);
	check(::operator new(1 << 20), 1, false, 1 << 20);
	check(new (std::nothrow) wide, 64, refusable, 64);
	for (int i = 0; i < 1000; i++) {
		before = freed;
		char *one = new char, *many = new char[100];
		BARRIER(one);
		BARRIER(many);
		delete one;
		::operator delete[](many, 100);
		NEED(freed == before + 2 || !goes_by);
	}
	void *p = malloc(100);
	NEED(malloc_usable_size(p) >= 100 || malloc_usable_size(p) == 0);
	before = freed;
	if (free_sized)
		free_sized(p, 100);
	else
		free(p);
	NEED(freed == before + 1 || !goes_by);
	puts("keeps its own");
	return 0;
}
