//! Which slot of a cluster a key belongs to.

pub(super) const SLOTS: u16 = 16384;

/// The slot of `key`, by its hash tag if it has one.
pub(super) fn slot_of(key: &str) -> u16 {
    crc16(hashed_part(key).as_bytes()) % SLOTS
}

/// The text in the first braces; the whole key if there are none, or they are empty.
fn hashed_part(key: &str) -> &str {
    let tag = key.split_once('{').and_then(|(_, rest)| rest.split_once('}')).map(|(tag, _)| tag);
    tag.filter(|tag| !tag.is_empty()).unwrap_or(key)
}

/// CRC-16/XMODEM.
fn crc16(bytes: &[u8]) -> u16 {
    bytes.iter().fold(0, |crc, byte| {
        (0..8).fold(crc ^ (u16::from(*byte) << 8), |crc, _| {
            let shifted = crc << 1;
            if crc & 0x8000 == 0 { shifted } else { shifted ^ 0x1021 }
        })
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_check_value_of_the_checksum_is_right() {
        assert_eq!(crc16(b"123456789"), 0x31C3);
    }

    #[test]
    fn only_a_tag_that_is_not_empty_counts() {
        assert_eq!(slot_of("a{tag}b{other}"), slot_of("tag"));
        assert_eq!(hashed_part("{}a{tag}"), "{}a{tag}");
        assert_eq!(hashed_part("{open"), "{open");
        assert_eq!(hashed_part("}{x}"), "x");
    }
}
