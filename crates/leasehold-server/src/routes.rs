//! The table of routes: the router, the checks and the OpenAPI document are made from it.

use axum::{Router, middleware};
use http::Method;
use tower_http::{catch_panic::CatchPanicLayer, compression::CompressionLayer};

use crate::{
    api::{
        acquire::{self, Acquire, AcquireByPolicy, Held},
        attempt::{self, AttemptView, Wait},
        audit, dead, deadlines, elections, events, force, health, idempotency, locks, markers, nodes,
        overview, playground, policies,
        records::RecordView,
        sessions,
    },
    auth::Right::{Force, Hold, Read},
    gate::{self, Gate},
    playground::PlaygroundView,
    problem::Problem,
    route::{
        Named::{Lock, Mark, Pool, Record},
        Need::{All, For, Some, Token},
        Route, delete, get, post, put,
    },
    state::App,
    views::{ListOf, PageOf},
};

const KEY: (&str, &str) = ("Idempotency-Key", "the id of this attempt: a repeat gets the same answer");
const PREFER: (&str, &str) =
    ("Prefer", "wait=N to wait so many seconds; respond-async to stay in the queue after the answer");
const SECRET: (&str, &str) = ("Leasehold-Secret", "the secret of the session");

/// Every route.
pub(crate) fn table() -> Vec<Route> {
    [
        service(),
        of_locks(),
        of_sessions(),
        of_elections(),
        of_records(),
        of_marks(),
        of_deadlines(),
        of_dashboard(),
        of_playground(),
    ]
    .into_iter()
    .flatten()
    .collect()
}

fn service() -> Vec<Route> {
    vec![
        get("/healthz", "alive", "Whether the service lives", health::alive)
            .answers::<health::Alive>(200, "it lives"),
        get("/readyz", "ready", "Whether the service can work", health::ready)
            .answers::<health::Ready>(200, "the store answers")
            .answers::<health::NotReady>(503, "the store does not answer, or the service stops"),
        get("/metrics", "metrics", "All numbers in Prometheus' text format", health::metrics)
            .text(200, "text/plain", "the numbers")
            .needs(All(Read)),
        get("/openapi.json", "openapi", "This document", health::openapi).text(
            200,
            "application/json",
            "an OpenAPI document",
        ),
    ]
}

/// An acquire, by any name.
fn acquires(route: Route, right: crate::route::Need) -> Route {
    route
        .header(KEY.0, KEY.1)
        .header(PREFER.0, PREFER.1)
        .header(SECRET.0, SECRET.1)
        .answers::<Held>(200, "it is yours")
        .answers::<AttemptView>(202, "it waits in the queue")
        .problem(404, "the session has ended")
        .problem(409, "another one holds it, or the name is in use as something else")
        .problem(410, "the attempt is over")
        .problem(422, "another request was sent under this Idempotency-Key")
        .problem(501, "this store cannot do it")
        .needs(right)
        .of_store()
}

fn of_locks() -> Vec<Route> {
    vec![
        get("/v1/locks", "list_locks", "Locks that are in use, as last seen", locks::list)
            .query::<locks::ListQuery>()
            .answers::<locks::LockPage>(200, "a page of them")
            .needs(Some(Read)),
        get("/v1/locks/{name}", "inspect_lock", "Who holds a lock and who waits", locks::inspect)
            .answers::<locks::LockDetail>(200, "how it stands; the ETag is its fence")
            .needs(For(Read, Lock))
            .of_store(),
        get(
            "/v1/locks/{name}/history",
            "lock_history",
            "What the service has seen of a lock",
            locks::history,
        )
        .answers::<locks::LockHistory>(200, "its tenures")
        .needs(For(Read, Lock)),
        acquires(
            post(
                "/v1/locks/{name}/acquire",
                "acquire",
                "Acquire a lock, a read-write lock or permits",
                acquire::acquire,
            )
            .body::<Acquire>(),
            For(Hold, Lock),
        ),
        post("/v1/locks/{name}/extend", "extend", "Extend a lock", locks::extend)
            .body::<locks::Extend>()
            .answers::<Held>(200, "it is yours for longer")
            .problem(410, "it is lost")
            .needs(For(Hold, Lock))
            .of_store(),
        post("/v1/locks/{name}/release", "release", "Give a lock back", locks::release)
            .body::<locks::Release>()
            .empty(204, "it was yours until now")
            .problem(409, "somebody else holds it by now")
            .problem(410, "it had run out")
            .needs(For(Hold, Lock))
            .of_store(),
        post(
            "/v1/locks/{name}/force-release",
            "force_release",
            "Take a lock from its holder",
            force::release,
        )
        .required_header("If-Match", "the fence of the holder that you saw, in quotes")
        .body::<force::ForceRelease>()
        .answers::<force::Forced>(200, "it was taken; the old holder may still be at work")
        .problem(412, "the holder is another one than you saw")
        .problem(428, "If-Match is missing")
        .needs(For(Force, Lock))
        .of_store(),
        put(
            "/v1/semaphores/{name}/limit",
            "set_limit",
            "Change how many permits a semaphore has",
            force::set_limit,
        )
        .body::<force::Limit>()
        .empty(204, "it is so")
        .problem(409, "the name is in use as something else")
        .needs(For(Force, Lock))
        .of_store(),
        get("/v1/attempts/{id}", "attempt", "How an attempt stands", attempt::get)
            .query::<Wait>()
            .answers::<Held>(200, "it has the lock")
            .answers::<AttemptView>(202, "it waits")
            .problem(404, "no such attempt")
            .problem(409, "its time in the queue is over")
            .problem(410, "what it had was given back")
            .needs(Some(Hold))
            .of_store(),
        delete(
            "/v1/attempts/{id}",
            "leave",
            "Leave the queue, or give back what was granted",
            attempt::leave,
        )
        .empty(204, "it is over")
        .problem(404, "no such attempt")
        .needs(Some(Hold))
        .of_store(),
        get("/v1/policies", "policies", "The named policies", policies::list)
            .answers::<policies::PoliciesView>(200, "all of them")
            .needs(All(Read)),
        acquires(
            post(
                "/v1/policies/{policy}/acquire",
                "acquire_by_policy",
                "Acquire the lock of a policy",
                acquire::by_policy,
            )
            .body::<AcquireByPolicy>(),
            Some(Hold),
        ),
    ]
}

fn of_sessions() -> Vec<Route> {
    vec![
        get("/v1/sessions", "sessions", "The sessions of this service", sessions::list)
            .answers::<ListOf<sessions::SessionRow>>(200, "at most 1,000")
            .needs(All(Read)),
        post("/v1/sessions", "open_session", "Open a session: one heartbeat for many locks", sessions::open)
            .body::<sessions::Open>()
            .answers::<sessions::Opened>(201, "it is open")
            .problem(503, "too many sessions")
            .needs(Some(Hold)),
        put("/v1/sessions/{id}", "renew_session", "Renew a session and all its locks", sessions::renew)
            .required_header(SECRET.0, SECRET.1)
            .answers::<sessions::Renewed>(200, "what it holds, and what it has lost")
            .problem(404, "it has ended")
            .needs(Some(Hold)),
        delete(
            "/v1/sessions/{id}",
            "close_session",
            "Close a session and give its locks back",
            sessions::close,
        )
        .required_header(SECRET.0, SECRET.1)
        .answers::<sessions::Closed>(200, "what became of its locks")
        .problem(404, "it has ended")
        .needs(Some(Hold)),
    ]
}

fn of_elections() -> Vec<Route> {
    vec![
        get("/v1/elections", "elections", "The elections that somebody asked about", elections::list)
            .answers::<ListOf<elections::ElectionView>>(200, "by name")
            .needs(All(Read))
            .asks_store(),
        get("/v1/elections/{name}", "election", "Who leads", elections::get)
            .query::<elections::Watch>()
            .answers::<elections::ElectionView>(200, "who leads, and who wants to")
            .needs(For(Read, Lock))
            .of_store(),
        acquires(
            post("/v1/elections/{name}/campaign", "campaign", "Become the leader", acquire::acquire)
                .body::<Acquire>(),
            For(Hold, Lock),
        ),
        post("/v1/elections/{name}/resign", "resign", "End a term", locks::release)
            .body::<locks::Release>()
            .empty(204, "you led until now")
            .problem(409, "somebody else leads by now")
            .problem(410, "the term had run out")
            .needs(For(Hold, Lock))
            .of_store(),
    ]
}

fn of_records() -> Vec<Route> {
    const GONE: &str = "no such execution is in progress here";
    vec![
        get("/v1/idempotency", "records", "Records of requests", idempotency::list)
            .query::<idempotency::ListQuery>()
            .answers::<PageOf<RecordView>>(200, "a page of them, in the order of the store")
            .problem(501, "the store keeps no records")
            .needs(Some(Read))
            .of_store(),
        get("/v1/idempotency/{operation}/{key}", "record", "How a request stands", idempotency::get)
            .answers::<RecordView>(200, "its record")
            .problem(404, "there is none")
            .needs(For(Read, Record))
            .of_store(),
        delete(
            "/v1/idempotency/{operation}/{key}",
            "remove_record",
            "Remove a record: the next call executes again",
            idempotency::remove,
        )
        .empty(204, "it is gone")
        .problem(404, "there was none")
        .needs(For(Force, Record))
        .of_store(),
        post(
            "/v1/idempotency/{operation}/{key}/begin",
            "begin",
            "Begin an execution, or learn its result",
            idempotency::begin,
        )
        .header(PREFER.0, PREFER.1)
        .body::<idempotency::Begin>()
        .answers::<idempotency::Execution>(201, "it is yours to execute")
        .answers::<idempotency::Stands>(200, "it was executed before")
        .problem(409, "another execution is in progress")
        .problem(422, "the key belongs to another request")
        .needs(For(Hold, Record))
        .of_store(),
        post(
            "/v1/idempotency/{operation}/{key}/extend",
            "extend_execution",
            "Go on with an execution",
            idempotency::extend,
        )
        .body::<idempotency::Extend>()
        .answers::<idempotency::Extended>(200, "it is yours for longer")
        .problem(410, GONE)
        .needs(For(Hold, Record)),
        post(
            "/v1/idempotency/{operation}/{key}/complete",
            "complete",
            "Store the result of an execution",
            idempotency::complete,
        )
        .body::<idempotency::Complete>()
        .answers::<idempotency::SettledView>(200, "it is stored")
        .problem(409, "a later execution has begun")
        .problem(410, GONE)
        .needs(For(Hold, Record))
        .of_store(),
        post(
            "/v1/idempotency/{operation}/{key}/fail",
            "fail",
            "End an execution as failed",
            idempotency::fail,
        )
        .body::<idempotency::Fail>()
        .answers::<idempotency::SettledView>(200, "it is stored")
        .problem(409, "a later execution has begun")
        .problem(410, GONE)
        .needs(For(Hold, Record))
        .of_store(),
    ]
}

fn of_marks() -> Vec<Route> {
    vec![
        get("/v1/markers", "marks", "Marks of one kind", markers::list)
            .query::<markers::ListQuery>()
            .answers::<PageOf<RecordView>>(200, "a page of them, in the order of the store")
            .needs(Some(Read))
            .of_store(),
        get("/v1/markers/{kind}/{id}", "is_marked", "Whether it is marked", markers::test)
            .answers::<markers::Marked>(200, "whether it is")
            .needs(For(Read, Mark))
            .of_store(),
        put("/v1/markers/{kind}/{id}", "mark", "Mark it", markers::mark)
            .body::<markers::Mark>()
            .answers::<markers::Marked>(200, "whether this call marked it")
            .needs(For(Hold, Mark))
            .of_store(),
        delete("/v1/markers/{kind}/{id}", "clear_mark", "Clear a mark", markers::clear)
            .answers::<markers::ClearedView>(200, "what became of it")
            .needs(For(Hold, Mark))
            .of_store(),
        post("/v1/markers/{kind}/test", "are_marked", "Which of many are marked", markers::test_many)
            .body::<markers::Ids>()
            .answers::<markers::Tested>(200, "one for each id")
            .needs(Some(Read))
            .of_store(),
    ]
}

fn of_deadlines() -> Vec<Route> {
    vec![
        get("/v1/deadlines", "pools", "The pools that somebody asked about", deadlines::list)
            .answers::<ListOf<deadlines::Pool>>(200, "by name")
            .problem(501, "the store keeps no deadlines")
            .needs(All(Read))
            .asks_store(),
        get("/v1/deadlines/{pool}", "pool", "A pool and what is due in it", deadlines::get)
            .query::<deadlines::Shown>()
            .answers::<deadlines::PoolDetail>(200, "how it stands")
            .needs(For(Read, Pool))
            .of_store(),
        get("/v1/deadlines/{pool}/dead", "dead", "Deadlines that were given up", dead::list)
            .query::<dead::ListQuery>()
            .answers::<PageOf<dead::DeadRow>>(200, "a page of them")
            .needs(For(Read, Pool))
            .of_store(),
        put("/v1/deadlines/{pool}/{id}", "set_deadline", "Set a deadline", deadlines::set)
            .body::<deadlines::Set>()
            .empty(204, "it is set")
            .needs(For(Hold, Pool))
            .of_store(),
        delete("/v1/deadlines/{pool}/{id}", "cancel_deadline", "Cancel a deadline", deadlines::cancel)
            .answers::<deadlines::Cancelled>(200, "whether there was one")
            .needs(For(Hold, Pool))
            .of_store(),
        post("/v1/deadlines/{pool}/claim", "claim_deadlines", "Claim what is due", deadlines::claim)
            .body::<deadlines::Claim>()
            .answers::<deadlines::Claimed>(200, "hidden from everybody else for a while")
            .needs(For(Hold, Pool))
            .of_store(),
        post("/v1/deadlines/{pool}/settle", "settle_deadlines", "Settle what was claimed", deadlines::settle)
            .body::<deadlines::Settlements>()
            .answers::<deadlines::Settled>(200, "what became of each")
            .needs(For(Hold, Pool))
            .of_store(),
        post("/v1/deadlines/{pool}/dead/{id}/requeue", "requeue", "Set a dead deadline again", dead::requeue)
            .body::<dead::Requeue>()
            .empty(204, "it is set")
            .problem(404, "no such dead deadline")
            .needs(For(Force, Pool))
            .of_store(),
    ]
}

fn of_dashboard() -> Vec<Route> {
    vec![
        get("/v1/whoami", "whoami", "What the caller may do", overview::whoami)
            .answers::<overview::WhoAmI>(200, "its rights")
            .needs(Token),
        get("/v1/overview", "overview", "Counters, series, hot names and findings", overview::get)
            .answers::<overview::Overview>(200, "what the service has seen")
            .needs(All(Read)),
        get("/v1/contention", "contention", "Who waited for whom", overview::contention)
            .query::<overview::ContentionQuery>()
            .answers::<overview::ContentionView>(200, "most first")
            .needs(All(Read)),
        get("/v1/holders", "holders", "What holders of a label held", overview::holders)
            .query::<overview::HoldersQuery>()
            .answers::<overview::HoldersView>(200, "newest first")
            .needs(All(Read)),
        get("/v1/nodes", "nodes", "The store, what it can do, and the service", nodes::get)
            .answers::<nodes::Nodes>(200, "its health")
            .needs(All(Read)),
        get("/v1/audit", "audit", "What was taken from others", audit::list)
            .query::<audit::ListQuery>()
            .answers::<PageOf<crate::audit::EntryView>>(200, "newest first")
            .needs(All(Read))
            .of_store(),
        get("/v1/events", "events", "What changes, as server-sent events", events::get)
            .query::<events::EventsQuery>()
            .header("Last-Event-ID", "the last message that the client has")
            .text(200, "text/event-stream", "a snapshot, then what changes")
            .problem(503, "too many clients")
            .needs(Some(Read)),
    ]
}

fn of_playground() -> Vec<Route> {
    const SEEN: &str = "how it stands";
    const NONE: &str = "no such worker lives";
    vec![
        get("/v1/playground", "playground", "The playground", playground::get)
            .answers::<PlaygroundView>(200, SEEN)
            .needs(Token),
        post("/v1/playground/workers", "add_worker", "Add a worker", playground::add)
            .answers::<PlaygroundView>(201, SEEN)
            .problem(409, "there are 8 already")
            .needs(Token),
        post("/v1/playground/workers/{id}/crash", "crash_worker", "Crash a worker", playground::crash)
            .answers::<PlaygroundView>(200, SEEN)
            .problem(400, "the id is no number")
            .problem(404, NONE)
            .needs(Token),
        post(
            "/v1/playground/workers/{id}/pause",
            "pause_worker",
            "Pause a worker past its ttl",
            playground::pause,
        )
        .body::<playground::Pause>()
        .answers::<PlaygroundView>(200, SEEN)
        .problem(404, NONE)
        .needs(Token),
        delete("/v1/playground/workers/{id}", "stop_worker", "Stop a worker", playground::stop)
            .answers::<PlaygroundView>(200, SEEN)
            .problem(400, "the id is no number")
            .problem(404, NONE)
            .needs(Token),
        post("/v1/playground/reset", "reset_playground", "Begin anew", playground::reset)
            .answers::<PlaygroundView>(200, SEEN)
            .needs(Token),
    ]
}

/// All routes with their checks, and the pages.
pub(crate) fn router(app: App) -> Router {
    let mut router = Router::new();
    for route in table() {
        let gate = Gate { app: app.clone(), need: route.need, id: route.id, path: route.path };
        let handler = route.handler.route_layer(middleware::from_fn_with_state(gate, gate::pass));
        router = router.route(route.path, handler);
    }
    router
        .method_not_allowed_fallback(async |method: Method| {
            let detail = format!("this path does not take {method}; the header Allow says what it takes");
            let status = http::StatusCode::METHOD_NOT_ALLOWED;
            Problem::new(status, "method_not_allowed", "method not allowed", detail)
        })
        .fallback(crate::ui::serve)
        .layer(CatchPanicLayer::custom(|_: Box<dyn std::any::Any + Send>| {
            use axum::response::IntoResponse;
            tracing::error!("a request panicked");
            let detail = "the service has a bug; its log has more";
            let status = http::StatusCode::INTERNAL_SERVER_ERROR;
            Problem::new(status, "internal", "internal error", detail).into_response()
        }))
        .layer(CompressionLayer::new().gzip(true))
        .layer(middleware::from_fn_with_state(app.clone(), gate::enter))
        .with_state(app)
}
