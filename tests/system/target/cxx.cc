/*
 * cxx.cc: C++'s operators: every form of new and delete; new throws std::bad_alloc and calls the new handler, the
 * nothrow forms never throw; and a little of the standard library.
 */
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <map>
#include <memory>
#include <new>
#include <string>
#include <thread>
#include <vector>

extern "C" __attribute__((weak)) void *kmem_cache_of(const void *object);

#define CHECK(condition)                                                                           \
	do {                                                                                       \
		if (!(condition)) {                                                                \
			std::fprintf(stderr, "%s:%d: %s\n", __FILE__, __LINE__, #condition);       \
			std::exit(1);                                                              \
		}                                                                                  \
	} while (0)

struct alignas(256) Wide {
	char bytes[300];
};

static volatile std::size_t huge = PTRDIFF_MAX;
static int handler_calls;

static void give_up_at_third()
{
	if (++handler_calls == 3)
		std::set_new_handler(nullptr);
}

static void test_forms()
{
	auto *one = new std::uint64_t(5);
	CHECK(kmem_cache_of(one));
	delete one;
	auto *many = new char[1000];
	CHECK(kmem_cache_of(many));
	delete[] many;
	auto *wide = new Wide;
	CHECK((std::uintptr_t)wide % 256 == 0);
	delete wide;
	auto *wides = new (std::nothrow) Wide[3];
	CHECK((std::uintptr_t)wides % 256 == 0);
	delete[] wides;
	::operator delete(::operator new(50), std::size_t(50));
	::operator delete(::operator new(50, std::align_val_t(64)), std::align_val_t(64));
	::operator delete(::operator new(50, std::align_val_t(64)), 50, std::align_val_t(64));
	::operator delete(::operator new(50, std::nothrow), std::nothrow);
	::operator delete(::operator new(50, std::align_val_t(8192), std::nothrow),
			  std::align_val_t(8192), std::nothrow);
	::operator delete[](::operator new[](50, std::align_val_t(32)), std::align_val_t(32));
	::operator delete[](::operator new[](0), std::size_t(0));
	delete static_cast<char *>(nullptr);
}

template <typename F> static bool throws(F function)
{
	try {
		function();
	} catch (const std::bad_alloc &) {
		return true;
	}
	return false;
}

static void test_failures()
{
	CHECK(throws([] { ::operator new(huge + 1); }));
	CHECK(throws([] { ::operator new[](huge); }));
	CHECK(throws([] { ::operator new(huge, std::align_val_t(4096)); }));
	CHECK(::operator new(huge, std::nothrow) == nullptr);
	CHECK(::operator new[](huge, std::align_val_t(64), std::nothrow) == nullptr);
	std::set_new_handler(give_up_at_third);
	CHECK(throws([] { ::operator new(huge); }));
	CHECK(handler_calls == 3);
	handler_calls = 0;
	std::set_new_handler(give_up_at_third);
	CHECK(::operator new(huge, std::nothrow) == nullptr);
	CHECK(handler_calls == 3);
	std::set_new_handler([] { throw std::bad_alloc(); });
	CHECK(throws([] { ::operator new(huge); }));
	std::set_new_handler(nullptr);
	CHECK(throws([] { std::vector<char> v(huge / 2); }));
}

static void test_library()
{
	std::map<std::string, std::shared_ptr<std::vector<int>>> all;
	std::vector<std::thread> threads;

	for (int i = 0; i < 1000; i++)
		all[std::to_string(i * 7919) + " and a name that is not short"] =
			std::make_shared<std::vector<int>>(i, i);
	for (int t = 0; t < 4; t++)
		threads.emplace_back([&all] {
			auto copy = all;
			for (auto &item : copy)
				for (int i : *item.second)
					CHECK(i == (int)item.second->size());
		});
	for (auto &thread : threads)
		thread.join();
}

int main()
{
	CHECK(kmem_cache_of);
	test_forms();
	test_failures();
	test_library();
	return 0;
}
