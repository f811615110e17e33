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

pub(crate) use setters;
