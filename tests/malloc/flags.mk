# The tests of malloc are linked with the archive that has malloc; the compiler must not know what malloc does.
MALLOC_TESTS := $(basename $(wildcard tests/malloc/*.c))
$(foreach test,$(MALLOC_TESTS:tests/%=%),$(eval TEST_LIBS_$(test) := $(BUILD)/libkmem-malloc.a))
$(foreach test,$(MALLOC_TESTS:tests/%=%),$(eval TEST_CFLAGS_$(test) := -fno-builtin))
$(MALLOC_TESTS:%=$(BUILD)/%): $(BUILD)/libkmem-malloc.a tests/malloc/check.h
