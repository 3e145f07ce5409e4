//! Groups, and the scopes in which they pay.

use core::fmt;
use core::marker::PhantomData;
use core::ptr::{self, NonNull};

use crate::error::Error;
use crate::private::Limits;
use crate::sys;

/// A name as C wants it: cut to what a group keeps, at the end of a character, without NULs.
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

/// A group of memory: whatever is allocated in its name counts against it, and against each group above it, and is
/// refused beyond their limits. A handle is a reference: a clone is another one, and the group goes with the last one.
/// What is still allocated then is the parent's.
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

// SAFETY: groups are counted by atomic operations, and each call on one takes what locks it needs.
unsafe impl Send for Group {}
unsafe impl Sync for Group {}

impl Group {
    /// A group below the root.
    pub fn new(name: &str) -> Result<Group, Error> {
        Group::create(ptr::null_mut(), name, 0)
    }

    /// A group below this one, within its limits.
    pub fn child(&self, name: &str) -> Result<Group, Error> {
        Group::create(self.as_ptr(), name, 0)
    }

    /// The root, which has no limit and counts nothing.
    pub fn root() -> Group {
        // SAFETY: the root is always there.
        unsafe { Group::of_raw(sys::mem_cgroup_root()) }.expect("there is a root")
    }

    /// The group that is active in this thread.
    pub fn active() -> Option<Group> {
        // SAFETY: whoever made it active keeps it.
        unsafe { Group::of_raw(sys::mem_cgroup_active()) }
    }

    /// The group that pays for the block in which the value lies: an object of a cache, a large block, what the global
    /// allocator gave. What a value points to lies in blocks of its own: of a vector, `&vector[..]` is what is asked
    /// about. `None`: nobody pays, or the value lies elsewhere, as on the stack.
    pub fn paying_for<T: ?Sized>(value: &T) -> Option<Limits> {
        // SAFETY: any address will do; the reference that it returns becomes the handle's.
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

    /// A handle of a group of C code's, with a reference of its own; NULL: `None`.
    ///
    /// # Safety
    /// `raw` is NULL, or a group that somebody has a reference of.
    pub unsafe fn of_raw(raw: *mut sys::mem_cgroup) -> Option<Group> {
        NonNull::new(sys::mem_cgroup_get(raw)).map(|raw| Group { raw })
    }

    /// The group as C functions take it, for as long as this handle lives.
    pub fn as_ptr(&self) -> *mut sys::mem_cgroup {
        self.raw.as_ptr()
    }

    /// Its name, as far as that is UTF-8.
    pub fn name(&self) -> &str {
        // SAFETY: a name ends with a NUL, and stays as long as the group does.
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

    /// The group above it; of the root `None`.
    pub fn parent(&self) -> Option<Group> {
        // SAFETY: a group keeps the one above it.
        unsafe { Group::of_raw(sys::mem_cgroup_parent(self.as_ptr())) }
    }

    /// Until it is taken offline.
    pub fn is_online(&self) -> bool {
        // SAFETY: the handle keeps the group.
        unsafe { sys::mem_cgroup_online(self.as_ptr()) }
    }

    /// Close it: what is charged to it is its parent's from now on.
    pub fn offline(&self) -> Result<(), Error> {
        // SAFETY: as above.
        Error::check(unsafe { sys::mem_cgroup_offline(self.as_ptr()) })
    }

    /// A `max`, or `high`, that is none.
    pub const NO_LIMIT: u64 = u64::MAX;

    /// Nobody gets beyond: allocations are refused then.
    pub fn set_max(&self, bytes: u64) -> Result<(), Error> {
        // SAFETY: as above.
        Error::check(unsafe { sys::mem_cgroup_set_max(self.as_ptr(), bytes) })
    }

    /// Beyond, allocations are slowed down.
    pub fn set_high(&self, bytes: u64) -> Result<(), Error> {
        // SAFETY: as above.
        Error::check(unsafe { sys::mem_cgroup_set_high(self.as_ptr(), bytes) })
    }

    /// As long as it has no more, reclaim leaves it alone, where there is anything else.
    pub fn set_low(&self, bytes: u64) -> Result<(), Error> {
        // SAFETY: as above.
        Error::check(unsafe { sys::mem_cgroup_set_low(self.as_ptr(), bytes) })
    }

    /// As long as it has no more, reclaim leaves it alone.
    pub fn set_min(&self, bytes: u64) -> Result<(), Error> {
        // SAFETY: as above.
        Error::check(unsafe { sys::mem_cgroup_set_min(self.as_ptr(), bytes) })
    }

    /// The limit in force, or [`NO_LIMIT`](Group::NO_LIMIT).
    pub fn max(&self) -> u64 {
        // SAFETY: as above.
        unsafe { sys::mem_cgroup_max(self.as_ptr()) }
    }

    /// Bytes that are charged to it and to those below, with what lies ready for it.
    pub fn current(&self) -> u64 {
        // SAFETY: as above.
        unsafe { sys::mem_cgroup_current(self.as_ptr()) }
    }

    /// The most that `current` was.
    pub fn peak(&self) -> u64 {
        // SAFETY: as above.
        unsafe { sys::mem_cgroup_peak(self.as_ptr()) }
    }

    /// Let the peak begin again.
    pub fn reset_peak(&self) {
        // SAFETY: as above.
        unsafe { sys::mem_cgroup_reset_peak(self.as_ptr()) }
    }

    /// How often its limit found no room for a charge.
    pub fn failcnt(&self) -> u64 {
        // SAFETY: as above.
        unsafe { sys::mem_cgroup_failcnt(self.as_ptr()) }
    }

    /// Take back what lies ready: then `current` is what is allocated, to the byte. The bytes that came back.
    pub fn drain(&self) -> u64 {
        // SAFETY: as above.
        unsafe { sys::mem_cgroup_drain(self.as_ptr()) }
    }

    /// Call `f`; this group pays for what this thread allocates meanwhile: objects of caches that are accounted, and,
    /// after [`account_malloc`](crate::account_malloc), boxes, vectors and all other blocks.
    pub fn run<R>(&self, f: impl FnOnce() -> R) -> R {
        let _scope = Scope::begin(self, false);

        f()
    }

    /// [`run`](Group::run), and all that this thread allocates is accounted, also where nobody asked for that. The first
    /// call has a price for the whole process: `mem_cgroup_account_all` says which.
    pub fn run_all<R>(&self, f: impl FnOnce() -> R) -> R {
        let _scope = Scope::begin(self, true);

        f()
    }

    /// From here until the scope is dropped this group pays for what this thread allocates. Scopes nest: they end in
    /// the order reverse to that in which they began. One that ends before an inner one, or after one was forgotten,
    /// leaves the inner one's group active, and a reference of its own behind.
    #[cfg(feature = "std")]
    #[must_use = "the group pays until the scope is dropped"]
    pub fn enter(&self) -> Scope {
        Scope::begin(self, false)
    }

    /// Let it pay for each thread in which no group is active; `None`: nobody.
    ///
    /// # Safety
    /// No thread allocates in the name of the former default group meanwhile.
    pub unsafe fn set_default(group: Option<&Group>) {
        sys::mem_cgroup_set_default(group.map_or(ptr::null_mut(), Group::as_ptr));
    }
}

impl Clone for Group {
    fn clone(&self) -> Group {
        // SAFETY: the handle keeps the group.
        unsafe { Group::of_raw(self.as_ptr()) }.expect("the group is there")
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        // SAFETY: the handle's own reference, which nobody uses any more.
        unsafe { sys::mem_cgroup_put(self.as_ptr()) }
    }
}

/// The same group, whatever its name.
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

/// A group pays in this thread until this is dropped; made by [`Group::enter`]. It stays in its thread:
///
/// ```compile_fail
/// let scope = kmem::Group::new("tenant").unwrap().enter();
/// std::thread::spawn(move || drop(scope));
/// ```
///
/// In `async` code a scope must not live over an `await`: another task of the thread would allocate in the group's name.
pub struct Scope {
    /// Its reference keeps the group as long as it may be active: also where the scope is forgotten.
    group: Group,
    before: *mut sys::mem_cgroup,
    all: Option<bool>,
    depth: usize,
    _of_this_thread: PhantomData<*mut ()>,
}

/// How many scopes of this thread have begun and not ended in their turn: the innermost one's number. Without std there
/// is but `run`, whose scopes can't but end in their turn.
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
    /// Is it the innermost one? Then it is no more.
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
        // SAFETY: the scope's reference outlives its being active.
        let before = unsafe { sys::set_active_memcg(group.as_ptr()) };
        let all = if all { Some(unsafe { sys::mem_cgroup_account_all(true) }) } else { None };

        Scope { group, before, all, depth: depth::begin(), _of_this_thread: PhantomData }
    }

    /// The group that pays.
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
            // SAFETY: a switch of this thread's own.
            unsafe { sys::mem_cgroup_account_all(before) };
        }
        if depth::end(self.depth) {
            // SAFETY: the scope around this one has not ended, or has left a reference; or C code keeps its group.
            unsafe { sys::set_active_memcg(self.before) };
        } else {
            // An inner scope is there still, and will make this group active again: it must stay for ever.
            core::mem::forget(self.group.clone());
        }
    }
}
