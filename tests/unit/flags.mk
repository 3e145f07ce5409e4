# The system's calls, as one with larger pages has them.
TEST_LIBS_unit/system_pages := -Wl,--wrap=getauxval,--wrap=mmap,--wrap=munmap,--wrap=mprotect,--wrap=madvise,--wrap=mremap
# A system that makes every mapping of huge pages.
TEST_LIBS_unit/always_huge := -Wl,--wrap=mmap
# A clock that the test moves on.
TEST_LIBS_unit/looks := -Wl,--wrap=clock_gettime
TEST_LIBS_unit/rounds := -Wl,--wrap=clock_gettime
TEST_LIBS_unit/left_cpus := -Wl,--wrap=clock_gettime
# Which mappings are given a name, whether the kernel shows it or not.
TEST_LIBS_unit/names := -Wl,--wrap=prctl
TEST_LIBS_unit/dumps := -Wl,--wrap=prctl
# Calls that are counted.
TEST_LIBS_unit/many_private := -Wl,--wrap=kmem_cache_get_stats,--wrap=km_meta_alloc,--wrap=km_pages_walk
# Memory that is refused.
TEST_LIBS_unit/owner_words := -Wl,--wrap=km_meta_alloc
# How many CPUs the system tells of.
TEST_LIBS_unit/areas := -Wl,--wrap=km_os_possible_cpus
# What is counted, and refused.
TEST_LIBS_unit/handed_on := -Wl,--wrap=km_os_barrier,--wrap=km_registry_lock,--wrap=km_registry_unlock,--wrap=km_slab_free
# Calls that are held until a fork has begun.
TEST_LIBS_unit/fork_hands := -Wl,--wrap=madvise,--wrap=munmap
TEST_LIBS_unit/meta_back := -Wl,--wrap=km_os_purge
# What the kernel says of concurrency ids, and does with them; how many CPUs there are.
TEST_LIBS_unit/by_cid := -Wl,--wrap=km_os_rseq_features,--wrap=km_os_rseq_register,--wrap=km_os_rseq_unregister,--wrap=km_os_possible_cpus
