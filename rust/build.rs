//! Which library the program is linked with: libkmem-malloc where malloc is to be libkmem's, else libkmem. It is looked
//! for in `KMEM_LIB_DIR`, in the build folder of the tree that this crate is in, and where the linker looks by itself;
//! the archive where there is one (a call is a jump then), unless `KMEM_DYNAMIC` is set.

use std::env;
use std::path::PathBuf;

fn main() {
    println!("cargo:rerun-if-env-changed=KMEM_LIB_DIR");
    println!("cargo:rerun-if-env-changed=KMEM_DYNAMIC");
    println!("cargo:rerun-if-changed=build.rs");
    let name = if env::var_os("CARGO_FEATURE_MALLOC").is_some() { "kmem-malloc" } else { "kmem" };
    let given = env::var_os("KMEM_LIB_DIR").map(PathBuf::from);
    let manifest = env::var_os("CARGO_MANIFEST_DIR").map(PathBuf::from);
    let tree = manifest.map(|folder| folder.join("../build"));
    let folder = given.or(tree).filter(|folder| folder.exists());
    let mut kind = "dylib";

    if let Some(folder) = folder {
        let archive = folder.join(format!("lib{}.a", name));

        println!("cargo:rustc-link-search=native={}", folder.display());
        println!("cargo:rerun-if-changed={}", archive.display());
        if archive.exists() && env::var_os("KMEM_DYNAMIC").is_none() {
            kind = "static:-bundle";
        }
    }
    println!("cargo:rustc-link-lib={}={}", kind, name);
}
