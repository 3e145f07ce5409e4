# The program has malloc's sequences, too; the compiler must not know what malloc does.
TEST_LIBS_rseq/abort := $(BUILD)/libkmem-malloc.a $(DEBUG_PARTS)
TEST_CFLAGS_rseq/abort := -fno-builtin
$(BUILD)/tests/rseq/abort: $(BUILD)/libkmem-malloc.a
