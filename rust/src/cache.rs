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

/// A cache: objects of type `T`, of which each CPU has some ready. Threads share it, and an object may be dropped in any
/// thread that it may be sent to.
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
/// It goes when nobody has an object of it any more:
///
/// ```compile_fail
/// let points = kmem::Cache::<u64>::new("points").unwrap();
/// let p = points.alloc(1).unwrap();
/// drop(points);
/// assert_eq!(*p, 1);
/// ```
///
/// For objects that live as long as they like, [`leak`](Cache::leak) it. A cache that is dropped while an object of it
/// was forgotten, or leaked, says so in one line, and that memory stays.
pub struct Cache<T> {
    raw: NonNull<sys::kmem_cache>,
    _holds: PhantomData<fn(T) -> T>,
}

// SAFETY: the functions of a cache may be called by any thread, and it gives nobody an object that another has: values
// come in by the thread that owns them, and go out by handles, which say themselves where they may go.
unsafe impl<T> Send for Cache<T> {}
unsafe impl<T> Sync for Cache<T> {}

/// How a cache is made.
#[derive(Clone, Copy, Debug, Default)]
pub struct Options {
    flags: sys::c_uint,
    shelf: sys::c_uint,
}

impl Options {
    /// As [`Cache::new`].
    pub fn new() -> Options {
        Options::default()
    }

    /// Each object is charged to the group that is active in its thread, or that is the default.
    pub fn accounted(mut self) -> Options {
        self.flags |= sys::SLAB_ACCOUNT;
        self
    }

    /// No two objects are in one line of the processor's caches, unless they are smaller than half of one.
    pub fn cache_line_aligned(mut self) -> Options {
        self.flags |= sys::SLAB_HWCACHE_ALIGN;
        self
    }

    /// Each CPU has at least so many objects ready (at most 1022).
    pub fn shelf(mut self, objects: u32) -> Options {
        self.shelf = objects;
        self
    }

    /// The cache. A type that is aligned to more than a page has none. With `KMEM_OPTIONS=engine:slob` it is engine
    /// sheaf's, as a handle alone must say whose object it is.
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
        // SAFETY: the names end with a NUL; this one is copied.
        let create = |args: &sys::kmem_cache_args| unsafe {
            sys::kmem_cache_create_args(c_name(name).as_ptr(), size, args, self.flags)
        };
        let mut raw = create(&args);

        // An object of engine slob's does not say whose it is, as kfree must know.
        if !raw.is_null() && is_of_slob(raw) {
            // SAFETY: the cache is new, and nobody else's.
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

    // SAFETY: the cache is there, the numbers fit, and an engine's name is a constant of four letters or more and a NUL.
    unsafe {
        sys::kmem_cache_get_stats(cache, stats.as_mut_ptr());
        slice::from_raw_parts(stats.assume_init().engine, 5) == b"slob\0"
    }
}

impl<T> Cache<T> {
    /// A cache whose objects nobody pays for. The name is what statistics show, cut to 31 bytes.
    pub fn new(name: &str) -> Result<Cache<T>, Error> {
        Options::new().create(name)
    }

    /// A cache each of whose objects is paid for by the group that is active where it is allocated.
    pub fn accounted(name: &str) -> Result<Cache<T>, Error> {
        Options::new().accounted().create(name)
    }

    /// An object, or the value back.
    pub fn alloc(&self, value: T) -> Result<Object<'_, T>, Refused<T>> {
        // SAFETY: the cache is there as long as `self`.
        let place = unsafe { sys::kmem_cache_alloc(self.as_ptr(), sys::GFP) };

        self.put_into(place, value)
    }

    /// An object that the group pays for, whichever is active; or the value back.
    pub fn alloc_in(&self, group: &Group, value: T) -> Result<Object<'_, T>, Refused<T>> {
        // SAFETY: as above, and the group as long as its handle.
        let place = unsafe { sys::kmem_cache_alloc_in(self.as_ptr(), group.as_ptr(), sys::GFP) };

        self.put_into(place, value)
    }

    fn put_into(&self, place: *mut c_void, value: T) -> Result<Object<'_, T>, Refused<T>> {
        match NonNull::new(place.cast::<T>()) {
            Some(place) => {
                // SAFETY: fresh memory with T's size and alignment, which nobody else has.
                unsafe { place.as_ptr().write(value) };
                Ok(Object { place, _of: PhantomData, _owns: PhantomData })
            }
            None => Err(Refused(value)),
        }
    }

    /// The cache for ever, for objects that live as long as they like.
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

    /// Give back what lies ready and empty. True: all of it.
    pub fn shrink(&self) -> bool {
        // SAFETY: the cache is there as long as `self`.
        unsafe { sys::kmem_cache_shrink(self.as_ptr()) == 0 }
    }

    /// The cache as C functions take it, for as long as this one lives.
    pub fn as_ptr(&self) -> *mut sys::kmem_cache {
        self.raw.as_ptr()
    }
}

impl<T> Drop for Cache<T> {
    fn drop(&mut self) {
        // SAFETY: no object borrows the cache any more, so nobody is in a call. Of forgotten ones the memory stays.
        unsafe { sys::kmem_cache_destroy(self.as_ptr()) }
    }
}

impl<T> fmt::Debug for Cache<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // SAFETY: the cache is there as long as `self`.
        let size = unsafe { sys::kmem_cache_size(self.as_ptr()) };

        f.debug_struct("Cache").field("size", &size).finish()
    }
}

/// An object of a cache: a box, a word long. Its value is dropped, and its memory goes back, with it.
pub struct Object<'c, T> {
    place: NonNull<T>,
    _of: PhantomData<&'c Cache<T>>,
    _owns: PhantomData<T>,
}

// SAFETY: the object is its handle's alone, as a box's is; any thread may free it.
unsafe impl<T: Send> Send for Object<'_, T> {}
unsafe impl<T: Sync> Sync for Object<'_, T> {}

impl<'c, T> Object<'c, T> {
    /// The value, without the object.
    pub fn into_inner(object: Object<'c, T>) -> T {
        let object = ManuallyDrop::new(object);

        // SAFETY: the value is read once, and the memory goes back without it.
        unsafe {
            let value = object.place.as_ptr().read();

            sys::kfree(object.place.as_ptr().cast());
            value
        }
    }

    /// The object for as long as the cache; it is never dropped.
    pub fn leak(object: Object<'c, T>) -> &'c mut T {
        // SAFETY: the cache's memory stays where an object of it was not freed.
        unsafe { &mut *ManuallyDrop::new(object).place.as_ptr() }
    }
}

impl<T> Drop for Object<'_, T> {
    fn drop(&mut self) {
        struct Memory(*mut c_void);
        impl Drop for Memory {
            fn drop(&mut self) {
                // SAFETY: the memory is the handle's; also where the value's own drop panics.
                unsafe { sys::kfree(self.0) }
            }
        }
        let _memory = Memory(self.place.as_ptr().cast());

        // SAFETY: the value is there, and nobody else's.
        unsafe { ptr::drop_in_place(self.place.as_ptr()) }
    }
}

impl<T> Deref for Object<'_, T> {
    type Target = T;

    fn deref(&self) -> &T {
        // SAFETY: the value is there as long as the handle.
        unsafe { self.place.as_ref() }
    }
}

impl<T> DerefMut for Object<'_, T> {
    fn deref_mut(&mut self) -> &mut T {
        // SAFETY: as above, and the handle is borrowed for it.
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
