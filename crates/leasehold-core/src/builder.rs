//! Methods of builders that set one field each.

/// Each line is one method: its name, what it takes, and the field that it sets.
macro_rules! setters {
    ($($(#[$doc:meta])+ $name:ident($value:ident: $type:ty) => $($field:ident).+;)+) => {$(
        $(#[$doc])+
        pub fn $name(mut self, $value: $type) -> Self {
            self.$($field).+ = $value.into();
            self
        }
    )+};
}

/// Methods of a builder that change the [`Lock`](crate::Lock) in its field `lock`, under the same names.
macro_rules! lock_setters {
    ($($name:ident($($arg:ident: $type:ty)?);)+) => {$(
        #[doc = concat!("As [`Lock::", stringify!($name), "`](crate::Lock::", stringify!($name), ").")]
        pub fn $name(mut self $(, $arg: $type)?) -> Self {
            self.lock = self.lock.$name($($arg)?);
            self
        }
    )+};
}

pub(crate) use {lock_setters, setters};
