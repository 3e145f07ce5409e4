# A clock that the test moves on.
TEST_LIBS_contract/confined := -Wl,--wrap=clock_gettime
# Bad calls are counted.
TEST_LIBS_contract/gfp := -Wl,--wrap=km_misuse
# More objects than there is memory; the size in front of a block, where engine slob has it.
TEST_CFLAGS_contract/caches := -Wno-stringop-overflow
TEST_CFLAGS_contract/slob := -Wno-array-bounds
