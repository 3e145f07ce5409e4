//! Caches, their objects, and private groups.

use std::cell::Cell;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;

use kmem::{Cache, Group, Object, Options, Private};

static DROPPED: AtomicUsize = AtomicUsize::new(0);

struct Counted(usize);

impl Drop for Counted {
    fn drop(&mut self) {
        DROPPED.fetch_add(1, Ordering::Relaxed);
    }
}

#[test]
fn values_are_dropped_once() {
    let cache = Cache::<Counted>::new("counted").unwrap();
    let kept = cache.alloc(Counted(1)).unwrap();
    let taken = Object::into_inner(cache.alloc(Counted(2)).unwrap());

    assert_eq!(DROPPED.load(Ordering::Relaxed), 0);
    assert_eq!((kept.0, taken.0), (1, 2));
    drop(kept);
    drop(taken);
    assert_eq!(DROPPED.load(Ordering::Relaxed), 2);
    assert_eq!(std::mem::size_of::<Option<Object<'_, Counted>>>(), std::mem::size_of::<usize>());
}

#[test]
fn any_type_has_a_cache() {
    #[repr(align(256))]
    struct Aligned([u8; 300]);
    #[repr(align(8192))]
    struct TooAligned(u8);

    let aligned = Cache::<Aligned>::new("aligned").unwrap();
    let objects: Vec<_> = (0..100).map(|i| aligned.alloc(Aligned([i; 300])).unwrap()).collect();
    assert!(objects.iter().all(|object| &**object as *const Aligned as usize % 256 == 0));
    assert!(objects.iter().enumerate().all(|(i, object)| object.0 == [i as u8; 300]));
    let nothing = Cache::<()>::new("nothing").unwrap();
    let (a, b) = (nothing.alloc(()).unwrap(), nothing.alloc(()).unwrap());
    assert_ne!(&*a as *const (), &*b as *const ());
    assert_eq!(Cache::<TooAligned>::new("too aligned").unwrap_err().code(), 22);
    assert_eq!(TooAligned(3).0, 3);
}

#[test]
fn an_object_may_go_to_another_thread() {
    let cache = Options::new().cache_line_aligned().shelf(100).create::<Vec<usize>>("sent").unwrap();

    thread::scope(|scope| {
        for start in 0..4usize {
            let objects: Vec<_> = (0..500).map(|i| cache.alloc(vec![start, i]).unwrap()).collect();

            scope.spawn(move || {
                assert!(objects.iter().enumerate().all(|(i, object)| object[..] == [start, i]));
            });
        }
    });
    assert!(cache.shrink());
}

#[test]
fn a_drop_that_panics_leaks_nothing() {
    struct Panics;
    impl Drop for Panics {
        fn drop(&mut self) {
            std::panic::resume_unwind(Box::new(()));
        }
    }
    let cache = Cache::<Panics>::new("panics").unwrap();

    for _ in 0..1000 {
        let object = cache.alloc(Panics).unwrap();
        assert!(std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| drop(object))).is_err());
    }
    assert!(cache.shrink());
}

#[test]
fn a_group_pays_for_objects() {
    let cache = Cache::<[u64; 100]>::accounted("rows").unwrap();
    let tenant = Group::new("tenant").unwrap();

    tenant.set_max(64 << 10).unwrap();
    let mut rows = Vec::new();
    let refused = loop {
        match cache.alloc_in(&tenant, [rows.len() as u64; 100]) {
            Ok(row) => rows.push(row),
            Err(refused) => break refused.0,
        }
    };
    assert_eq!(refused[0] as usize, rows.len());
    assert!(rows.len() > 70 && rows.len() < 82, "{}", rows.len());
    assert!(tenant.run(|| cache.alloc([0; 100])).is_err());
    assert!(cache.alloc([0; 100]).is_ok());
    assert!(Group::paying_for(&*rows[0]).unwrap() == tenant);
    rows.clear();
    tenant.drain();
    assert_eq!(tenant.current(), 0);
}

#[test]
fn a_private_group_ends_at_once() {
    let above = Group::new("above").unwrap();
    let mut request = Private::below(&above, "request").unwrap();

    for _ in 0..3 {
        let numbers: Vec<&mut Cell<usize>> =
            (0..1000).map(|i| request.alloc(Cell::new(i)).unwrap()).collect();
        let text = request.alloc_str("a text").unwrap();
        let slice = request.alloc_slice(&[1u16; 30_000]).unwrap();

        text.make_ascii_uppercase();
        slice[29_999] = 2;
        assert!(numbers.iter().enumerate().all(|(i, cell)| cell.get() == i));
        assert_eq!((&*text, slice[0], slice[29_999]), ("A TEXT", 1, 2));
        assert!(request.group().current() >= 60_000 && above.current() >= 60_000);
        request.reset();
        request.group().drain();
        assert_eq!(request.group().current(), 0);
    }
    request.group().set_max(100_000).unwrap();
    assert!(request.alloc_slice(&[0u8; 200_000]).is_err());
    assert_eq!(request.alloc([5u8; 200_000]).unwrap_err().0[0], 5);
    drop(request);
    above.drain();
    assert_eq!(above.current(), 0);
}

#[test]
fn names_are_cut_where_a_character_ends() {
    let long = "ä".repeat(40);
    let group = Group::new(&long).unwrap();

    assert_eq!(group.name(), "ä".repeat(31));
    assert_eq!(Group::new("a\0b").unwrap().name(), "a_b");
    assert!(format!("{:?}", group).contains("current"));
}
