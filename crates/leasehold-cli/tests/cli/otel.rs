//! `leasehold serve` sends spans to a collector, which is a small one of this test.

use std::{
    io::{BufRead, BufReader, Read, Write},
    net::{SocketAddr, TcpListener, TcpStream},
    sync::{Arc, Mutex},
};

use leasehold_testkit::eventually;
use opentelemetry_proto::tonic::{
    collector::trace::v1::ExportTraceServiceRequest, common::v1::any_value::Value, trace::v1::Span,
};
use prost::Message;
use rustix::process::Signal;

use crate::{
    sandbox::{LONG, Sandbox},
    serve::{address_of, post},
};

const TRACE: &str = "4bf92f3577b34da6a3ce929d0e0e4736";

/// What was sent: the name of the service, and the spans.
#[derive(Clone, Default)]
struct Received(Arc<Mutex<Vec<(String, Span)>>>);

impl Received {
    /// Takes in what comes, for as long as the test lasts.
    fn listen(&self) -> SocketAddr {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let received = self.clone();
        std::thread::spawn(move || listener.incoming().for_each(|stream| received.take_in(stream.unwrap())));
        address
    }

    fn take_in(&self, stream: TcpStream) {
        let mut stream = BufReader::new(stream);
        let (mut head, mut line) = (String::new(), String::new());
        while stream.read_line(&mut line).unwrap() > 2 {
            head += &std::mem::take(&mut line).to_lowercase();
        }
        assert!(head.starts_with("post /v1/traces http/1.1\r\n"), "{head}");
        assert!(head.contains("content-type: application/x-protobuf\r\n"), "{head}");
        assert!(head.contains("x-tenant: shop\r\n"), "{head}");
        let length = head.split("content-length: ").nth(1).and_then(|rest| rest.split("\r\n").next());
        let mut body = vec![0; length.unwrap().parse().unwrap()];
        stream.read_exact(&mut body).unwrap();
        let sent = ExportTraceServiceRequest::decode(body.as_slice()).unwrap();
        for of_service in sent.resource_spans {
            let resource = of_service.resource.unwrap().attributes;
            let name = resource.iter().find(|it| it.key == "service.name").unwrap().value.clone();
            let Some(Value::StringValue(name)) = name.unwrap().value else { panic!("no name") };
            let spans = of_service.scope_spans.into_iter().flat_map(|scope| scope.spans);
            self.0.lock().unwrap().extend(spans.map(|span| (name.clone(), span)));
        }
        let answer = "HTTP/1.1 200 OK\r\nContent-Length: 0\r\nConnection: close\r\n\r\n";
        stream.get_mut().write_all(answer.as_bytes()).unwrap();
    }

    fn span(&self, name: &str) -> Option<(String, Span)> {
        self.0.lock().unwrap().iter().find(|(_, span)| span.name == name).cloned()
    }
}

fn value(span: &Span, key: &str) -> Option<String> {
    match span.attributes.iter().find(|it| it.key == key)?.value.clone()?.value? {
        Value::StringValue(text) => Some(text),
        Value::IntValue(number) => Some(number.to_string()),
        other => panic!("{key}: {other:?}"),
    }
}

#[test]
fn spans_of_requests_and_of_the_library_reach_a_collector_without_the_names_of_locks() {
    let (sandbox, received) = (Sandbox::new(), Received::default());
    let mut command = sandbox.command(&["serve", "--listen", "127.0.0.1:0"]);
    command.env("OTEL_EXPORTER_OTLP_ENDPOINT", format!("http://{}", received.listen()));
    command.env("OTEL_EXPORTER_OTLP_HEADERS", "x-tenant=shop").env("OTEL_SERVICE_NAME", "locks");
    let mut service = sandbox.start_command(command);
    let address = address_of(&service);
    let parent = format!("traceparent: 00-{TRACE}-00f067aa0ba902b7-01\r\n");
    let (status, body) = post(&address, "/v1/locks/customer:alice/acquire", &parent, "{}");
    assert_eq!(status, 200, "{body}");
    service.signal(Signal::TERM);
    assert_eq!(service.end(), Some(0));
    // Its end has sent what was left.
    let request = "POST /v1/locks/{name}/acquire";
    eventually(LONG, "the span of the request", || received.span(request).is_some());
    let (name, request) = received.span(request).unwrap();
    assert_eq!(name, "locks");
    let trace: String = request.trace_id.iter().map(|byte| format!("{byte:02x}")).collect();
    assert_eq!(trace, TRACE, "it belongs to the trace of the client");
    for (key, expected) in [
        ("http.route", "/v1/locks/{name}/acquire"),
        ("http.request.method", "POST"),
        ("http.response.status_code", "200"),
    ] {
        assert_eq!(value(&request, key).as_deref(), Some(expected));
    }
    let (_, acquire) = received.span("acquire").expect("the span of the library");
    assert_eq!(acquire.parent_span_id, request.span_id);
    assert_eq!(value(&acquire, "mode").as_deref(), Some("exclusive"));
    for (_, span) in &*received.0.lock().unwrap() {
        assert!(!format!("{span:?}").contains("alice"), "{span:?}");
    }
}

#[test]
fn a_collector_that_is_none_is_refused_and_one_that_is_gone_does_no_harm() {
    let sandbox = Sandbox::new();
    let mut command = sandbox.command(&["serve", "--listen", "127.0.0.1:0"]);
    command.env("OTEL_EXPORTER_OTLP_ENDPOINT", "not an address");
    let ran = sandbox.run_command(command);
    assert_ne!(ran.code, Some(0), "{ran}");
    assert!(ran.stderr.contains("OTEL_EXPORTER_OTLP_ENDPOINT"), "{ran}");

    let mut command = sandbox.command(&["serve", "--listen", "127.0.0.1:0"]);
    command.env("OTEL_EXPORTER_OTLP_ENDPOINT", "http://127.0.0.1:1");
    let mut service = sandbox.start_command(command);
    let address = address_of(&service);
    assert_eq!(post(&address, "/v1/locks/job/acquire", "", "{}").0, 200);
    service.signal(Signal::TERM);
    assert_eq!(service.end(), Some(0));
    assert!(!service.stderr().contains("panicked"), "{}", service.stderr());
}
