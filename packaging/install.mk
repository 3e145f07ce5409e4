# install.mk: installs and removes all files. Included by the root Makefile. PREFIX and the folders below PREFIX are the
# caller's, from the command line or the environment; DESTDIR precedes all of them while a package is made. Each
# installed file is in one list, and `make uninstall` removes the files of the list, and no others.

# GNU's lower-case name for a folder, if set on the command line, else the default: an environment may have a `prefix`
# of its own.
named	= $(if $(filter command,$(origin $(1))),$($(1)),$(2))

PREFIX	?= $(call named,prefix,/usr/local)
BINDIR	?= $(call named,bindir,$(PREFIX)/bin)
LIBDIR	?= $(call named,libdir,$(PREFIX)/lib)
INCLUDEDIR ?= $(call named,includedir,$(PREFIX)/include)
DATADIR	?= $(call named,datadir,$(PREFIX)/share)
MANDIR	?= $(call named,mandir,$(DATADIR)/man)
PKGCONFIGDIR ?= $(LIBDIR)/pkgconfig
CMAKEDIR ?= $(LIBDIR)/cmake/kmem
DESTDIR	?=

# libkmem.so -> libkmem.so.0 -> libkmem.so.0.1.0: for the linker, for programs, the file.
REAL	:= $(SOVERSION).$(shell echo $(VERSION) | cut -d. -f2-)
SHARED_LIBS := $(notdir $(filter %.so,$(LIBS)))
ARCHIVES := $(notdir $(filter %.a,$(LIBS)))
HEADERS	:= $(notdir $(sort $(wildcard include/kmem/*.h include/kmem/*.hpp)))
PAGES	:= $(notdir $(sort $(wildcard docs/man/*.[1-8])))
DRIVER	:= $(notdir $(sort $(wildcard bench/driver/*.py)))
PCS	:= kmem.pc kmem-malloc.pc $(if $(LIBURCU),kmem-rcu.pc)
CMAKES	:= kmemConfig.cmake kmemConfigVersion.cmake

INSTALLED = $(SHARED_LIBS:%=$(LIBDIR)/%) $(SHARED_LIBS:%=$(LIBDIR)/%.$(SOVERSION)) $(SHARED_LIBS:%=$(LIBDIR)/%.$(REAL)) \
	$(ARCHIVES:%=$(LIBDIR)/%) $(HEADERS:%=$(INCLUDEDIR)/kmem/%) $(BINDIR)/kmem $(DRIVER:%=$(DATADIR)/kmem/driver/%) $(DATADIR)/kmem/gdb.py $(PCS:%=$(PKGCONFIGDIR)/%) $(CMAKES:%=$(CMAKEDIR)/%) \
	$(foreach page,$(PAGES),$(MANDIR)/man$(subst .,,$(suffix $(page)))/$(page))

FILL = sed -e 's|@PREFIX@|$(PREFIX)|g' -e 's|@PC_LIBDIR@|$(LIBDIR:$(PREFIX)/%=$${prefix}/%)|g' \
	-e 's|@PC_INCLUDEDIR@|$(INCLUDEDIR:$(PREFIX)/%=$${prefix}/%)|g' -e 's|@LIBDIR@|$(LIBDIR)|g' -e 's|@INCLUDEDIR@|$(INCLUDEDIR)|g' -e 's|@VERSION@|$(VERSION)|g' \
	-e 's|@SOVERSION@|$(SOVERSION)|g' -e 's|@REAL@|$(REAL)|g' \
	-e 's|@PARTS@|$(notdir $(patsubst %/,%,$(sort $(wildcard engines/*/ ext/*/)))) memcg$(if $(MALLOC), malloc)|g'

.PHONY: install uninstall always
# The places of `kmem run`'s library, and of `kmem bench`'s driver. Written anew only on a change, so that an
# installation into other folders than the build's gets a command with the right folders.
$(BUILD)/paths.h: always
	@mkdir -p $(@D)
	@printf '#define KMEM_BINDIR "%s"\n#define KMEM_LIBDIR "%s"\n#define KMEM_DATADIR "%s"\n#define KMEM_SOVERSION "%s"\n' '$(BINDIR)' '$(LIBDIR)' '$(DATADIR)' \
		'$(SOVERSION)' >$@.new
	@if cmp -s $@.new $@; then rm $@.new; else mv $@.new $@; fi
$(BUILD)/obj/tools/kmem/cmd_run.o $(BUILD)/obj/tools/kmem/cmd_bench.o: $(BUILD)/paths.h

install: all
	install -d $(sort $(addprefix $(DESTDIR),$(dir $(INSTALLED))))
	set -e; for lib in $(SHARED_LIBS); do \
		install -m 755 $(BUILD)/$$lib $(DESTDIR)$(LIBDIR)/$$lib.$(REAL); \
		ln -sfn $$lib.$(REAL) $(DESTDIR)$(LIBDIR)/$$lib.$(SOVERSION); \
		ln -sfn $$lib.$(SOVERSION) $(DESTDIR)$(LIBDIR)/$$lib; done
	install -m 644 $(ARCHIVES:%=$(BUILD)/%) $(DESTDIR)$(LIBDIR)/
	install -m 644 $(HEADERS:%=include/kmem/%) $(DESTDIR)$(INCLUDEDIR)/kmem/
	install -m 755 $(BUILD)/kmem $(DESTDIR)$(BINDIR)/
	install -m 644 $(DRIVER:%=bench/driver/%) $(DESTDIR)$(DATADIR)/kmem/driver/
	install -m 644 tools/kmem/gdb.py $(DESTDIR)$(DATADIR)/kmem/gdb.py
	set -e; umask 022; for pc in $(PCS); do $(FILL) packaging/$$pc.in >$(DESTDIR)$(PKGCONFIGDIR)/$$pc; done
	set -e; umask 022; for cmake in $(CMAKES); do $(FILL) packaging/$$cmake.in >$(DESTDIR)$(CMAKEDIR)/$$cmake; done
	set -e; for page in $(PAGES); do install -m 644 docs/man/$$page $(DESTDIR)$(MANDIR)/man$${page##*.}/; done
	@# The dynamic loader's list of libraries; a package has that done where it is unpacked.
	@[ -n "$(DESTDIR)" ] || ! command -v ldconfig >/dev/null || ldconfig 2>/dev/null || \
		echo "now run ldconfig as root, if $(LIBDIR) is among the dynamic loader's folders"

uninstall:
	rm -f $(addprefix $(DESTDIR),$(INSTALLED))
	@rmdir $(DESTDIR)$(INCLUDEDIR)/kmem $(DESTDIR)$(CMAKEDIR) $(DESTDIR)$(DATADIR)/kmem/driver $(DESTDIR)$(DATADIR)/kmem 2>/dev/null || :
	@[ -n "$(DESTDIR)" ] || ! command -v ldconfig >/dev/null || ldconfig 2>/dev/null || :
