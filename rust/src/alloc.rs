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
/// Boxes, vectors and all others follow the thread's group once [`account_malloc`] said so. Frees tell the size, which
/// hardening looks at (`KMEM_OPTIONS=hardened:1`).
#[derive(Clone, Copy, Debug, Default)]
pub struct Kmem;

/// What any block of malloc's is aligned to.
const ALIGN: usize = 16;

// SAFETY: malloc and its family, as the C standard and POSIX have them; none of them unwinds.
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
        // realloc knows nothing of alignment.
        let moved = self.alloc(Layout::from_size_align_unchecked(size, layout.align()));
        if !moved.is_null() {
            ptr::copy_nonoverlapping(block, moved, layout.size().min(size));
            self.dealloc(block, layout);
        }
        moved
    }
}

/// An archive's malloc is linked where somebody names it: also in a program whose global allocator is another one, whose
/// own malloc it is then.
static MALLOC: unsafe extern "C" fn(usize) -> *mut c_void = sys::malloc;

/// From now on each block of the global allocator, and of C's malloc, is charged to the group that is active in its
/// thread ([`Group::run`](crate::Group::run)); `false`: not any more. At any time: what was allocated before is never
/// charged, and what was charged is paid back when it is freed. A process-wide switch; `mem_cgroup_account_malloc` says
/// all of it.
///
/// An error: the program's malloc is not libkmem's, or its engine is slob; or all caches are being visited.
pub fn account_malloc(on: bool) -> Result<(), Error> {
    // SAFETY: a place that is there.
    unsafe { ptr::read_volatile(&MALLOC) };
    // SAFETY: it may be called at any time, by any thread.
    Error::check(unsafe { sys::mem_cgroup_account_malloc(on) })
}
