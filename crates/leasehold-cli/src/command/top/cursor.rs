//! A place in a list that is longer than the screen (pure).

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Cursor {
    /// The chosen row.
    pub(super) at: usize,
    /// The first row on the screen.
    pub(super) top: usize,
}

/// How a key moves it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Move {
    Up,
    Down,
    PageUp,
    PageDown,
    First,
    Last,
}

impl Cursor {
    pub(super) fn go(&mut self, to: Move, rows: usize, visible: usize) {
        let page = visible.max(1);
        let at = match to {
            Move::Up => self.at.saturating_sub(1),
            Move::Down => self.at + 1,
            Move::PageUp => self.at.saturating_sub(page),
            Move::PageDown => self.at + page,
            Move::First => 0,
            Move::Last => rows,
        };
        self.put(at, rows, visible);
    }

    /// Chooses a row that exists, and brings it onto the screen.
    pub(super) fn put(&mut self, at: usize, rows: usize, visible: usize) {
        self.at = at.min(rows.saturating_sub(1));
        let visible = visible.max(1);
        let least = (self.at + 1).saturating_sub(visible);
        // No empty lines below the last row.
        let most = self.at.min(rows.saturating_sub(visible));
        self.top = self.top.clamp(least.min(most), most.max(least));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_stays_on_rows_and_on_the_screen() {
        let mut cursor = Cursor::default();
        let mut after = |to, rows| {
            cursor.go(to, rows, 10);
            (cursor.at, cursor.top)
        };
        assert_eq!(after(Move::Up, 25), (0, 0));
        assert_eq!(after(Move::Down, 25), (1, 0));
        assert_eq!(after(Move::PageDown, 25), (11, 2));
        assert_eq!(after(Move::Last, 25), (24, 15));
        assert_eq!(after(Move::PageUp, 25), (14, 14));
        assert_eq!(after(Move::Down, 3), (2, 0), "the list became shorter");
        assert_eq!(after(Move::Down, 0), (0, 0));
        assert_eq!(after(Move::First, 25), (0, 0));
    }
}
