//! `leasehold migrate`: what a database needs installed.

use clap::Args;
use leasehold::engine::Installed;
use serde::Serialize;

use super::Global;
use crate::{
    exit::{Exit, Failure},
    output,
    store::{self, Store},
};

/// Install what a database needs, or bring it up to date
///
/// A postgres:// store keeps everything in a schema of its own, leasehold. This installs its tables and functions. It can be
/// run at any time, also while programs use the database, and changes nothing where nothing is to be done.
#[derive(Args)]
#[command(after_help = "\
Exit codes: 0 installed, or up to date · 1 with --check: a migration is needed · 69 unreachable

Examples:
  leasehold migrate --store postgres://db/app
  leasehold migrate --store postgres://db/app --check
  leasehold migrate --store postgres://db/app --print > leasehold.sql")]
pub(super) struct Migrate {
    /// Print the SQL of an installation into an empty database, and change nothing
    #[arg(long, conflicts_with = "check")]
    print: bool,

    /// Say what is installed, and change nothing
    #[arg(long)]
    check: bool,
}

#[derive(Serialize)]
struct Report {
    store: String,
    /// What was found before anything was changed.
    found: Installed,
    installed: bool,
}

impl Migrate {
    pub(super) async fn execute(self, global: &Global) -> Result<Exit, Failure> {
        let leases = Store::choose(global)?.connect_lazy()?;
        if self.print {
            output::print(&leases.schema()?.script())?;
            store::close(&leases).await;
            return Ok(Exit::OK);
        }
        let schema = leases.schema()?;
        let found = if self.check { schema.check().await } else { schema.install().await };
        let store = leases.store().to_owned();
        store::close(&leases).await;
        let found = found?;
        let is_current = matches!(found, Installed::Current { .. });
        let words = words(found, self.check);
        global.output().print(Report { store, found, installed: !self.check && !is_current }, || words)?;
        Ok(if self.check && !is_current { Exit::NO } else { Exit::OK })
    }
}

fn words(found: Installed, is_check: bool) -> String {
    match (found, is_check) {
        (Installed::Current { version }, _) => {
            format!("the schema leasehold is up to date: version {version}\n")
        }
        (Installed::Nothing, true) => "the database has no schema leasehold\n".into(),
        (Installed::Nothing, false) => "installed the schema leasehold\n".into(),
        (Installed::Differs { version, wanted, works }, true) => {
            let works =
                if works { "this program works with it" } else { "this program does not work with it" };
            format!(
                "the schema leasehold has version {version}, and this program installs {wanted}; {works}\n"
            )
        }
        (Installed::Differs { version, wanted, works: true }, false) if version > wanted => {
            format!(
                "left as it is: the schema leasehold has version {version}, and this program works with it\n"
            )
        }
        (Installed::Differs { version, wanted, .. }, false) => {
            format!("brought the schema leasehold from version {version} to {wanted}\n")
        }
        _ => "done\n".into(),
    }
}
