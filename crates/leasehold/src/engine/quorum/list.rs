//! Which list of addresses a quorum was admitted with. Pure.
//!
//! Two majorities share a node only if everybody counts the same nodes. A client with one address that differs would
//! bring a blank node in, and find a majority beside that of the others. So the id of a quorum ends with its list.

use sha2::{Digest, Sha256};

const DIGEST_BYTES: usize = 8;

/// A short text that stands for these addresses in this order.
pub fn list_of<'a>(labels: impl IntoIterator<Item = &'a str>) -> String {
    let labels: Vec<_> = labels.into_iter().map(str::to_ascii_lowercase).collect();
    let digest = Sha256::digest(labels.join(","));
    digest[..DIGEST_BYTES].iter().map(|byte| format!("{byte:02x}")).collect()
}

/// The id of a quorum with this list.
pub(super) fn id_with(random: &str, list: &str) -> String {
    format!("{random}.{list}")
}

/// Whether a quorum with this id was admitted with this list. One without any was admitted by nobody knows whom.
pub(super) fn is_with(id: &str, list: &str) -> bool {
    id.rsplit_once('.').is_some_and(|(_, of_id)| of_id == list)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn another_address_or_order_is_another_list() {
        let list = list_of(["a:1", "b:1", "c:1"]);
        assert_eq!(list, list_of(["A:1", "b:1", "C:1"]));
        for other in
            [&["a:1", "b:1", "d:1"][..], &["b:1", "a:1", "c:1"], &["a:1", "b:1"], &["a:1,b:1,c:1", ""]]
        {
            assert_ne!(list, list_of(other.iter().copied()), "{other:?}");
        }
        assert!(is_with(&id_with("0f", &list), &list));
        assert!(!is_with("0f", &list) && !is_with(&list, &list) && !is_with(&id_with("0f", "x"), &list));
    }
}
