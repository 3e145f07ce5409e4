/*
 * replaced.cc: a program that replaces new and delete in few of their forms, as C++ permits: all other forms must
 * call these. PLAIN: operator new(size_t) and delete(void *). ALIGNED: the forms with an alignment. ARRAY: new[] and
 * delete[]. Replaced forms use a pool of the program; no other allocator can free its blocks.
 */
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <new>
#include <string>
#include <vector>

extern "C" __attribute__((weak)) void *kmem_cache_of(const void *object);
extern "C" __attribute__((weak)) const char *kmem_version(void);

#define CHECK(condition)                                                                           \
	do {                                                                                       \
		if (!(condition)) {                                                                \
			std::fprintf(stderr, "%s:%d: %s\n", __FILE__, __LINE__, #condition);       \
			std::exit(1);                                                              \
		}                                                                                  \
	} while (0)

static char pool[1 << 20];
static std::size_t at, news, deletes, aligned_news, aligned_deletes, array_news, array_deletes;
static bool exhausted;
struct Own {
	virtual ~Own() {}
};

static void *take(std::size_t bytes, std::size_t align)
{
	if (exhausted)
		throw Own();
	at = (at + align - 1) & ~(align - 1);
	at += bytes;
	CHECK(at <= sizeof(pool));
	return pool + at - bytes;
}

static void give(void *p)
{
	CHECK(!p || (p >= pool && p < pool + sizeof(pool)));
}

#ifdef PLAIN
void *operator new(std::size_t bytes) { news++; return take(bytes, 16); }
void operator delete(void *p) noexcept { deletes++; give(p); }
#endif
#ifdef ALIGNED
void *operator new(std::size_t bytes, std::align_val_t align)
{
	aligned_news++;
	return take(bytes, std::size_t(align));
}
void operator delete(void *p, std::align_val_t) noexcept { aligned_deletes++; give(p); }
#endif
#ifdef ARRAY
void *operator new[](std::size_t bytes) { array_news++; return take(bytes, 16); }
void operator delete[](void *p) noexcept { array_deletes++; give(p); }
#endif

static constexpr std::align_val_t wide{64};

/* Each form of new, and of delete, once; twice for forms with hits only the second time. */
static void plain_forms()
{
	::operator delete(::operator new(50));
	::operator delete(::operator new(50), std::size_t(50));
	::operator delete(::operator new(50, std::nothrow), std::nothrow);
}

static void array_forms()
{
	::operator delete[](::operator new[](50));
	::operator delete[](::operator new[](50), std::size_t(50));
	::operator delete[](::operator new[](50, std::nothrow), std::nothrow);
}

static void aligned_forms()
{
	::operator delete(::operator new(50, wide), wide);
	::operator delete(::operator new(50, wide), 50, wide);
	::operator delete(::operator new(50, wide, std::nothrow), wide, std::nothrow);
	::operator delete[](::operator new[](50, wide), wide);
	::operator delete[](::operator new[](50, wide), 50, wide);
	::operator delete[](::operator new[](50, wide, std::nothrow), wide, std::nothrow);
}

/* Counted from here on: the runtime may have allocated before main. */
#define COMES(forms, count, times)                                                                 \
	do {                                                                                       \
		std::size_t before = count;                                                        \
		forms();                                                                           \
		CHECK(count == before + (times));                                                  \
	} while (0)

static void where_they_come()
{
	for (int round = 0; round < 100; round++) {
#ifdef PLAIN
		COMES(plain_forms, news, 3);
		COMES(plain_forms, deletes, 3);
#ifndef ARRAY
		COMES(array_forms, news, 3);
		COMES(array_forms, deletes, 3);
#endif
#endif
#ifdef ARRAY
		COMES(array_forms, array_news, 3);
		COMES(array_forms, array_deletes, 3);
#endif
#ifdef ALIGNED
		COMES(aligned_forms, aligned_news, 6);
		COMES(aligned_forms, aligned_deletes, 6);
#endif
		/* And functions not replaced are the library's, all of them. */
		plain_forms();
		array_forms();
		aligned_forms();
		CHECK(news == deletes && aligned_news == aligned_deletes && array_news == array_deletes);
	}
}

template <typename F> static bool throws(F function)
{
	try {
		function();
	} catch (const Own &) {
		return true;
	}
	return false;
}

/* An exception of the program's new ends in the nothrow forms, and passes through the others. */
static void exceptions()
{
	exhausted = true;
#ifdef PLAIN
	CHECK(throws([] { ::operator new(50); }));
	CHECK(::operator new(50, std::nothrow) == nullptr);
#ifndef ARRAY
	CHECK(throws([] { ::operator new[](50); }));
	CHECK(::operator new[](50, std::nothrow) == nullptr);
#endif
#endif
#ifdef ARRAY
	CHECK(throws([] { ::operator new[](50); }));
	CHECK(::operator new[](50, std::nothrow) == nullptr);
#endif
#ifdef ALIGNED
	CHECK(throws([] { ::operator new(50, wide); }));
	CHECK(throws([] { ::operator new[](50, wide); }));
	CHECK(::operator new(50, wide, std::nothrow) == nullptr);
	CHECK(::operator new[](50, wide, std::nothrow) == nullptr);
#endif
	exhausted = false;
	CHECK(std::uncaught_exceptions() == 0 && !std::current_exception());
}

/* A new handler that throws: the nothrow forms keep their promise. */
static void handlers()
{
#if !defined(PLAIN) && !defined(ARRAY)
	volatile std::size_t huge = PTRDIFF_MAX;

	std::set_new_handler([] { throw Own(); });
	CHECK(throws([&] { ::operator new(huge); }));
	CHECK(::operator new(huge, std::nothrow) == nullptr);
	CHECK(::operator new[](huge, std::nothrow) == nullptr);
#ifndef ALIGNED
	CHECK(::operator new(huge, wide, std::nothrow) == nullptr);
	CHECK(::operator new[](huge, wide, std::nothrow) == nullptr);
#endif
	std::set_new_handler(nullptr);
	CHECK(std::uncaught_exceptions() == 0 && !std::current_exception());
#endif
}

int main()
{
	/* The program runs on libkmem: only libkmem has this name. */
	CHECK(kmem_version && malloc(1));
	where_they_come();
	exceptions();
	handlers();
	std::vector<std::string> strings(10, std::string(200, 'a'));
	CHECK(strings[9].size() == 200);
	return 0;
}
