//! Methods of an async type, under the same names.

/// A type that wraps an async one, or only methods of such a type. Each line is one method. `set` returns the builder, `get`
/// answers at once, `wait` waits for the answer, and `end` also uses the value up. What follows `=>` wraps the answer.
macro_rules! mirror {
    ($(#[$about:meta])* pub struct $type:ident($of:path) { $($methods:tt)+ }) => {
        $(#[$about])*
        pub struct $type {
            inner: $of,
        }

        impl $type {
            pub(super) fn new(inner: $of) -> Self {
                Self { inner }
            }

            mirror! { $of: $($methods)+ }
        }
    };
    ($of:path: $($(#[$more:meta])* $kind:ident $name:ident($($arg:ident: $type:ty),*) $(-> $out:ty)? $(=> $wrap:path)?;)+) => {
        $(mirror!(@$kind $of, [$($more)*] $name($($arg: $type),*) $(-> $out)? $(=> $wrap)?);)+
    };
    (@set $of:path, [$($more:meta)*] $name:ident($($arg:ident: $type:ty),*)) => {
        #[doc = concat!("As [`", stringify!($of), "::", stringify!($name), "`].")]
        $(#[$more])*
        pub fn $name(self $(, $arg: $type)*) -> Self {
            Self { inner: self.inner.$name($($arg),*) }
        }
    };
    (@get $of:path, [$($more:meta)*] $name:ident($($arg:ident: $type:ty),*) -> $out:ty $(=> $wrap:path)?) => {
        #[doc = concat!("As [`", stringify!($of), "::", stringify!($name), "`].")]
        $(#[$more])*
        pub fn $name(&self $(, $arg: $type)*) -> $out {
            $($wrap)?(self.inner.$name($($arg),*))
        }
    };
    (@wait $($rest:tt)+) => { mirror!(@waiting [&self] [self] $($rest)+); };
    (@end $($rest:tt)+) => { mirror!(@waiting [self] [self] $($rest)+); };
    (@waiting [$($receiver:tt)+] [$this:ident] $of:path, [$($more:meta)*] $name:ident($($arg:ident: $type:ty),*)
        -> $out:ty $(=> $wrap:path)?) => {
        #[doc = concat!("As [`", stringify!($of), "::", stringify!($name), "`]; `unsupported` in async code.")]
        $(#[$more])*
        pub fn $name($($receiver)+ $(, $arg: $type)*) -> Result<$out> {
            wait($this.inner.$name($($arg),*))?$(.map($wrap))?
        }
    };
}

pub(super) use mirror;
