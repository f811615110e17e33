//! Elections: one leader at a time, and everybody may know who it is.

use std::{
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, AtomicU32, Ordering},
    },
    time::Instant,
};

use futures_util::future::join_all;
use leasehold::{
    Election, ErrorKind, Fence, Holder, Leadership, Leasehold, Released, RunError,
    election::{Leaders, Observed, Yielded},
};
use tokio::{sync::oneshot, task::JoinHandle};

use super::{
    Breakable, TestContext, Wrapped,
    context::{ms, poll_at_most, soon, until_waiting},
    eventually,
};

cases! {
    a_hundred_candidates_lead_one_after_the_other,
    a_dead_leader_is_succeeded,
    a_leader_out_of_contact_stops_before_the_next_begins: Contract,
    a_leader_is_succeeded_by_the_first_candidate,
    a_resignation_waits_for_the_body,
    resigning_twice_is_one_resignation,
    resigning_within_its_own_body_is_refused,
    a_resignation_is_repeated_after_an_outage: Outage,
    a_lead_that_is_dropped_ends_although_a_clone_is_kept,
    a_lost_lead_cancels_its_body,
    an_observer_sees_the_present_and_each_change,
    an_observer_reports_lost_contact: Outage,
    an_observer_ends_with_its_client,
    a_leader_hands_over_to_the_candidate_it_names: HandTo,
    a_hand_over_to_one_who_does_not_wait_changes_nothing,
    a_candidate_with_a_higher_priority_is_preferred: HandTo,
    a_candidate_shows_its_version_and_its_priority,
    a_hand_over_waits_for_the_body: HandTo,
    hand_overs_leave_no_gap: HandTo,
}

fn candidate(client: &Leasehold, label: &str) -> Election {
    client.election("scheduler").label(label).ttl(ms(60_000)).poll_every(ms(10))
}

async fn campaign(client: &Leasehold, label: &str, ahead: u32) -> JoinHandle<Leadership> {
    let election = candidate(client, label);
    let task = tokio::spawn(async move { election.campaign().await.expect("elected") });
    until_waiting(client, "scheduler", ahead + 1).await;
    task
}

/// A leader whose body works on for a while after it was asked to end.
struct Body {
    leadership: Leadership,
    has_ended: Arc<AtomicBool>,
    task: JoinHandle<leasehold::Result<()>>,
}

impl Body {
    async fn start(client: &Leasehold, label: &str) -> Self {
        let (send, leads) = oneshot::channel();
        let (election, has_ended) = (candidate(client, label), Arc::new(AtomicBool::new(false)));
        let ended = has_ended.clone();
        let task = tokio::spawn(async move {
            let body = async move |leadership: Leadership| {
                send.send(leadership.clone()).unwrap();
                leadership.resigning().await;
                tokio::time::sleep(ms(200)).await;
                ended.store(true, Ordering::SeqCst);
            };
            election.lead(body).await.map_err(leasehold::Error::from)
        });
        let leadership = soon("the body runs", leads).await.unwrap();
        Self { leadership, has_ended, task }
    }

    fn has_ended(&self) -> bool {
        self.has_ended.load(Ordering::SeqCst)
    }
}

async fn a_hundred_candidates_lead_one_after_the_other(test: TestContext) {
    let clients = [test.client().await, test.client().await];
    let (leading, fences) = (Arc::new(AtomicU32::new(0)), Arc::new(Mutex::new(Vec::new())));
    let tasks = (0..100).map(|number| {
        let (client, leading, fences) = (clients[number % 2].clone(), leading.clone(), fences.clone());
        tokio::spawn(async move {
            let body = async |leadership: Leadership| {
                assert_eq!(leading.fetch_add(1, Ordering::SeqCst), 0, "two lead");
                fences.lock().unwrap().push(leadership.fence());
                tokio::task::yield_now().await;
                leading.fetch_sub(1, Ordering::SeqCst);
            };
            candidate(&client, "one of many").lead(body).await.map_err(leasehold::Error::from).unwrap();
        })
    });
    for task in join_all(tasks).await {
        task.unwrap();
    }
    let fences = std::mem::take(&mut *fences.lock().unwrap());
    assert!(fences.len() == 100 && fences.is_sorted_by(|one, next| one < next), "{fences:?}");
    test.assert_empty().await;
}

async fn a_dead_leader_is_succeeded(test: TestContext) {
    let client = test.client().await;
    // An election is the lock of its name: this is a leader that nothing renews any more.
    let dead = client.lock("scheduler").ttl(ms(600)).acquire().await.unwrap().detach();
    let next = soon("the next leader", candidate(&client, "next").campaign()).await.unwrap();
    assert!(next.fence() > dead.fence());
    assert!(next.resign().await.unwrap().was_held());
}

async fn a_leader_out_of_contact_stops_before_the_next_begins(test: TestContext) {
    struct Stops(Arc<Mutex<Option<Instant>>>);
    impl Drop for Stops {
        fn drop(&mut self) {
            *self.0.lock().unwrap() = Some(Instant::now());
        }
    }
    let (link, other) = (Breakable::default(), test.client().await);
    let engine = Arc::new(Wrapped::new(test.engine(), link.clone()));
    let client = test.client_with(|builder| builder.engine(engine)).await;
    let stopped = Arc::new(Mutex::new(None));
    let stops = Stops(stopped.clone());
    let (send, leads) = oneshot::channel();
    let leader = tokio::spawn(async move {
        let body = async move |leadership: Leadership| {
            let _stops = stops;
            send.send(leadership.fence()).unwrap();
            std::future::pending::<()>().await;
        };
        match candidate(&client, "cut off").ttl(ms(1_000)).lead(body).await {
            Err(RunError::Lost { value: None, fence, .. }) => fence,
            other => panic!("{other:?}"),
        }
    });
    let fence = soon("the first leader", leads).await.unwrap();
    let next = candidate(&other, "next");
    let next = tokio::spawn(async move {
        let leadership = next.campaign().await.unwrap();
        (leadership, Instant::now())
    });
    until_waiting(&other, "scheduler", 1).await;
    link.cut();
    let (next, began) = soon("the next leader", next).await.unwrap();
    let stopped = stopped.lock().unwrap().expect("the first one still leads");
    assert!(stopped <= began, "two led for {:?}", stopped - began);
    assert!(next.fence() > fence);
    link.mend();
    assert_eq!(soon("the first leader ends", leader).await.unwrap(), fence);
    assert!(next.is_held() && next.resign().await.unwrap().was_held());
}

async fn a_leader_is_succeeded_by_the_first_candidate(test: TestContext) {
    let client = test.client().await;
    let first = candidate(&client, "a").campaign().await.unwrap();
    let (second, third) = (campaign(&client, "b", 0).await, campaign(&client, "c", 1).await);
    let labels: Vec<_> = candidate(&client, "").candidates().await.unwrap().iter().map(label).collect();
    assert_eq!(labels, ["b", "c"]);
    assert!(matches!(first.resign().await.unwrap(), Released::HandedOver { to: 1, .. }));
    assert!(!first.is_held());
    let second = soon("the second", second).await.unwrap();
    assert!(second.fence() > first.fence() && !third.is_finished());
    drop(second);
    let third = soon("the third", third).await.unwrap();
    assert!(third.resign().await.unwrap().was_held());
    let late = candidate(&client, "d").campaign().await.unwrap();
    assert_eq!(candidate(&client, "e").wait(ms(0)).campaign().await.unwrap_err().kind(), ErrorKind::TimedOut);
    assert!(late.resign().await.unwrap().was_held());
}

fn label(holder: &Holder) -> String {
    match holder {
        Holder::Leasehold { label, .. } => label.clone(),
        other => other.to_string(),
    }
}

async fn a_resignation_waits_for_the_body(test: TestContext) {
    let client = test.client().await;
    let first = Body::start(&client, "first").await;
    let next = campaign(&client, "next", 0).await;
    let resigned = tokio::spawn({
        let leadership = first.leadership.clone();
        async move { leadership.resign().await }
    });
    eventually("it is told", async || first.leadership.is_resigning()).await;
    while !first.has_ended() {
        assert!(!next.is_finished(), "the next leader began while the body ran");
        assert!(first.leadership.is_held() || first.has_ended());
        tokio::time::sleep(ms(2)).await;
    }
    assert!(soon("the resignation", resigned).await.unwrap().unwrap().was_held());
    soon("the lead", first.task).await.unwrap().expect("it led to the end");
    assert!(soon("the next", next).await.unwrap().resign().await.unwrap().was_held());
    test.assert_empty().await;
}

async fn resigning_twice_is_one_resignation(test: TestContext) {
    let client = test.client().await;
    let leadership = candidate(&client, "first").campaign().await.unwrap();
    let next = campaign(&client, "next", 0).await;
    let (one, two) = tokio::join!(leadership.resign(), leadership.resign());
    assert_eq!(one.unwrap(), two.unwrap());
    let next = soon("the next", next).await.unwrap();
    assert!(leadership.resign().await.unwrap().was_held(), "the same outcome as before");
    assert!(next.is_held(), "and nothing was taken from the next one");
    assert!(next.resign().await.unwrap().was_held());
}

async fn resigning_within_its_own_body_is_refused(test: TestContext) {
    let client = test.client().await;
    let body = async |leadership: Leadership| leadership.resign().await.unwrap_err();
    let refused = soon("no deadlock", candidate(&client, "me").lead(body)).await.unwrap();
    assert_eq!(refused.kind(), ErrorKind::Unsupported);
    assert!(refused.to_string().contains("return from the body"), "{refused}");
    test.assert_empty().await;
}

async fn a_resignation_is_repeated_after_an_outage(test: TestContext) {
    let client = test.client_with(|builder| builder.command_timeout(ms(300))).await;
    let Body { leadership, task, .. } = Body::start(&client, "me").await;
    test.cut().await;
    leadership.resign().await.expect_err("the store does not answer");
    assert!(!leadership.is_held(), "nobody relies on it any more");
    soon("the lead", task).await.unwrap().expect("it led until its body had ended");
    test.mend().await;
    eventually("it resigned", async || leadership.resign().await.is_ok()).await;
    let next = soon("the next", candidate(&client, "next").campaign()).await.unwrap();
    assert!(next.resign().await.unwrap().was_held());
}

async fn a_lead_that_is_dropped_ends_although_a_clone_is_kept(test: TestContext) {
    let client = test.client().await;
    let Body { leadership, task, .. } = Body::start(&client, "first").await;
    task.abort();
    assert!(task.await.unwrap_err().is_cancelled());
    let next = soon("the next", candidate(&client, "next").campaign()).await.unwrap();
    assert!(!leadership.is_held() && next.fence() > leadership.fence());
    soon("nothing is waited for", leadership.resign()).await.map(drop).unwrap();
    assert!(next.is_held());
    assert!(next.resign().await.unwrap().was_held());
}

async fn a_lost_lead_cancels_its_body(test: TestContext) {
    let client = test.client().await;
    let first = Body::start(&client, "first").await;
    client.force_release("scheduler", first.leadership.fence()).await.map(drop).unwrap();
    let lost = soon("the lead ends", first.task).await.unwrap().unwrap_err();
    assert_eq!(lost.kind(), ErrorKind::Lost);
    assert!(!first.has_ended.load(Ordering::SeqCst), "the body went on");
    assert!(!first.leadership.resign().await.unwrap().was_held());
}

async fn next_news(leaders: &mut Leaders) -> Observed {
    soon("news", leaders.next()).await.expect("the client is open")
}

async fn an_observer_sees_the_present_and_each_change(test: TestContext) {
    let (client, observer) = (test.client().await, test.client().await);
    let mut leaders = candidate(&observer, "").observe().unwrap();
    assert!(matches!(next_news(&mut leaders).await, Observed::Vacant { .. }));
    let mut before = Fence::new(0);
    for name in ["a", "b", "c"] {
        let leadership = candidate(&client, name).campaign().await.unwrap();
        let Observed::Leader { holder, fence, .. } = next_news(&mut leaders).await else {
            panic!("{name} leads")
        };
        assert_eq!((label(&holder), fence), (name.to_owned(), leadership.fence()));
        assert!(fence > before);
        before = fence;
        let mut late = candidate(&observer, "").observe().unwrap();
        assert!(matches!(next_news(&mut late).await, Observed::Leader { .. }), "the present comes first");
        assert!(leadership.resign().await.unwrap().was_held());
        assert!(matches!(next_news(&mut leaders).await, Observed::Vacant { .. }));
    }
    assert!(poll_at_most(1, leaders.next()).await.is_none(), "nothing is repeated");
    let refused = client.election("scheduler").poll_every(ms(1)).observe().map(drop);
    assert_eq!(refused.unwrap_err().kind(), ErrorKind::Invalid);
}

async fn an_observer_reports_lost_contact(test: TestContext) {
    let client = test.client_with(|builder| builder.command_timeout(ms(1_000))).await;
    let leadership = candidate(&client, "me").campaign().await.unwrap();
    let mut leaders = candidate(&client, "").observe().unwrap();
    let first = next_news(&mut leaders).await;
    assert!(matches!(first, Observed::Leader { .. }));
    test.cut().await;
    assert!(matches!(next_news(&mut leaders).await, Observed::Unknown { .. }));
    test.mend().await;
    assert_eq!(next_news(&mut leaders).await, first, "the same leader, since the same time");
    assert!(leadership.resign().await.unwrap().was_held());
}

async fn an_observer_ends_with_its_client(test: TestContext) {
    let client = test.client().await;
    let mut leaders = candidate(&client, "").observe().unwrap();
    assert!(matches!(next_news(&mut leaders).await, Observed::Vacant { .. }));
    client.close().await.unwrap();
    assert_eq!(soon("its end", leaders.next()).await, None);
}

async fn a_leader_hands_over_to_the_candidate_it_names(test: TestContext) {
    let client = test.client().await;
    let first = candidate(&client, "a").campaign().await.unwrap();
    let (second, third) = (campaign(&client, "b", 0).await, campaign(&client, "c", 1).await);
    let waiting = candidate(&client, "").candidates().await.unwrap();
    let Yielded::Done(Released::HandedOver { to: 1, next: Some(fence) }) =
        first.yield_to(&waiting[1]).await.unwrap()
    else {
        panic!("it waits")
    };
    let held = client.inspect("scheduler").await.unwrap();
    assert_eq!((held.held().expect("no gap").fence, held.waiting), (fence, 1));
    let third = soon("the one that was named", third).await.unwrap();
    assert_eq!(third.fence(), fence);
    assert!(!first.is_held() && !second.is_finished() && fence > first.fence());
    assert!(first.resign().await.unwrap().was_held(), "its term has ended already");
    assert!(!third.lost_within(ms(50)).await);
    let preferred = third.prefer(|candidate| label(candidate) == "b").await.unwrap();
    assert!(matches!(preferred, Yielded::Done(_)));
    assert!(soon("the second", second).await.unwrap().resign().await.unwrap().was_held());
    test.assert_empty().await;
}

async fn a_hand_over_to_one_who_does_not_wait_changes_nothing(test: TestContext) {
    let client = test.client().await;
    let leadership = candidate(&client, "me").ttl(ms(2_000)).campaign().await.unwrap();
    let nobody = Holder::this_process("nobody", 5);
    let asked = leadership.yield_to(&nobody).await;
    if test.capabilities().no_hand_to.is_some() {
        assert_eq!(asked.unwrap_err().kind(), ErrorKind::Unsupported);
    } else {
        assert_eq!(asked.unwrap(), Yielded::NotWaiting);
        assert_eq!(leadership.prefer(|_| true).await.unwrap(), Yielded::NotWaiting);
    }
    assert!(!leadership.lost_within(ms(3_000)).await, "it is not renewed any more");
    assert!(leadership.resign().await.unwrap().was_held());
}

async fn a_candidate_with_a_higher_priority_is_preferred(test: TestContext) {
    let client = test.client().await;
    let mut leader = candidate(&client, "first").campaign().await.unwrap();
    let mut waiting = Vec::new();
    for (ahead, priority) in [0, 3, -1, 3, 7].into_iter().enumerate() {
        let election = candidate(&client, &ahead.to_string()).version("2.1").priority(priority);
        waiting.push(Some(tokio::spawn(election.campaign())));
        until_waiting(&client, "scheduler", ahead as u32 + 1).await;
    }
    for next in [4, 1, 3, 0, 2] {
        assert!(matches!(leader.prefer_highest().await.unwrap(), Yielded::Done(_)));
        let elected = soon("the next", waiting[next].take().expect("it waits")).await;
        leader = elected.unwrap().unwrap();
    }
    assert_eq!(leader.prefer_highest().await.unwrap(), Yielded::NotWaiting);
    assert!(leader.resign().await.unwrap().was_held());
    test.assert_empty().await;
}

async fn a_candidate_shows_its_version_and_its_priority(test: TestContext) {
    let client = test.client().await;
    let stands = |label| candidate(&client, label).version("2.1").priority(-7);
    let leadership = stands("my scheduler").campaign().await.unwrap();
    let mut leaders = candidate(&client, "").observe().unwrap();
    let Observed::Leader { holder, .. } = next_news(&mut leaders).await else { panic!("it leads") };
    let waits = tokio::spawn(stands("").campaign());
    until_waiting(&client, "scheduler", 1).await;
    let waiting = candidate(&client, "").candidates().await.unwrap();
    for (holder, label) in [(&holder, "my scheduler"), (&waiting[0], "")] {
        assert_eq!((holder.label(), holder.version(), holder.priority()), (label, Some("2.1"), -7));
    }
    assert!(holder.to_string().starts_with("my scheduler version=2.1 priority=-7 ("), "{holder}");
    assert!(leadership.resign().await.unwrap().was_held());
    assert!(soon("the next", waits).await.unwrap().unwrap().resign().await.unwrap().was_held());
    for version in ["", "2 1", "2\n1"] {
        let error = candidate(&client, "x").version(version).campaign().await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Invalid, "{error}");
    }
    let long = candidate(&client, &"x".repeat(120)).version("2.1").campaign().await.unwrap_err();
    assert_eq!(long.kind(), ErrorKind::Invalid, "{long}");
    test.assert_empty().await;
}

async fn a_hand_over_waits_for_the_body(test: TestContext) {
    let client = test.client().await;
    let first = Body::start(&client, "first").await;
    let nobody = Holder::this_process("nobody", 5);
    assert_eq!(first.leadership.yield_to(&nobody).await.unwrap(), Yielded::NotWaiting);
    assert!(!first.leadership.is_resigning(), "a body was ended for nobody");
    let (second, third) = (campaign(&client, "b", 0).await, campaign(&client, "c", 1).await);
    let is_third = |candidate: &Holder| label(candidate) == "c";
    let Yielded::Done(released) = first.leadership.prefer(is_third).await.unwrap() else {
        panic!("it waits")
    };
    assert!(first.has_ended() && released.was_held());
    soon("the lead", first.task).await.unwrap().expect("it led to the end");
    let third = soon("the one that was named", third).await.unwrap();
    assert!(matches!(released, Released::HandedOver { next: Some(fence), .. } if fence == third.fence()));
    assert!(third.resign().await.unwrap().was_held());
    assert!(soon("the second", second).await.unwrap().resign().await.unwrap().was_held());
}

async fn hand_overs_leave_no_gap(test: TestContext) {
    let (client, observer) = (test.client().await, test.client().await);
    let mut leader = candidate(&client, "0").campaign().await.unwrap();
    let ends = Arc::new(AtomicBool::new(false));
    let watched = tokio::spawn({
        let ends = ends.clone();
        async move {
            let mut looks = 0;
            while !ends.load(Ordering::SeqCst) {
                let held = observer.inspect("scheduler").await.unwrap();
                assert!(held.held().is_some(), "nobody led");
                looks += 1;
                tokio::task::yield_now().await;
            }
            looks
        }
    });
    for number in 1..=10 {
        let next = campaign(&client, &number.to_string(), 0).await;
        assert!(matches!(leader.prefer(|_| true).await.unwrap(), Yielded::Done(_)));
        leader = soon("the next", next).await.unwrap();
    }
    ends.store(true, Ordering::SeqCst);
    assert!(soon("the observer", watched).await.unwrap() > 0);
    assert!(leader.resign().await.unwrap().was_held());
}
