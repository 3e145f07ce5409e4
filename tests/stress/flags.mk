# Malloc is the archive's; the compiler must not know what it does.
TEST_LIBS_stress/malloc_accounted := $(BUILD)/libkmem-malloc.a
TEST_CFLAGS_stress/malloc_accounted := -fno-builtin -Wno-use-after-free
$(BUILD)/tests/stress/malloc_accounted: $(BUILD)/libkmem-malloc.a tests/kit/malloc.h
# Requests are served.
TEST_LIBS_stress/asked := $(DEBUG_PARTS)
# Guarded objects are in it.
TEST_LIBS_stress/raced := $(DEBUG_PARTS)
