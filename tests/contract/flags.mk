# A clock that the test moves on.
TEST_LIBS_contract/confined := -Wl,--wrap=clock_gettime
# Bad calls are counted.
TEST_LIBS_contract/gfp := -Wl,--wrap=km_misuse
