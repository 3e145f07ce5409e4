//! Caches of objects of one type.

use core::ffi::c_void;
use core::fmt;
use core::marker::PhantomData;
use core::mem::{self, ManuallyDrop, MaybeUninit};
use core::ops::{Deref, DerefMut};
use core::ptr::{self, NonNull};
use core::slice;

use crate::error::{Error, Refused};
use crate::group::{c_name, Group};
use crate::sys;

/// A cache: objects of type `T`, some cached on each CPU. Threads may share a cache. An object may be dropped in any
/// thread that may receive the object.
///
/// ```
/// use kmem::Cache;
///
/// struct Point { x: f64, y: f64 }
///
/// let points = Cache::<Point>::new("points")?;
/// let mut p = points.alloc(Point { x: 1.0, y: 2.0 })?;
/// p.x += p.y;
/// assert_eq!(p.x, 3.0);
/// # Ok::<(), kmem::Error>(())
/// ```
///
/// The cache ends with the last borrow of an object:
///
/// ```compile_fail
/// let points = kmem::Cache::<u64>::new("points").unwrap();
/// let p = points.alloc(1).unwrap();
/// drop(points);
/// assert_eq!(*p, 1);
/// ```
///
/// [`leak`](Cache::leak) the cache for objects without a lifetime bound. If a cache is dropped after an object was
/// forgotten or leaked, one line reports the object, and the memory stays allocated.
pub struct Cache<T> {
    raw: NonNull<sys::kmem_cache>,
    _holds: PhantomData<fn(T) -> T>,
}

// SAFETY: any thread may call the functions of a cache, and the cache gives each object to one handle. Values come in
// by their owner's thread and go out by handles; the handles' types limit the threads.
unsafe impl<T> Send for Cache<T> {}
unsafe impl<T> Sync for Cache<T> {}

/// Options of a new cache.
#[derive(Clone, Copy, Debug, Default)]
pub struct Options {
    flags: sys::c_uint,
    shelf: sys::c_uint,
}

impl Options {
    /// Default options, as [`Cache::new`].
    pub fn new() -> Options {
        Options::default()
    }

    /// Charges each object to the thread's active group, or to the default group.
    pub fn accounted(mut self) -> Options {
        self.flags |= sys::SLAB_ACCOUNT;
        self
    }

    /// Aligns objects to cache lines: no two objects share a line, unless they are smaller than half a line.
    pub fn cache_line_aligned(mut self) -> Options {
        self.flags |= sys::SLAB_HWCACHE_ALIGN;
        self
    }

    /// Sets the minimum of cached objects for each CPU (at most 1022).
    pub fn shelf(mut self, objects: u32) -> Options {
        self.shelf = objects;
        self
    }

    /// Creates the cache. Fails for a type with an alignment above a page. With `KMEM_OPTIONS=engine:slob` the cache
    /// has engine sheaf, because a handle must find the cache of an object.
    pub fn create<T>(self, name: &str) -> Result<Cache<T>, Error> {
        let mut args = sys::kmem_cache_args {
            align: mem::align_of::<T>() as sys::c_uint,
            useroffset: 0,
            usersize: 0,
            freeptr_offset: 0,
            use_freeptr_offset: false,
            ctor: None,
            sheaf_capacity: self.shelf,
            engine: ptr::null(),
        };
        let size = mem::size_of::<T>().max(1).min(u32::MAX as usize) as sys::c_uint;
        // SAFETY: the names end with a NUL; the library copies the name.
        let create = |args: &sys::kmem_cache_args| unsafe {
            sys::kmem_cache_create_args(c_name(name).as_ptr(), size, args, self.flags)
        };
        let mut raw = create(&args);

        // kfree needs the cache of an object, and engine slob does not store the cache.
        if !raw.is_null() && is_of_slob(raw) {
            // SAFETY: the cache is new, and no other code uses the cache.
            unsafe { sys::kmem_cache_destroy(raw) };
            args.engine = b"sheaf\0".as_ptr();
            raw = create(&args);
        }
        match NonNull::new(raw) {
            Some(raw) => Ok(Cache { raw, _holds: PhantomData }),
            None => Err(Error::last()),
        }
    }
}

fn is_of_slob(cache: *mut sys::kmem_cache) -> bool {
    let mut stats = MaybeUninit::<sys::kmem_cache_stats>::zeroed();

    // SAFETY: the cache is valid, the numbers fit, and an engine's name is a constant of four letters or more and a
    // NUL.
    unsafe {
        sys::kmem_cache_get_stats(cache, stats.as_mut_ptr());
        slice::from_raw_parts(stats.assume_init().engine, 5) == b"slob\0"
    }
}

impl<T> Cache<T> {
    /// Creates a cache of uncharged objects. The name appears in statistics, cut to 31 bytes.
    pub fn new(name: &str) -> Result<Cache<T>, Error> {
        Options::new().create(name)
    }

    /// Creates a cache that charges each object to the group active at the allocation.
    pub fn accounted(name: &str) -> Result<Cache<T>, Error> {
        Options::new().accounted().create(name)
    }

    /// Allocates an object, or returns the value.
    pub fn alloc(&self, value: T) -> Result<Object<'_, T>, Refused<T>> {
        // SAFETY: the cache lives as long as `self`.
        let place = unsafe { sys::kmem_cache_alloc(self.as_ptr(), sys::GFP) };

        self.put_into(place, value)
    }

    /// Allocates an object charged to `group`, with any active group; or returns the value.
    pub fn alloc_in(&self, group: &Group, value: T) -> Result<Object<'_, T>, Refused<T>> {
        // SAFETY: as above; the group lives as long as its handle.
        let place = unsafe { sys::kmem_cache_alloc_in(self.as_ptr(), group.as_ptr(), sys::GFP) };

        self.put_into(place, value)
    }

    fn put_into(&self, place: *mut c_void, value: T) -> Result<Object<'_, T>, Refused<T>> {
        match NonNull::new(place.cast::<T>()) {
            Some(place) => {
                // SAFETY: new memory with T's size and alignment, and no other user.
                unsafe { place.as_ptr().write(value) };
                Ok(Object { place, _of: PhantomData, _owns: PhantomData })
            }
            None => Err(Refused(value)),
        }
    }

    /// Keeps the cache for ever, for objects without a lifetime bound.
    ///
    /// ```
    /// let cache: &'static kmem::Cache<String> = kmem::Cache::new("names")?.leak();
    /// let name = cache.alloc("a name".to_string())?;
    /// let thread = std::thread::spawn(move || name.len());
    /// assert_eq!(thread.join().unwrap(), 6);
    /// # Ok::<(), kmem::Error>(())
    /// ```
    #[cfg(feature = "std")]
    pub fn leak(self) -> &'static Cache<T>
    where
        T: 'static,
    {
        std::boxed::Box::leak(std::boxed::Box::new(self))
    }

    /// Returns cached objects and free slabs. Returns: true if no slab remains.
    pub fn shrink(&self) -> bool {
        // SAFETY: the cache lives as long as `self`.
        unsafe { sys::kmem_cache_shrink(self.as_ptr()) == 0 }
    }

    /// The cache for C functions, valid as long as `self`.
    pub fn as_ptr(&self) -> *mut sys::kmem_cache {
        self.raw.as_ptr()
    }
}

impl<T> Drop for Cache<T> {
    fn drop(&mut self) {
        // SAFETY: no object borrows the cache, so no thread is in a call. The memory of forgotten objects stays
        // allocated.
        unsafe { sys::kmem_cache_destroy(self.as_ptr()) }
    }
}

impl<T> fmt::Debug for Cache<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // SAFETY: the cache lives as long as `self`.
        let size = unsafe { sys::kmem_cache_size(self.as_ptr()) };

        f.debug_struct("Cache").field("size", &size).finish()
    }
}

/// An object of a cache: a box of one word. The drop ends the value and frees the memory.
pub struct Object<'c, T> {
    place: NonNull<T>,
    _of: PhantomData<&'c Cache<T>>,
    _owns: PhantomData<T>,
}

// SAFETY: the handle owns the object, like a box; any thread may free the object.
unsafe impl<T: Send> Send for Object<'_, T> {}
unsafe impl<T: Sync> Sync for Object<'_, T> {}

impl<'c, T> Object<'c, T> {
    /// Takes the value and frees the object.
    pub fn into_inner(object: Object<'c, T>) -> T {
        let object = ManuallyDrop::new(object);

        // SAFETY: the value is read once, and the memory is freed without a drop of the value.
        unsafe {
            let value = object.place.as_ptr().read();

            sys::kfree(object.place.as_ptr().cast());
            value
        }
    }

    /// Keeps the object as long as the cache; the value is never dropped.
    pub fn leak(object: Object<'c, T>) -> &'c mut T {
        // SAFETY: the cache's memory stays if an object was not freed.
        unsafe { &mut *ManuallyDrop::new(object).place.as_ptr() }
    }
}

impl<T> Drop for Object<'_, T> {
    fn drop(&mut self) {
        struct Memory(*mut c_void);
        impl Drop for Memory {
            fn drop(&mut self) {
                // SAFETY: the handle owns the memory, also if the value's drop panics.
                unsafe { sys::kfree(self.0) }
            }
        }
        let _memory = Memory(self.place.as_ptr().cast());

        // SAFETY: the value is valid, and the handle is the only owner.
        unsafe { ptr::drop_in_place(self.place.as_ptr()) }
    }
}

impl<T> Deref for Object<'_, T> {
    type Target = T;

    fn deref(&self) -> &T {
        // SAFETY: the value lives as long as the handle.
        unsafe { self.place.as_ref() }
    }
}

impl<T> DerefMut for Object<'_, T> {
    fn deref_mut(&mut self) -> &mut T {
        // SAFETY: as above, with the handle borrowed.
        unsafe { self.place.as_mut() }
    }
}

impl<T: fmt::Debug> fmt::Debug for Object<'_, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        (**self).fmt(f)
    }
}

impl<T: fmt::Display> fmt::Display for Object<'_, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        (**self).fmt(f)
    }
}
