# The size in front of a block, where engine slob has it.
TEST_CFLAGS_death/slob := -Wno-array-bounds
