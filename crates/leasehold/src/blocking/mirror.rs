//! Methods of an async type, under the same names; and the one background thread that they wait for.

use std::sync::OnceLock;

use tokio::runtime::{Builder, Handle, Runtime};

use crate::{Error, Result};

/// A type that wraps an async one, or only methods of such a type. Each line is one method. `set` returns the builder, `get`
/// answers at once, `wait` waits for the answer, and `end` also uses the value up. What follows `=>` wraps the answer.
macro_rules! mirror {
    ($(#[$about:meta])* pub struct $type:ident($of:path) { $($methods:tt)* }) => {
        $(#[$about])*
        pub struct $type {
            inner: $of,
        }

        impl $type {
            pub(super) fn new(inner: $of) -> Self {
                Self { inner }
            }

            mirror! { $of: $($methods)* }
        }
    };
    ($of:path: $($(#[$more:meta])* $kind:ident $name:ident($($arg:ident: $type:ty),*) $(-> $out:ty)? $(=> $wrap:path)?;)*) => {
        $(mirror!(@$kind $of, [$($more)*] $name($($arg: $type),*) $(-> $out)? $(=> $wrap)?);)*
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

/// Waits for a future; only where waiting is allowed.
pub(super) fn wait<T>(future: impl Future<Output = T>) -> Result<T> {
    Ok(for_waiting()?.block_on(future))
}

/// The runtime, if this thread may wait for it. It lives as long as the process: locks that were dropped are given back even
/// after the last client is gone.
pub(super) fn for_waiting() -> Result<&'static Runtime> {
    static RUNTIME: OnceLock<Runtime> = OnceLock::new();
    if Handle::try_current().is_ok() {
        return Err(Error::unsupported(
            "a blocking call in async code",
            "it would stop all tasks of this thread; use leasehold::Leasehold and await it",
        ));
    }
    if let Some(runtime) = RUNTIME.get() {
        return Ok(runtime);
    }
    let built = Builder::new_multi_thread().worker_threads(1).thread_name("leasehold").enable_all().build();
    let built = built.map_err(|error| {
        Error::unsupported("a blocking call", format!("cannot start the background thread: {error}"))
    })?;
    // Of two that were started at once one is dropped.
    Ok(RUNTIME.get_or_init(|| built))
}
