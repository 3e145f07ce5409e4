# gperftools.sh: gperftools' tcmalloc without profilers, by its CMake file; the second choice is Debian's build.
packages="g++ cmake make libc6-dev"
release="gperftools/gperftools gperftools-2.18.1"
spare_packages="libtcmalloc-minimal4 libgoogle-perftools-dev"

build() {
	for form in ON OFF; do
		cmake -S "$(release_dir)" -B "shared-$form" -DCMAKE_BUILD_TYPE=Release \
			-DCMAKE_CXX_FLAGS_RELEASE="-O2 -DNDEBUG" -Dgperftools_build_minimal=ON \
			-DBUILD_TESTING=OFF -DBUILD_SHARED_LIBS=$form
		cmake --build "shared-$form" -j "$jobs" --target tcmalloc_minimal
	done
	cp -L shared-ON/libtcmalloc_minimal.so lib.so
	# The archive of tcmalloc lacks the objects of its two helper libraries.
	find shared-OFF -name '*.o' -exec ar rcs lib.a {} +
	version "$(release_version)"
}

spare() {
	cp -L "$(package_file libtcmalloc-minimal4 'libtcmalloc_minimal\.so\.4')" lib.so
	cp "$(package_file libgoogle-perftools-dev 'libtcmalloc_minimal\.a')" lib.a
	version "$(debian_version libtcmalloc-minimal4) (Debian)"
}
