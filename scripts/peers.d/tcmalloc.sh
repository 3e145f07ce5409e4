# tcmalloc.sh: google/tcmalloc (per-CPU caches, 8 KiB pages) with a part of Abseil, both unpatched.
packages="g++ libc6-dev"
crate="libtcmalloc-sys 0.1.14"

# The package's list of sources is complete. The bridge to Rust is replaced by tcmalloc.cc, because the bridge includes
# this file, and tcmalloc.cc overrides malloc.
sources() {
	grep -E -o 'c_src/[^"]*\.(cc|S)"' "$(crate_dir)/build.rs" | tr -d '"' | grep -v _bridge
	echo c_src/tcmalloc/tcmalloc/tcmalloc.cc
}

build() {
	here=$(crate_dir)
	flags="g++ -O2 -std=c++17 -w -DNDEBUG -DTCMALLOC_INTERNAL_8K_PAGES"
	flags="$flags -I$here/c_src/abseil-cpp -I$here/c_src/tcmalloc"
	sources | sed "s|^|$here/|" >sources
	# Abseil takes three quarters of the build and is far from the fast path: compiled once, for both libraries.
	grep abseil-cpp sources | objects abseil "$flags -fPIC"
	grep -v abseil-cpp sources >own
	objects shared "$flags -fPIC" <own
	objects static "$flags" <own
	g++ -shared shared/*.o abseil/*.o -o lib.so -lpthread -Wl,-z,defs
	# All of tcmalloc is one object, because a linker that selects members of an archive would leave out the
	# constructor of the per-CPU caches.
	ld -r static/*.o -o tcmalloc.o
	ar rcs lib.a tcmalloc.o abseil/*.o
	# A thread has one rseq area. tcmalloc falls back to per-thread caches if the C library registers first;
	# tcmalloc's documentation asks for this setting.
	echo GLIBC_TUNABLES=glibc.pthread.rseq=0 >env
	released=$(sed -n "s/^## \[$(crate_version)\].* - //p" "$here/CHANGELOG.md")
	version "$released (in libtcmalloc-sys $(crate_version))"
}
