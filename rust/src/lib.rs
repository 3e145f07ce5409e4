//! libkmem for Rust: an allocator with groups, limits and named caches.
//!
//! - [`Kmem`] is the program's global allocator.
//! - A [`Group`] is charged for allocations in its scope, within a limit: one group for each tenant of a server.
//!   [`account_malloc`] charges boxes and vectors, too.
//! - A [`Cache`] serves objects of one type, and appears by name in `kmem info` and `kmem top`.
//! - A [`Private`] group frees all its memory in one call.
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
//! The library is C: `make` in the surrounding tree builds the library, and the crate looks there or in `KMEM_LIB_DIR`.
//! The archive is preferred; `KMEM_DYNAMIC=1` asks for the shared library. Without the feature `malloc` (on by default)
//! the program keeps its malloc, and the crate has no [`Kmem`]; without `std` the crate needs only `core`.
//!
//! An allocation beyond a limit is refused: `try_reserve` and similar functions return an error, `Box::new` and
//! `Vec::push` end the process, as without memory. A server must call `try_reserve` before the server accepts data of a
//! tenant.

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
