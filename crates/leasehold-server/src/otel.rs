//! Spans of requests, and of the library while it works for them, to an OpenTelemetry collector.

use std::{env, fmt, future::Future, pin::Pin, sync::Arc, time::Duration};

use bytes::Bytes;
use http::{Request, Response, Uri, header};
use http_body_util::{BodyExt, Full, Limited};
use hyper::client::conn::http1;
use hyper_util::rt::TokioIo;
use leasehold::{Error, Result};
use opentelemetry::{propagation::TextMapPropagator, trace::TracerProvider};
use opentelemetry_http::{HeaderExtractor, HttpClient, HttpError};
use opentelemetry_otlp::{SpanExporter, WithHttpConfig};
use opentelemetry_sdk::{
    Resource,
    error::OTelSdkResult,
    propagation::TraceContextPropagator,
    trace::{self, SdkTracerProvider, SpanData},
};
use rustls::{ClientConfig, RootCertStore, pki_types::ServerName};
use tokio::{
    io::{AsyncRead, AsyncWrite},
    net::TcpStream,
    runtime::Handle,
};
use tokio_rustls::TlsConnector;
use tracing::Subscriber;
use tracing_opentelemetry::OpenTelemetrySpanExt;
use tracing_subscriber::{Layer, filter::Targets, registry::LookupSpan};

const ENDPOINTS: [&str; 2] = ["OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "OTEL_EXPORTER_OTLP_ENDPOINT"];
/// Longest wait for the collector.
const PATIENCE: Duration = Duration::from_secs(10);
/// Most bytes of an answer of the collector.
const ANSWER_BYTES: usize = 64 * 1024;
/// What may say whose lock it is: names and ids are often those of customers.
const PRIVATE: [&str; 2] = ["name", "id"];

/// Sends spans to the collector that the environment names, as OTLP over HTTP.
///
/// The variables are OpenTelemetry's own: `OTEL_EXPORTER_OTLP_ENDPOINT` such as `http://127.0.0.1:4318`, or for spans alone
/// `OTEL_EXPORTER_OTLP_TRACES_ENDPOINT`; `OTEL_EXPORTER_OTLP_HEADERS`, `OTEL_SERVICE_NAME`, `OTEL_RESOURCE_ATTRIBUTES`,
/// `OTEL_TRACES_SAMPLER`. No span has the name of a lock.
#[derive(Debug)]
pub struct Telemetry {
    provider: SdkTracerProvider,
}

impl Telemetry {
    /// `None` if the environment names no collector, or says `OTEL_SDK_DISABLED=true`. Spans are sent by the tokio runtime that
    /// this is called in.
    ///
    /// # Errors
    /// `invalid` for an endpoint that is none.
    pub fn from_env() -> Result<Option<Self>> {
        let value = |name: &str| env::var(name).ok().filter(|value| !value.is_empty());
        let endpoint = ENDPOINTS.into_iter().find_map(|name| Some((name, value(name)?)));
        let is_off = value("OTEL_SDK_DISABLED").is_some_and(|value| value.eq_ignore_ascii_case("true"));
        let Some((variable, endpoint)) = endpoint.filter(|_| !is_off) else { return Ok(None) };
        let refused = |why: String| Error::invalid(variable, &endpoint, why);
        let runtime = Handle::try_current().map_err(|error| refused(error.to_string()))?;
        let client = Collector { runtime, tls: tls().map_err(|error| refused(error.to_string()))? };
        let exporter = SpanExporter::builder().with_http().with_http_client(client).build();
        let exporter = exporter.map_err(|error| refused(format!("an address of OTLP over HTTP: {error}")))?;
        let is_named = value("OTEL_SERVICE_NAME").is_some()
            || value("OTEL_RESOURCE_ATTRIBUTES").is_some_and(|text| text.contains("service.name="));
        let resource = Resource::builder();
        let resource = if is_named { resource } else { resource.with_service_name("leasehold") };
        let provider = SdkTracerProvider::builder()
            .with_resource(resource.build())
            .with_batch_exporter(Nameless(exporter))
            .build();
        Ok(Some(Self { provider }))
    }

    /// The layer of a subscriber that makes the spans.
    pub fn layer<S>(&self) -> impl Layer<S> + use<S>
    where
        S: Subscriber + for<'span> LookupSpan<'span> + Send + Sync,
    {
        tracing_opentelemetry::layer()
            .with_tracer(self.provider.tracer("leasehold"))
            .with_location(false)
            .with_threads(false)
            .with_tracked_inactivity(false)
            .with_filter(Targets::new().with_target("leasehold", tracing::Level::DEBUG))
    }

    /// Sends what is left. Blocks for a few seconds at most.
    pub fn end(self) {
        if let Err(error) = self.provider.shutdown() {
            tracing::warn!(%error, "the last spans did not reach the collector");
        }
    }
}

/// Makes a span a part of the trace that the client says it belongs to.
pub(crate) fn follow(span: &tracing::Span, headers: &http::HeaderMap) {
    if headers.contains_key("traceparent") {
        // Fails only where no layer of OpenTelemetry listens.
        let _ = span.set_parent(TraceContextPropagator::new().extract(&HeaderExtractor(headers)));
    }
}

/// Leaves out what is private, and sends the rest.
#[derive(Debug)]
struct Nameless(SpanExporter);

impl trace::SpanExporter for Nameless {
    async fn export(&self, mut spans: Vec<SpanData>) -> OTelSdkResult {
        for span in &mut spans {
            span.attributes.retain(|it| !PRIVATE.contains(&it.key.as_str()));
            for event in &mut span.events.events {
                event.attributes.retain(|it| !PRIVATE.contains(&it.key.as_str()));
            }
        }
        self.0.export(spans).await
    }

    fn shutdown_with_timeout(&self, timeout: Duration) -> OTelSdkResult {
        self.0.shutdown_with_timeout(timeout)
    }

    fn set_resource(&mut self, resource: &Resource) {
        self.0.set_resource(resource);
    }
}

/// A connection to the collector for each batch, made by the runtime of the service.
struct Collector {
    runtime: Handle,
    tls: TlsConnector,
}

impl fmt::Debug for Collector {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Collector")
    }
}

impl HttpClient for Collector {
    fn send_bytes<'a, 'b>(
        &'a self,
        request: Request<Bytes>,
    ) -> Pin<Box<dyn Future<Output = Result<Response<Bytes>, HttpError>> + Send + 'b>>
    where
        'a: 'b,
        Self: 'b,
    {
        let sent = send(self.tls.clone(), request);
        // The exporter has a thread of its own, without timers and sockets.
        let sent = self.runtime.spawn(async move { tokio::time::timeout(PATIENCE, sent).await });
        Box::pin(async move { sent.await?? })
    }
}

async fn send(tls: TlsConnector, mut request: Request<Bytes>) -> Result<Response<Bytes>, HttpError> {
    let uri = request.uri().clone();
    let host = uri.host().ok_or("the address of the collector has no host")?.to_owned();
    let is_tls = uri.scheme_str() == Some("https");
    let port = uri.port_u16().unwrap_or(if is_tls { 443 } else { 80 });
    let authority = uri.authority().ok_or("the address of the collector has no host")?.as_str();
    request.headers_mut().insert(header::HOST, authority.parse()?);
    *request.uri_mut() = uri.path_and_query().map_or(Uri::from_static("/"), |path| path.clone().into());
    let bare = host.trim_start_matches('[').trim_end_matches(']').to_owned();
    let stream = TcpStream::connect((bare.as_str(), port)).await?;
    if !is_tls {
        return exchange(stream, request).await;
    }
    exchange(tls.connect(ServerName::try_from(bare)?, stream).await?, request).await
}

async fn exchange(
    stream: impl AsyncRead + AsyncWrite + Unpin + Send + 'static,
    request: Request<Bytes>,
) -> Result<Response<Bytes>, HttpError> {
    let (mut sender, connection) = http1::handshake(TokioIo::new(stream)).await?;
    let answer = async {
        let answer = sender.send_request(request.map(Full::new)).await?;
        let (parts, body) = answer.into_parts();
        let body = Limited::new(body, ANSWER_BYTES).collect().await?.to_bytes();
        Ok(Response::from_parts(parts, body))
    };
    // The connection ends with its only request.
    tokio::pin!(answer);
    tokio::select! {
        answer = &mut answer => answer,
        ended = connection => { ended?; answer.await }
    }
}

fn tls() -> Result<TlsConnector, rustls::Error> {
    let roots = RootCertStore::from_iter(webpki_roots::TLS_SERVER_ROOTS.iter().cloned());
    let config = ClientConfig::builder_with_provider(Arc::new(rustls::crypto::ring::default_provider()))
        .with_safe_default_protocol_versions()?;
    Ok(TlsConnector::from(Arc::new(config.with_root_certificates(roots).with_no_client_auth())))
}
