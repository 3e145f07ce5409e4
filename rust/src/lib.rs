//! libkmem for Rust: an allocator that knows who has which memory.
//!
//! - [`Kmem`] is the program's global allocator.
//! - A [`Group`] pays for what is allocated in its name, within its limit: one for each tenant of a server.
//!   [`account_malloc`] lets boxes and vectors follow it.
//! - A [`Cache`] serves objects of one type, and shows them to `kmem info` and `kmem top` by its name.
//! - A [`Private`] group ends at once, with all that was allocated in its name.
//!
//! ```
//! use kmem::Group;
//!
//! #[global_allocator]
//! static ALLOCATOR: kmem::Kmem = kmem::Kmem;
//!
//! kmem::account_malloc(true)?;
//! let tenant = Group::new("customer 7")?;
//! tenant.set_max(1 << 20)?;                                   // 1 MiB
//! let refused = tenant.run(|| {
//!     let mut rows: Vec<Vec<u8>> = Vec::new();
//!     loop {
//!         let mut row = Vec::new();
//!         if row.try_reserve_exact(1000).is_err() || rows.try_reserve(1).is_err() {
//!             return rows.len();                              // the tenant's limit
//!         }
//!         rows.push(row);
//!     }
//! });
//! assert!(refused > 900 && refused < 1050);
//! # Ok::<(), kmem::Error>(())
//! ```
//!
//! The library is C: it is built by `make` in the tree that this crate is in, and found there or in `KMEM_LIB_DIR`. It is
//! linked as an archive where there is one; `KMEM_DYNAMIC=1` asks for the shared library. Without the feature `malloc`
//! (on by default) the program's malloc stays as it is, and there is no [`Kmem`]; without `std` the crate needs `core`
//! alone.
//!
//! An allocation beyond a limit is refused: `try_reserve` and the like say so, `Box::new` and `Vec::push` end the process,
//! as they do where there is no memory at all. So a server asks before it takes what a tenant sends.

#![cfg_attr(not(feature = "std"), no_std)]
#![warn(missing_docs, missing_debug_implementations, rust_2018_idioms)]

#[cfg(feature = "malloc")]
mod alloc;
mod cache;
mod error;
mod group;
mod private;
mod sys;

#[cfg(feature = "malloc")]
pub use crate::alloc::{account_malloc, Kmem};
pub use crate::cache::{Cache, Object, Options};
pub use crate::error::{Error, Refused};
pub use crate::group::{Group, Scope};
pub use crate::private::{Limits, Private};
pub use crate::sys::{kmem_cache, mem_cgroup};
