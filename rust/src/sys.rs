//! Functions and constants of `<kmem/kmem.h>` and `<kmem/memcg.h>`. The comments of these headers have the promises.

#![allow(non_camel_case_types)]

use core::ffi::c_void;

pub type c_int = i32;
pub type c_uint = u32;

/// `struct kmem_cache`.
#[derive(Debug)]
#[repr(C)]
pub struct kmem_cache {
    _private: [u8; 0],
}

/// `struct mem_cgroup`.
#[derive(Debug)]
#[repr(C)]
pub struct mem_cgroup {
    _private: [u8; 0],
}

#[repr(C)]
pub struct kmem_cache_args {
    pub align: c_uint,
    pub useroffset: c_uint,
    pub usersize: c_uint,
    pub freeptr_offset: c_uint,
    pub use_freeptr_offset: bool,
    pub ctor: Option<unsafe extern "C" fn(*mut c_void)>,
    pub sheaf_capacity: c_uint,
    pub engine: *const u8,
}

/// The first fields, and room for later fields.
#[derive(Clone, Copy)]
#[repr(C)]
pub struct kmem_cache_stats {
    name: [u8; 32],
    pub engine: *const u8,
    numbers: [u64; 64],
}

/// GFP_KERNEL | __GFP_NOWARN: the caller reports a failure.
pub const GFP: c_uint = 0x100 | 0x200 | 0x800 | 0x1000 | 0x2000;
pub const SLAB_HWCACHE_ALIGN: c_uint = 0x2000;
pub const SLAB_ACCOUNT: c_uint = 0x0400_0000;
pub const MEM_CGROUP_PRIVATE: c_uint = 1;
pub const KMALLOC_MAX_SIZE: usize = 4 << 20;
pub const NAME_MAX: usize = 64;
pub const ENOMEM: c_int = 12;

extern "C" {
    pub fn kmem_cache_create_args(
        name: *const u8,
        size: c_uint,
        args: *const kmem_cache_args,
        flags: c_uint,
    ) -> *mut kmem_cache;
    pub fn kmem_cache_destroy(cache: *mut kmem_cache);
    pub fn kmem_cache_alloc(cache: *mut kmem_cache, gfp: c_uint) -> *mut c_void;
    pub fn kmem_cache_alloc_in(
        cache: *mut kmem_cache,
        group: *mut mem_cgroup,
        gfp: c_uint,
    ) -> *mut c_void;
    /// For objects of any cache, and for blocks of kmalloc.
    pub fn kfree(object: *const c_void);
    pub fn kmem_cache_shrink(cache: *mut kmem_cache) -> c_int;
    pub fn kmem_cache_get_stats(cache: *mut kmem_cache, stats: *mut kmem_cache_stats);
    pub fn kmem_cache_size(cache: *mut kmem_cache) -> c_uint;
    pub fn kmalloc_in(group: *mut mem_cgroup, size: usize, gfp: c_uint) -> *mut c_void;

    pub fn mem_cgroup_create(
        parent: *mut mem_cgroup,
        name: *const u8,
        flags: c_uint,
    ) -> *mut mem_cgroup;
    pub fn mem_cgroup_root() -> *mut mem_cgroup;
    pub fn mem_cgroup_get(group: *mut mem_cgroup) -> *mut mem_cgroup;
    pub fn mem_cgroup_put(group: *mut mem_cgroup);
    pub fn mem_cgroup_offline(group: *mut mem_cgroup) -> c_int;
    pub fn mem_cgroup_online(group: *const mem_cgroup) -> bool;
    pub fn mem_cgroup_name(group: *const mem_cgroup) -> *const u8;
    pub fn mem_cgroup_parent(group: *const mem_cgroup) -> *mut mem_cgroup;
    pub fn set_active_memcg(group: *mut mem_cgroup) -> *mut mem_cgroup;
    pub fn mem_cgroup_active() -> *mut mem_cgroup;
    pub fn mem_cgroup_set_default(group: *mut mem_cgroup);
    pub fn mem_cgroup_account_all(on: bool) -> bool;
    pub fn mem_cgroup_destroy_all(
        group: *mut mem_cgroup,
        dtor: Option<unsafe extern "C" fn(*mut kmem_cache, *mut c_void, *mut c_void)>,
        arg: *mut c_void,
    ) -> c_int;
    pub fn mem_cgroup_set_max(group: *mut mem_cgroup, bytes: u64) -> c_int;
    pub fn mem_cgroup_set_high(group: *mut mem_cgroup, bytes: u64) -> c_int;
    pub fn mem_cgroup_set_low(group: *mut mem_cgroup, bytes: u64) -> c_int;
    pub fn mem_cgroup_set_min(group: *mut mem_cgroup, bytes: u64) -> c_int;
    pub fn mem_cgroup_max(group: *const mem_cgroup) -> u64;
    pub fn mem_cgroup_current(group: *const mem_cgroup) -> u64;
    pub fn mem_cgroup_peak(group: *const mem_cgroup) -> u64;
    pub fn mem_cgroup_reset_peak(group: *mut mem_cgroup);
    pub fn mem_cgroup_failcnt(group: *const mem_cgroup) -> u64;
    pub fn mem_cgroup_drain(group: *mut mem_cgroup) -> u64;
    pub fn mem_cgroup_from_obj(object: *const c_void) -> *mut mem_cgroup;

    /// Of glibc and musl.
    fn __errno_location() -> *mut c_int;
}

#[cfg(feature = "malloc")]
extern "C" {
    pub fn mem_cgroup_account_malloc(on: bool) -> c_int;
    pub fn malloc(size: usize) -> *mut c_void;
    pub fn calloc(n: usize, size: usize) -> *mut c_void;
    pub fn realloc(block: *mut c_void, size: usize) -> *mut c_void;
    pub fn aligned_alloc(align: usize, size: usize) -> *mut c_void;
    pub fn free_sized(block: *mut c_void, size: usize);
    pub fn free_aligned_sized(block: *mut c_void, align: usize, size: usize);
}

/// errno of the last call.
pub fn errno() -> c_int {
    // SAFETY: errno's address is always valid in this thread.
    unsafe { *__errno_location() }
}
