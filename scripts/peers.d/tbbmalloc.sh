# tbbmalloc.sh: oneTBB's scalable allocator behind its malloc proxy, as Debian has it; there
# is no archive of it.
packages="libtbbmalloc2"

build() {
	cp -L "$(package_file libtbbmalloc2 'libtbbmalloc_proxy\.so\.2')" lib.so
	version "$(debian_version libtbbmalloc2) (Debian)"
}
