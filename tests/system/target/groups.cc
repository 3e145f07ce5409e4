/* groups.cc: the promises of <kmem/memcg.hpp>, to their limits and past them: for cxx_groups. */
#include <kmem/memcg.hpp>
#include <kmem/stats.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <list>
#include <map>
#include <memory>
#include <stdexcept>
#include <string>
#include <thread>
#include <type_traits>
#include <unordered_map>
#include <vector>

#define NEED(condition) \
	do { \
		if (!(condition)) { \
			std::printf("FAIL groups.cc:%d: %s\n", __LINE__, #condition); \
			std::exit(1); \
		} \
	} while (0)

template <class Function> static int code_of(Function function)
{
	try {
		function();
	} catch (const std::system_error &error) {
		return error.code().value();
	}
	return 0;
}

template <class Function> static bool refused(Function function)
{
	try {
		function();
	} catch (const std::bad_alloc &) {
		return true;
	}
	return false;
}

static void handles()
{
	kmem::group a("a"), none;

	NEED(!none && a && std::string(a.name()) == "a");
	kmem::group b = a, c = std::move(b);
	NEED(!b && c == a && c != none);
	b = c;
	kmem::group below(a, "below");
	NEED(mem_cgroup_parent(below.get()) == a.get());
	NEED(code_of([&] { a.offline(); }) == EBUSY);
	below.offline();
	NEED(code_of([&] { below.set_max(1); }) == ENOENT);
	NEED(code_of([] { kmem::group unnamed(nullptr); }) == EINVAL);
	a.set_max(1 << 20);
	NEED(a.max() == 1 << 20 && kmem::group::of(a.get()) == a);
	/* A handle of a group made by C keeps the group after the maker's put. */
	mem_cgroup *made = mem_cgroup_create(nullptr, "made", 0);
	kmem::group held = kmem::group::of(made);
	mem_cgroup_put(made);
	NEED(std::string(held.name()) == "made");
}

static void empty_handles()
{
	kmem::group moved("moved"), taker = std::move(moved), none;

	for (kmem::group *each : { &moved, &none }) {
		NEED(each->max() == MEMCG_NO_LIMIT && each->current() == 0 && each->peak() == 0 && each->drain() == 0);
		NEED(std::string(each->name()).empty());
		NEED(code_of([=] { each->set_max(1); }) == EINVAL && code_of([=] { each->set_high(1); }) == EINVAL);
		NEED(code_of([=] { each->set_low(1); }) == EINVAL && code_of([=] { each->set_min(1); }) == EINVAL);
		NEED(code_of([=] { each->offline(); }) == EINVAL);
	}
	NEED(std::string(taker.name()) == "moved");
}

/* A scope takes no reference: a temporary group is refused at compile time. */
static_assert(std::is_constructible_v<kmem::scope, const kmem::group &>);
static_assert(!std::is_constructible_v<kmem::scope, kmem::group>);
static_assert(std::is_constructible_v<kmem::scope_all, const kmem::group &>);
static_assert(!std::is_constructible_v<kmem::scope_all, kmem::group>);

static void scopes()
{
	kmem::group outer("outer"), inner("inner");

	kmem::scope first(outer);
	NEED(kmem::group::active() == outer);
	try {
		kmem::scope second(inner);
		kmem::scope_all third(outer);
		NEED(mem_cgroup_active() == outer.get());
		void *p = kmalloc(100, GFP_KERNEL);
		NEED(mem_cgroup_from_obj(p) == outer.get());
		kfree(p);
		throw std::runtime_error("away");
	} catch (const std::runtime_error &) {
	}
	NEED(mem_cgroup_active() == outer.get());
	void *p = kmalloc(100, GFP_KERNEL);
	NEED(mem_cgroup_from_obj(p) == nullptr);
	kfree(p);
}

static void of_a_group()
{
	kmem::group tenant("tenant");
	kmem::group_resource memory(tenant);

	for (std::size_t alignment = 1; alignment <= 4096; alignment *= 2)
		for (std::size_t bytes : { 0, 1, 7, 24, 100, 1000, 5000, 70000, 4 << 20, (4 << 20) + 1, 9 << 20 }) {
			void *p = memory.allocate(bytes, alignment);

			NEED(reinterpret_cast<std::uintptr_t>(p) % alignment == 0);
			NEED(mem_cgroup_from_obj(p) == tenant.get() || bytes > KMALLOC_MAX_SIZE);
			NEED(tenant.current() >= bytes);
			std::memset(p, 1, bytes);
			memory.deallocate(p, bytes, alignment);
		}
	tenant.drain();
	NEED(tenant.current() == 0);
	NEED(refused([&] { (void)memory.allocate(10, 8192); }));
	NEED(refused([&] { (void)memory.allocate(SIZE_MAX - 3, 8); }));
	NEED(refused([&] { (void)memory.allocate(SIZE_MAX / 2, 8); }));
	{
		std::pmr::vector<std::pmr::string> words(&memory);
		std::pmr::unordered_map<int, std::pmr::string> table(&memory);
		std::thread other([&] {
			for (int i = 0; i < 1000; i++)
				words.emplace_back("a word that is too long for a string's own room");
		});

		for (int i = 0; i < 1000; i++)
			table.emplace(i, "another one that is too long for that");
		other.join();
		NEED(tenant.current() > 100000);
		NEED(mem_cgroup_from_obj(words[7].data()) == tenant.get());
		/* At the limit: bad_alloc, and existing elements stay. */
		tenant.set_max(tenant.current() + (64 << 10));
		std::size_t before = words.size();
		NEED(refused([&] {
			for (;;)
				words.emplace_back("one more word that is too long for a string's own room");
		}));
		NEED(words.size() >= before && table.at(999).size() == 37);
		tenant.set_max(MEMCG_NO_LIMIT);
		words.emplace_back("and then it goes on, with words of any length");
	}
	tenant.drain();
	NEED(tenant.current() == 0);
}

static unsigned long active(kmem_cache *cache)
{
	kmem_cache_stats stats;

	kmem_cache_get_stats(cache, &stats);
	return stats.active_objects;
}

static bool merges()
{
	const char *options = std::getenv("KMEM_OPTIONS");

	return options && std::strstr(options, "merge:1");
}

static void of_a_cache()
{
	kmem_cache *nodes = kmem_cache_create("nodes", 64, nullptr, 0);
	kmem::group tenant("of a cache");

	NEED(nodes);
	{
		kmem::cache_resource memory(nodes), paid(nodes, tenant);
		std::pmr::list<long> numbers(&memory);
		std::pmr::map<int, long> tree(&paid);

		for (int i = 0; i < 500; i++)
			numbers.push_back(i), tree[i] = i;
		NEED(active(nodes) == 1000 && tenant.current() >= 500 * 64);
		NEED(mem_cgroup_from_obj(&*numbers.begin()) == nullptr);
		/* A request unfit for the cache goes to the upstream resource. */
		std::pmr::vector<char> large(1000, 'x', &memory);
		NEED(active(nodes) == 1000);
		struct alignas(64) wide { char bytes[64]; };
		std::pmr::vector<wide> aligned(1, &memory);
		NEED(active(nodes) == 1000 && reinterpret_cast<std::uintptr_t>(&aligned[0]) % 64 == 0);
		tenant.set_max(tenant.current() + 4096);
		NEED(refused([&] {
			for (int i = 1000;; i++)
				tree[i] = i;
		}));
	}
	NEED(active(nodes) == 0);
	kmem_cache_destroy(nodes);
}

/* An object is as aligned as its cache, with any bytes beside it: 40 bytes, every other object at 8. */
static void of_a_cache_aligned()
{
	kmem_cache *nodes = kmem_cache_create("nodes of 40", 40, nullptr, 0);

	NEED(nodes);
	{
		struct alignas(16) wide { long a, b; };
		kmem::cache_resource memory(nodes), paid(nodes, kmem::group("aligned"));
		std::pmr::list<wide> one(&memory), other(&paid);

		for (long i = 0; i < 200; i++)
			for (auto *list : { &one, &other }) {
				list->push_back({ i, i });
				NEED(reinterpret_cast<std::uintptr_t>(&list->back()) % alignof(wide) == 0);
			}
		std::pmr::list<long> narrow(10, &memory);
		NEED(active(nodes) == 10);
	}
	kmem_cache_destroy(nodes);
}

static void of_its_own()
{
	kmem::private_resource session("session");

	for (int turn = 0; turn < 3; turn++) {
		/* Never destroyed: the memory goes with the session. */
		auto *numbers = new (session.allocate(sizeof(std::pmr::map<int, std::pmr::string>)))
			std::pmr::map<int, std::pmr::string>(&session);

		for (int i = 0; i < 20000; i++)
			numbers->emplace(i, "a value that is too long for a string's own room");
		NEED(session.group().current() > 20000 * 64);
		session.release();
		mem_cgroup_drain(session.group().get());
		NEED(session.group().current() == 0);
	}
	session.set_max(1 << 20);
	NEED(refused([&] {
		for (;;)
			(void)session.allocate(100);
	}));
}

/* With merge:1 the second cache makes the first one larger: a block of upstream's goes back there all the same. */
static void of_a_cache_merged()
{
	kmem_cache *small = kmem_cache_create("nodes of 20", 20, nullptr, 0);

	NEED(small);
	{
		std::pmr::monotonic_buffer_resource upstream;
		kmem::cache_resource memory(small, 8, &upstream);
		void *above = memory.allocate(24, 8), *fits = memory.allocate(20, 8);
		kmem_cache *large = kmem_cache_create("nodes of 24", 24, nullptr, 0);

		NEED(large && above && fits);
		NEED(merges() == (kmem_cache_size(small) == 24));
		memory.deallocate(above, 24, 8);
		memory.deallocate(fits, 20, 8);
		kmem_cache_destroy(large);
	}
	kmem_cache_destroy(small);
}

/* With the library's new: charged to the group, to its limit, and across threads and switches. */
static void of_new()
{
	struct nothing {
		char bytes[100];
	};
	kmem::group tenant("new");
	std::vector<std::unique_ptr<nothing>> all;
	auto current = [&] { return tenant.drain(), tenant.current(); };

	if (code_of([] { kmem::account_malloc(); }) == EOPNOTSUPP)
		return;
	all.reserve(10000);
	auto before = std::make_unique<nothing>();
	tenant.set_max(100000);
	NEED(refused([&] {
		kmem::scope pays(tenant);

		for (;;)
			all.push_back(std::make_unique<nothing>());
	}));
	NEED(all.size() > 700 && all.size() < 1000 && current() <= 100000);
	std::string elsewhere(1000000, 'x');
	{
		kmem::scope pays(tenant);

		NEED(refused([] { std::string more(1000000, 'x'); }));
		char *volatile none = new (std::nothrow) char[1000000];	/* volatile: otherwise a compiler may drop
									 * the allocation */
		NEED(!none);
		before.reset();
	}
	std::thread([&] { all.clear(); }).join();
	NEED(current() == 0);
	{
		kmem::scope pays(tenant);
		auto paid = std::make_unique<nothing>();

		kmem::account_malloc(false);
		auto unpaid = std::make_unique<nothing>();
		NEED(current() >= 100 && current() < 200);
	}
	NEED(current() == 0);
}

int main()
{
	handles();
	empty_handles();
	scopes();
	of_a_group();
	of_a_cache();
	of_a_cache_aligned();
	of_a_cache_merged();
	of_its_own();
	of_new();
	return 0;
}
