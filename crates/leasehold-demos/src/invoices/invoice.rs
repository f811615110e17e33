//! Invoices as they are uploaded.

use serde::{Deserialize, Serialize};

#[derive(Clone, Serialize, Deserialize)]
pub(super) struct Invoice {
    pub(super) account: String,
    /// As the vendor writes it today: `INV-0042`, `inv 0042`.
    pub(super) number: String,
    pub(super) vendor: String,
    pub(super) cents: u64,
    pub(super) file_hash: String,
    /// The file itself: an item and its cents per line.
    pub(super) file: String,
}

/// Items on each invoice.
const ITEMS: u64 = 100;

impl Invoice {
    /// The copies of one invoice: some are the same file, some are written a little differently.
    pub(super) fn copy(invoice: u64, copy: u64) -> Self {
        let number = match copy % 2 {
            0 => format!("INV-{invoice:05}"),
            _ => format!("inv {invoice:05}"),
        };
        let cents = 100 + invoice;
        let mut items: Vec<_> = (0..ITEMS).map(|item| format!("item {item} of {number};1")).collect();
        items.push(format!("postage;{}", cents.saturating_sub(ITEMS)));
        Self {
            account: format!("account-{}", invoice % 7),
            vendor: format!("vendor-{}", invoice % 11),
            cents,
            file_hash: format!("{invoice:x}-{}", copy % 2),
            file: items.join("\n"),
            number,
        }
    }

    /// The total of all items of the file.
    pub(super) fn sum(&self) -> u64 {
        let cents = |line: &str| line.rsplit_once(';').and_then(|(_, cents)| cents.parse::<u64>().ok());
        self.file.lines().filter_map(cents).sum()
    }

    /// The number in normal form. Near duplicates share it, and so they share a lock.
    pub(super) fn plain_number(&self) -> String {
        self.number.chars().filter(char::is_ascii_alphanumeric).map(|c| c.to_ascii_uppercase()).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn copies_differ_in_writing_only() {
        let [first, second] = [0, 1].map(|copy| Invoice::copy(42, copy));
        assert_ne!(first.number, second.number);
        assert_eq!(first.plain_number(), second.plain_number());
        assert_ne!(first.plain_number(), Invoice::copy(43, 0).plain_number());
        assert_eq!((first.sum(), first.cents), (142, 142));
    }
}
