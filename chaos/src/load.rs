//! The load that the workers run, and how they connect.

use std::{path::Path, time::Duration};

use leasehold::Leasehold;
use leasehold_testkit::load::{Kind, Load};

/// Short, so that the lock of a killed holder is free soon, and stopping a worker for longer does not take long.
pub(crate) const TTL: Duration = Duration::from_secs(1);
const COMMAND_TIMEOUT: Duration = Duration::from_secs(1);
/// Names of the quick load; enough to have some on every shard of a cluster.
pub(crate) const QUICK_NAMES: usize = 6;

const LONG_NAMES: usize = 20;

/// The client of every process of a run. The store may be down when it is created.
pub(crate) fn connect(url: &str, max_ttl: Duration) -> leasehold::Result<Leasehold> {
    let builder = Leasehold::builder(url).configure(|config| {
        config.ttl = TTL;
        config.max_ttl = max_ttl;
        config.command_timeout = COMMAND_TIMEOUT;
    });
    builder.connect_lazy()
}

/// Many short tenures, kept alive and not.
pub(crate) fn quick(stem: &str, process: &str) -> Load {
    Load {
        prefix: stem.to_owned(),
        process: format!("{process}-quick"),
        names: QUICK_NAMES,
        tasks: QUICK_NAMES,
        ttl: TTL,
        wait: 3 * TTL,
        hold: Duration::from_millis(5),
        kept_of_ten: 5,
        // A limit that a fail-over loses would look like permits too many for the rest of the run.
        operates: false,
        ..Load::default()
    }
}

/// Tenures that outlast their ttl, so that most of them are held during a fault, on locks that are free now and then: a
/// lock that was just granted is lost most easily.
fn long(stem: &str, process: &str, max_ttl: Duration) -> Load {
    Load {
        prefix: format!("{stem}-long"),
        process: format!("{process}-long"),
        names: LONG_NAMES,
        tasks: LONG_NAMES,
        ttl: max_ttl,
        hold: max_ttl.mul_f64(1.5),
        rest: 2 * max_ttl,
        kept_of_ten: 10,
        ..quick(stem, process)
    }
}

/// Both, with the resources in `folder`.
pub(crate) fn both(
    kind: Kind,
    stem: &str,
    process: &str,
    max_ttl: Duration,
    folder: &Path,
) -> std::io::Result<[Load; 2]> {
    let both = [quick(stem, process), long(stem, process, max_ttl)];
    let [quick, long] = both.map(|load| Load { kind, ..load }.registers(folder));
    Ok([quick?, long?])
}
