# tcmalloc.sh: google/tcmalloc (per-CPU caches, 8 KiB pages) with the part of Abseil that it
# uses, both unpatched.
packages="g++ libc6-dev"
crate="libtcmalloc-sys 0.1.14"

# The package's own list of sources is the list of what belongs together; only its bridge to
# Rust is left out, for tcmalloc.cc itself, which that bridge includes and which overrides
# malloc.
sources() {
	grep -E -o 'c_src/[^"]*\.(cc|S)"' "$(crate_dir)/build.rs" | tr -d '"' | grep -v _bridge
	echo c_src/tcmalloc/tcmalloc/tcmalloc.cc
}

build() {
	here=$(crate_dir)
	flags="g++ -O2 -std=c++17 -w -DNDEBUG -DTCMALLOC_INTERNAL_8K_PAGES"
	flags="$flags -I$here/c_src/abseil-cpp -I$here/c_src/tcmalloc"
	sources | sed "s|^|$here/|" >sources
	# Abseil is far from the fast path, and three quarters of the work: compiled once, for both.
	grep abseil-cpp sources | objects abseil "$flags -fPIC"
	grep -v abseil-cpp sources >own
	objects shared "$flags -fPIC" <own
	objects static "$flags" <own
	g++ -shared shared/*.o abseil/*.o -o lib.so -lpthread -Wl,-z,defs
	# One object for all of its own: nothing refers to the constructor that turns per-CPU caches
	# on, so a linker that picks members from an archive would leave it out.
	ld -r static/*.o -o tcmalloc.o
	ar rcs lib.a tcmalloc.o abseil/*.o
	# A thread has one rseq area. tcmalloc wants it for itself, and falls back to per-thread
	# caches where the C library was first; its documentation says to set this.
	echo GLIBC_TUNABLES=glibc.pthread.rseq=0 >env
	released=$(sed -n "s/^## \[$(crate_version)\].* - //p" "$here/CHANGELOG.md")
	version "$released (in libtcmalloc-sys $(crate_version))"
}
