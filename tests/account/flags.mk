# Calls that are counted.
TEST_LIBS_account/many_private_groups := -Wl,--wrap=kmem_cache_get_stats,--wrap=km_meta_alloc,--wrap=km_pages_walk
# Memory that is refused.
TEST_LIBS_account/owner_words := -Wl,--wrap=km_meta_alloc
TEST_LIBS_account/many_slabs := -Wl,--wrap=km_meta_alloc
# What is counted, and refused.
TEST_LIBS_account/handed_on_twins := -Wl,--wrap=km_os_barrier,--wrap=km_registry_lock,--wrap=km_registry_unlock,--wrap=km_slab_free
# Where a handler strikes.
TEST_LIBS_account/private_groups_interrupted := -Wl,--wrap=kmem_cache_alloc,--wrap=km_objcg_charge
TEST_LIBS_account/forked_in_calls := -Wl,--wrap=km_memcg_could_give
# Blocks are debugged.
TEST_LIBS_account/kept_blocks := $(DEBUG_PARTS)
TEST_CFLAGS_account/kept_blocks := -Wno-use-after-free
# Where a group goes offline.
TEST_LIBS_account/offline_meanwhile := -Wl,--wrap=km_counter_spare,--wrap=km_counter_try_charge,--wrap=km_counter_would_refuse,--wrap=km_counter_charge,--wrap=km_counter_uncharge,--wrap=km_stock_put,--wrap=km_stock_empty
# Where a grace period ends.
TEST_LIBS_account/waits_for_grace := -Wl,--wrap=km_os_wait
# Where a group's words are given back.
TEST_LIBS_account/stat_meanwhile := -Wl,--wrap=km_percpu_free
# Looks that are counted.
TEST_LIBS_account/refused_looks := -Wl,--wrap=km_owned_owner_cpu,--wrap=kmem_cache_get_stats
