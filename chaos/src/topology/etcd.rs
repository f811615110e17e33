//! Three members of etcd. A grant is on two of them before it is answered, so nothing is ever lost.

use std::{thread, time::Duration};

use leasehold_testkit::{EtcdMember, EtcdSet, eventually, poll};

use super::{Cure, Fault, Topology, Victims};
use crate::{Failure, fault_loop::Options};

const MEMBERS: usize = 3;
const WHOLE_WITHIN: Duration = Duration::from_secs(60);
/// Longer than a leader waits for a majority before it steps down, and shorter than leases of the long tenures.
const WITHOUT_MAJORITY: Duration = Duration::from_millis(1500);

pub(crate) struct Etcd {
    set: EtcdSet,
}

impl Topology for Etcd {
    const FAULTS: &'static [Fault<Self>] = &[
        Fault::lasting("kill the leader", Cure::Itself, |this, _| this.kill(&[this.leader()]), Self::restart),
        Fault::lasting("kill a member", Cure::Itself, |this, dice| this.kill(&[any(dice)]), Self::restart),
        Fault::lasting("stop the leader", Cure::Itself, |this, _| this.stop(this.leader()), Self::cont),
        Fault::lasting("stop a member", Cure::Itself, |this, dice| this.stop(any(dice)), Self::cont),
        Fault::lasting(
            "kill two members",
            Cure::Hand,
            |this, dice| this.kill(&[any(dice), any(dice + 1)]),
            Self::restart,
        ),
        Fault::passing("kill all, start all", |this, _| {
            let all = this.kill(&[0, 1, 2]);
            thread::sleep(WITHOUT_MAJORITY);
            this.restart(&all);
            Vec::new()
        }),
        Fault::passing("compact", |this, _| {
            let status = this.set.ctl(&["endpoint", "status", "-w", "fields"]);
            let revision = status.lines().find_map(|line| line.strip_prefix("\"Revision\" : "));
            this.set.ctl(&["compact", revision.expect("a member reports its revision")]);
            Vec::new()
        }),
    ];

    /// Longer than an election and the restart of a member take.
    const MAX_TTL: Duration = Duration::from_secs(4);

    fn start(_: &Options) -> Result<Self, Failure> {
        Ok(Self { set: EtcdSet::builder(MEMBERS).start()? })
    }

    fn url(&self) -> String {
        self.set.url()
    }

    fn await_whole(&self) {
        self.set.members().iter().for_each(EtcdMember::wait);
        eventually(WHOLE_WITHIN, "a leader", || self.set.leader().is_some());
    }
}

fn any(dice: u64) -> usize {
    (dice % MEMBERS as u64) as usize
}

impl Etcd {
    fn leader(&self) -> usize {
        let leads =
            |member: &EtcdMember| self.set.leader().is_some_and(|leader| leader.addr() == member.addr());
        poll(WHOLE_WITHIN, || self.set.members().iter().position(leads)).expect("one of them leads")
    }

    fn kill(&self, members: &[usize]) -> Victims {
        members.iter().for_each(|index| self.set.members()[*index].kill());
        members.into()
    }

    fn restart(&self, killed: &[usize]) {
        killed.iter().for_each(|index| self.set.members()[*index].restart());
    }

    fn stop(&self, member: usize) -> Victims {
        self.set.members()[member].stop();
        vec![member]
    }

    fn cont(&self, stopped: &[usize]) {
        stopped.iter().for_each(|index| self.set.members()[*index].cont());
    }
}
