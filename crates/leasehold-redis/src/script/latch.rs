//! What operations on latches and barriers send: see `scripts/latch.lua`.

use std::sync::Arc;

use redis::Cmd;

use super::{
    TOMBSTONE,
    op::{Form, Key, Op, Step, parts},
    px,
};
use leasehold_core::{
    engine::{
        Held, Hold,
        latches::{self, Request},
    },
    owner::Owner,
};

pub(crate) enum LatchStep {
    /// A request; the channel is where the one who waits is woken.
    Ask {
        request: Request,
        channel: Arc<str>,
        /// Some copy of the request to join may still reach the server.
        unanswered: bool,
    },
    /// Renews a participant by one key alone.
    MoveEnd(Hold),
    Show,
}

impl LatchStep {
    pub(super) fn owner(&self) -> Option<&Owner> {
        match self {
            Self::Ask { request, .. } => Some(&request.owner),
            Self::MoveEnd(hold) => Some(&hold.owner),
            Self::Show => None,
        }
    }

    pub(super) fn may_queue(&self) -> bool {
        matches!(self, Self::Ask { request, .. } if request.wake())
    }
}

impl Op {
    pub(super) fn is_of_latch(&self) -> bool {
        matches!(self.step, Step::Latch(_) | Step::Renew(Hold { of: Held::Latch, .. }))
    }

    pub(super) fn latch_form(&self) -> Form {
        use Key::{D, E, G, P, Q};
        let Step::Latch(step) = &self.step else { return ("n", &[D, E, P]) };
        match step {
            LatchStep::MoveEnd(_) => ("m", &[E]),
            LatchStep::Show => ("s", &[D, E, P, Q]),
            LatchStep::Ask { request, .. } => match request.op {
                latches::Op::Join { .. } => ("j", &[D, E, P, Q, G]),
                latches::Op::CountDown { .. } => ("c", &[D, E, P, Q]),
                latches::Op::Leave { .. } => ("l", &[D, E, P, Q, G]),
                latches::Op::Look { .. } => ("w", &[D, E, P, Q]),
                latches::Op::Rearm { .. } => ("r", &[D, E, P, Q]),
            },
        }
    }

    pub(super) fn write_latch_args(&self, cmd: &mut Cmd) {
        let (request, channel, unanswered) = match &self.step {
            Step::Latch(LatchStep::Ask { request, channel, unanswered }) => (request, channel, *unanswered),
            Step::Latch(LatchStep::MoveEnd(hold)) | Step::Renew(hold) => {
                cmd.arg(hold.owner.id_text()).arg(px(hold.ttl));
                return;
            }
            _ => return,
        };
        let Request { kind, count, owner, .. } = request;
        let (id, holder) = (owner.id_text(), parts(owner).1);
        cmd.arg(kind.as_str());
        match request.op {
            latches::Op::Join { ttl } => cmd.arg(count.get()).arg(id).arg(holder).arg(px(ttl)),
            latches::Op::CountDown { generation } => cmd.arg(count.get()).arg(id).arg(generation),
            latches::Op::Leave { breaks } => {
                let tombstone = if unanswered { px(TOMBSTONE).to_string() } else { String::new() };
                cmd.arg(id).arg(u8::from(breaks)).arg(tombstone)
            }
            latches::Op::Look { generation, wake } => {
                let generation = generation.map(|generation| generation.to_string()).unwrap_or_default();
                let watcher = if wake { format!("{channel} {id}") } else { String::new() };
                cmd.arg(count.get()).arg(generation).arg(watcher)
            }
            latches::Op::Rearm { generation } => cmd.arg(count.get()).arg(generation),
        };
    }
}
