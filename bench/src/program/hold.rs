//! Many locks, all held at the same time; with `keep` they are also kept alive.

use std::time::Duration;

use serde_json::json;
use tokio::task::JoinSet;

use super::{Keys, Orders, say, say_ready};
use crate::{
    Failure, allocated,
    library::{Library, Lock},
};

/// Locks are taken and released by so many tasks at once.
const TASKS: usize = 64;

pub(super) async fn play<L: Library>(library: L, keys: &Keys, mut orders: Orders) -> Result<(), Failure> {
    let (locks, prefix) = (keys.number("locks")?, keys.text("prefix")?);
    let window = Duration::from_millis(keys.find("ms").map_or(Ok(0), str::parse)?);
    let mut shares = take(&library, prefix, locks).await?;
    say_ready()?;
    while let Some(order) = orders.next().await {
        if order == "release" {
            say(&json!({ "released": release(&library, prefix, &mut shares).await? }))?;
        } else {
            tokio::time::sleep(window).await;
            let held = shares.iter().flatten().filter(|guard| L::Lock::is_held(guard)).count();
            say(&json!({ "held": held, "client_bytes": allocated::bytes() }))?;
        }
    }
    release(&library, prefix, &mut shares).await?;
    Ok(())
}

/// The guards of each task, and nothing else: their bytes are counted.
type Shares<L> = Vec<Vec<<<L as Library>::Lock as Lock>::Guard>>;

async fn take<L: Library>(library: &L, prefix: &str, locks: usize) -> Result<Shares<L>, Failure> {
    let mut tasks = JoinSet::new();
    for task in 0..TASKS {
        let (library, prefix) = (library.clone(), prefix.to_owned());
        tasks.spawn(async move {
            let numbers = (task..locks).step_by(TASKS);
            let mut guards = Vec::with_capacity(numbers.len());
            for number in numbers {
                guards.push(library.lock(&format!("{prefix}{number}")).acquire().await?);
            }
            Ok::<_, Failure>((task, guards))
        });
    }
    let mut shares: Shares<L> = (0..TASKS).map(|_| Vec::new()).collect();
    while let Some(done) = tasks.join_next().await {
        let (task, guards) = done??;
        shares[task] = guards;
    }
    Ok(shares)
}

/// Returns how many there were.
async fn release<L: Library>(library: &L, prefix: &str, shares: &mut Shares<L>) -> Result<usize, Failure> {
    let mut tasks = JoinSet::new();
    for (task, guards) in std::mem::take(shares).into_iter().enumerate() {
        let (library, prefix) = (library.clone(), prefix.to_owned());
        tasks.spawn(async move {
            let number = guards.len();
            for (place, guard) in guards.into_iter().enumerate() {
                library.lock(&format!("{prefix}{}", task + place * TASKS)).release(guard).await?;
            }
            Ok::<_, Failure>(number)
        });
    }
    let mut released = 0;
    while let Some(done) = tasks.join_next().await {
        released += done??;
    }
    Ok(released)
}
