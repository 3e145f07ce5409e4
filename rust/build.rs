//! Selects the library: libkmem-malloc with the feature `malloc`, else libkmem. The search order is `KMEM_LIB_DIR`, the
//! build folder of the surrounding tree, and the linker's own folders. The archive is preferred, because a call is then
//! a jump, unless `KMEM_DYNAMIC` is set.

use std::env;
use std::path::{Path, PathBuf};

fn has(folder: &Path, name: &str) -> bool {
    ["a", "so"].iter().any(|end| folder.join(format!("lib{}.{}", name, end)).exists())
}

/// The linker's own folders, as far as this script can know the folders.
fn is_installed(name: &str) -> bool {
    let multiarch = env::var("CARGO_CFG_TARGET_ARCH").map(|arch| format!("/usr/lib/{}-linux-gnu", arch));
    let folders = ["/usr/local/lib", "/usr/local/lib64", "/usr/lib", "/usr/lib64"];

    folders.iter().any(|folder| has(Path::new(folder), name)) || multiarch.map_or(false, |folder| has(Path::new(&folder), name))
}

fn main() {
    println!("cargo:rerun-if-env-changed=KMEM_LIB_DIR");
    println!("cargo:rerun-if-env-changed=KMEM_DYNAMIC");
    println!("cargo:rerun-if-changed=build.rs");
    let name = if env::var_os("CARGO_FEATURE_MALLOC").is_some() { "kmem-malloc" } else { "kmem" };
    let given = env::var_os("KMEM_LIB_DIR").map(PathBuf::from);
    let manifest = env::var_os("CARGO_MANIFEST_DIR").map(PathBuf::from).unwrap_or_default();
    let asked = given.is_some();
    let folder = given.unwrap_or_else(|| manifest.join("../build"));
    let archive = folder.join(format!("lib{}.a", name));
    let linked = archive.exists() && env::var_os("KMEM_DYNAMIC").is_none();

    // Also for a missing archive: cargo looks again once the archive is built.
    println!("cargo:rerun-if-changed={}", archive.display());
    if folder.exists() {
        println!("cargo:rustc-link-search=native={}", folder.display());
    }
    if !has(&folder, name) && (asked || !is_installed(name)) {
        println!(
            "cargo:warning=there is no lib{0}.a and no lib{0}.so in {1}: run `make` in libkmem's tree, or set KMEM_LIB_DIR to the \
             folder that has them; the linker looks in its own folders now",
            name,
            folder.display()
        );
    }
    println!("cargo:rustc-link-lib={}={}", if linked { "static:-bundle" } else { "dylib" }, name);
}
