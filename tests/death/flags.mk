# The size in front of a block, where engine slob has it.
TEST_CFLAGS_death/slob := -Wno-array-bounds
# Debugging is tried by malloc as well.
TEST_LIBS_death/debug := $(BUILD)/libkmem-malloc.a $(DEBUG_PARTS)
TEST_LIBS_death/debug_threads := $(DEBUG_PARTS)
TEST_CFLAGS_death/debug := -fno-builtin -Wno-array-bounds -Wno-stringop-overflow -Wno-missing-field-initializers
$(BUILD)/tests/death/debug: $(BUILD)/libkmem-malloc.a
# So are guarded objects.
TEST_LIBS_death/guard := $(BUILD)/libkmem-malloc.a $(DEBUG_PARTS)
TEST_CFLAGS_death/guard := -fno-builtin -Wno-array-bounds -Wno-stringop-overflow -Wno-use-after-free
$(BUILD)/tests/death/guard: $(BUILD)/libkmem-malloc.a
# Hardening is tried by malloc as well.
TEST_LIBS_death/hardened := $(BUILD)/libkmem-malloc.a
TEST_CFLAGS_death/hardened := -fno-builtin -Wno-array-bounds -Wno-stringop-overflow
$(BUILD)/tests/death/hardened: $(BUILD)/libkmem-malloc.a
TEST_LIBS_death/usercopy_guarded := $(DEBUG_PARTS)
# Canaries lie behind malloc's blocks as well.
TEST_LIBS_death/malloc_canary := $(BUILD)/libkmem-malloc.a
TEST_CFLAGS_death/malloc_canary := -fno-builtin -Wno-array-bounds -Wno-stringop-overflow
$(BUILD)/tests/death/malloc_canary: $(BUILD)/libkmem-malloc.a
# Sizes are named to malloc, and to C++'s delete.
TEST_LIBS_death/sized := $(BUILD)/libkmem-malloc.a $(DEBUG_PARTS)
TEST_CFLAGS_death/sized := -fno-builtin -Wno-array-bounds -Wno-use-after-free
$(BUILD)/tests/death/sized: $(BUILD)/libkmem-malloc.a
# Two frees of one object are tried by free as well.
TEST_LIBS_death/hardened_struck := $(BUILD)/libkmem-malloc.a
TEST_CFLAGS_death/hardened_struck := -fno-builtin
$(BUILD)/tests/death/hardened_struck: $(BUILD)/libkmem-malloc.a
# Bytes that were asked for are malloc's as well, and debugged.
TEST_LIBS_death/asked_bytes := $(BUILD)/libkmem-malloc.a $(DEBUG_PARTS)
TEST_CFLAGS_death/asked_bytes := -fno-builtin -Wno-array-bounds -Wno-stringop-overflow
$(BUILD)/tests/death/asked_bytes: $(BUILD)/libkmem-malloc.a
# Malloc's blocks are debugged.
TEST_LIBS_death/large_freed := $(BUILD)/libkmem-malloc.a $(DEBUG_PARTS)
TEST_CFLAGS_death/large_freed := -fno-builtin -Wno-use-after-free
$(BUILD)/tests/death/large_freed: $(BUILD)/libkmem-malloc.a
