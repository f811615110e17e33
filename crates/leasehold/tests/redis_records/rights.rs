//! The rights that records take.

use futures_util::FutureExt;
use leasehold::engine::records::{Begin, Begun, Content, MarkOp, Outcome};
use leasehold_testkit::{RedisServer, eventually_async};

use crate::{
    each_right,
    fixture::{Client, LONG, attempt, end, name, paid, soon},
};

type Failure = Box<dyn std::error::Error>;

fn must(holds: bool, what: &str) -> Result<(), Failure> {
    if holds { Ok(()) } else { Err(what.into()) }
}

/// Everything that a client does with records and marks.
async fn use_everything(server: &RedisServer) -> Result<(), Failure> {
    let open = || Client::open(format!("redis://leasehold:pw@{}", server.addr()));
    let (a, b) = (open(), open());
    let (one, watching) =
        (attempt("idempotency:x", None), Begin { wake: true, ..attempt("idempotency:x", None) });
    let Begun::Yours(grant) = a.try_begin(&one).await? else { return Err("not ours".into()) };
    must(matches!(b.try_begin(&watching).await?, Begun::Running { .. }), "running")?;
    a.leases().renew(&[one.hold(grant.fence)], soon()).await?.remove(0)?;
    a.records().settle(&end(&one, grant.fence, paid()), soon()).await?;
    eventually_async(LONG, "the wake-up", || async { b.told(&watching) == 1 }).await;
    must(matches!(b.try_begin(&watching).await?, Begun::Completed(_)), "completed")?;
    must(a.records().read(&one.key, soon()).await?.is_some(), "read")?;
    must(a.records().remove(&one.key, soon()).await?, "remove")?;
    let again = attempt("idempotency:x", None);
    let Begun::Yours(grant) = a.try_begin(&again).await? else { return Err("not ours".into()) };
    // A copy of a request that was given up may still be on its way.
    let _unanswered = a.records().begin(&again, soon()).now_or_never();
    a.records().settle(&end(&again, grant.fence, Outcome::Retry), soon()).await?;

    let keys = [name("processing:1"), name("processing:2")];
    for op in [MarkOp::SetIfAbsent(LONG), MarkOp::Set(LONG)] {
        a.records().on_marks(&keys, op, soon()).await?;
    }
    must(a.records().on_marks(&keys, MarkOp::Test, soon()).await? == [true, true], "exist")?;
    let page = a.records().scan("processing:", None, 10, soon()).await?;
    must(page.items.len() == 2 && page.items[0].content == Content::Mark, "scan")?;
    must(a.records().on_marks(&keys, MarkOp::Clear, soon()).await? == [true, true], "clear")
}

#[tokio::test]
async fn the_documented_rights_suffice_and_each_is_needed() {
    each_right::is_needed("acl: records", use_everything).await;
}
