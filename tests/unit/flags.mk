# Marks of objects are looked at; a profile is asked for.
TEST_LIBS_unit/debug_stacks := $(DEBUG_PARTS)
TEST_LIBS_unit/mailbox := $(DEBUG_PARTS)
# A line is written, in whose midst another thread goes on.
TEST_LIBS_unit/guarded_left := $(DEBUG_PARTS),--wrap=km_os_write
# What the system says of overcommit.
TEST_LIBS_unit/counted_blocks := -Wl,--wrap=km_os_read
# How much memory the system has, and from which nodes it comes.
TEST_LIBS_unit/big_blocks_refused := -Wl,--wrap=km_os_memory,--wrap=km_os_prefer_nodes
# Objects are guarded, too.
TEST_LIBS_unit/few_mappings := $(DEBUG_PARTS)
# What is debugged for a while.
TEST_LIBS_unit/sibling_empty := $(DEBUG_PARTS)
# Calls of the system that are refused, after the library has started.
TEST_LIBS_unit/os_calls := -Wl,-u,kmem_version -Wl,--wrap=mmap,--wrap=munmap,--wrap=mprotect,--wrap=madvise,--wrap=mremap,--wrap=getrlimit,--wrap=fstat,--wrap=prctl,--wrap=fcntl,--wrap=syscall
# Of whoever is in the midst of a list, and sleeps for it.
TEST_LIBS_unit/rcu_pending := -Wl,--wrap=km_os_wait,--wrap=km_os_wake
TEST_LIBS_unit/mempool_shrinks := $(DEBUG_PARTS),--wrap=km_os_wait
# Where leaks are told of.
TEST_LIBS_unit/large_leaks := $(DEBUG_PARTS)
# The system's calls, as one with larger pages has them.
TEST_LIBS_unit/large_system_pages := -Wl,--wrap=getauxval,--wrap=mmap,--wrap=munmap,--wrap=mprotect,--wrap=madvise,--wrap=mremap
# A system that makes every mapping of huge pages.
TEST_LIBS_unit/always_huge_pages := -Wl,--wrap=mmap
# Which mappings are given a name, whether the kernel shows it or not.
TEST_LIBS_unit/mapping_names := -Wl,--wrap=prctl
TEST_LIBS_unit/core_dumps := -Wl,--wrap=prctl
# How many CPUs the system tells of.
TEST_LIBS_unit/percpu_areas := -Wl,--wrap=km_os_possible_cpus
# Calls that are held until a fork has begun.
TEST_LIBS_unit/fork_waits_for_calls := -Wl,--wrap=madvise,--wrap=munmap,--wrap=km_os_wait
# Waits are counted.
TEST_LIBS_unit/nested_fork_locks := -Wl,--wrap=km_os_wait
TEST_LIBS_unit/meta_given_back := -Wl,--wrap=km_os_purge
# What the kernel says of concurrency ids, and does with them; how many CPUs there are.
TEST_LIBS_unit/areas_by_cid := -Wl,--wrap=km_os_rseq_features,--wrap=km_os_rseq_register,--wrap=km_os_rseq_unregister,--wrap=km_os_possible_cpus
# Malloc's caches are looked into.
TEST_LIBS_unit/malloc_blocks := $(BUILD)/libkmem-malloc.a
TEST_CFLAGS_unit/malloc_blocks := -fno-builtin
$(BUILD)/tests/unit/malloc_blocks: $(BUILD)/libkmem-malloc.a
# Malloc passes the probes, too.
TEST_LIBS_unit/probes := $(BUILD)/libkmem-malloc.a -Wl,-u,km_profiling
TEST_CFLAGS_unit/probes := -fno-builtin -Wno-alloc-size-larger-than
$(BUILD)/tests/unit/probes: $(BUILD)/libkmem-malloc.a
TEST_LIBS_unit/heaptrack_told := $(BUILD)/libkmem-malloc.a -Wl,-u,km_tracing
TEST_CFLAGS_unit/heaptrack_told := -fno-builtin
$(BUILD)/tests/unit/heaptrack_told: $(BUILD)/libkmem-malloc.a
# A sanitizer hears of malloc's blocks, too.
TEST_LIBS_unit/sanitizer_told := $(BUILD)/libkmem-malloc.a $(DEBUG_PARTS)
TEST_CFLAGS_unit/sanitizer_told := -fno-builtin -Wno-use-after-free
$(BUILD)/tests/unit/sanitizer_told: $(BUILD)/libkmem-malloc.a
# Of malloc as well.
TEST_LIBS_unit/profile := $(BUILD)/libkmem-malloc.a $(DEBUG_PARTS) -lm
TEST_CFLAGS_unit/profile := -fno-builtin
$(BUILD)/tests/unit/profile: $(BUILD)/libkmem-malloc.a
# What malloc refuses.
TEST_LIBS_unit/hopeless_requests := $(BUILD)/libkmem-malloc.a
TEST_CFLAGS_unit/hopeless_requests := -fno-builtin -Wno-alloc-size-larger-than
$(BUILD)/tests/unit/hopeless_requests: $(BUILD)/libkmem-malloc.a
# The addresses of malloc's aligned blocks are many.
TEST_LIBS_unit/free_page_records := $(BUILD)/libkmem-malloc.a
TEST_CFLAGS_unit/free_page_records := -fno-builtin
$(BUILD)/tests/unit/free_page_records: $(BUILD)/libkmem-malloc.a
# A size's copies are tried by malloc and new as well.
TEST_LIBS_unit/call_sites := $(BUILD)/libkmem-malloc.a
TEST_CFLAGS_unit/call_sites := -fno-builtin
$(BUILD)/tests/unit/call_sites: $(BUILD)/libkmem-malloc.a
# Blocks that are debugged, and guarded.
TEST_CFLAGS_unit/debugged_blocks := -Wno-use-after-free -Wno-array-bounds -Wno-stringop-overflow
TEST_LIBS_unit/debugged_blocks := $(DEBUG_PARTS)
# Calls of the system that are refused.
TEST_LIBS_unit/filters := -Wl,--wrap=syscall
# Guarded objects.
TEST_CFLAGS_unit/guard_reports := -Wno-use-after-free -Wno-free-nonheap-object
TEST_LIBS_unit/guard_reports := $(DEBUG_PARTS)
# A libc without it.
TEST_LIBS_unit/older_libc := $(DEBUG_PARTS),--wrap=_dl_find_object
$(BUILD)/tests/unit/older_libc: tests/unit/debug_stacks.c
# A cache with hooks.
TEST_CFLAGS_unit/traced := -Wno-use-after-free -Wno-free-nonheap-object
TEST_LIBS_unit/traced := $(DEBUG_PARTS)
# A request from outside is served.
TEST_LIBS_unit/mailbox_waits := $(DEBUG_PARTS)
TEST_LIBS_unit/ways_shut := $(DEBUG_PARTS)
# What a fork waits for.
TEST_LIBS_unit/own_locks_struck := -Wl,--wrap=km_os_wait
# How long a real-time thread lends its priority, and whether the system lets it.
TEST_LIBS_unit/real_time_waiters := -Wl,--wrap=km_os_lend
# Stacks beside objects.
TEST_LIBS_unit/stacks_again := $(DEBUG_PARTS)
