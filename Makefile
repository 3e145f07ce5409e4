# Makefile: builds everything into build/. `make`, `make check`, `make demo`, `make install PREFIX=`.
# SAN=thread|address|undefined builds into build-SAN/ (discipline lock); DEBUG=1 adds assertions and rank checks.

CC	?= gcc
VERSION	:= 0.1.0
SAN	?=
DEBUG	?=
PREFIX	?= /usr/local
DESTDIR	?=
ARCH	:= $(shell $(CC) -dumpmachine | cut -d- -f1)

BUILD	:= build$(if $(SAN),-$(SAN))$(if $(DEBUG),-debug)
OPT	?= -O2 -g
WARN	:= -Wall -Wextra -Wno-unused-parameter
ARCHFLAGS := $(if $(filter x86_64,$(ARCH)),-mcx16)
CFLAGS	+= -std=gnu17 $(OPT) $(WARN) $(ARCHFLAGS) $(if $(SAN),-fsanitize=$(SAN)) $(if $(DEBUG),-DKM_DEBUG)
LIBFLAGS := -fvisibility=hidden -ftls-model=initial-exec -fno-semantic-interposition -fno-builtin-malloc
CPPFLAGS += -Iinclude
LDLIBS	+= -lpthread

SRC	:= $(filter-out src/edge/malloc%,$(wildcard src/*/*.c))
MALLOC	:= $(wildcard src/edge/malloc*.c)
OBJ	:= $(SRC:%.c=$(BUILD)/obj/%.o)
MALLOC_OBJ := $(MALLOC:%.c=$(BUILD)/obj/%.o)
LIBS	:= $(BUILD)/libkmem.so $(BUILD)/libkmem.a $(if $(MALLOC),$(BUILD)/libkmem-malloc.so $(BUILD)/libkmem-malloc.a)

.DEFAULT_GOAL := all
.PHONY: all libs demo install clean

all: libs $(BUILD)/kmem $(BUILD)/kmem.pc
libs: $(LIBS)

# The archives hold the same objects as the libraries: position-independent, so that they go into a shared object of somebody's.
# All data between files is hidden (km_hidden), which is why this costs the hits nothing.
$(BUILD)/obj/%.o: %.c Makefile
	@mkdir -p $(@D)
	$(CC) $(CPPFLAGS) $(CFLAGS) $(LIBFLAGS) -fPIC -MMD -MP -c $< -o $@

# Never unloaded: descriptors of sequences and thread areas must outlive every thread.
LINK = $(CC) $(CFLAGS) -shared -Wl,-z,nodelete -Wl,-z,relro -Wl,-z,now -Wl,-soname,$(notdir $@) -Wl,--version-script
$(BUILD)/libkmem.so: $(OBJ) src/libkmem.map
	$(LINK)=src/libkmem.map -o $@ $(OBJ) $(LDLIBS)
$(BUILD)/libkmem-malloc.so: $(OBJ) $(MALLOC_OBJ) src/libkmem.map
	$(LINK)=src/libkmem.map -o $@ $(OBJ) $(MALLOC_OBJ) $(LDLIBS)
$(BUILD)/libkmem.a: $(OBJ)
	@rm -f $@
	$(AR) rcs $@ $^
$(BUILD)/libkmem-malloc.a: $(OBJ) $(MALLOC_OBJ)
	@rm -f $@
	$(AR) rcs $@ $^

TOOLS	:= $(wildcard tools/*.c)
TOOL_OBJ := $(TOOLS:%.c=$(BUILD)/tools/%.o)
$(BUILD)/tools/%.o: %.c Makefile
	@mkdir -p $(@D)
	$(CC) $(CPPFLAGS) -Isrc -Ibench $(CFLAGS) -MMD -MP -c $< -o $@
$(BUILD)/kmem: $(TOOL_OBJ) $(BUILD)/libkmem.a
	$(CC) $(CFLAGS) -o $@ $(TOOL_OBJ) $(BUILD)/libkmem.a -lm

$(BUILD)/kmem.pc: scripts/kmem.pc.in Makefile
	@mkdir -p $(@D)
	sed -e 's|@PREFIX@|$(PREFIX)|;s|@VERSION@|$(VERSION)|' $< > $@

-include bench/bench.mk
-include examples/examples.mk
-include tests/tests.mk

install: all
	install -d $(DESTDIR)$(PREFIX)/include/kmem $(DESTDIR)$(PREFIX)/lib/pkgconfig $(DESTDIR)$(PREFIX)/bin $(DESTDIR)$(PREFIX)/share/man/man1 $(DESTDIR)$(PREFIX)/share/man/man3 $(DESTDIR)$(PREFIX)/share/man/man7
	install -m 644 include/kmem/*.h $(DESTDIR)$(PREFIX)/include/kmem/
	install -m 755 $(filter %.so,$(LIBS)) $(DESTDIR)$(PREFIX)/lib/
	install -m 644 $(filter %.a,$(LIBS)) $(DESTDIR)$(PREFIX)/lib/
	sed -e 's|@PREFIX@|$(PREFIX)|;s|@VERSION@|$(VERSION)|' scripts/kmem.pc.in > $(DESTDIR)$(PREFIX)/lib/pkgconfig/kmem.pc
	install -m 755 $(BUILD)/kmem $(DESTDIR)$(PREFIX)/bin/
	for section in 1 3 7; do for page in docs/man/*.$$section; do [ -f $$page ] && install -m 644 $$page $(DESTDIR)$(PREFIX)/share/man/man$$section/; done; done; true

clean:
	rm -rf build build-*

demo:
	scripts/demo

-include $(OBJ:.o=.d) $(MALLOC_OBJ:.o=.d) $(TOOL_OBJ:.o=.d)
