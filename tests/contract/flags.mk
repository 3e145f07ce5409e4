# A clock that the test moves on.
TEST_LIBS_confined := -Wl,--wrap=clock_gettime
# Bad calls are counted.
TEST_LIBS_gfp := -Wl,--wrap=km_misuse
