# Makefile: a front of Meson (meson.build). `make`, `make check`, `make check-full`, `make demo`, `make install PREFIX=`; `make
# libs`, `make examples`; and each file below the build's folder, by its path. V=1 prints the commands. SAN=thread|address|
# undefined builds into build-SAN/, DEBUG=1 adds assertions and checks of lock ranks. CC, CPPFLAGS, CFLAGS, LDFLAGS, LDLIBS
# and OPT are the caller's, from the command line or the environment (scripts/setup, packaging/README.md).
BUILD	:= build$(if $(SAN),-$(SAN))$(if $(DEBUG),-debug)
has	= $(findstring $(1),$(firstword -$(MAKEFLAGS)))
NINJA	= flock $(BUILD)/setup.lock ninja -C $(BUILD) $(if $(V)$(call has,n),-v,$(if $(call has,s),--quiet)) $(if $(call has,n),-n) \
	$(if $(call has,k),-k 0) $(or $(filter-out -j,$(filter -j%,$(MAKEFLAGS))),$(addprefix -j,$(JOBS)))
OWN	:= check check-full check-long clean coverage demo install ninja setup uninstall
GOALS	:= $(filter-out $(OWN),$(or $(MAKECMDGOALS),all))
# GNU's lower-case names of folders count on the command line only: an environment may have a `prefix` of its own.
folder	= $(addprefix -D$(2)=,$(or $($(1)),$(if $(filter command,$(origin $(2))),$($(2)),$(3))))
FOLDERS	= $(call folder,PREFIX,prefix,/usr/local) $(call folder,BINDIR,bindir) $(call folder,LIBDIR,libdir,lib) $(call folder,DATADIR,datadir) \
	$(call folder,INCLUDEDIR,includedir) $(call folder,MANDIR,mandir,$(addsuffix /man,$(patsubst -Ddatadir=%,%,$(call folder,DATADIR,datadir)))) \
	$(call folder,PKGCONFIGDIR,pkgconfigdir) $(call folder,CMAKEDIR,cmakedir)

SHELL	:= /bin/bash -o pipefail
.PHONY: $(OWN) $(sort all $(GOALS))
$(sort all $(GOALS)): ninja ;
ninja: setup
	+@$(NINJA) $(patsubst $(BUILD)/%,%,$(or $(GOALS),all)) $(if $(call has,s),| sed '/^ninja: no work to do/d' >&2)
	@$(if $(filter all,$(GOALS)),$(if $(call has,s),:,echo "built: $(BUILD)/libkmem.{so,a}, libkmem-malloc.{so,a} and kmem; next: make check"),:)
setup:
	+@$(if $(filter examples,$(GOALS)),scripts/need liblua5.4-dev libsqlite3-dev zlib1g-dev pkg-config &&) scripts/setup $(BUILD) $(FOLDERS)
install: ninja
	+meson install -C $(BUILD) --no-rebuild $(if $(call has,s),--quiet) $(if $(call has,n),--dry-run)
	@[ -n "$(DESTDIR)" ] || ! command -v ldconfig >/dev/null || ldconfig 2>/dev/null || echo "now run ldconfig as root, if LIBDIR is among the loader's folders"
uninstall: setup
	packaging/uninstall $(BUILD)
# Packages come first, for Meson looks what there is. CHECK_LONG: hours.
check-long: export CHECK_LONG := 1
check-long: export TEST_TIMEOUT := 20000
check check-full check-long:
	scripts/need -k $$(cat tests/packages-$(if $(filter check,$@),quick,*))
	+@$(MAKE) all $(if $(filter check,$@),$$(BUILD=$(BUILD) tests/run --tier quick --programs),tests $(if $(filter build,$(BUILD)),bench-workers))
	tests/run $(patsubst check-%,--tier %,$(filter-out check-long,$(@:check=check-quick)))
clean:
	rm -rf build build-*
coverage demo:
	scripts/$@
