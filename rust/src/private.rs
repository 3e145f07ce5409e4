//! Private groups: memory with a common end.

use core::mem;
use core::ptr::{self, NonNull};

use crate::error::{Error, Refused};
use crate::group::Group;
use crate::sys;

/// A private group: its values have separate slabs, share no page with other tenants, and end in one call; the time
/// depends on the number of slabs. Uses: a session, a request, a script. No destructor of a value is called.
///
/// ```
/// let mut request = kmem::Private::new("request")?;
/// request.group().set_max(1 << 20)?;
/// for i in 0..1000u64 {
///     let node: &mut [u64; 8] = request.alloc([i; 8])?;
///     node[0] += 1;
/// }
/// let text: &mut str = request.alloc_str("as long as the request")?;
/// text.make_ascii_uppercase();
/// request.reset();                // all of it is gone, as the compiler knows
/// # Ok::<(), kmem::Error>(())
/// ```
///
/// ```compile_fail
/// let mut request = kmem::Private::new("request").unwrap();
/// let number = request.alloc(1).unwrap();
/// request.reset();
/// assert_eq!(*number, 1);
/// ```
#[derive(Debug)]
pub struct Private {
    group: Group,
}

impl Private {
    /// Creates a private group below the root.
    pub fn new(name: &str) -> Result<Private, Error> {
        let group = Group::create(ptr::null_mut(), name, sys::MEM_CGROUP_PRIVATE)?;

        Ok(Private { group })
    }

    /// Creates a private group below `parent`, within the parent's limits.
    pub fn below(parent: &Group, name: &str) -> Result<Private, Error> {
        let group = Group::create(parent.as_ptr(), name, sys::MEM_CGROUP_PRIVATE)?;

        Ok(Private { group })
    }

    /// Limits and counters. The group must never be active ([`Group::run`], with accounted malloc), because a box of
    /// that time would end with the group.
    pub fn group(&self) -> &Limits {
        // SAFETY: Limits has the layout of Group.
        unsafe { &*(&self.group as *const Group).cast::<Limits>() }
    }

    fn bytes(&self, size: usize, align: usize) -> Option<NonNull<u8>> {
        // kmalloc aligns a size to its largest power-of-two divisor, up to a page.
        let size = size.max(1).checked_add(align - 1)? & !(align - 1);

        if size > sys::KMALLOC_MAX_SIZE || align > 4096 {
            return None;
        }
        // SAFETY: the group lives as long as its handle.
        let place = unsafe { sys::kmalloc_in(self.group.as_ptr(), size, sys::GFP) };
        NonNull::new(place.cast::<u8>())
    }

    /// Moves the value into the group's memory, or returns the value if the allocation fails. The destructor is never
    /// called.
    #[allow(clippy::mut_from_ref)]
    pub fn alloc<T>(&self, value: T) -> Result<&mut T, Refused<T>> {
        match self.bytes(mem::size_of::<T>(), mem::align_of::<T>()) {
            Some(place) => {
                let place = place.as_ptr().cast::<T>();

                // SAFETY: new memory with T's size and alignment, without another user until reset().
                unsafe {
                    place.write(value);
                    Ok(&mut *place)
                }
            }
            None => Err(Refused(value)),
        }
    }

    /// Copies the slice.
    #[allow(clippy::mut_from_ref)]
    pub fn alloc_slice<T: Copy>(&self, values: &[T]) -> Result<&mut [T], Error> {
        let place = self.bytes(mem::size_of_val(values), mem::align_of::<T>());
        let place = place.ok_or(Error::OUT_OF_MEMORY)?.as_ptr().cast::<T>();

        // SAFETY: as above, with room for all elements.
        unsafe {
            ptr::copy_nonoverlapping(values.as_ptr(), place, values.len());
            Ok(core::slice::from_raw_parts_mut(place, values.len()))
        }
    }

    /// Copies the text.
    #[allow(clippy::mut_from_ref)]
    pub fn alloc_str(&self, text: &str) -> Result<&mut str, Error> {
        let bytes = self.alloc_slice(text.as_bytes())?;

        // SAFETY: a copy of valid UTF-8.
        Ok(unsafe { core::str::from_utf8_unchecked_mut(bytes) })
    }

    /// Frees all memory of the group at once. The group may be used again.
    pub fn reset(&mut self) {
        // SAFETY: no value is borrowed, and no other code allocates in the group, because the group is never active.
        unsafe {
            sys::mem_cgroup_destroy_all(self.group.as_ptr(), None, ptr::null_mut());
        }
    }
}

impl Drop for Private {
    fn drop(&mut self) {
        self.reset();
    }
}

/// Limits and counters of a group, without a way to activate the group: the memory of a private group may end at any
/// time.
#[derive(Debug)]
#[repr(transparent)]
pub struct Limits(pub(crate) Group);

/// The group.
impl PartialEq<Group> for Limits {
    fn eq(&self, other: &Group) -> bool {
        self.0 == *other
    }
}

impl Limits {
    /// As [`Group::set_max`].
    pub fn set_max(&self, bytes: u64) -> Result<(), Error> {
        self.0.set_max(bytes)
    }

    /// As [`Group::set_high`].
    pub fn set_high(&self, bytes: u64) -> Result<(), Error> {
        self.0.set_high(bytes)
    }

    /// As [`Group::max`].
    pub fn max(&self) -> u64 {
        self.0.max()
    }

    /// As [`Group::current`].
    pub fn current(&self) -> u64 {
        self.0.current()
    }

    /// As [`Group::peak`].
    pub fn peak(&self) -> u64 {
        self.0.peak()
    }

    /// As [`Group::drain`].
    pub fn drain(&self) -> u64 {
        self.0.drain()
    }

    /// As [`Group::name`].
    pub fn name(&self) -> &str {
        self.0.name()
    }
}
