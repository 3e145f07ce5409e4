# debug_build.sh: what the tests of the debug build share: it is built once, whichever of them comes first, and each
# program of it has a time. Read by them, from the project's root.
build=build-debug

# need_built NAME...: programs of tests/. One test builds at a time: they have one folder.
need_built() {
	mkdir -p $build
	flock $build make -s -j2 DEBUG=1 BUILD=$build "${@/#/$build/tests/}" || exit 1
}

# run NAME ARGUMENT...: under $discipline.
run() {
	env KMEM_PERCPU="$discipline" SECONDS="${SANITIZE_SECONDS:-3}" timeout 900 "$build/tests/$@" ||
		{ echo "FAIL $*, $discipline"; exit 1; }
}

# run_promises: all tests of promises (but malloc's, which is another library), of engines and of accounting, and the model.
run_promises() {
	local file names=()
	for file in tests/{promise,engine,account}/*.c; do
		[[ $file != */malloc_* ]] || continue
		file=${file#tests/}
		names+=("${file%.c}")
	done
	need_built model/model "${names[@]}"
	for file in model/model "${names[@]}"; do
		PROGRAMS=${PROGRAMS:-2} OPS=${OPS:-600} run "$file"
	done
}
