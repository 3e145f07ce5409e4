# Makefile: builds everything into build/. `make`, `make check`, `make check-full`, `make demo`, `make install PREFIX=`.
# SAN=thread|address|undefined builds into build-SAN/ (discipline lock); DEBUG=1 adds assertions and rank checks. CC,
# CPPFLAGS, CFLAGS, LDFLAGS, LDLIBS and OPT are the caller's, from the command line or the environment: CFLAGS follow
# the library's required flags, and add to them. Places of installed files: packaging/install.mk.

CC	?= gcc
VERSION	:= $(shell sed -n 's/^.define KMEM_VERSION "\(.*\)"/\1/p' include/kmem/kmem.h)
# The number in the soname is the inline header's, because programs contain the header's code.
SOVERSION := $(shell sed -n 's/^.define KMEM_INLINE_ABI //p' include/kmem/inline.h)
SAN	?=
DEBUG	?=
ARCH	:= $(shell $(CC) -dumpmachine | cut -d- -f1)

BUILD	:= build$(if $(SAN),-$(SAN))$(if $(DEBUG),-debug)
OPT	?= -O2 -g
WARN	:= -Wall -Wextra -Wno-unused-parameter
ARCHFLAGS := $(if $(filter x86_64,$(ARCH)),-mcx16)
# Hits are assembly that names tables of its file, and the place of code depends on the names of object files
# (src/rare.ld). Link-time optimisation keeps neither: -flto is for programs, and for the command. And no function
# begins with an instruction for indirect branches (endbr64): hits fill their lines of code, and Linux does not track
# such branches. Shadow stacks are kept ("none" comes first: from gcc 14 on the option adds to former ones).
LIBFLAGS := -iquote src -iquote . -DKMEM_BARE -fvisibility=hidden -ftls-model=initial-exec -fno-semantic-interposition -fno-builtin-malloc -fno-lto \
	$(if $(filter x86_64,$(ARCH)),-fcf-protection=none -fcf-protection=return)
# Debug information names the sources from the root of the tree on: a build is the same in every folder.
SAME	:= -ffile-prefix-map=$(CURDIR)=.
ALL_CFLAGS = -std=gnu17 $(OPT) $(WARN) $(ARCHFLAGS) $(if $(SAN),-fsanitize=$(SAN)) $(if $(DEBUG),-DKM_DEBUG) $(CFLAGS)
ALL_CPPFLAGS = -Iinclude $(CPPFLAGS) $(KERNEL_HEADERS)
ALL_LDLIBS = $(LDLIBS) -lpthread

# musl-gcc hides /usr/include with the kernel's headers: only the kernel's headers follow musl's own.
ifneq ($(findstring musl-gcc,$(CC)),)
KERNEL_HEADERS = -idirafter $(BUILD)/headers
$(shell mkdir -p $(BUILD)/headers && cd $(BUILD)/headers && for folder in linux asm-generic $(ARCH)-linux-gnu/asm asm; do \
	[ ! -d /usr/include/$$folder ] || ln -sfn /usr/include/$$folder $${folder##*/}; done)
endif

# The order of a wildcard depends on the locale; `sort` compares bytes.
SOURCES	:= $(sort $(wildcard src/*/*.c engines/*.c engines/*/*.c ext/*/*.c))
SRC	:= $(filter-out src/malloc/% src/process/%,$(SOURCES))
# Functions in the place of libc's: only in libkmem-malloc.
MALLOC	:= $(filter src/malloc/%,$(SOURCES))
PROCESS	:= $(filter src/process/%,$(SOURCES))
OBJ	:= $(SRC:%.c=$(BUILD)/obj/%.o)
MALLOC_OBJ := $(MALLOC:%.c=$(BUILD)/obj/%.o)
PROCESS_OBJ := $(PROCESS:%.c=$(BUILD)/obj/%.o)
LIBS	:= $(BUILD)/libkmem.so $(BUILD)/libkmem.a $(if $(MALLOC),$(BUILD)/libkmem-malloc.so $(BUILD)/libkmem-malloc.a)

.DEFAULT_GOAL := all
.PHONY: all libs demo clean
include rcu/rcu.mk

all: libs $(BUILD)/kmem
libs: $(LIBS)

# The archives hold the same objects as the libraries: position-independent, for use in a program's shared object. All
# data between files is hidden (km_hidden), so that this costs the hits nothing.
$(BUILD)/obj/%.o: %.c Makefile
	@mkdir -p $(@D)
	$(CC) $(ALL_CPPFLAGS) $(ALL_CFLAGS) $(LIBFLAGS) $(SAME) $(if $(filter src/% engines/% ext/%,$<),$(COUNTED)) -fPIC -MMD -MP -c $< -o $@

# Never unloaded: descriptors of sequences and thread areas must outlive every thread. A program linked with the library
# looks for its soname, here as in the installed place. There is no _fini, because an empty _fini would be the last code
# of all.
RARE	= $(shell $(CC) $(LDFLAGS) -shared -Wl,-T,src/rare.ld -x c /dev/null -o /dev/null 2>/dev/null && echo -Wl,-T,src/rare.ld)
LINK = $(CC) $(ALL_CFLAGS) -fno-lto $(LDFLAGS) -shared -Wl,-z,nodelete -Wl,-z,relro -Wl,-z,now -Wl,-soname,$(@F).$(SOVERSION) \
	-Wl,--version-script=src/libkmem.map -Wl,-fini=km_no_fini \
	-Wl,-z,max-page-size=65536 $(RARE)
$(BUILD)/libkmem.so: $(OBJ) src/rare.ld src/libkmem.map include/kmem/inline.h
	$(LINK) -o $@ $(OBJ) $(ALL_LDLIBS)
	@ln -sfn $(@F) $@.$(SOVERSION)
$(BUILD)/libkmem-malloc.so: $(OBJ) $(MALLOC_OBJ) $(PROCESS_OBJ) src/rare.ld src/libkmem.map include/kmem/inline.h
	$(LINK) -o $@ $(OBJ) $(MALLOC_OBJ) $(PROCESS_OBJ) $(ALL_LDLIBS)
	@ln -sfn $(@F) $@.$(SOVERSION)
# Each program has boot.o, and by entry.o, joined to boot.o, all parts (src/parts/all_parts.c).
ENTRY	:= $(BUILD)/obj/src/cache/boot.o $(BUILD)/obj/src/parts/entry.o
IN_ARCHIVE := $(patsubst $(firstword $(ENTRY)),$(BUILD)/obj/entry.o,$(filter-out $(lastword $(ENTRY)),$(OBJ)))
$(BUILD)/obj/entry.o: $(ENTRY)
	$(CC) -r -nostdlib -o $@ $^
$(BUILD)/libkmem.a: $(IN_ARCHIVE)
	@rm -f $@
	$(AR) rcs $@ $^
$(BUILD)/libkmem-malloc.a: $(IN_ARCHIVE) $(filter-out %/malloc_dlopen.o,$(MALLOC_OBJ)) $(PROCESS_OBJ)
	@rm -f $@
	$(AR) rcs $@ $^

# libsmartcols lays out what `kmem info` prints as tables. Where this compiler finds none, the command does without them.
SMARTCOLS := $(and $(filter /%,$(shell $(CC) -print-file-name=libsmartcols.so)),$(shell \
	$(CC) -E -include libsmartcols/libsmartcols.h -x c /dev/null >/dev/null 2>&1 && echo -lsmartcols))
# elfutils' libdw knows more of functions than the tables of symbols in their files.
LIBDW	:= $(and $(filter /%,$(shell $(CC) -print-file-name=libdw.so)),$(shell \
	$(CC) -E -include elfutils/libdwfl.h -x c /dev/null >/dev/null 2>&1 && echo -ldw))
# The screen of `kmem top` uses ncurses. Without ncurses for this compiler, the command prints the
# screen once.
NCURSES	:= $(and $(filter /%,$(shell $(CC) -print-file-name=libncursesw.so)),$(shell \
	$(CC) -E -include curses.h -include term.h -x c /dev/null >/dev/null 2>&1 && echo -lncursesw $(if $(filter /%,$(shell $(CC) -print-file-name=libtinfo.so)),-ltinfo)))
# libfuse3 mounts the files of `kmem fs`. Without libfuse3 for this compiler, the command copies the files
# into a folder.
FUSE	:= $(and $(filter /%,$(shell $(CC) -print-file-name=libfuse3.so)),$(shell \
	$(CC) -E -D_FILE_OFFSET_BITS=64 -DFUSE_USE_VERSION=31 -include fuse3/fuse.h -x c /dev/null >/dev/null 2>&1 && echo -lfuse3))
COMMAND	:= $(filter-out tools/kmem/info/table$(if $(SMARTCOLS),_none).c tools/kmem/function_names_$(if $(LIBDW),elf,dw).c tools/kmem/top/top_screen$(if $(NCURSES),_none).c \
	tools/kmem/fs/fs_mount$(if $(FUSE),_none).c,$(sort $(wildcard tools/kmem/*.c tools/kmem/*/*.c)))
COMMAND_OBJ := $(COMMAND:%.c=$(BUILD)/obj/%.o)
$(BUILD)/obj/tools/kmem/%.o: tools/kmem/%.c Makefile
	@mkdir -p $(@D)
	$(CC) $(ALL_CPPFLAGS) -Isrc -iquote . -Itools/kmem -I$(BUILD) $(ALL_CFLAGS) $(SAME) -MMD -MP -c $< -o $@
$(BUILD)/kmem: $(COMMAND_OBJ) $(BUILD)/libkmem.a
	$(CC) $(ALL_CFLAGS) $(LDFLAGS) -o $@ $(COMMAND_OBJ) $(SMARTCOLS) $(LIBDW) $(NCURSES) $(FUSE) $(BUILD)/libkmem.a -lm -lrt $(LDLIBS)

include packaging/install.mk
-include bench/bench.mk
-include examples/examples.mk
-include tests/tests.mk

clean:
	rm -rf build build-*

demo:
	scripts/demo

-include $(OBJ:.o=.d) $(MALLOC_OBJ:.o=.d) $(PROCESS_OBJ:.o=.d) $(COMMAND_OBJ:.o=.d)
