//! A quorum of real nodes that are killed, stopped, wiped, rolled back and replaced.
#![cfg(feature = "redis")]

mod admission;
mod busy;
mod fences;
mod fixture;
mod forgetting;
mod health;
mod leftovers;
mod listing;
mod majority;
mod minority;
mod repair;
mod replicate;
mod rights;
#[path = "../security_md/mod.rs"]
mod security_md;
mod sharing;
mod slow;
#[path = "../story/mod.rs"]
mod story;
