# All that watches objects is there.
TEST_LIBS_promise/debugged_wild := $(DEBUG_PARTS)
TEST_LIBS_promise/mempool := $(DEBUG_PARTS)
TEST_LIBS_promise/rcu := $(DEBUG_PARTS)
TEST_LIBS_promise/nowait := $(DEBUG_PARTS),-u,kmem_failslab
# Calls that wait are counted.
TEST_LIBS_promise/nested_verbs := -Wl,--wrap=km_os_wait
# A child that waits has failed.
TEST_LIBS_promise/reserved_beside := -Wl,--wrap=km_os_wait
# Bad calls are counted.
TEST_LIBS_promise/gfp_bits := -Wl,--wrap=km_misuse
# More objects than there is memory.
TEST_CFLAGS_promise/caches := -Wno-stringop-overflow
# The tests of malloc are linked with the archive that has malloc; the compiler must not know what malloc does.
MALLOC_TESTS := $(basename $(wildcard tests/promise/malloc_*.c))
$(foreach test,$(MALLOC_TESTS:tests/%=%),$(eval TEST_LIBS_$(test) := $(BUILD)/libkmem-malloc.a))
$(foreach test,$(MALLOC_TESTS:tests/%=%),$(eval TEST_CFLAGS_$(test) := -fno-builtin))
$(MALLOC_TESTS:%=$(BUILD)/%): $(BUILD)/libkmem-malloc.a tests/kit/malloc.h
# All that watches objects is there.
TEST_LIBS_promise/malloc_accounted := $(BUILD)/libkmem-malloc.a $(DEBUG_PARTS)
# Guarded and debugged objects are constructed and resized, too.
TEST_LIBS_promise/malloc_constructors := $(BUILD)/libkmem-malloc.a $(DEBUG_PARTS)
TEST_LIBS_promise/malloc_resized_aligned := $(BUILD)/libkmem-malloc.a $(DEBUG_PARTS)
# Debugging is for malloc as well.
TEST_LIBS_promise/debugged := $(BUILD)/libkmem-malloc.a $(DEBUG_PARTS)
TEST_CFLAGS_promise/debugged := -fno-builtin -Wno-array-bounds -Wno-stringop-overflow -Wno-use-after-free
$(BUILD)/tests/promise/debugged: $(BUILD)/libkmem-malloc.a
TEST_LIBS_promise/debugged_bytes := $(BUILD)/libkmem-malloc.a $(DEBUG_PARTS)
TEST_CFLAGS_promise/debugged_bytes := -fno-builtin -Wno-array-bounds -Wno-stringop-overflow -Wno-use-after-free
$(BUILD)/tests/promise/debugged_bytes: $(BUILD)/libkmem-malloc.a
# Malloc fails on purpose, too; by a function that the dynamic linker knows.
TEST_LIBS_promise/failslab := $(BUILD)/libkmem-malloc.a -rdynamic $(DEBUG_PARTS)
TEST_CFLAGS_promise/failslab := -fno-builtin -Wno-alloc-size-larger-than
$(BUILD)/tests/promise/failslab: $(BUILD)/libkmem-malloc.a
# Guarded objects are of malloc as well.
TEST_LIBS_promise/guarded := $(BUILD)/libkmem-malloc.a $(DEBUG_PARTS)
TEST_CFLAGS_promise/guarded := -fno-builtin -Wno-array-bounds -Wno-stringop-overflow
$(BUILD)/tests/promise/guarded: $(BUILD)/libkmem-malloc.a
# A clock that the test moves on.
TEST_LIBS_promise/nolock_struck := -Wl,--wrap=clock_gettime
TEST_LIBS_promise/fork_struck := -Wl,--wrap=clock_gettime,--wrap=km_os_wait,--wrap=km_os_wake
# Guarded objects are in it.
TEST_LIBS_promise/nodump := $(DEBUG_PARTS)
# Some caches are debugged.
TEST_LIBS_promise/reserved_kinds := $(DEBUG_PARTS)
TEST_LIBS_promise/defragment := $(DEBUG_PARTS)
# Caches are debugged.
TEST_LIBS_promise/bulk_count := $(DEBUG_PARTS)
