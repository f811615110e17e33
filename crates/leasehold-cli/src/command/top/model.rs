//! What the screen shows and what keys do to it (pure).

use std::time::Duration;

use leasehold::{
    Health, Inspection, Name,
    engine::{Capabilities, Tenure},
};
use ratatui::crossterm::event::{KeyCode, KeyEvent, KeyModifiers};

use super::{
    cursor::{Cursor, Move},
    dialog::{Answer, Dialog, Release},
    rows::{self, Counts, Sort},
    seen::{Listing, Seen},
};

/// Lines of the two lists that are sums.
const HOT_SHOWN: usize = 100;
const WAITS_SHOWN: usize = 500;
/// Longest filter in characters.
const FILTER_MAX: usize = 100;

/// What stays as it is.
pub(super) struct About {
    pub(super) store: String,
    pub(super) prefix: String,
    pub(super) capabilities: Capabilities,
    pub(super) read_only: bool,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Page {
    #[default]
    Locks,
    Hot,
    Waits,
    Nodes,
}

impl Page {
    pub(super) const ALL: [Self; 4] = [Self::Locks, Self::Hot, Self::Waits, Self::Nodes];

    /// Its title, and a short one.
    pub(super) fn titles(self) -> [&'static str; 2] {
        match self {
            Self::Locks => ["Locks"; 2],
            Self::Hot => ["Hot names", "Hot"],
            Self::Waits => ["Who waited for whom", "Waits"],
            Self::Nodes => ["Nodes"; 2],
        }
    }
}

/// A lock that is shown alone.
pub(super) struct Open {
    pub(super) name: Name,
    /// `None` until the store was asked.
    pub(super) lock: Option<Inspection>,
    pub(super) cursor: Cursor,
}

/// The store does not answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Gone {
    /// Since when, by the clock on the wall.
    pub(super) since: String,
    pub(super) why: String,
}

/// What is asked of the store next.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Question {
    pub(super) detail: Option<Name>,
    pub(super) health: bool,
}

/// What the store answered.
pub(super) struct Answered {
    pub(super) listing: Listing,
    pub(super) detail: Option<Inspection>,
    pub(super) health: Option<Result<Health, String>>,
}

/// What a key asks the loop to do.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Effect {
    None,
    Quit,
    Suspend,
    /// Ask the store now.
    Poll,
    Release(Release),
}

pub(super) struct Top {
    pub(super) about: About,
    pub(super) seen: Seen,
    pub(super) counts: Counts,
    pub(super) order: Vec<Name>,
    pub(super) health: Option<Result<Health, String>>,
    /// When the health was asked for.
    health_at: Option<Duration>,
    pub(super) page: Page,
    pub(super) open: Option<Open>,
    pub(super) cursors: [Cursor; 4],
    /// The lock under the cursor, which stays there when others come and go.
    chosen: Option<Name>,
    pub(super) sort: Sort,
    pub(super) filter: String,
    pub(super) types_filter: bool,
    pub(super) paused: bool,
    pub(super) gone: Option<Gone>,
    /// When the last picture was taken, by the clock on the wall.
    pub(super) taken_at: Option<String>,
    pub(super) dialog: Option<Dialog>,
    pub(super) helps: bool,
    pub(super) releasing: bool,
    /// A line at the bottom, until the next key.
    pub(super) note: Option<String>,
    /// Rows of a list that fit on the screen.
    pub(super) visible: usize,
}

/// How old the health on the page of nodes may get: on a cluster it takes many calls.
const HEALTH_EVERY: Duration = Duration::from_secs(10);

impl Top {
    pub(super) fn new(about: About) -> Self {
        Self {
            about,
            seen: Seen::default(),
            counts: Counts::default(),
            order: Vec::new(),
            health: None,
            health_at: None,
            page: Page::default(),
            open: None,
            cursors: Default::default(),
            chosen: None,
            sort: Sort::default(),
            filter: String::new(),
            types_filter: false,
            paused: false,
            gone: None,
            taken_at: None,
            dialog: None,
            helps: false,
            releasing: false,
            note: None,
            visible: 1,
        }
    }

    /// What the next poll shall find out.
    pub(super) fn question(&self, now: Duration) -> Question {
        let is_old = self.health_at.is_none_or(|at| now.saturating_sub(at) >= HEALTH_EVERY);
        Question {
            detail: self.open.as_ref().map(|open| open.name.clone()),
            health: self.page == Page::Nodes && self.open.is_none() && is_old,
        }
    }

    pub(super) fn answered(&mut self, answered: Answered, wall: String) {
        if answered.health.is_some() {
            self.health = answered.health;
            self.health_at = Some(answered.listing.ended);
        }
        self.seen.update(answered.listing);
        if let (Some(open), Some(lock)) = (&mut self.open, answered.detail)
            && open.name == lock.name
        {
            open.lock = Some(lock);
        }
        self.counts = rows::count(&self.seen);
        (self.gone, self.taken_at) = (None, Some(wall));
        self.list();
    }

    /// The last picture stays; it became old when the first answer was missing.
    pub(super) fn unanswered(&mut self, why: String, wall: String) {
        let since = self.gone.take().map_or(wall, |gone| gone.since);
        self.gone = Some(Gone { since, why });
    }

    pub(super) fn released(&mut self, note: String) {
        (self.releasing, self.note) = (false, Some(note));
    }

    /// Lists again, with the cursor on the same lock if it is still there.
    fn list(&mut self) {
        self.order = rows::order(&self.seen, self.sort, &self.filter);
        let chosen = self.chosen.as_ref().and_then(|name| self.order.iter().position(|other| other == name));
        let at = chosen.unwrap_or(self.cursors[Page::Locks as usize].at);
        let (rows, visible) = (self.order.len(), self.visible);
        self.cursors[Page::Locks as usize].put(at, rows, visible);
        self.choose();
    }

    /// The cursor pins the lock under it.
    fn choose(&mut self) {
        self.chosen = self.order.get(self.cursors[Page::Locks as usize].at).cloned();
    }

    /// The screen has another size.
    pub(super) fn fit(&mut self, visible: usize) {
        self.visible = visible;
        let rows = self.rows();
        let cursor = self.cursor();
        cursor.put(cursor.at, rows, visible);
    }

    /// How many rows the list on the screen has.
    fn rows(&self) -> usize {
        match (&self.open, self.page) {
            (Some(open), _) => open.lock.as_ref().map_or(0, people),
            (None, Page::Locks) => self.order.len(),
            (None, Page::Hot) => self.seen.hottest(HOT_SHOWN).len(),
            (None, Page::Waits) => self.seen.longest_waits(WAITS_SHOWN).len(),
            (None, Page::Nodes) => super::view::nodes::lines(self).len(),
        }
    }

    pub(super) fn cursor(&mut self) -> &mut Cursor {
        match &mut self.open {
            Some(open) => &mut open.cursor,
            None => &mut self.cursors[self.page as usize],
        }
    }

    pub(super) fn key(&mut self, key: KeyEvent) -> Effect {
        let with_control = key.modifiers.contains(KeyModifiers::CONTROL);
        match key.code {
            KeyCode::Char('c') if with_control => return Effect::Quit,
            KeyCode::Char('z') if with_control => return Effect::Suspend,
            KeyCode::Char(_) if with_control => return Effect::None,
            _ => self.note = None,
        }
        if let Some(dialog) = &mut self.dialog {
            let answer = dialog.key(key.code);
            return self.answer(answer);
        }
        if self.helps {
            self.helps = false;
            return Effect::None;
        }
        if self.types_filter {
            self.type_filter(key.code);
            return Effect::None;
        }
        self.command(key.code)
    }

    fn answer(&mut self, answer: Answer) -> Effect {
        match answer {
            Answer::Asks => return Effect::None,
            Answer::Cancelled => self.dialog = None,
            Answer::Agreed(release) => {
                (self.dialog, self.releasing) = (None, true);
                return Effect::Release(release);
            }
        }
        Effect::None
    }

    fn type_filter(&mut self, key: KeyCode) {
        match key {
            KeyCode::Esc => {
                self.filter.clear();
                self.types_filter = false;
            }
            KeyCode::Enter => self.types_filter = false,
            KeyCode::Backspace => {
                self.filter.pop();
            }
            KeyCode::Char(letter) if self.filter.chars().count() < FILTER_MAX => self.filter.push(letter),
            _ => return,
        }
        self.list();
    }

    fn command(&mut self, key: KeyCode) -> Effect {
        if let Some(to) = moves(key) {
            let (rows, visible) = (self.rows(), self.visible);
            self.cursor().go(to, rows, visible);
            self.choose();
            return Effect::None;
        }
        match key {
            KeyCode::Char('q') => return Effect::Quit,
            KeyCode::Char('?') => self.helps = true,
            KeyCode::Char('p') => {
                self.paused = !self.paused;
                return if self.paused { Effect::None } else { Effect::Poll };
            }
            KeyCode::Char('s') if self.lists_locks() => {
                self.sort = self.sort.next();
                self.list();
            }
            KeyCode::Char('/') => {
                (self.open, self.page, self.types_filter) = (None, Page::Locks, true);
            }
            KeyCode::Char('f') if !self.about.read_only => self.ask_to_release(),
            KeyCode::Char(digit @ '1'..='4') => return self.turn_to(digit as usize - '1' as usize),
            KeyCode::Tab => return self.turn_to((self.page as usize + 1) % Page::ALL.len()),
            KeyCode::Enter => return self.enter(),
            KeyCode::Esc | KeyCode::Backspace if self.open.is_some() => self.open = None,
            KeyCode::Esc if !self.filter.is_empty() => {
                self.filter.clear();
                self.list();
            }
            _ => {}
        }
        Effect::None
    }

    fn lists_locks(&self) -> bool {
        self.open.is_none() && self.page == Page::Locks
    }

    fn turn_to(&mut self, page: usize) -> Effect {
        (self.open, self.page) = (None, Page::ALL[page]);
        self.fit(self.visible);
        if self.page == Page::Nodes { Effect::Poll } else { Effect::None }
    }

    fn enter(&mut self) -> Effect {
        let at = self.cursors[self.page as usize].at;
        let name = match self.page {
            _ if self.open.is_some() => None,
            Page::Locks => self.order.get(at).cloned(),
            Page::Hot => self.seen.hottest(HOT_SHOWN).get(at).map(|(name, _)| (*name).clone()),
            Page::Waits => {
                let waits = self.seen.longest_waits(WAITS_SHOWN);
                waits.get(at).and_then(|(_, waits)| waits.names.first().cloned())
            }
            Page::Nodes => None,
        };
        let Some(name) = name else { return Effect::None };
        let lock = self.seen.lock(&name).map(|lock| lock.now.clone());
        self.open = Some(Open { name, lock, cursor: Cursor::default() });
        Effect::Poll
    }

    /// Opens the dialog for the holder that is meant, or says why that is not clear.
    fn ask_to_release(&mut self) {
        let meant = match &self.open {
            Some(open) => open.lock.as_ref().map(|lock| (lock, Some(open.cursor.at))),
            None if self.page == Page::Locks => {
                let name = self.order.get(self.cursors[Page::Locks as usize].at);
                name.and_then(|name| self.seen.lock(name)).map(|lock| (&lock.now, None))
            }
            None => None,
        };
        let Some((lock, at)) = meant else { return };
        let refused = match holder(lock, at) {
            _ if self.releasing => "one lock at a time: the last force-release is still under way".into(),
            Ok(tenure) => {
                self.dialog = Some(Dialog::new(lock.name.clone(), tenure));
                return;
            }
            Err(why) => why,
        };
        self.note = Some(refused);
    }

    /// Whether the lock of the dialog has another holder by now, as far as was seen.
    pub(super) fn dialog_is_stale(&self) -> bool {
        let Some(dialog) = &self.dialog else { return false };
        let has = |lock: &Inspection| lock.holders.shown.iter().any(|tenure| tenure.fence == dialog.fence);
        match &self.open {
            Some(open) => !open.lock.as_ref().is_some_and(has),
            None => !self.seen.lock(&dialog.name).is_some_and(|lock| has(&lock.now)),
        }
    }

    pub(super) fn hot(&self) -> Vec<(&Name, super::seen::Heat)> {
        self.seen.hottest(HOT_SHOWN)
    }

    pub(super) fn waits(&self) -> Vec<(&super::seen::Pair, &super::seen::Waits)> {
        self.seen.longest_waits(WAITS_SHOWN)
    }
}

/// Holders and waiters that are listed.
fn people(lock: &Inspection) -> usize {
    lock.holders.shown.len() + lock.waiters.len()
}

/// The holder at this row, or the only one.
fn holder(lock: &Inspection, at: Option<usize>) -> Result<&Tenure, String> {
    let name = &lock.name;
    match (at.and_then(|at| lock.holders.shown.get(at)), lock.held(), lock.holders.total) {
        (Some(tenure), ..) => Ok(tenure),
        (None, None, _) => Err(format!("\"{name}\" is not held")),
        (None, Some(tenure), 0 | 1) => Ok(tenure),
        (None, Some(_), many) => {
            Err(format!("{many} hold \"{name}\" together: Enter lists them, f on one of them takes its part"))
        }
    }
}

fn moves(key: KeyCode) -> Option<Move> {
    Some(match key {
        KeyCode::Up | KeyCode::Char('k') => Move::Up,
        KeyCode::Down | KeyCode::Char('j') => Move::Down,
        KeyCode::PageUp => Move::PageUp,
        KeyCode::PageDown | KeyCode::Char(' ') => Move::PageDown,
        KeyCode::Home | KeyCode::Char('g') => Move::First,
        KeyCode::End | KeyCode::Char('G') => Move::Last,
        _ => return None,
    })
}

#[cfg(test)]
mod tests;
