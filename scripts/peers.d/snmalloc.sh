# snmalloc.sh: snmalloc's preload library and archive, without checks and without a prefix.
packages="g++ cmake make libc6-dev"
crate="snmalloc-sys 0.7.6"

build() {
	snmalloc
}

# snmalloc [DEFINE]: builds with the defines of snmalloc's CMake file for the preload library.
snmalloc() {
	cmake -S "$(crate_dir)/upstream" -B objects \
		-DCMAKE_BUILD_TYPE=Release -DCMAKE_CXX_FLAGS_RELEASE="-O2 -DNDEBUG ${1:-}" \
		-DSNMALLOC_BUILD_TESTING=OFF -DSNMALLOC_STATIC_LIBRARY_PREFIX=
	cmake --build objects -j "$jobs" --target snmallocshim snmallocshim-static
	cp -L objects/libsnmallocshim.so lib.so
	cp objects/libsnmallocshim-static.a lib.a
	version "$(crate_version)"
}
