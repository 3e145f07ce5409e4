# Sizes that overflow, on purpose.
TEST_CFLAGS_docs/errors := -Wno-alloc-size-larger-than
