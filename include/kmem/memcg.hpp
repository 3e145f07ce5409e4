/*
 * <kmem/memcg.hpp>: memory groups for C++17: a handle of a group, scopes with an active group, and
 * std::pmr::memory_resource over a group, a cache and a private group. The header is inline code over <kmem/memcg.h>,
 * with the same terms and limits. The only exceptions are std::bad_alloc and std::system_error.
 *
 *	kmem::account_malloc();				once: malloc and new follow each thread's group
 *	kmem::group tenant("tenant");
 *	tenant.set_max(64 << 20);
 *	{
 *		kmem::scope pays(tenant);
 *		session = new Session;
 *	}
 *	kmem::group_resource memory(tenant);
 *	std::pmr::vector<int> numbers(&memory);	charged to tenant, in any thread
 *
 * Context: as of the functions of <kmem/memcg.h>; not from a signal handler. Any number of threads may use a resource
 * at once, as far as a container allows. A resource holds a reference to its group. A group lives as long as its last
 * handle or resource, or the caller's reference behind a scope.
 */
#ifndef KMEM_MEMCG_HPP
#define KMEM_MEMCG_HPP

#include <kmem/memcg.h>

#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <memory_resource>
#include <new>
#include <system_error>
#include <utility>

namespace kmem {

/* ---------------------------------------------------------------- 1. Groups */

/*
 * group - a reference to a mem_cgroup, copied by mem_cgroup_get. The default is an empty handle: allocations are
 * charged as in a thread without an active group (set_active_memcg(NULL)). An empty handle has no limit and no
 * figures; functions that change the group throw EINVAL.
 */
class group {
public:
	group() noexcept = default;
	/*
	 * Creates a group below the root, or below `parent`. Throws std::system_error with the errno of
	 * mem_cgroup_create.
	 */
	explicit group(const char *name, unsigned int flags = 0) : group(nullptr, name, flags) {}
	group(const group &parent, const char *name, unsigned int flags = 0) : group(parent.get(), name, flags) {}
	group(mem_cgroup *parent, const char *name, unsigned int flags) : memcg_(mem_cgroup_create(parent, name, flags))
	{
		if (!memcg_)
			throw std::system_error(errno, std::generic_category(), "mem_cgroup_create");
	}
	group(const group &other) noexcept : memcg_(mem_cgroup_get(other.memcg_)) {}
	group(group &&other) noexcept : memcg_(std::exchange(other.memcg_, nullptr)) {}
	group &operator=(group other) noexcept
	{
		std::swap(memcg_, other.memcg_);
		return *this;
	}
	~group() { mem_cgroup_put(memcg_); }

	/* of - a handle of a group created by C code, with a reference of its own. */
	static group of(mem_cgroup *memcg) noexcept
	{
		group handle;

		handle.memcg_ = mem_cgroup_get(memcg);
		return handle;
	}
	/* active - the active group of this thread; empty if none is set. */
	static group active() noexcept { return of(mem_cgroup_active()); }

	mem_cgroup *get() const noexcept { return memcg_; }
	explicit operator bool() const noexcept { return memcg_ != nullptr; }
	friend bool operator==(const group &a, const group &b) noexcept { return a.memcg_ == b.memcg_; }
	friend bool operator!=(const group &a, const group &b) noexcept { return a.memcg_ != b.memcg_; }

	/* Bytes. Throws std::system_error: EINVAL, ENOENT as mem_cgroup_set_max. */
	void set_max(std::uint64_t bytes) { set(mem_cgroup_set_max, bytes, "mem_cgroup_set_max"); }
	void set_high(std::uint64_t bytes) { set(mem_cgroup_set_high, bytes, "mem_cgroup_set_high"); }
	void set_low(std::uint64_t bytes) { set(mem_cgroup_set_low, bytes, "mem_cgroup_set_low"); }
	void set_min(std::uint64_t bytes) { set(mem_cgroup_set_min, bytes, "mem_cgroup_set_min"); }
	std::uint64_t max() const noexcept { return memcg_ ? mem_cgroup_max(memcg_) : MEMCG_NO_LIMIT; }
	std::uint64_t current() const noexcept { return memcg_ ? mem_cgroup_current(memcg_) : 0; }
	std::uint64_t peak() const noexcept { return memcg_ ? mem_cgroup_peak(memcg_) : 0; }
	const char *name() const noexcept { return memcg_ ? mem_cgroup_name(memcg_) : ""; }
	/* offline - take the group offline; its charges go to the parent. Throws std::system_error: EBUSY, ENOENT. */
	void offline() { check(memcg_ ? mem_cgroup_offline(memcg_) : -EINVAL, "mem_cgroup_offline"); }
	/* drain - release the unused charges. Returns: the bytes released. */
	std::uint64_t drain() noexcept { return memcg_ ? mem_cgroup_drain(memcg_) : 0; }

private:
	void set(int (*setter)(mem_cgroup *, std::uint64_t), std::uint64_t bytes, const char *function)
	{
		check(memcg_ ? setter(memcg_, bytes) : -EINVAL, function);
	}
	static void check(int error, const char *function)
	{
		if (error)
			throw std::system_error(-error, std::generic_category(), function);
	}

	mem_cgroup *memcg_ = nullptr;
};

/* ---------------------------------------------------------------- 2. Scopes */

/*
 * scope - MEMCG_SCOPE: the group is active in this thread until the end of the block, by return and by exception. The
 * scope takes no reference: the group must outlive the scope. Scopes nest. A scope must end in the thread that began
 * it (not for a coroutine that another thread resumes).
 */
class scope {
public:
	explicit scope(mem_cgroup *memcg) noexcept : before_(set_active_memcg(memcg)) {}
	explicit scope(const group &group) noexcept : scope(group.get()) {}
	/* The reference of a temporary would end before the block. */
	explicit scope(const group &&) = delete;
	scope(const scope &) = delete;
	scope &operator=(const scope &) = delete;
	~scope() { set_active_memcg(before_); }

private:
	mem_cgroup *before_;
};

/*
 * scope_all - MEMCG_SCOPE_ALL: all allocations of this thread are accounted, kmalloc and every cache included.
 * mem_cgroup_account_all states the cost of the first scope; for malloc and new alone, account_malloc is cheaper.
 */
class scope_all {
public:
	explicit scope_all(mem_cgroup *memcg) noexcept : active_(memcg), before_(mem_cgroup_account_all(true)) {}
	explicit scope_all(const group &group) noexcept : scope_all(group.get()) {}
	explicit scope_all(const group &&) = delete;
	scope_all(const scope_all &) = delete;
	scope_all &operator=(const scope_all &) = delete;
	~scope_all() { mem_cgroup_account_all(before_); }

private:
	scope active_;
	bool before_;
};

/*
 * account_malloc - mem_cgroup_account_malloc: charge malloc and new of every thread to the active group of the
 * thread; false: stop. At a limit new throws std::bad_alloc after the new handler has given up. Throws
 * std::system_error: EOPNOTSUPP, EBUSY.
 */
inline void account_malloc(bool on = true)
{
	if (int error = mem_cgroup_account_malloc(on))
		throw std::system_error(-error, std::generic_category(), "mem_cgroup_account_malloc");
}

/* ---------------------------------------------------------------- 3. Memory resources */

/*
 * group_resource - the memory of containers is charged to the group, in any thread. Blocks are kmalloc's: up to 2 GiB
 * less one byte, aligned up to a page. A larger block, or a block above the group's limit, is std::bad_alloc. A
 * resource equals itself only: a move to a container with another resource copies, and charges the right group.
 */
class group_resource : public std::pmr::memory_resource {
public:
	explicit group_resource(kmem::group group) noexcept : group_(std::move(group)) {}
	const kmem::group &group() const noexcept { return group_; }

protected:
	void *do_allocate(std::size_t bytes, std::size_t alignment) override
	{
		/* kmalloc aligns a size to its largest power-of-two divisor. */
		std::size_t size = (bytes + alignment - 1) & ~(alignment - 1);
		void *block = nullptr;

		if (size < bytes || alignment > max_alignment)
			throw std::bad_alloc();
		if (size == 0)
			size = alignment;
		if (size <= KMALLOC_MAX_SIZE) {
			block = kmalloc_in(group_.get(), size, GFP_KERNEL | __GFP_NOWARN);
		} else if (size <= INT32_MAX) {
			scope pays(group_);

			block = kvmalloc(size, GFP_KERNEL_ACCOUNT | __GFP_NOWARN);
		}
		if (!block)
			throw std::bad_alloc();
		return block;
	}
	void do_deallocate(void *block, std::size_t, std::size_t) override { kvfree(block); }
	bool do_is_equal(const std::pmr::memory_resource &other) const noexcept override { return this == &other; }

	static constexpr std::size_t max_alignment = 4096;

	kmem::group group_;
};

/*
 * cache_resource - the nodes of a container come from one cache: list, map and unordered_map allocate nodes of one
 * size. A request larger than an object, or with more than `alignment`, goes to `upstream`. `alignment` must be at
 * most the cache's own alignment, ARCH_SLAB_MINALIGN for a cache created with 0. With a group, objects are charged to
 * the group. Without one, objects are charged to the active group if the cache is SLAB_ACCOUNT. The cache must
 * outlive the resource.
 */
class cache_resource : public std::pmr::memory_resource {
public:
	explicit cache_resource(kmem_cache *cache, std::size_t alignment = ARCH_SLAB_MINALIGN,
				std::pmr::memory_resource *upstream = std::pmr::get_default_resource()) noexcept
		: cache_(cache), alignment_(alignment), upstream_(upstream)
	{
	}
	cache_resource(kmem_cache *cache, kmem::group group, std::size_t alignment = ARCH_SLAB_MINALIGN,
		       std::pmr::memory_resource *upstream = std::pmr::get_default_resource()) noexcept
		: cache_(cache), alignment_(alignment), upstream_(upstream), group_(std::move(group))
	{
	}
	kmem_cache *cache() const noexcept { return cache_; }

protected:
	void *do_allocate(std::size_t bytes, std::size_t alignment) override
	{
		if (!fits(bytes, alignment))
			return upstream_->allocate(bytes, alignment);
		void *object = group_ ? kmem_cache_alloc_in(cache_, group_.get(), GFP_KERNEL | __GFP_NOWARN) :
					kmem_cache_alloc(cache_, GFP_KERNEL | __GFP_NOWARN);
		if (!object)
			throw std::bad_alloc();
		return object;
	}
	void do_deallocate(void *block, std::size_t bytes, std::size_t alignment) override
	{
		if (fits(bytes, alignment))
			kmem_cache_free(cache_, block);
		else
			upstream_->deallocate(block, bytes, alignment);
	}
	bool do_is_equal(const std::pmr::memory_resource &other) const noexcept override { return this == &other; }

private:
	bool fits(std::size_t bytes, std::size_t alignment) const noexcept
	{
		return bytes <= size_ && alignment <= alignment_;
	}

	kmem_cache *cache_;
	/*
	 * The values at construction: the objects of a merged cache may grow, and a block must return to its origin.
	 */
	std::size_t size_ = kmem_cache_size(cache_), alignment_;
	std::pmr::memory_resource *upstream_;
	kmem::group group_;
};

/*
 * private_resource - a private group for allocations with a common end: a session, a request, a script. release()
 * frees all memory of the resource. The time depends on slabs, not on objects, and no destructor of an object is
 * called. The destructor of the resource calls release(). Containers in the resource must be destroyed, or never used
 * again, before release().
 */
class private_resource : public group_resource {
public:
	explicit private_resource(const char *name, mem_cgroup *parent = nullptr)
		: group_resource(kmem::group(parent, name, MEM_CGROUP_PRIVATE))
	{
	}
	private_resource(const private_resource &) = delete;
	private_resource &operator=(const private_resource &) = delete;
	~private_resource() override { release(); }

	void release() noexcept { mem_cgroup_destroy_all(group_.get(), nullptr, nullptr); }
	void set_max(std::uint64_t bytes) { group_.set_max(bytes); }
};

} /* namespace kmem */

#endif
