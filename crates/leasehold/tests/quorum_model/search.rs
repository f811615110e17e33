//! Goes through all states, the nearest first.

use std::{
    collections::{HashSet, VecDeque},
    fmt,
};

use crate::{
    Flaw, Scope,
    node::Node,
    state::{State, Step},
};

/// A promise that is broken, and the shortest way to it.
pub(crate) struct Broken {
    pub(crate) promise: &'static str,
    pub(crate) way: Vec<(Step, State)>,
}

impl fmt::Display for Broken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:", self.promise)?;
        for (step, state) in &self.way {
            write!(f, "\n  {step:?} on")?;
            let holder = |node: &Node| node.key.map_or_else(|| "free".into(), |key| format!("of {key}"));
            state.nodes.iter().try_for_each(|node| write!(f, " [{} {}]", node.fence, holder(node)))?;
        }
        Ok(())
    }
}

/// Searches all states, the nearest first. Tells how many there are, or the shortest way to a broken promise.
pub(crate) fn search(scope: &Scope, flaw: Option<Flaw>) -> Result<usize, Broken> {
    let start = State::new(scope);
    let mut seen = HashSet::from([start.packed()]);
    // Where each state came from, to tell the way.
    let mut ways: Vec<Option<(usize, Step)>> = vec![None];
    let mut queue = VecDeque::from([(0, start)]);
    while let Some((at, state)) = queue.pop_front() {
        for step in state.steps(scope) {
            match state.after(step, flaw) {
                Some(Err(promise)) => return Err(Broken { promise, way: way(scope, flaw, &ways, at, step) }),
                Some(Ok(next)) if seen.insert(next.packed()) => {
                    ways.push(Some((at, step)));
                    queue.push_back((ways.len() - 1, next));
                }
                Some(Ok(_)) | None => {}
            }
        }
    }
    Ok(seen.len())
}

/// The steps to a state, each with the state before it.
fn way(
    scope: &Scope,
    flaw: Option<Flaw>,
    ways: &[Option<(usize, Step)>],
    mut at: usize,
    last: Step,
) -> Vec<(Step, State)> {
    let mut steps = vec![last];
    while let Some((before, step)) = ways[at] {
        steps.push(step);
        at = before;
    }
    let mut state = State::new(scope);
    let replay = steps.into_iter().rev().map(|step| {
        let before = state.clone();
        if let Some(Ok(next)) = state.after(step, flaw) {
            state = next;
        }
        (step, before)
    });
    replay.collect()
}
