//! What an attempt's key says, and who of all attempts holds the lock (pure).
//!
//! Attempts are ordered by the revision that created their keys, which is also the fence of their grant. An attempt holds
//! the lock when those before it leave room for it: nobody before a writer, no writer before a reader, few enough permits
//! before one who takes some. What is before an attempt only goes away, so whoever holds goes on to hold, and grants come
//! in the order of their fences. Those who hold are always the first ones.

use std::num::NonZeroU32;

use leasehold_core::{
    engine::{Claim, EngineError, HOLDERS_SHOWN, Holders, Mode, Tenure},
    fence::Fence,
    owner::{Holder, Owner},
};

use super::{keys, proto::KeyValue};

const LAYOUT: &str = "leasehold-lock:1";

/// An attempt as it lies in the store.
#[derive(Clone, Debug)]
pub(crate) struct Entry {
    pub(crate) key: Vec<u8>,
    pub(crate) created: i64,
    pub(crate) lease: i64,
    pub(crate) mode: Mode,
    /// It was given back, and keeps the lock closed for a while.
    pub(crate) closed: bool,
    pub(crate) holder: Holder,
}

/// The text under an attempt's key: what people may see, and nothing that proves it.
pub(crate) fn text(owner: &Owner, mode: Mode, closed: bool) -> Vec<u8> {
    let word = match mode {
        Mode::Shared => "r".to_owned(),
        Mode::Permits { take, of } => format!("p{take}/{of}"),
        _ => "w".to_owned(),
    };
    let shown = owner.expose().get(33..).unwrap_or_default();
    format!("{LAYOUT} {word}{} {shown}", if closed { "!" } else { "" }).into_bytes()
}

/// Whether a text is that of an attempt.
pub(crate) fn is_attempt(text: &[u8]) -> bool {
    text.starts_with(LAYOUT.as_bytes())
}

impl Entry {
    /// Reads one. What cannot be read keeps everybody else out.
    pub(crate) fn read(kv: KeyValue) -> Self {
        let text = String::from_utf8_lossy(&kv.value);
        let (mode, closed, holder) = parse(&text).unwrap_or((Mode::Exclusive, false, Holder::Foreign));
        Self { created: kv.create_revision, lease: kv.lease, mode, closed, holder, key: kv.key }
    }

    pub(crate) fn fence(&self) -> Fence {
        Fence::new(self.created.unsigned_abs())
    }

    pub(crate) fn tenure(&self) -> Tenure {
        let (holder, fence, mode) = (self.holder.clone(), self.fence(), self.mode);
        Tenure { holder, fence, mode, expires_in: None }
    }
}

fn parse(text: &str) -> Option<(Mode, bool, Holder)> {
    let (word, shown) = text.strip_prefix(LAYOUT)?.strip_prefix(' ')?.split_once(' ')?;
    let (word, closed) = word.strip_suffix('!').map_or((word, false), |word| (word, true));
    let mode = match word {
        "w" => Mode::Exclusive,
        "r" => Mode::Shared,
        permits => {
            let (take, of) = permits.strip_prefix('p')?.split_once('/')?;
            Mode::Permits { take: take.parse().ok()?, of: of.parse().ok()? }
        }
    };
    // Where other stores have the secret, which is not here.
    Some((mode, closed, Holder::parse(&format!("{:032} {shown}", 0))))
}

/// How many permits a semaphore has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Limit {
    pub(crate) now: NonZeroU32,
    /// The number that its first user named; programs may go on to name it after the limit was changed.
    pub(crate) first: NonZeroU32,
    /// Who was there under an earlier limit holds its permits: those created up to this revision.
    pub(crate) held_up_to: i64,
}

impl Limit {
    pub(crate) fn of(mode: Mode) -> Option<Self> {
        let Mode::Permits { of, .. } = mode else { return None };
        Some(Self { now: of, first: of, held_up_to: 0 })
    }

    pub(crate) fn text(self) -> Vec<u8> {
        format!("{} {} {}", self.now, self.first, self.held_up_to).into_bytes()
    }

    pub(crate) fn read(text: &[u8]) -> Option<Self> {
        let mut words = std::str::from_utf8(text).ok()?.split(' ');
        let (now, first) = (words.next()?.parse().ok()?, words.next()?.parse().ok()?);
        Some(Self { now, first, held_up_to: words.next()?.parse().ok()? })
    }

    /// Refuses a claim of permits that names another number, or more than there are.
    pub(crate) fn check(self, mode: Mode, is_new: bool) -> Result<(), EngineError> {
        let Mode::Permits { take, of } = mode else { return Ok(()) };
        if is_new && of != self.now && of != self.first {
            return Err(EngineError::other_limit(self.now, of));
        }
        if take > self.now { Err(EngineError::above_limit(self.now, take)) } else { Ok(()) }
    }
}

/// All attempts of one name, first come first.
#[derive(Clone, Debug, Default)]
pub(crate) struct Line {
    pub(crate) entries: Vec<Entry>,
    pub(crate) limit: Option<Limit>,
}

#[derive(Clone, Copy)]
enum Taken {
    Nothing,
    Shared,
    Permits(u64),
    All,
}

impl Taken {
    /// What is taken with one more beside; nothing if there is no room for it.
    fn with(self, mode: Mode, limit: Option<Limit>) -> Option<Self> {
        match (self, mode) {
            (Self::Nothing, Mode::Shared) | (Self::Shared, Mode::Shared) => Some(Self::Shared),
            (Self::Nothing, Mode::Permits { .. }) => Self::Permits(0).with(mode, limit),
            (Self::Permits(taken), Mode::Permits { take, of }) => {
                let all = taken + u64::from(take.get());
                let limit = limit.map_or(of, |limit| limit.now);
                (all <= u64::from(limit.get())).then_some(Self::Permits(all))
            }
            (Self::Nothing, _) => Some(Self::All),
            _ => None,
        }
    }

    /// What is taken with one that holds in any case: a limit may have been lowered.
    fn and(self, mode: Mode) -> Self {
        match (self, mode) {
            (Self::Permits(taken), Mode::Permits { take, .. }) => {
                Self::Permits(taken + u64::from(take.get()))
            }
            (_, Mode::Permits { take, .. }) => Self::Permits(u64::from(take.get())),
            (_, Mode::Shared) => Self::Shared,
            _ => Self::All,
        }
    }
}

impl Line {
    /// From what the store has under a name, in the order of creation.
    pub(crate) fn read(start: &[u8], kvs: Vec<KeyValue>, limit: Option<Limit>) -> Self {
        let own = kvs.into_iter().filter(|kv| !keys::is_deeper(start, &kv.key));
        let mut entries: Vec<_> = own.map(Entry::read).collect();
        // Keys of one transaction have one revision.
        entries.sort_by(|one, other| (one.created, &one.key).cmp(&(other.created, &other.key)));
        Self { entries, limit }
    }

    /// How many of the first entries hold it, and what they have taken.
    fn held(&self) -> (usize, Taken) {
        let mut taken = Taken::Nothing;
        for (place, entry) in self.entries.iter().enumerate() {
            let was_there = self.limit.is_some_and(|limit| entry.created <= limit.held_up_to);
            taken = match taken.with(entry.mode, self.limit) {
                Some(with) => with,
                None if was_there => taken.and(entry.mode),
                None => return (place, taken),
            };
        }
        (self.entries.len(), taken)
    }

    /// How many of the first entries hold it.
    pub(crate) fn holding(&self) -> usize {
        self.held().0
    }

    /// Whether one more, at the end, would hold it.
    pub(crate) fn has_room(&self, mode: Mode) -> bool {
        let (holding, taken) = self.held();
        holding == self.entries.len() && taken.with(mode, self.limit).is_some()
    }

    pub(crate) fn place(&self, key: &[u8]) -> Option<usize> {
        self.entries.iter().position(|entry| entry.key == key)
    }

    /// The last entry before this place that has to go, or to change, before the one there can hold the lock. Before permits
    /// it may be any.
    pub(crate) fn blocker(&self, place: usize) -> Option<&Entry> {
        let before = &self.entries[..place];
        match self.entries[place].mode {
            Mode::Shared => before.iter().rfind(|entry| entry.mode != Mode::Shared),
            Mode::Permits { .. } => None,
            _ => before.last(),
        }
    }

    /// Who holds it.
    pub(crate) fn holders(&self) -> Holders {
        let held = &self.entries[..self.holding()];
        let shown = held.iter().take(HOLDERS_SHOWN).map(Entry::tenure).collect();
        Holders { shown, total: held.len() as u32, free_in: None }
    }

    /// A name is a read-write lock or a semaphore, as long as anybody uses it.
    pub(crate) fn check_kind(&self, claim: &Claim, own: &[u8]) -> Result<(), EngineError> {
        let mut others = self.entries.iter().filter(|entry| entry.key != own);
        match others.find(|entry| !entry.mode.is_kind_of(claim.mode)) {
            Some(other) => Err(EngineError::other_mode(other.mode, claim.mode)),
            None => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const WRITER: Mode = Mode::Exclusive;
    const READER: Mode = Mode::Shared;

    fn permits(take: u32, of: u32) -> Mode {
        let number = |number| NonZeroU32::new(number).unwrap();
        Mode::Permits { take: number(take), of: number(of) }
    }

    fn line(modes: &[Mode], limit: Option<Limit>) -> Line {
        let entry = |(created, mode): (i64, &Mode)| Entry {
            key: vec![created.unsigned_abs() as u8],
            created,
            lease: 1,
            mode: *mode,
            closed: false,
            holder: Holder::Foreign,
        };
        Line { entries: (1..).zip(modes).map(entry).collect(), limit }
    }

    #[test]
    fn the_first_who_have_room_hold_it() {
        let holding = |modes: &[Mode]| line(modes, None).holding();
        assert_eq!(holding(&[]), 0);
        assert_eq!(holding(&[WRITER, READER]), 1);
        assert_eq!(holding(&[READER, READER, WRITER, READER]), 2);
        assert_eq!(holding(&[permits(2, 4), permits(2, 4), permits(1, 4)]), 2);
        // A small request does not overtake a large one.
        assert_eq!(holding(&[permits(2, 4), permits(4, 4), permits(1, 4)]), 1);
        assert_eq!(holding(&[READER, permits(1, 4)]), 1);
    }

    #[test]
    fn a_newcomer_has_room_only_if_nobody_waits() {
        assert!(line(&[READER], None).has_room(READER));
        assert!(!line(&[READER, WRITER], None).has_room(READER));
        assert!(!line(&[permits(3, 4)], None).has_room(permits(2, 4)));
    }

    #[test]
    fn a_lowered_limit_takes_nothing_away_and_lets_nobody_in() {
        let now = NonZeroU32::MIN;
        let limit = |held_up_to| Some(Limit { now, first: now, held_up_to });
        let modes = [permits(1, 1), permits(1, 1), permits(1, 1)];
        assert_eq!(line(&modes, limit(0)).holding(), 1);
        assert_eq!(line(&modes, limit(2)).holding(), 2);
        assert!(!line(&modes[..2], limit(2)).has_room(permits(1, 1)));
        assert!(line(&[], limit(2)).has_room(permits(1, 1)));
    }

    #[test]
    fn what_has_to_go_before_one_holds_it() {
        let blocker = |modes: &[Mode], place| line(modes, None).blocker(place).map(|entry| entry.created);
        assert_eq!(blocker(&[WRITER, WRITER, WRITER], 2), Some(2));
        assert_eq!(blocker(&[READER, WRITER, READER, READER], 3), Some(2));
        assert_eq!(blocker(&[permits(2, 2), permits(1, 2)], 1), None);
    }

    #[test]
    fn a_text_and_a_limit_are_read_back_and_nothing_else_lets_anybody_in() {
        let owner = Owner::new(7, &Holder::this_process("a label", 5_000));
        for (mode, closed) in [(WRITER, false), (WRITER, true), (READER, false), (permits(2, 9), true)] {
            let value = text(&owner, mode, closed);
            let entry = Entry::read(KeyValue { value, ..KeyValue::default() });
            assert_eq!((entry.mode, entry.closed, entry.holder), (mode, closed, owner.holder()));
        }
        for value in ["", "x", "leasehold-lock:2 r ", "leasehold-lock:1 p0/2 x"] {
            let entry = Entry::read(KeyValue { value: value.into(), ..KeyValue::default() });
            assert_eq!((entry.mode, entry.holder), (WRITER, Holder::Foreign), "{value}");
        }
        let limit = Limit { now: NonZeroU32::MIN, first: NonZeroU32::new(5).unwrap(), held_up_to: 77 };
        assert_eq!(Limit::read(&limit.text()), Some(limit));
        assert_eq!(Limit::read(b"5"), None);
    }
}
