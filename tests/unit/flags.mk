$(BUILD)/tests/unit/older_libc: tests/unit/debug_stacks.c
