//! Fencing tokens, and the checks that make a resource refuse a late writer.
//!
//! A lease can end while its holder is paused; only the resource itself can then refuse the late write.
//! Give it the fence with every write and let it reject a fence lower than one it has seen.

use std::{fmt, str::FromStr};

use crate::{error::Error, name::Name};

/// A token that grows with every grant of a name, on any engine, also after a restart of the store.
///
/// Fences of one name are unique and increase in grant order. They are roughly microseconds since 1970;
/// rely on their order only. They stay below 2^53, so every language and database can hold them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, serde::Serialize)]
#[serde(transparent)]
pub struct Fence(u64);

/// First value that is no fence: doubles, as Lua and JavaScript have them, are exact below it.
pub const FENCE_LIMIT: u64 = 1 << 53;

impl Fence {
    /// Wraps a token.
    pub const fn new(token: u64) -> Self {
        Self(token)
    }

    /// The token as a number, to be stored beside what it protects.
    pub const fn get(self) -> u64 {
        self.0
    }

    /// The token as databases hold numbers: signed. Fences are below 2^53, so nothing is lost.
    pub const fn as_i64(self) -> i64 {
        self.0 as i64
    }

    /// The fence as one text a resource can log and compare: `name:mode:fence`.
    pub fn token(self, name: &Name) -> String {
        format!("{name}:exclusive:{}", self.0)
    }

    /// A SQL condition that is true unless a later holder has written already.
    ///
    /// `column` holds the fence of the last write, `parameter` is the placeholder of this fence. Zero rows
    /// updated means that the write came too late.
    ///
    /// ```
    /// let check = leasehold::Fence::sql_condition("fence", "$2");
    /// assert_eq!(check, "(fence IS NULL OR fence <= $2)");
    /// let sql = format!("UPDATE deals SET state = $1, fence = $2 WHERE id = $3 AND {check}");
    /// # assert!(sql.ends_with("<= $2)"));
    /// ```
    pub fn sql_condition(column: &str, parameter: &str) -> String {
        format!("({column} IS NULL OR {column} <= {parameter})")
    }

    /// A statement that fails unless the lock is held, for a transaction on the database of a `postgres://` store. Its
    /// parameters are the name, as text, and the fence, as [`Fence::as_i64`].
    ///
    /// What the transaction writes is only committed while the lock is held: nobody else is given it before the transaction
    /// ends. The SQLSTATE of the failure is `LH001`.
    ///
    /// ```no_run
    /// # struct Transaction;
    /// # impl Transaction { fn execute(&self, _: &str, _: &[&dyn std::fmt::Debug]) {} }
    /// # fn example(transaction: Transaction, guard: leasehold::Guard) {
    /// use leasehold::Fence;
    ///
    /// transaction.execute(Fence::ASSERT_HELD_SQL, &[&guard.name().as_str(), &guard.fence().as_i64()]);
    /// # }
    /// ```
    pub const ASSERT_HELD_SQL: &'static str = "SELECT leasehold.assert_held($1, $2)";

    /// [`Fence::ASSERT_HELD_SQL`] with its parameters as literals, for clients that send plain text.
    ///
    /// ```
    /// # use leasehold::{Fence, Name};
    /// let sql = Fence::new(7).assert_held_sql(&Name::new("it's")?);
    /// assert_eq!(sql, "SELECT leasehold.assert_held('it''s', 7)");
    /// # Ok::<(), leasehold::Error>(())
    /// ```
    pub fn assert_held_sql(self, name: &Name) -> String {
        let name = name.as_str().replace('\'', "''");
        // Means the same whether or not the server takes a backslash for itself.
        let literal = if name.contains('\\') {
            format!("E'{}'", name.replace('\\', "\\\\"))
        } else {
            format!("'{name}'")
        };
        format!("SELECT leasehold.assert_held({literal}, {})", self.0)
    }

    /// A Lua script that writes a value on a Redis key unless a later holder has written already.
    ///
    /// `KEYS` value key, fence key (in the same slot) · `ARGV` fence, value · answers 1 written, 0 too late.
    pub const REDIS_CHECKED_SET: &'static str = include_str!("fence_checked_set.lua");
}

impl fmt::Display for Fence {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl FromStr for Fence {
    type Err = Error;
    fn from_str(text: &str) -> Result<Self, Error> {
        let token = text.parse().ok().filter(|token| *token < FENCE_LIMIT).map(Self);
        let shown = || text.chars().take(24).collect::<String>();
        token.ok_or_else(|| Error::invalid("fence", shown(), "a number below 2^53"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_text_form_names_what_it_protects() {
        let name = Name::new("deal:42").unwrap();
        assert_eq!(Fence::new(7).token(&name), "deal:42:exclusive:7");
    }

    #[test]
    fn fences_at_two_to_the_53_are_refused() {
        assert_eq!("9007199254740991".parse::<Fence>().unwrap().get(), FENCE_LIMIT - 1);
        assert!("9007199254740992".parse::<Fence>().is_err());
        assert!("-1".parse::<Fence>().is_err());
    }
}
