//! Pages, and where the next one begins.

use std::{
    collections::HashMap,
    hash::{BuildHasher, RandomState},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

/// A page of results.
#[derive(Clone, Debug)]
pub struct Page<T> {
    /// What is on it.
    pub items: Vec<T>,
    /// Where the next one begins, if there is one.
    pub next: Option<Cursor>,
}

/// Where the next page begins; opaque.
///
/// In the process that it came to it also knows what was shown before, so that nothing is shown twice or left out while
/// stores move their keys about. Its text alone is enough to go on elsewhere, without that promise.
#[derive(Clone, Debug)]
pub struct Cursor {
    text: String,
    told: Option<Told>,
}

impl Cursor {
    /// Wraps an engine's own continuation text.
    pub fn new(text: impl Into<String>) -> Self {
        Self { text: text.into(), told: None }
    }

    /// The engine's continuation text.
    pub fn as_str(&self) -> &str {
        &self.text
    }

    pub(crate) fn told(&self) -> Option<Told> {
        self.told.clone()
    }

    pub(crate) fn telling(text: impl Into<String>, told: Told) -> Self {
        Self { text: text.into(), told: Some(told) }
    }
}

impl PartialEq for Cursor {
    fn eq(&self, other: &Self) -> bool {
        self.text == other.text
    }
}

impl Eq for Cursor {}

/// The names, or ids, that a listing has come to so far, step by step.
///
/// A cursor may be used again, say after an error or for a page of another size. So every name is kept with the number of
/// the step that came to it, and a step that is taken again goes on with a history of its own.
#[derive(Clone, Debug)]
pub(crate) struct Told {
    history: Arc<Mutex<History>>,
    /// The step that is being taken.
    step: u64,
    is_whole: bool,
}

#[derive(Clone, Debug, Default)]
struct History {
    /// A number out of 2^64 stands for a name: a million names are not likely to share one.
    steps: HashMap<u64, u64>,
    hasher: RandomState,
    /// How many steps were taken.
    taken: u64,
}

impl History {
    /// A copy that ends before that step.
    fn until(&self, step: u64) -> Self {
        let mut copy = self.clone();
        copy.steps.retain(|_, taken| *taken < step);
        copy
    }
}

impl Told {
    /// What the cursor knows; nothing, if the listing begins or only its text is left.
    pub(crate) fn before(from: Option<&Cursor>) -> Self {
        let known = from.and_then(Cursor::told);
        known.unwrap_or_else(|| Self { history: Arc::default(), step: 0, is_whole: from.is_none() })
    }

    /// Whether it has all names since the listing began.
    #[cfg(test)]
    pub(crate) fn is_whole(&self) -> bool {
        self.is_whole
    }

    /// The next step, which has the names of this one.
    pub(crate) fn and<T: AsRef<str>>(&self, names: impl IntoIterator<Item = T>) -> Self {
        let mut shared = self.history();
        let mut branch = (shared.taken > self.step).then(|| shared.until(self.step));
        let history = branch.as_mut().unwrap_or(&mut shared);
        for name in names {
            let hash = history.hasher.hash_one(name.as_ref());
            history.steps.entry(hash).or_insert(self.step);
        }
        history.taken = self.step + 1;
        let history = branch.map_or_else(|| self.history.clone(), |branch| Arc::new(Mutex::new(branch)));
        Self { history, step: self.step + 1, is_whole: self.is_whole }
    }

    fn history(&self) -> MutexGuard<'_, History> {
        self.history.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// For stores whose own cursors promise less.
#[cfg(any(feature = "redis", test))]
impl Told {
    pub(crate) fn has(&self, name: impl AsRef<str>) -> bool {
        let history = self.history();
        let hash = history.hasher.hash_one(name.as_ref());
        history.steps.get(&hash).is_some_and(|step| *step < self.step)
    }

    /// What is new of a batch that a store's own cursor leads to, as far as there is room. Also how many of the batch were told
    /// by then, if some are left: the cursor leads to them again, and who has only its text passes over so many. `given` is
    /// that number from the page before.
    ///
    /// The number is no help to who knows the names: a server that resizes its table has others at the same cursor.
    pub(crate) fn take<T>(
        &mut self,
        mut batch: Vec<T>,
        given: usize,
        room: usize,
        name: impl Fn(&T) -> &str,
    ) -> (Vec<T>, Option<usize>) {
        let all = batch.len();
        if !self.is_whole {
            *self = self.and(batch.iter().take(given).map(&name));
        }
        batch.retain(|item| !self.has(name(item)));
        let left = batch.len().saturating_sub(room);
        batch.truncate(room);
        *self = self.and(batch.iter().map(&name));
        (batch, (left > 0).then_some(all - left))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_next_step_has_what_this_one_told() {
        let begin = Told::before(None);
        assert!(begin.is_whole() && !begin.has("a"));
        let next = begin.and(["a"]);
        assert!(next.has("a") && !next.has("b") && next.is_whole());
        assert!(!begin.has("a"), "a step that is taken again begins anew");
    }

    #[test]
    fn a_step_that_is_taken_again_has_a_history_of_its_own() {
        let first = Told::before(None).and(["a"]);
        let second = first.and(["b"]);
        let again = first.and(["c"]);
        let has = |told: &Told| ["a", "b", "c"].map(|text| told.has(text));
        assert_eq!(has(&first), [true, false, false]);
        assert_eq!(has(&second), [true, true, false]);
        assert_eq!(has(&again), [true, false, true]);
        assert_eq!(has(&again.and(["b"])), [true, true, true]);
    }

    #[test]
    fn a_batch_is_told_once_whatever_is_in_it_the_next_time() {
        fn name<'a>(item: &'a &'static str) -> &'a str {
            item
        }
        let mut told = Told::before(None);
        assert_eq!(told.take(vec!["a", "b", "c"], 0, 2, name), (vec!["a", "b"], Some(2)));
        assert_eq!(told.take(vec!["c", "d", "a"], 2, 2, name), (vec!["c", "d"], None));
        let mut told = Told::before(Some(&Cursor::new("7/2")));
        assert_eq!(told.take(vec!["a", "b", "c"], 2, 2, name), (vec!["c"], None));
    }

    #[test]
    fn a_text_alone_knows_nothing() {
        let cursor = Cursor::new("7");
        let told = Told::before(Some(&cursor));
        assert!(!told.is_whole() && !told.has("a"));
        let kept = Cursor::telling("8", told.and(["a"]));
        assert!(Told::before(Some(&kept)).has("a") && kept == Cursor::new("8"));
    }
}
