# glibc.sh: the system's malloc; nothing to build, its version stands beside the others'.
library=no

build() {
	version "$(getconf GNU_LIBC_VERSION | sed 's/.* //')"
}
