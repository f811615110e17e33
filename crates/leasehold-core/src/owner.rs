//! Who holds a lock: a secret that proves ownership, and what people may see of it.

use std::{
    cell::RefCell,
    collections::HashMap,
    fmt,
    hash::{BuildHasherDefault, Hasher},
    sync::{Arc, OnceLock},
    time::{Duration, SystemTime},
};

use serde::Serialize;

use crate::process;

/// The random part of an owner value. It is a secret: whoever knows it can release the lock.
// Two halves: a `u128` is aligned to 16 bytes, and would leave gaps where clients keep many.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct OwnerId {
    high: u64,
    low: u64,
}

impl OwnerId {
    /// Reads the random part from the 32 hexadecimal digits it is written as.
    pub fn parse(text: &str) -> Option<Self> {
        let is_id = text.len() == 32 && text.bytes().all(|b| matches!(b, b'0'..=b'9' | b'a'..=b'f'));
        u128::from_str_radix(text, 16).ok().filter(|_| is_id).map(Self::new)
    }

    fn new(random: u128) -> Self {
        Self { high: (random >> 64) as u64, low: random as u64 }
    }

    /// The digits that [`OwnerId::parse`] reads.
    fn digits(self, into: &mut [u8; 32]) -> &str {
        const DIGITS: &[u8; 16] = b"0123456789abcdef";
        let bytes = self.high.to_be_bytes().into_iter().chain(self.low.to_be_bytes());
        for (pair, byte) in into.chunks_exact_mut(2).zip(bytes) {
            pair[0] = DIGITS[usize::from(byte >> 4)];
            pair[1] = DIGITS[usize::from(byte & 15)];
        }
        std::str::from_utf8(into).expect("digits are text")
    }
}

impl fmt::Debug for OwnerId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("OwnerId(redacted)")
    }
}

/// What is known of each attempt. Ids are random and chosen by their own client, so an id is its own hash.
pub type OwnerMap<T> = HashMap<OwnerId, T, BuildHasherDefault<OwnerIdHasher>>;

/// The hash of an [`OwnerId`] for [`OwnerMap`]: one half combined with the other.
#[derive(Debug, Default)]
pub struct OwnerIdHasher(u64);

impl Hasher for OwnerIdHasher {
    fn write_u64(&mut self, half: u64) {
        self.0 ^= half;
    }

    fn write(&mut self, _: &[u8]) {
        unreachable!("an id is written as two numbers");
    }

    fn finish(&self) -> u64 {
        self.0
    }
}

/// The owner value of **one attempt**: 128 random bits followed by readable holder data.
///
/// The whole text is what the store holds, so "who holds it" costs nothing extra.
#[derive(Clone, PartialEq, Eq)]
pub struct Owner {
    id: OwnerId,
    value: Arc<str>,
}

impl Owner {
    /// An owner value from its random bits and what people may see.
    pub fn new(random: u128, holder: &Holder) -> Self {
        match holder {
            Holder::Leasehold { host, pid, since_ms, label } => {
                Self::write(random, Some((*since_ms, *pid, host, label)))
            }
            Holder::Foreign => Self::write(random, None),
        }
    }

    /// As with [`Holder::this_process`], which it does not make.
    pub(crate) fn of_this_process(random: u128, label: &str, wall_us: u64) -> Self {
        Self::write(random, Some((wall_us / 1000, process::id(), host(), label)))
    }

    /// Every attempt has a value of its own, so nothing is formatted and one allocation has to do.
    fn write(random: u128, holder: Option<(u64, u32, &str, &str)>) -> Self {
        thread_local! { static TEXT: RefCell<String> = const { RefCell::new(String::new()) } }
        let (id, mut number) = (OwnerId::new(random), itoa::Buffer::new());
        TEXT.with_borrow_mut(|text| {
            text.clear();
            text.push_str(id.digits(&mut [0; 32]));
            text.push(' ');
            if let Some((since_ms, pid, host, label)) = holder {
                text.push_str(number.format(since_ms));
                text.push(' ');
                text.push_str(number.format(pid));
                for word in [host, label] {
                    text.push(' ');
                    text.push_str(word);
                }
            }
            Self { id, value: text.as_str().into() }
        })
    }

    /// An owner value read back from [`Owner::expose`], for a lock that one process took and another returns.
    pub fn from_exposed(value: &str) -> Option<Self> {
        let id = OwnerId::parse(value.get(..32)?)?;
        (value.as_bytes().get(32) == Some(&b' ')).then(|| Self { id, value: value.into() })
    }

    /// The random part.
    pub fn id(&self) -> OwnerId {
        self.id
    }

    /// The random part as it is written into the store.
    pub fn id_text(&self) -> &str {
        &self.value[..32]
    }

    /// The whole value, secret included: for stores and handle files, never for logs.
    pub fn expose(&self) -> &str {
        &self.value
    }

    /// When its attempt started, as [`Holder::Leasehold`] has it.
    pub fn since_ms(&self) -> Option<u64> {
        self.value.get(33..)?.split(' ').next()?.parse().ok()
    }

    /// What people may see.
    pub fn holder(&self) -> Holder {
        Holder::parse(&self.value)
    }
}

impl fmt::Debug for Owner {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Owner({})", self.holder())
    }
}

/// What may be shown of a holder or a waiter.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(tag = "kind", rename_all = "snake_case")]
#[non_exhaustive]
pub enum Holder {
    /// A client of this library.
    Leasehold {
        /// Name of its host.
        host: String,
        /// Its process.
        pid: u32,
        /// When its attempt started, by the holder's wall clock, in milliseconds since 1970.
        since_ms: u64,
        /// What its program calls it; may be empty.
        label: String,
    },
    /// Another library; its value is a secret of its own and is not shown.
    Foreign,
}

/// What the words of a label begin with that a candidate of an election adds.
pub(crate) const VERSION: &str = "version=";
pub(crate) const PRIORITY: &str = "priority=";

/// Longest label in bytes.
pub const LABEL_MAX_BYTES: usize = 128;

impl Holder {
    /// This process.
    pub fn this_process(label: &str, wall_us: u64) -> Self {
        Self::Leasehold {
            host: host().into(),
            pid: process::id(),
            since_ms: wall_us / 1000,
            label: label.into(),
        }
    }

    /// Reads what people may see from an owner value of any library.
    pub fn parse(value: &str) -> Self {
        let parse = || {
            OwnerId::parse(value.get(..32)?)?;
            let mut parts = value.get(32..)?.strip_prefix(' ')?.splitn(4, ' ');
            Some(Self::Leasehold {
                since_ms: parts.next()?.parse().ok()?,
                pid: parts.next()?.parse().ok()?,
                host: parts.next()?.into(),
                label: parts.next()?.into(),
            })
        };
        parse().unwrap_or(Self::Foreign)
    }

    /// Whether it is this process itself, which then waits for its own release.
    pub fn is_this_process(&self) -> bool {
        matches!(self, Self::Leasehold { host: name, pid, .. } if *pid == process::id() && name == host())
    }

    /// The label without what [`version`](Self::version) and [`priority`](Self::priority) read from it; empty for another
    /// library.
    pub fn label(&self) -> &str {
        self.candidate().0
    }

    /// The version that a candidate of an election stands with, which its label ends with: `scheduler version=2.1`.
    pub fn version(&self) -> Option<&str> {
        self.candidate().1
    }

    /// The priority that a candidate of an election stands with, which its label ends with: `scheduler priority=7`. 0 if it
    /// has none.
    pub fn priority(&self) -> i32 {
        self.candidate().2
    }

    fn candidate(&self) -> (&str, Option<&str>, i32) {
        let Self::Leasehold { label, .. } = self else { return ("", None, 0) };
        let last_word = |text: &'_ str, key: &str| {
            let start = text.rfind(' ').map_or(0, |space| space + 1);
            text[start..].starts_with(key).then_some((start.saturating_sub(1), start + key.len()))
        };
        let (mut text, mut priority) = (label.as_str(), 0);
        if let Some((end, value)) = last_word(text, PRIORITY)
            && let Ok(number) = text[value..].parse()
        {
            (text, priority) = (&text[..end], number);
        }
        match last_word(text, VERSION) {
            Some((end, value)) => (&text[..end], Some(&text[value..]), priority),
            None => (text, None, priority),
        }
    }

    /// How long ago its attempt started, by the two wall clocks.
    pub fn age(&self) -> Option<Duration> {
        let Self::Leasehold { since_ms, .. } = self else { return None };
        let started = SystemTime::UNIX_EPOCH + Duration::from_millis(*since_ms);
        Some(SystemTime::now().duration_since(started).unwrap_or_default())
    }
}

/// The name of this host.
fn host() -> &'static str {
    static HOST: OnceLock<String> = OnceLock::new();
    HOST.get_or_init(|| {
        let name = rustix::system::uname().nodename().to_string_lossy().into_owned();
        let name: String = name.chars().filter(|c| !c.is_whitespace() && !c.is_control()).take(64).collect();
        if name.is_empty() { "localhost".into() } else { name }
    })
}

impl fmt::Display for Holder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Leasehold { host, pid, label, .. } if label.is_empty() => write!(f, "{host} pid {pid}"),
            Self::Leasehold { host, pid, label, .. } => write!(f, "{label} ({host} pid {pid})"),
            Self::Foreign => f.write_str("a client of another library"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn holder(label: &str) -> Holder {
        Holder::Leasehold { host: "web1".into(), pid: 7, since_ms: 1_700_000_000_000, label: label.into() }
    }

    #[test]
    fn an_owner_value_reads_back() {
        for label in ["", "nightly report", "ü"] {
            let owner = Owner::new(0xabc, &holder(label));
            assert_eq!(owner.holder(), holder(label));
            assert_eq!(owner.since_ms(), Some(1_700_000_000_000));
            assert_eq!(Owner::from_exposed(owner.expose()).unwrap(), owner);
            assert_eq!(OwnerId::parse(owner.id_text()), Some(owner.id()));
        }
        let random = 0x0123_4567_89ab_cdef_0011_2233_4455_6677;
        let value = "0123456789abcdef0011223344556677 1700000000000 7 web1 x";
        assert_eq!(Owner::new(random, &holder("x")).expose(), value);
        let foreign = Owner::new(random, &Holder::Foreign);
        assert_eq!((foreign.expose(), foreign.since_ms()), (&value[..33], None));
    }

    #[test]
    fn a_label_ends_with_the_version_and_the_priority_of_a_candidate() {
        for (text, read) in [
            ("", ("", None, 0)),
            ("nightly report", ("nightly report", None, 0)),
            ("my scheduler version=2.1 priority=-7", ("my scheduler", Some("2.1"), -7)),
            ("version=2.1", ("", Some("2.1"), 0)),
            ("priority=7", ("", None, 7)),
            ("a priority=high", ("a priority=high", None, 0)),
            ("a priority=1 version=2", ("a priority=1", Some("2"), 0)),
        ] {
            let holder = holder(text);
            assert_eq!((holder.label(), holder.version(), holder.priority()), read);
        }
        assert_eq!((Holder::Foreign.label(), Holder::Foreign.priority()), ("", 0));
    }

    #[test]
    fn an_owner_value_of_this_process_shows_it() {
        let owner = Owner::of_this_process(1, "x", 5_000);
        assert_eq!(owner.holder(), Holder::this_process("x", 5_000));
    }

    #[test]
    fn values_of_other_libraries_are_never_shown() {
        for foreign in
            ["locked", "1", "", "9f1c2e0a-1f1e-4a52-9f0e-1f1e4a529f0e", "0123456789abcdef0123456789abcdef"]
        {
            assert_eq!(Holder::parse(foreign), Holder::Foreign);
        }
        assert!(Owner::from_exposed("locked").is_none());
    }

    #[test]
    fn debug_hides_the_secret() {
        let owner = Owner::new(0xfeed_beef, &holder("x"));
        let shown = format!("{owner:?} {:?}", owner.id());
        assert!(!shown.contains("feedbeef"), "{shown}");
    }
}
