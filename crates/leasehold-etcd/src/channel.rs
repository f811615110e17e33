//! Calls to the members of a cluster: one connection to each that is needed, and the next one when a member fails.
//!
//! Every member serves every call, so one is used until it fails. A call that no member can have seen goes to the next one.
//! One that may have had an effect is repeated only if its caller says that a repetition is the same answer.

use std::{
    pin::pin,
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicU64, AtomicUsize, Ordering},
    },
    time::Duration,
};

use futures_util::{Stream, StreamExt, stream::FuturesUnordered};
use http::uri::PathAndQuery;
use leasehold_core::{
    clock::{Clock, Until},
    engine::{EngineError, EngineOptions, Fault, registry::Call},
    error::{Error, Result},
};
use prost::Message;
use tonic::{
    Request, Status, Streaming,
    client::Grpc,
    metadata::{AsciiMetadataValue, MetadataMap},
    transport::{Channel, Endpoint},
};
use tonic_prost::ProstCodec;

use super::{
    proto::{AuthenticateRequest, AuthenticateResponse, StatusRequest, StatusResponse},
    reply::{Meaning, failure, meaning},
    url::{Login, StoreUrl},
};

pub(crate) const STATUS: &str = "/etcdserverpb.Maintenance/Status";

/// Largest answer: all waiters of a name, or a page of records.
const ANSWER_MAX_BYTES: usize = 64 << 20;
/// How often an idle connection is probed. Members refuse more than one probe in five seconds.
const PROBE_EVERY: Duration = Duration::from_secs(10);
const PROBE_TIMEOUT: Duration = Duration::from_secs(3);
/// A member that answers nothing for so long is left.
pub(crate) const SILENT: Duration = Duration::from_millis(500);
/// Pause before a cluster that cannot answer at the moment is asked again.
const LEADERLESS_PAUSE: Duration = Duration::from_millis(30);
/// Shortest time for one member of several.
const TRY_MIN: Duration = Duration::from_millis(100);

/// Whether a call may be sent again although it may have had an effect.
#[derive(Clone, Copy)]
pub(crate) enum Again<'a> {
    /// The second answer says what the first one did, and one that comes later changes nothing.
    Same,
    /// A claim, of these attempts. Each one that is sent is a copy that may come later than its attempt's end.
    Claim(&'a [Call<()>]),
    Never,
}

impl Again<'_> {
    fn may_repeat(self) -> bool {
        !matches!(self, Self::Never)
    }

    fn leaves(self) -> Result<(), EngineError> {
        let Self::Claim(attempts) = self else { return Ok(()) };
        attempts.iter().try_for_each(|attempt| attempt.leaves(None))?;
        attempts.iter().for_each(|attempt| attempt.left(0));
        Ok(())
    }

    /// The last one that was sent is answered, or never arrives.
    fn answered(self) {
        let Self::Claim(attempts) = self else { return };
        attempts.iter().for_each(Call::answered);
    }
}

/// The members that a URL names.
pub(crate) struct Members {
    members: Vec<Member>,
    /// Which one is used.
    current: AtomicUsize,
    login: Option<Login>,
    token: Mutex<Option<AsciiMetadataValue>>,
    clock: Clock,
    pub(crate) round_trips: AtomicU64,
}

struct Member {
    host: String,
    endpoint: Endpoint,
    channel: Mutex<Option<Channel>>,
}

impl Member {
    fn channel(&self) -> Channel {
        let mut channel = self.channel.lock().unwrap_or_else(PoisonError::into_inner);
        channel.get_or_insert_with(|| self.endpoint.connect_lazy()).clone()
    }

    /// The next call dials anew, on the runtime of its caller.
    fn hang_up(&self) {
        self.channel.lock().unwrap_or_else(PoisonError::into_inner).take();
    }
}

impl Members {
    /// Nothing is dialled yet.
    pub(crate) fn open(url: &StoreUrl, options: &EngineOptions) -> Result<Arc<Self>> {
        let scheme = if url.tls { "https" } else { "http" };
        let connect_timeout = options.command_timeout / 2;
        let member = |host: &String| {
            let refuse =
                |error: tonic::transport::Error| Error::invalid("store URL", host, error.to_string());
            let endpoint = Endpoint::from_shared(format!("{scheme}://{host}")).map_err(refuse)?;
            let endpoint = endpoint
                .connect_timeout(connect_timeout)
                .tcp_nodelay(true)
                .http2_keep_alive_interval(PROBE_EVERY)
                .keep_alive_timeout(PROBE_TIMEOUT)
                .keep_alive_while_idle(true);
            #[cfg(feature = "tls")]
            let endpoint = if url.tls { endpoint.tls_config(tls(url)?).map_err(refuse)? } else { endpoint };
            Ok(Member { host: host.clone(), endpoint, channel: Mutex::default() })
        };
        let members = url.hosts.iter().map(member).collect::<Result<Vec<_>>>()?;
        // Clients spread over the members.
        let current = AtomicUsize::new(rand::random_range(0..members.len()));
        let (login, token, clock) = (url.login()?, Mutex::default(), options.clock.clone());
        let round_trips = AtomicU64::default();
        Ok(Arc::new(Self { members, current, login, token, clock, round_trips }))
    }

    pub(crate) fn hosts(&self) -> impl Iterator<Item = &str> {
        self.members.iter().map(|member| member.host.as_str())
    }

    /// Asks whichever member answers.
    pub(crate) async fn call<Q, A>(
        &self,
        path: &'static str,
        request: Q,
        again: Again<'_>,
        until: Until,
    ) -> Result<A, EngineError>
    where
        Q: Message + Clone + 'static,
        A: Message + Default + 'static,
    {
        let mut failed = None;
        // The second time round is for a token that is over.
        let mut left = self.members.len() + 1;
        while left > 0 {
            left -= 1;
            let place = self.current.load(Ordering::Relaxed);
            let member = &self.members[place];
            // One that hangs leaves time for the others.
            let now = self.clock.now();
            let share = until.since(now) / u32::try_from(left.clamp(1, self.members.len())).unwrap_or(1);
            let limit = if again.may_repeat() { until.min(now + share.max(TRY_MIN)) } else { until };
            again.leaves()?;
            let error = match self.clock.bounded(limit, self.ask(member, path, request.clone())).await {
                Some(Ok(answer)) => {
                    again.answered();
                    return Ok(answer);
                }
                Some(Err(status)) => match meaning(&status) {
                    Meaning::Broken { was_sent } => {
                        if !was_sent {
                            again.answered();
                        }
                        member.hang_up();
                        self.leave(place);
                        failure(&status, was_sent)
                    }
                    Meaning::Elsewhere => {
                        self.leave(place);
                        if again.may_repeat() {
                            // Without a leader, or behind with its work: that passes.
                            self.clock.sleep_until(until.min(self.clock.now() + LEADERLESS_PAUSE)).await;
                            left = left.max(1);
                        }
                        failure(&status, true)
                    }
                    Meaning::LoginOver if failed.is_none() => {
                        again.answered();
                        self.log_out();
                        EngineError::new(Fault::Unreachable, status.message())
                    }
                    Meaning::Answer | Meaning::LoginOver => {
                        again.answered();
                        return Err(failure(&status, true));
                    }
                },
                None => {
                    // A caller in a hurry says nothing about the member.
                    if self.clock.now().since(now) >= SILENT {
                        member.hang_up();
                        self.leave(place);
                    }
                    EngineError::no_answer()
                }
            };
            let may_repeat = error.fault == Fault::Unreachable || again.may_repeat();
            let error =
                failed.filter(|before: &EngineError| before.fault == Fault::NoAnswer).unwrap_or(error);
            if !may_repeat || self.clock.now() >= until || matches!(error.fault, Fault::Refused(_)) {
                return Err(error);
            }
            failed = Some(error);
        }
        Err(failed.unwrap_or_else(EngineError::no_answer))
    }

    /// Asks this member and no other.
    pub(crate) async fn call_member<Q, A>(
        &self,
        host: &str,
        path: &'static str,
        request: Q,
        until: Until,
    ) -> Result<A, EngineError>
    where
        Q: Message + Clone + 'static,
        A: Message + Default + 'static,
    {
        let member = self.members.iter().find(|member| member.host == host).expect("a host of the URL");
        match self.clock.bounded(until, self.ask(member, path, request)).await {
            Some(Ok(answer)) => Ok(answer),
            Some(Err(status)) => {
                let was_sent = !matches!(meaning(&status), Meaning::Broken { was_sent: false });
                Err(failure(&status, was_sent))
            }
            None => {
                member.hang_up();
                Err(EngineError::no_answer())
            }
        }
    }

    async fn ask<Q, A>(&self, member: &Member, path: &'static str, request: Q) -> Result<A, Status>
    where
        Q: Message + 'static,
        A: Message + Default + 'static,
    {
        let mut request = Request::new(request);
        self.add_token(member, request.metadata_mut()).await?;
        unary(member.channel(), path, request, &self.round_trips).await
    }

    async fn add_token(&self, member: &Member, metadata: &mut MetadataMap) -> Result<(), Status> {
        let Some(Login { user, password }) = &self.login else { return Ok(()) };
        let known = self.token.lock().unwrap_or_else(PoisonError::into_inner).clone();
        let token = match known {
            Some(token) => token,
            None => {
                let login = AuthenticateRequest { name: user.clone(), password: password.clone() };
                let path = "/etcdserverpb.Auth/Authenticate";
                let answer: AuthenticateResponse =
                    unary(member.channel(), path, Request::new(login), &self.round_trips).await?;
                let token = AsciiMetadataValue::try_from(answer.token);
                let token = token.map_err(|_| Status::unauthenticated("the member gave no token"))?;
                self.token.lock().unwrap_or_else(PoisonError::into_inner).insert(token).clone()
            }
        };
        metadata.insert("token", token);
        Ok(())
    }

    fn log_out(&self) {
        self.token.lock().unwrap_or_else(PoisonError::into_inner).take();
    }

    /// The next call goes to the next member.
    fn leave(&self, place: usize) {
        let next = (place + 1) % self.members.len();
        // Somebody else may have left it already.
        let _left = self.current.compare_exchange(place, next, Ordering::Relaxed, Ordering::Relaxed);
    }

    /// Which member leads; the one that is used if that is not found soon, or the URL does not name it.
    pub(crate) async fn leader(&self) -> usize {
        let place = self.place();
        if self.members.len() == 1 {
            return place;
        }
        let leads = async |(place, member)| {
            let status: StatusResponse = self.ask(member, STATUS, StatusRequest {}).await.ok()?;
            (status.header?.member_id == status.leader).then_some(place)
        };
        let asked: FuturesUnordered<_> = self.members.iter().enumerate().map(leads).collect();
        let found = pin!(asked.filter_map(std::future::ready));
        let until = self.clock.now() + SILENT;
        self.clock.bounded(until, found.into_future()).await.and_then(|(found, _)| found).unwrap_or(place)
    }

    /// Opens a stream. The first request must be in `requests` already: a member answers nothing before it.
    pub(crate) async fn stream<Q, A>(
        &self,
        place: usize,
        path: &'static str,
        requests: impl Stream<Item = Q> + Send + 'static,
    ) -> Result<Streaming<A>, EngineError>
    where
        Q: Message + 'static,
        A: Message + Default + 'static,
    {
        let member = &self.members[place];
        let opened = async {
            let mut request = Request::new(requests);
            self.add_token(member, request.metadata_mut()).await?;
            // A member that lost its leader would stay silent.
            request.metadata_mut().insert("hasleader", AsciiMetadataValue::from_static("true"));
            let mut grpc = Grpc::new(member.channel()).max_decoding_message_size(ANSWER_MAX_BYTES);
            grpc.ready().await.map_err(|error| Status::from_error(Box::new(error)))?;
            let codec = ProstCodec::<Q, A>::default();
            Ok(grpc.streaming(request, PathAndQuery::from_static(path), codec).await?.into_inner())
        };
        opened.await.map_err(|status| self.stream_failed(place, &status))
    }

    /// What a stream's end says. The next one goes to another member.
    pub(crate) fn stream_failed(&self, place: usize, status: &Status) -> EngineError {
        match meaning(status) {
            Meaning::LoginOver => self.log_out(),
            Meaning::Broken { .. } => {
                self.members[place].hang_up();
                self.leave(place);
            }
            Meaning::Elsewhere => self.leave(place),
            Meaning::Answer => {}
        }
        failure(status, true)
    }

    /// Which member is used.
    pub(crate) fn place(&self) -> usize {
        self.current.load(Ordering::Relaxed)
    }

    /// Closes all connections.
    pub(crate) fn close(&self) {
        self.members.iter().for_each(Member::hang_up);
    }
}

async fn unary<Q, A>(
    channel: Channel,
    path: &'static str,
    request: Request<Q>,
    round_trips: &AtomicU64,
) -> Result<A, Status>
where
    Q: Message + 'static,
    A: Message + Default + 'static,
{
    let mut grpc = Grpc::new(channel).max_decoding_message_size(ANSWER_MAX_BYTES);
    grpc.ready().await.map_err(|error| Status::from_error(Box::new(error)))?;
    round_trips.fetch_add(1, Ordering::Relaxed);
    let codec = ProstCodec::<Q, A>::default();
    Ok(grpc.unary(request, PathAndQuery::from_static(path), codec).await?.into_inner())
}

#[cfg(feature = "tls")]
fn tls(url: &StoreUrl) -> Result<tonic::transport::ClientTlsConfig> {
    use tonic::transport::{Certificate, ClientTlsConfig, Identity};
    let tls = match url.file("ca")? {
        Some(ca) => ClientTlsConfig::new().ca_certificate(Certificate::from_pem(ca)),
        None => ClientTlsConfig::new().with_webpki_roots(),
    };
    Ok(match url.file("cert")?.zip(url.file("key")?) {
        Some((cert, key)) => tls.identity(Identity::from_pem(cert, key)),
        None => tls,
    })
}
