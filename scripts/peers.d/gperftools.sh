# gperftools.sh: gperftools' tcmalloc, the build without profilers, as Debian has it.
packages="libtcmalloc-minimal4 libgoogle-perftools-dev"

build() {
	cp -L "$(package_file libtcmalloc-minimal4 'libtcmalloc_minimal\.so\.4')" lib.so
	cp "$(package_file libgoogle-perftools-dev 'libtcmalloc_minimal\.a')" lib.a
	version "$(debian_version libtcmalloc-minimal4) (Debian)"
}
