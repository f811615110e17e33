//! Acknowledgements as people write them.

use std::str::FromStr;

use super::quoted;
use crate::{engine::Acks, error::Error};

/// `majority`, or a number.
///
/// ```
/// use leasehold::Acks;
///
/// assert_eq!("majority".parse::<Acks>()?, Acks::Majority);
/// assert_eq!("2".parse::<Acks>()?, Acks::AtLeast(2));
/// # Ok::<(), leasehold::Error>(())
/// ```
impl FromStr for Acks {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self, Error> {
        if text == "majority" {
            return Ok(Self::Majority);
        }
        let number: Result<u8, _> = text.parse();
        number.map(Self::from).map_err(|_| Error::invalid("acks", quoted(text), "0 to 255, or majority"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_number_or_a_majority() {
        for (text, acks) in [("0", Acks::None), ("255", Acks::AtLeast(255)), ("majority", Acks::Majority)] {
            assert_eq!(text.parse::<Acks>().unwrap(), acks);
        }
        for bad in ["", "256", "-1", "most", "1.5", "Majority"] {
            let error = bad.parse::<Acks>().unwrap_err().to_string();
            assert!(error.ends_with("expected 0 to 255, or majority"), "{error}");
        }
    }
}
