//! Groups, and the scopes of their charges.

use core::fmt;
use core::marker::PhantomData;
use core::ptr::{self, NonNull};

use crate::error::Error;
use crate::private::Limits;
use crate::sys;

/// A C string of a name: cut at a character to the length of a group's name, without NULs.
pub(crate) fn c_name(name: &str) -> [u8; sys::NAME_MAX] {
    let mut bytes = [0; sys::NAME_MAX];
    let mut length = name.len().min(sys::NAME_MAX - 1);

    while !name.is_char_boundary(length) {
        length -= 1;
    }
    for (to, from) in bytes.iter_mut().zip(&name.as_bytes()[..length]) {
        *to = if *from == 0 { b'_' } else { *from };
    }
    bytes
}

/// A group of memory. An allocation is charged to the active group and to each group above, and is refused beyond their
/// limits. A handle is a reference: a clone is another reference, and the last drop takes the group offline. Memory
/// still allocated then is charged to the parent.
///
/// ```
/// use kmem::Group;
///
/// let tenant = Group::new("tenant")?;
/// let session = tenant.child("session")?;
/// tenant.set_max(1 << 20)?;
/// kmem::account_malloc(true)?;
/// session.run(|| {
///     let mut text = Vec::<u8>::new();
///     assert!(text.try_reserve(100_000).is_ok());
///     assert!(tenant.current() >= 100_000);
///     assert!(text.try_reserve(2 << 20).is_err());        // beyond the tenant's limit, and no other's
/// });
/// tenant.drain();
/// assert_eq!(tenant.current(), 0);
/// # Ok::<(), kmem::Error>(())
/// ```
pub struct Group {
    raw: NonNull<sys::mem_cgroup>,
}

// SAFETY: atomic operations count references, and each call takes the locks of its group.
unsafe impl Send for Group {}
unsafe impl Sync for Group {}

impl Group {
    /// Creates a group below the root.
    pub fn new(name: &str) -> Result<Group, Error> {
        Group::create(ptr::null_mut(), name, 0)
    }

    /// Creates a group below this group, within this group's limits.
    pub fn child(&self, name: &str) -> Result<Group, Error> {
        Group::create(self.as_ptr(), name, 0)
    }

    /// The root: no limit, and no counters.
    pub fn root() -> Group {
        // SAFETY: the root always exists.
        unsafe { Group::of_raw(sys::mem_cgroup_root()) }.expect("there is a root")
    }

    /// The active group of this thread.
    pub fn active() -> Option<Group> {
        // SAFETY: the active group has a reference until another group is active.
        unsafe { Group::of_raw(sys::mem_cgroup_active()) }
    }

    /// The group charged for the block of a value: an object of a cache, a large block, or a block of the global
    /// allocator. Contents behind pointers lie in other blocks: for a vector, pass `&vector[..]`. Returns: `None` for
    /// an uncharged value, and for a value in other memory, such as the stack.
    pub fn paying_for<T: ?Sized>(value: &T) -> Option<Limits> {
        // SAFETY: any address is valid; the handle takes over the returned reference.
        let raw = unsafe { sys::mem_cgroup_from_obj((value as *const T).cast()) };

        NonNull::new(raw).map(|raw| Limits(Group { raw }))
    }

    pub(crate) fn create(
        parent: *mut sys::mem_cgroup,
        name: &str,
        flags: sys::c_uint,
    ) -> Result<Group, Error> {
        // SAFETY: the name ends with a NUL, and is copied.
        let raw = unsafe { sys::mem_cgroup_create(parent, c_name(name).as_ptr(), flags) };

        NonNull::new(raw).map(|raw| Group { raw }).ok_or_else(Error::last)
    }

    /// A handle of a group of C code, with a new reference; `None` for NULL.
    ///
    /// # Safety
    /// `raw` is NULL, or a group with at least one reference.
    pub unsafe fn of_raw(raw: *mut sys::mem_cgroup) -> Option<Group> {
        NonNull::new(sys::mem_cgroup_get(raw)).map(|raw| Group { raw })
    }

    /// The group for C functions, valid as long as this handle.
    pub fn as_ptr(&self) -> *mut sys::mem_cgroup {
        self.raw.as_ptr()
    }

    /// The name, as far as the name is UTF-8.
    pub fn name(&self) -> &str {
        // SAFETY: a name ends with a NUL, and lives as long as the group.
        let bytes = unsafe {
            let name = sys::mem_cgroup_name(self.as_ptr());
            let length = (0..sys::NAME_MAX).take_while(|&at| *name.add(at) != 0).count();

            core::slice::from_raw_parts(name, length)
        };
        match core::str::from_utf8(bytes) {
            Ok(name) => name,
            Err(error) => core::str::from_utf8(&bytes[..error.valid_up_to()]).unwrap_or(""),
        }
    }

    /// The parent; `None` for the root.
    pub fn parent(&self) -> Option<Group> {
        // SAFETY: a group holds a reference to the parent.
        unsafe { Group::of_raw(sys::mem_cgroup_parent(self.as_ptr())) }
    }

    /// True until the group is taken offline.
    pub fn is_online(&self) -> bool {
        // SAFETY: the handle holds a reference to the group.
        unsafe { sys::mem_cgroup_online(self.as_ptr()) }
    }

    /// Takes the group offline: its charges move to the parent.
    pub fn offline(&self) -> Result<(), Error> {
        // SAFETY: as above.
        Error::check(unsafe { sys::mem_cgroup_offline(self.as_ptr()) })
    }

    /// The value of `max` and `high` without a limit.
    pub const NO_LIMIT: u64 = u64::MAX;

    /// Sets the hard limit: an allocation beyond the limit is refused.
    pub fn set_max(&self, bytes: u64) -> Result<(), Error> {
        // SAFETY: as above.
        Error::check(unsafe { sys::mem_cgroup_set_max(self.as_ptr(), bytes) })
    }

    /// Sets the limit above which allocations are delayed.
    pub fn set_high(&self, bytes: u64) -> Result<(), Error> {
        // SAFETY: as above.
        Error::check(unsafe { sys::mem_cgroup_set_high(self.as_ptr(), bytes) })
    }

    /// Sets the protection `low`: reclaim skips the group below this value, unless no other memory is left.
    pub fn set_low(&self, bytes: u64) -> Result<(), Error> {
        // SAFETY: as above.
        Error::check(unsafe { sys::mem_cgroup_set_low(self.as_ptr(), bytes) })
    }

    /// Sets the protection `min`: reclaim never takes memory below this value.
    pub fn set_min(&self, bytes: u64) -> Result<(), Error> {
        // SAFETY: as above.
        Error::check(unsafe { sys::mem_cgroup_set_min(self.as_ptr(), bytes) })
    }

    /// The hard limit, or [`NO_LIMIT`](Group::NO_LIMIT).
    pub fn max(&self) -> u64 {
        // SAFETY: as above.
        unsafe { sys::mem_cgroup_max(self.as_ptr()) }
    }

    /// Bytes charged to the group and its descendants, with the bytes in stocks and sheaves.
    pub fn current(&self) -> u64 {
        // SAFETY: as above.
        unsafe { sys::mem_cgroup_current(self.as_ptr()) }
    }

    /// The maximum of `current` since the last reset.
    pub fn peak(&self) -> u64 {
        // SAFETY: as above.
        unsafe { sys::mem_cgroup_peak(self.as_ptr()) }
    }

    /// Resets the peak to `current`.
    pub fn reset_peak(&self) {
        // SAFETY: as above.
        unsafe { sys::mem_cgroup_reset_peak(self.as_ptr()) }
    }

    /// Number of charges that the limit refused at first.
    pub fn failcnt(&self) -> u64 {
        // SAFETY: as above.
        unsafe { sys::mem_cgroup_failcnt(self.as_ptr()) }
    }

    /// Returns stocks and charged sheaves: then `current` is the allocated bytes, exactly. Returns: the bytes taken
    /// back.
    pub fn drain(&self) -> u64 {
        // SAFETY: as above.
        unsafe { sys::mem_cgroup_drain(self.as_ptr()) }
    }

    /// Calls `f` with this group active: objects of accounted caches that this thread allocates are charged to the
    /// group, and, after [`account_malloc`](crate::account_malloc), boxes, vectors and all other blocks.
    pub fn run<R>(&self, f: impl FnOnce() -> R) -> R {
        let _scope = Scope::begin(self, false);

        f()
    }

    /// As [`run`](Group::run), with every allocation of this thread accounted. The first call has a price for the whole
    /// process: see mem_cgroup_account_all in the manual.
    pub fn run_all<R>(&self, f: impl FnOnce() -> R) -> R {
        let _scope = Scope::begin(self, true);

        f()
    }

    /// Makes this group active in this thread until the scope is dropped. Scopes nest, and must end in reverse order. A
    /// scope that ends before an inner scope, or after an inner scope was forgotten, leaves the inner scope's group
    /// active, and leaves a reference.
    #[cfg(feature = "std")]
    #[must_use = "the group pays until the scope is dropped"]
    pub fn enter(&self) -> Scope {
        Scope::begin(self, false)
    }

    /// Sets the group for threads without an active group; `None`: no group.
    ///
    /// # Safety
    /// No thread may charge the former default group meanwhile.
    pub unsafe fn set_default(group: Option<&Group>) {
        sys::mem_cgroup_set_default(group.map_or(ptr::null_mut(), Group::as_ptr));
    }
}

impl Clone for Group {
    fn clone(&self) -> Group {
        // SAFETY: the handle holds a reference to the group.
        unsafe { Group::of_raw(self.as_ptr()) }.expect("the group is there")
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        // SAFETY: the handle's own reference, without further use.
        unsafe { sys::mem_cgroup_put(self.as_ptr()) }
    }
}

/// Compares groups, not names.
impl PartialEq for Group {
    fn eq(&self, other: &Group) -> bool {
        self.raw == other.raw
    }
}
impl Eq for Group {}

impl fmt::Debug for Group {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut text = f.debug_struct("Group");

        text.field("name", &self.name()).field("current", &self.current()).field("max", &self.max());
        text.finish()
    }
}

/// Makes a group active in this thread until the drop; made by [`Group::enter`]. A scope stays in its thread:
///
/// ```compile_fail
/// let scope = kmem::Group::new("tenant").unwrap().enter();
/// std::thread::spawn(move || drop(scope));
/// ```
///
/// In `async` code a scope must not live over an `await`, because another task of the thread would charge the group.
pub struct Scope {
    /// A reference: the group lives as long as the group may be active, also after the scope is forgotten.
    group: Group,
    before: *mut sys::mem_cgroup,
    all: Option<bool>,
    depth: usize,
    _of_this_thread: PhantomData<*mut ()>,
}

/// Number of the innermost scope of this thread: scopes that began and have not ended in order. Without std only `run`
/// makes scopes, and these always end in order.
#[cfg(feature = "std")]
mod depth {
    use std::cell::Cell;

    std::thread_local! {
        static DEPTH: Cell<usize> = const { Cell::new(0) };
    }
    pub fn begin() -> usize {
        DEPTH.with(|depth| {
            depth.set(depth.get() + 1);
            depth.get()
        })
    }
    /// Ends scope `which`. Returns: true if the scope was the innermost scope.
    pub fn end(which: usize) -> bool {
        DEPTH.with(|depth| {
            let innermost = depth.get() == which;

            if innermost {
                depth.set(which - 1);
            }
            innermost
        })
    }
}
#[cfg(not(feature = "std"))]
mod depth {
    pub fn begin() -> usize {
        0
    }
    pub fn end(_which: usize) -> bool {
        true
    }
}

impl Scope {
    fn begin(group: &Group, all: bool) -> Scope {
        let group = group.clone();
        // SAFETY: the scope's reference lives longer than the activation.
        let before = unsafe { sys::set_active_memcg(group.as_ptr()) };
        let all = if all { Some(unsafe { sys::mem_cgroup_account_all(true) }) } else { None };

        Scope { group, before, all, depth: depth::begin(), _of_this_thread: PhantomData }
    }

    /// The active group of the scope.
    pub fn group(&self) -> &Group {
        &self.group
    }
}

impl fmt::Debug for Scope {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Scope").field(&self.group).finish()
    }
}

impl Drop for Scope {
    fn drop(&mut self) {
        if let Some(before) = self.all {
            // SAFETY: the switch belongs to this thread.
            unsafe { sys::mem_cgroup_account_all(before) };
        }
        if depth::end(self.depth) {
            // SAFETY: the surrounding scope has not ended, or has left a reference; or C code holds a reference.
            unsafe { sys::set_active_memcg(self.before) };
        } else {
            // An inner scope still exists, and will activate this group again: the group must live for ever.
            core::mem::forget(self.group.clone());
        }
    }
}
