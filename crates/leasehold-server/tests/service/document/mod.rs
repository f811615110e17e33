//! The OpenAPI document drives requests to every route, and is compared with what the service answered.

mod refusals;
mod scenario;
mod schema;
mod seen;

use leasehold_testkit::QuorumSet;
use schema::Document;
use seen::Seen;

use crate::client::Service;

/// What no test of this process can bring about.
const UNSEEN: &[(&str, &str)] =
    &[("Record.result_hex", "results that are no text come from programs that use the library")];

/// Every route, every status of it, every field and every parameter: each is seen once, and nothing else is.
#[test]
fn the_document_is_what_the_service_does() {
    let Some(set) = QuorumSet::builder(3).start_or_skip() else { return };
    let service = Service::on("memory:");
    assert_eq!(service.get("/openapi.json").json()["openapi"], "3.1.0");
    let seen = Seen::new(Document::new(service.get("/openapi.json").json()));
    scenario::play(&seen);
    refusals::of_bodies(&seen);
    refusals::of_callers(&seen);
    refusals::of_stores(&seen, &set);
    let missing = seen.missing();
    let unexpected: Vec<_> =
        missing.iter().filter(|it| !UNSEEN.iter().any(|(known, _)| known == it)).collect();
    assert!(unexpected.is_empty(), "{} of the document was not seen:\n{unexpected:#?}", unexpected.len());
    for (known, why) in UNSEEN {
        assert!(missing.iter().any(|it| it == known), "{known} was seen after all ({why})");
    }
}
