//! The global allocator.

use core::alloc::{GlobalAlloc, Layout};
use core::ffi::c_void;
use core::ptr;

use crate::error::Error;
use crate::sys;

/// libkmem's malloc as the program's global allocator:
///
/// ```
/// #[global_allocator]
/// static ALLOCATOR: kmem::Kmem = kmem::Kmem;
///
/// let boxed = Box::new(1);
/// assert_eq!(*boxed, 1);
/// ```
///
/// Boxes, vectors and all other blocks are charged to the thread's group after a call of [`account_malloc`]. Frees pass
/// the size, and hardening checks the size (`KMEM_OPTIONS=hardened:1`).
#[derive(Clone, Copy, Debug, Default)]
pub struct Kmem;

/// Alignment of every block of malloc, in bytes.
const ALIGN: usize = 16;

// SAFETY: malloc and its family follow the C standard and POSIX; no function unwinds.
unsafe impl GlobalAlloc for Kmem {
    #[inline]
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        if layout.align() <= ALIGN {
            sys::malloc(layout.size()).cast()
        } else {
            sys::aligned_alloc(layout.align(), layout.size()).cast()
        }
    }

    #[inline]
    unsafe fn dealloc(&self, block: *mut u8, layout: Layout) {
        if layout.align() <= ALIGN {
            sys::free_sized(block.cast(), layout.size())
        } else {
            sys::free_aligned_sized(block.cast(), layout.align(), layout.size())
        }
    }

    #[inline]
    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        if layout.align() <= ALIGN {
            return sys::calloc(1, layout.size()).cast();
        }
        let block = self.alloc(layout);
        if !block.is_null() {
            ptr::write_bytes(block, 0, layout.size());
        }
        block
    }

    #[inline]
    unsafe fn realloc(&self, block: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        if layout.align() <= ALIGN {
            return sys::realloc(block.cast(), size).cast();
        }
        // realloc does not keep an alignment.
        let moved = self.alloc(Layout::from_size_align_unchecked(size, layout.align()));
        if !moved.is_null() {
            ptr::copy_nonoverlapping(block, moved, layout.size().min(size));
            self.dealloc(block, layout);
        }
        moved
    }
}

/// The linker takes malloc from an archive only for a reference. Without this reference, a program with another global
/// allocator would keep libc's malloc.
static MALLOC: unsafe extern "C" fn(usize) -> *mut c_void = sys::malloc;

/// Charges each block of the global allocator, and of C's malloc, to the thread's active group from now on
/// ([`Group::run`](crate::Group::run)); `false` ends this. Callable at any time. Earlier blocks are never charged, and
/// a charged block is uncharged at the free. The switch is process-wide; the manual page mem_cgroup_account_malloc(3)
/// has the details.
///
/// Errors: the program's malloc is not libkmem's, or the engine is slob; or a visit of all caches is running.
pub fn account_malloc(on: bool) -> Result<(), Error> {
    // SAFETY: a valid address.
    unsafe { ptr::read_volatile(&MALLOC) };
    // SAFETY: the function may be called at any time, by any thread.
    Error::check(unsafe { sys::mem_cgroup_account_malloc(on) })
}
