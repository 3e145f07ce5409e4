# jemalloc.sh: jemalloc by its configure script and makefile, without a prefix on the names.
packages="gcc g++ make libc6-dev"
crate="tikv-jemalloc-sys 0.7.1+5.3.1-0-g81034ce1f1373e37dc865038e1bc8eeecf559ce8"
spare_packages="libjemalloc2 libjemalloc-dev"

# The package has the generated configure script beside the sources, and jemalloc's version in its own version number.
build() {
	released=$(crate_version | sed 's/^[^+]*+//')
	cp -R "$(crate_dir)/jemalloc" source
	cp "$(crate_dir)/configure/configure" source/
	(cd source && sh ./configure --with-version="$released" CFLAGS=-O2 CXXFLAGS=-O2)
	make -C source -j "$jobs" build_lib_shared build_lib_static
	cp -L source/lib/libjemalloc.so.2 lib.so
	cp source/lib/libjemalloc.a lib.a
	version "${released%%-*}"
}

spare() {
	cp -L "$(package_file libjemalloc2 'libjemalloc\.so\.2')" lib.so
	cp "$(package_file libjemalloc-dev 'libjemalloc\.a')" lib.a
	version "$(debian_version libjemalloc2) (Debian)"
}
