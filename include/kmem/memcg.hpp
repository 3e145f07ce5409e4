/*
 * <kmem/memcg.hpp>: who pays, for C++17. A handle of a group, scopes in which a group pays, and
 * std::pmr::memory_resource over a group, a cache and a private group. Nothing but inline code over <kmem/memcg.h>,
 * whose words and limits hold: no exception leaves the library but std::bad_alloc and std::system_error from here.
 *
 *	kmem::account_malloc();				once: malloc and new follow each thread's group
 *	kmem::group tenant("tenant");
 *	tenant.set_max(64 << 20);
 *	{
 *		kmem::scope pays(tenant);
 *		session = new Session;
 *	}
 *	kmem::group_resource memory(tenant);
 *	std::pmr::vector<int> numbers(&memory);	whichever thread grows it: tenant pays
 *
 * Contexts: as the functions beneath; not from a signal handler. A resource may be used by any number of threads at
 * once, as far as a container allows it. A resource holds a reference of its group: a group lives as long as the last
 * handle, scope's caller and resource.
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

/* group - a reference of a mem_cgroup, copied by mem_cgroup_get. An empty one is the default: whoever pays for what no
 * thread has set (set_active_memcg(NULL)). It has no limit and no numbers, and what would change it throws EINVAL. */
class group {
public:
	group() noexcept = default;
	/* A new one below the root, or below `parent`. std::system_error: what mem_cgroup_create says in errno. */
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

	/* of - a handle of a group that C code made: it takes a reference of its own. */
	static group of(mem_cgroup *memcg) noexcept
	{
		group handle;

		handle.memcg_ = mem_cgroup_get(memcg);
		return handle;
	}
	/* active - the group that is active in this thread; empty where nothing was set. */
	static group active() noexcept { return of(mem_cgroup_active()); }

	mem_cgroup *get() const noexcept { return memcg_; }
	explicit operator bool() const noexcept { return memcg_ != nullptr; }
	friend bool operator==(const group &a, const group &b) noexcept { return a.memcg_ == b.memcg_; }
	friend bool operator!=(const group &a, const group &b) noexcept { return a.memcg_ != b.memcg_; }

	/* Bytes. std::system_error: EINVAL, ENOENT as mem_cgroup_set_max. */
	void set_max(std::uint64_t bytes) { set(mem_cgroup_set_max, bytes, "mem_cgroup_set_max"); }
	void set_high(std::uint64_t bytes) { set(mem_cgroup_set_high, bytes, "mem_cgroup_set_high"); }
	void set_low(std::uint64_t bytes) { set(mem_cgroup_set_low, bytes, "mem_cgroup_set_low"); }
	void set_min(std::uint64_t bytes) { set(mem_cgroup_set_min, bytes, "mem_cgroup_set_min"); }
	std::uint64_t max() const noexcept { return memcg_ ? mem_cgroup_max(memcg_) : MEMCG_NO_LIMIT; }
	std::uint64_t current() const noexcept { return memcg_ ? mem_cgroup_current(memcg_) : 0; }
	std::uint64_t peak() const noexcept { return memcg_ ? mem_cgroup_peak(memcg_) : 0; }
	const char *name() const noexcept { return memcg_ ? mem_cgroup_name(memcg_) : ""; }
	/* offline - close it; what is charged to it is its parent's. std::system_error: EBUSY, ENOENT. */
	void offline() { check(memcg_ ? mem_cgroup_offline(memcg_) : -EINVAL, "mem_cgroup_offline"); }
	/* drain - take back what lies charged and unused; the bytes. */
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

/* scope - MEMCG_SCOPE: the group is active in this thread until the end of the block, by return and by exception. It
 * takes no reference: the group outlives it. Scopes nest; a scope ends in the thread that began it (not for a
 * coroutine that another thread resumes). */
class scope {
public:
	explicit scope(mem_cgroup *memcg) noexcept : before_(set_active_memcg(memcg)) {}
	explicit scope(const group &group) noexcept : scope(group.get()) {}
	/* A temporary's reference ends before the block does. */
	explicit scope(const group &&) = delete;
	scope(const scope &) = delete;
	scope &operator=(const scope &) = delete;
	~scope() { set_active_memcg(before_); }

private:
	mem_cgroup *before_;
};

/* scope_all - MEMCG_SCOPE_ALL: and all that this thread allocates is accounted, kmalloc and every cache included.
 * mem_cgroup_account_all says what the first one costs; for malloc and new alone account_malloc is the cheap way. */
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
 * account_malloc - mem_cgroup_account_malloc: from now on malloc and new of every thread are charged to the group that it
 * has active; false: not any more. At a limit new throws std::bad_alloc, once the new handler has given up.
 * std::system_error: EOPNOTSUPP, EBUSY.
 */
inline void account_malloc(bool on = true)
{
	if (int error = mem_cgroup_account_malloc(on))
		throw std::system_error(-error, std::generic_category(), "mem_cgroup_account_malloc");
}

/* ---------------------------------------------------------------- 3. Memory resources */

/*
 * group_resource - the group pays for what containers take, whichever thread they are in. Blocks are kmalloc's: up to 2
 * GiB less one byte, aligned up to a page; what is larger, or over the group's limit, is std::bad_alloc. A
 * resource equals itself only: a container that is moved to another one copies, so that the right group pays.
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
 * cache_resource - nodes of a container from one cache: list, map and unordered_map take nodes of one size. What does
 * not fit an object, or wants more than `alignment`, goes to `upstream`: `alignment` is at most the cache's own, and
 * ARCH_SLAB_MINALIGN where that was created with 0. With a group, that pays; without one, who is active, if the cache
 * is SLAB_ACCOUNT. The cache outlives the resource.
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
	/* As it was: a cache that is merged with another one may grow, and a block goes back to where it came from. */
	std::size_t size_ = kmem_cache_size(cache_), alignment_;
	std::pmr::memory_resource *upstream_;
	kmem::group group_;
};

/*
 * private_resource - a private group of its own, for what ends at once: a session, a request, a script. release() frees
 * all that was taken from it, in time that goes by slabs and not by objects; no destructor of an object is called. The
 * end of the resource does the same. Containers over it are gone, or never used again, before release().
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
