//! A lock that outlives the process that took it, for scripts.

use std::{fmt, str::FromStr, time::Duration};

use crate::{
    client::Client,
    engine::{Format, Held, Hold, Mode, Released, Renewed},
    error::{Error, Result},
    fence::Fence,
    name::Name,
    owner::Owner,
};

/// What it takes to extend or release a lock from another process, or to [hold it again](crate::Client::attach). It holds the owner value: whoever has it can give
/// the lock away, so keep it in a file that only its user can read, never in a command line.
///
/// Nothing renews a detached lock. Not for programs that can keep a [`Guard`](crate::Guard).
#[derive(Clone)]
pub struct Handle {
    pub(super) hold: Hold,
}

const HEADER: &str = "leasehold-handle 1";
/// What comes before the format on the last line, if it is not the plain one.
const FORMAT: &str = "format ";

impl Handle {
    /// What is held.
    pub fn name(&self) -> &Name {
        &self.hold.name
    }

    /// Its fencing token.
    pub fn fence(&self) -> Fence {
        self.hold.fence
    }

    /// How it is held.
    pub fn mode(&self) -> Mode {
        self.hold.mode
    }

    /// How long an extension lasts.
    pub fn ttl(&self) -> Duration {
        self.hold.ttl
    }

    /// The text to keep in a file. It contains the secret.
    pub fn expose(&self) -> String {
        let Hold { name, owner, fence, mode, format, ttl, lock_delay, .. } = &self.hold;
        let (ttl, delay, owner) = (ttl.as_millis(), lock_delay.as_millis(), owner.expose());
        let text = format!("{HEADER}\n{name}\n{fence}\n{mode}\n{ttl}\n{delay}\n{owner}\n");
        if *format == Format::Plain { text } else { format!("{text}{FORMAT}{format}\n") }
    }

    /// Extends the lock by its ttl, or by another one.
    ///
    /// # Errors
    /// `lost` when it is gone; the store's faults.
    pub async fn extend(&self, leases: &Client, ttl: Option<Duration>) -> Result<()> {
        let core = &leases.core;
        let hold = Hold { ttl: ttl.unwrap_or(self.hold.ttl), ..self.hold.clone() };
        core.config.check_ttl(hold.ttl)?;
        core.config.check_lock_delay(hold.lock_delay)?;
        match core.renew(&hold).await.map_err(|error| core.failed(error, "extending", &hold.name))? {
            Renewed::Kept { .. } => Ok(()),
            Renewed::Gone => Err(Error::Lost { name: hold.name, fence: hold.fence }),
        }
    }

    /// Gives the lock back.
    ///
    /// # Errors
    /// The store's faults; the outcome is then unknown.
    pub async fn release(&self, leases: &Client) -> Result<Released> {
        let core = &leases.core;
        core.release(&self.hold).await.map_err(|error| core.failed(error, "releasing", &self.hold.name))
    }
}

/// Reads the text of [`Handle::expose`]; `invalid` when it is something else.
impl FromStr for Handle {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self> {
        let read = || {
            let mut lines = text.lines();
            if lines.next()? != HEADER {
                return None;
            }
            let name = Name::new(lines.next()?).ok()?;
            let fence = lines.next()?.parse().ok()?;
            let mode = lines.next()?.parse().ok()?;
            let ttl = Duration::from_millis(lines.next()?.parse().ok()?);
            let lock_delay = Duration::from_millis(lines.next()?.parse().ok()?);
            let owner = Owner::from_exposed(lines.next()?)?;
            let format = lines.next().and_then(|line| line.strip_prefix(FORMAT));
            let format = format.map_or(Some(Format::Plain), |format| format.parse().ok())?;
            let (of, watch) = (Held::Lock, false);
            Some(Self { hold: Hold { name, owner, fence, mode, format, ttl, lock_delay, of, watch } })
        };
        read()
            .ok_or_else(|| Error::invalid("lock handle", "…", format!("text that begins with \"{HEADER}\"")))
    }
}

impl fmt::Debug for Handle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Handle")
            .field("name", self.name())
            .field("fence", &self.fence())
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::owner::Holder;

    #[test]
    fn a_handle_reads_back_and_hides_its_secret() {
        let owner = Owner::new(0xfeed_beef, &Holder::this_process("job", 5));
        let hold = Hold {
            name: Name::new("nightly").unwrap(),
            owner,
            fence: Fence::new(7),
            ttl: Duration::from_secs(30),
            lock_delay: Duration::ZERO,
            mode: Mode::Shared,
            format: Format::Plain,
            of: Held::Lock,
            watch: false,
        };
        for (format, mode) in [(Format::Plain, Mode::Shared), (Format::Redisson, Mode::Exclusive)] {
            let handle = Handle { hold: Hold { format, mode, ..hold.clone() } };
            let text = format!("{}store redis://there\n", handle.expose());
            let back: Handle = text.parse().unwrap();
            assert_eq!(
                (back.name(), back.fence(), back.ttl()),
                (handle.name(), handle.fence(), handle.ttl())
            );
            let Hold { owner, mode: read, format: read_format, .. } = &back.hold;
            assert_eq!((owner, *read, *read_format), (&handle.hold.owner, mode, format));
            assert!(!format!("{handle:?}").contains("feedbeef"));
        }
        assert!(format!("{}format other\n", Handle { hold }.expose()).parse::<Handle>().is_err());
        assert!("something else".parse::<Handle>().is_err());
    }
}
