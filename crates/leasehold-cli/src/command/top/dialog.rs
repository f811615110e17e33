//! What must be typed before a lock is taken from its holder (pure). It keeps the holder and the fence that were seen when it
//! was opened, whatever the list shows meanwhile.

use leasehold::{Fence, Name, engine::Tenure};
use ratatui::crossterm::event::KeyCode;

/// Longest reason in characters, and longest name that can be typed.
const REASON_MAX: usize = 500;
const NAME_MAX: usize = 512;

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Dialog {
    pub(super) name: Name,
    pub(super) fence: Fence,
    pub(super) holder: String,
    pub(super) typed: String,
    pub(super) reason: String,
    pub(super) field: Field,
    /// Why the last Enter did nothing.
    pub(super) refused: Option<&'static str>,
}

/// What is being typed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Field {
    Name,
    Reason,
}

/// A lock to take from the holder with this fence.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Release {
    pub(super) name: Name,
    pub(super) fence: Fence,
    pub(super) reason: String,
}

/// What a key led to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Answer {
    Asks,
    Cancelled,
    Agreed(Release),
}

impl Dialog {
    pub(super) fn new(name: Name, held: &Tenure) -> Self {
        let (fence, holder) = (held.fence, held.holder.to_string());
        let (typed, reason) = (String::new(), String::new());
        Self { name, fence, holder, typed, reason, field: Field::Name, refused: None }
    }

    pub(super) fn key(&mut self, key: KeyCode) -> Answer {
        self.refused = None;
        let (text, most) = match self.field {
            Field::Name => (&mut self.typed, NAME_MAX),
            Field::Reason => (&mut self.reason, REASON_MAX),
        };
        match (key, self.field) {
            (KeyCode::Esc, _) => return Answer::Cancelled,
            (KeyCode::Char(letter), _) if text.chars().count() < most => text.push(letter),
            (KeyCode::Backspace, _) => {
                text.pop();
            }
            (KeyCode::Enter, Field::Name) if self.typed == self.name.as_str() => self.field = Field::Reason,
            (KeyCode::Enter, Field::Name) => self.refused = Some("that is not the name of the lock"),
            (KeyCode::Enter, Field::Reason) => {
                let reason = self.reason.trim();
                if !reason.is_empty() {
                    let (name, fence, reason) = (self.name.clone(), self.fence, reason.to_owned());
                    return Answer::Agreed(Release { name, fence, reason });
                }
                self.refused = Some("a reason is required");
            }
            _ => {}
        }
        Answer::Asks
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::command::top::samples::lock;

    fn dialog() -> Dialog {
        let sample = lock("deal:42").held(17, 30).0;
        Dialog::new(sample.name.clone(), sample.held().unwrap())
    }

    fn press(dialog: &mut Dialog, text: &str) -> Answer {
        text.chars().for_each(|letter| assert_eq!(dialog.key(KeyCode::Char(letter)), Answer::Asks));
        dialog.key(KeyCode::Enter)
    }

    #[test]
    fn the_name_and_a_reason_agree_to_the_fence_that_was_seen() {
        let mut dialog = dialog();
        assert_eq!(press(&mut dialog, "deal:42"), Answer::Asks);
        let Answer::Agreed(release) = press(&mut dialog, " host is gone ") else { panic!("{dialog:?}") };
        assert_eq!((release.name.as_str(), release.fence), ("deal:42", Fence::new(17)));
        assert_eq!(release.reason, "host is gone");
    }

    #[test]
    fn another_name_or_no_reason_is_refused() {
        let mut dialog = dialog();
        for wrong in ["", "deal:4", "3"] {
            assert_eq!(press(&mut dialog, wrong), Answer::Asks);
            assert!(dialog.refused.is_some() && dialog.field == Field::Name, "{dialog:?}");
        }
        dialog.key(KeyCode::Backspace);
        assert_eq!(press(&mut dialog, "2"), Answer::Asks);
        assert_eq!((dialog.field, dialog.refused), (Field::Reason, None));
        assert_eq!(press(&mut dialog, "  "), Answer::Asks);
        assert_eq!(dialog.refused, Some("a reason is required"));
        assert_eq!(dialog.key(KeyCode::Esc), Answer::Cancelled);
    }

    #[test]
    fn what_is_typed_has_a_bound() {
        let mut dialog = dialog();
        (0..2_000).for_each(|_| assert_eq!(dialog.key(KeyCode::Char('ü')), Answer::Asks));
        assert_eq!(dialog.typed.chars().count(), NAME_MAX);
    }
}
