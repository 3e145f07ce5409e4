# A clock that the test moves on.
TEST_LIBS_confined := -Wl,--wrap=clock_gettime
