# The byte-code is a header of its own.
$(BUILD)/tests/model/model $(BUILD)/tests/fuzz/fuzz: tests/model/machine.h
