//! A program with libkmem as global allocator: boxes and vectors follow the thread's group, and only while
//! account_malloc is on. One test, because the switch is process-wide.

use std::alloc::{alloc, alloc_zeroed, dealloc, realloc, Layout};
use std::collections::HashMap;
use std::panic::{catch_unwind, AssertUnwindSafe};
use std::sync::mpsc;
use std::thread;

use kmem::{account_malloc, Group};

#[global_allocator]
static ALLOCATOR: kmem::Kmem = kmem::Kmem;

fn drained(group: &Group) -> u64 {
    group.drain();
    group.current()
}

fn pays(group: &Group, bytes: &[u8]) -> bool {
    Group::paying_for(&bytes[0]).map_or(false, |payer| payer == *group)
}

/// Calls each function of the allocator, with each alignment.
fn blocks(group: &Group) {
    for align in (0..14).map(|shift| 1usize << shift) {
        for size in [1, 15, 16, 100, 1000, 5000, 40_000, 1 << 20, 5 << 20] {
            let layout = Layout::from_size_align(size, align).unwrap();

            // SAFETY: each block is freed once, with its last layout.
            group.run(|| unsafe {
                let p = alloc_zeroed(layout);
                assert!(!p.is_null() && p as usize % align == 0);
                assert!((0..size).step_by(61).all(|at| *p.add(at) == 0));
                assert!(Group::paying_for(&*p).unwrap() == *group);
                p.add(size - 1).write(77);
                let q = realloc(p, layout, size * 2);
                assert!(!q.is_null() && q as usize % align == 0);
                assert_eq!(*q.add(size - 1), 77);
                dealloc(q, Layout::from_size_align(size * 2, align).unwrap());
                let p = alloc(layout);
                assert!(!p.is_null() && p as usize % align == 0);
                dealloc(p, layout);
            });
        }
    }
    assert_eq!(drained(group), 0);
}

fn switched(group: &Group) {
    let before = group.run(|| vec![1u8; 1000]);
    assert!(!pays(group, &before));
    account_malloc(true).unwrap();
    assert_eq!(drained(group), 0);
    let during = group.run(|| vec![1u8; 1000]);
    assert!(pays(group, &during) && drained(group) >= 1000);
    account_malloc(false).unwrap();
    assert!(!pays(group, &group.run(|| vec![1u8; 1000])));
    drop(before);
    assert!(drained(group) >= 1000);
    drop(during);
    assert_eq!(drained(group), 0);
    account_malloc(true).unwrap();
}

fn limited(group: &Group) {
    group.set_max(1 << 20).unwrap();
    group.run(|| {
        let mut all: Vec<Vec<u8>> = Vec::with_capacity(2000);
        loop {
            let mut next = Vec::new();
            if next.try_reserve_exact(1000).is_err() {
                break;
            }
            all.push(next);
        }
        assert!(all.len() > 850 && all.len() < 1049, "{}", all.len());
        assert!(group.current() <= 1 << 20 && group.failcnt() > 0);
        // Another tenant is not affected.
        let other = Group::new("other").unwrap();
        other.run(|| assert_eq!(vec![0u8; 4 << 20].len(), 4 << 20));
        all.clear();
        assert!(Vec::<u8>::new().try_reserve_exact(900_000).is_ok());
    });
    group.set_max(Group::NO_LIMIT).unwrap();
    assert_eq!(drained(group), 0);
}

/// Scopes nest, end by a panic, and belong to one thread.
fn scopes(group: &Group) {
    let inner = group.child("inner").unwrap();
    let name = |active: Option<Group>| active.map(|group| group.name().to_string());

    assert!(Group::active().is_none());
    let outer = group.enter();
    assert!(Group::active().as_ref() == Some(group));
    let result = catch_unwind(AssertUnwindSafe(|| {
        inner.run(|| {
            assert_eq!(name(Group::active()).as_deref(), Some("inner"));
            std::panic::resume_unwind(Box::new(1));
        })
    }));
    assert!(result.is_err());
    assert!(Group::active().as_ref() == Some(group));
    assert!(thread::spawn(|| Group::active().is_none()).join().unwrap());
    drop(result);
    drop(outer);
    assert!(Group::active().is_none());

    // Out of order, and forgotten: the groups stay alive, and no freed group is used.
    let first = Group::new("first").unwrap();
    let a = first.enter();
    let second = Group::new("second").unwrap();
    let b = second.enter();
    drop((first, second));
    drop(a);
    assert_eq!(name(Group::active()).as_deref(), Some("second"));
    drop(b);
    assert_eq!(name(Group::active()).as_deref(), Some("first"));
    Group::root().run(|| {
        std::mem::forget(Group::new("forgotten").unwrap().enter());
        assert_eq!(name(Group::active()).as_deref(), Some("forgotten"));
    });
}

/// One thread frees blocks of another thread, with another group active.
fn sent(group: &Group) {
    let other = Group::new("receiver").unwrap();
    let (sender, receiver) = mpsc::channel::<HashMap<String, Vec<u8>>>();
    let thread = thread::spawn(move || {
        other.run(|| receiver.iter().map(|map| map.len()).sum::<usize>())
    });

    for round in 0..20 {
        let map = group.run(|| (0..50).map(|i| (format!("{}-{}", round, i), vec![7; i * 100])).collect());
        sender.send(map).unwrap();
    }
    drop(sender);
    assert_eq!(thread.join().unwrap(), 1000);
    assert_eq!(drained(group), 0);
}

#[test]
fn the_global_allocator_follows_groups() {
    // In a separate thread, because forgotten scopes stay there.
    thread::spawn(|| {
        let group = Group::new("tenant").unwrap();

        switched(&group);
        blocks(&group);
        limited(&group);
        sent(&group);
        assert_eq!(group.name(), "tenant");
        assert!(group.parent().is_some() && group.is_online() && group.peak() > 0);
        scopes(&group);
    })
    .join()
    .unwrap();
}
