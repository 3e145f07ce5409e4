# The byte-code is a header of its own.
$(BUILD)/tests/model/model $(BUILD)/tests/model/fuzz: tests/model/machine.h
