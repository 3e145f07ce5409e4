# The tests of malloc are linked with the archive that has malloc; the compiler must not know what malloc does.
MALLOC_TESTS := $(basename $(notdir $(wildcard tests/malloc/*.c)))
$(foreach name,$(MALLOC_TESTS),$(eval TEST_LIBS_$(name) := $(BUILD)/libkmem-malloc.a))
$(foreach name,$(MALLOC_TESTS),$(eval TEST_CFLAGS_$(name) := -fno-builtin))
$(MALLOC_TESTS:%=$(BUILD)/tests/malloc/%): $(BUILD)/libkmem-malloc.a tests/malloc/check.h
