//! CRC-16/XMODEM: what places a key in a cluster, and a deadline in its pool.

/// Its polynomial.
pub const POLYNOMIAL: u16 = 0x1021;

/// The checksum of each byte on its own: a claim in a cluster needs the slots of all buckets.
const OF_BYTE: [u16; 256] = {
    let mut table = [0; 256];
    let mut byte = 0;
    while byte < 256 {
        let (mut crc, mut bit) = ((byte as u16) << 8, 0);
        while bit < 8 {
            crc = if crc & 0x8000 == 0 { crc << 1 } else { (crc << 1) ^ POLYNOMIAL };
            bit += 1;
        }
        table[byte] = crc;
        byte += 1;
    }
    table
};

/// The checksum of some bytes.
pub fn crc16(bytes: &[u8]) -> u16 {
    bytes.iter().fold(0, |crc, byte| (crc << 8) ^ OF_BYTE[usize::from((crc >> 8) as u8 ^ byte)])
}

#[cfg(test)]
mod tests {
    #[test]
    fn the_checksum_is_the_one_that_others_compute() {
        assert_eq!(super::crc16(b"123456789"), 0x31c3);
    }
}
