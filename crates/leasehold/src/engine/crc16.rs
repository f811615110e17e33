//! CRC-16/XMODEM: what places a key in a cluster, and a deadline in its pool.

/// Its polynomial.
pub(super) const POLYNOMIAL: u16 = 0x1021;

/// The checksum of some bytes.
pub(super) fn crc16(bytes: &[u8]) -> u16 {
    bytes.iter().fold(0, |crc, byte| {
        (0..8).fold(crc ^ (u16::from(*byte) << 8), |crc, _| {
            if crc & 0x8000 == 0 { crc << 1 } else { (crc << 1) ^ POLYNOMIAL }
        })
    })
}

#[cfg(test)]
mod tests {
    #[test]
    fn the_checksum_is_the_one_that_others_compute() {
        assert_eq!(super::crc16(b"123456789"), 0x31c3);
    }
}
