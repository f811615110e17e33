//! A real fork.

use std::{
    collections::HashSet,
    io::{Read, Write, pipe},
};

use super::*;
use crate::{
    clock::BootInstant,
    entropy::Entropy,
    owner::{Holder, Owner},
};

const DRAWN: usize = 100;

/// One moment, so that no generator is seeded again because of its age.
fn values() -> impl Iterator<Item = String> {
    let entropy = Entropy::new(None);
    let secret = move || entropy.secret(BootInstant::from_nanos(5_000));
    (0..DRAWN).map(move |_| Owner::of_this_process(secret(), "", 0).expose().to_owned())
}

#[test]
#[expect(unsafe_code, reason = "a fork is what is tested")]
fn a_child_shows_its_own_id_and_draws_its_own_secrets() {
    // What is remembered and seeded by now is what the child gets a copy of.
    let before: Vec<_> = values().collect();
    let (mut from_child, mut to_parent) = pipe().unwrap();
    // SAFETY: the child draws, writes to a pipe and exits. It allocates, which glibc allows after a fork, and takes no
    // lock of another thread.
    let child = unsafe { libc::fork() };
    if child == 0 {
        let is_written = values().all(|value| writeln!(to_parent, "{value}").is_ok());
        // SAFETY: it ends the child without running what belongs to its parent.
        unsafe { libc::_exit(i32::from(!is_written)) };
    }
    drop(to_parent);
    let after: Vec<_> = values().collect();
    let mut of_child = String::new();
    from_child.read_to_string(&mut of_child).unwrap();
    let mut status = 0;
    // SAFETY: `child` is ours, and `status` outlives the call.
    assert_eq!((unsafe { libc::waitpid(child, &raw mut status, 0) }, status), (child, 0));

    assert!(stamp().is_some(), "a fork is noticed here");
    let pids = |values: &[String]| -> HashSet<u32> { values.iter().map(|value| pid_in(value)).collect() };
    let of_child: Vec<_> = of_child.lines().map(str::to_owned).collect();
    assert_eq!((pids(&after), pids(&of_child)), ([id()].into(), [child as u32].into()));
    let secrets = [before, after, of_child].concat().into_iter().map(|value| value[..32].to_owned());
    assert_eq!(secrets.collect::<HashSet<_>>().len(), 3 * DRAWN);
}

fn pid_in(value: &str) -> u32 {
    let Holder::Leasehold { pid, .. } = Holder::parse(value) else { panic!("an owner value") };
    pid
}
