//! From tables of a file to policies.

use toml::Table;

use super::{LockPolicy, Policies, RecordPolicy, template::Template};
use crate::{
    config::{Section, WAIT_MAX, quoted},
    error::{Error, Result},
    lease::validity::TTL_MIN,
    lock::OnOutage,
};

/// The tables that hold policies.
pub(crate) const TABLES: [&str; 3] = ["locks", "idempotency", "markers"];

const LOCK_KEYS: [&str; 11] = [
    "description",
    "key",
    "ttl",
    "wait",
    "keep-alive",
    "critical",
    "on-outage",
    "lock-delay",
    "acks",
    "max-lifetime",
    "hold-at-least",
];

const RECORD_KEYS: [&str; 3] = ["description", "key", "ttl"];

impl Policies {
    /// Reads the policies of a file. Times are not checked yet: their range depends on the client's settings.
    pub(crate) fn read(top: &Section) -> Result<Self> {
        let mut policies =
            Self { prefix: top.text("prefix")?, max_ttl: top.duration("max-ttl")?, ..Self::default() };
        let [locks, idempotency, markers] = TABLES;
        for (name, table) in top.tables(locks)? {
            let section = open(top, locks, &name, table, &LOCK_KEYS)?;
            policies.locks.insert(name.clone(), read_lock(&section, name)?);
        }
        for (kind, into) in [(idempotency, &mut policies.idempotency), (markers, &mut policies.markers)] {
            for (name, table) in top.tables(kind)? {
                let section = open(top, kind, &name, table, &RECORD_KEYS)?;
                into.insert(name.clone(), read_record(&section, name)?);
            }
        }
        policies.check_apart(top)?;
        Ok(policies)
    }

    /// A marker and an idempotency key under one key would take each other for work that is done.
    fn check_apart(&self, top: &Section) -> Result<()> {
        for marker in self.markers.values() {
            let clash = self.idempotency.values().find(|policy| policy.layout().may_equal(marker.layout()));
            if let Some(RecordPolicy { name, template, .. }) = clash {
                return Err(Error::invalid(
                    format!("key of [markers.{}] of {}", marker.name, top.place()),
                    marker.template(),
                    format!("a key that differs from \"{}\" of [idempotency.{name}]", template.as_str()),
                ));
            }
        }
        Ok(())
    }
}

fn open(top: &Section, kind: &str, name: &str, table: Table, known: &[&str]) -> Result<Section> {
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'-' || byte == b'_';
    if name.is_empty() || !name.bytes().all(is_plain) {
        let allowed = "letters, digits, '-' and '_'";
        return Err(Error::invalid(format!("policy name of {}", top.place_of(kind)), quoted(name), allowed));
    }
    Section::new(format!("[{kind}.{name}] of {}", top.place()), table, known)
}

fn read_template(section: &Section, name: &str) -> Result<Template> {
    let text = section.text("key")?.ok_or_else(|| missing(section, "key", "key = \"deal:{deal_id}\""))?;
    Template::parse(&text, name, &section.place_of("key"))
}

fn missing(section: &Section, key: &str, example: &str) -> Error {
    Error::invalid(section.place(), format!("without {key}"), format!("with {key}, such as {example}"))
}

fn read_lock(section: &Section, name: String) -> Result<LockPolicy> {
    let critical = section.flag("critical")?.unwrap_or(false);
    let on_outage = match section.text("on-outage")?.as_deref() {
        None | Some("deny") => OnOutage::Deny,
        Some("proceed") if critical => {
            let allowed = "\"deny\", because it is critical: it must never be gone without";
            return Err(Error::invalid(section.place_of("on-outage"), "proceed", allowed));
        }
        Some("proceed") => OnOutage::Proceed,
        Some(other) => {
            let allowed = "\"deny\" or \"proceed\"";
            return Err(Error::invalid(section.place_of("on-outage"), quoted(other), allowed));
        }
    };
    Ok(LockPolicy {
        template: read_template(section, &name)?,
        name,
        description: section.text("description")?.unwrap_or_default(),
        place: section.place().to_owned(),
        ttl: section.duration("ttl")?,
        wait: section.duration("wait")?,
        keep_alive: section.flag("keep-alive")?,
        critical,
        on_outage,
        lock_delay: section.duration("lock-delay")?,
        acks: section.acks("acks")?,
        max_lifetime: section.duration("max-lifetime")?,
        hold_at_least: section.duration("hold-at-least")?,
    })
}

fn read_record(section: &Section, name: String) -> Result<RecordPolicy> {
    let ttl = section.duration("ttl")?.ok_or_else(|| missing(section, "ttl", "ttl = \"24h\""))?;
    crate::config::between(&section.place_of("ttl"), ttl, TTL_MIN, WAIT_MAX)?;
    Ok(RecordPolicy {
        template: read_template(section, &name)?,
        name,
        description: section.text("description")?.unwrap_or_default(),
        ttl,
    })
}
