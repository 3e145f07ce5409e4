# Sizes that overflow, on purpose.
TEST_CFLAGS_tidy/errors := -Wno-alloc-size-larger-than
