# glibc.sh: the system's malloc. Without a build: the recipe records the version.
library=no

build() {
	version "$(getconf GNU_LIBC_VERSION | sed 's/.* //')"
}
