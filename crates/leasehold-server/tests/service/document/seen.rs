//! What was sent and answered, noted beside the document.

use std::{
    collections::BTreeSet,
    sync::{Mutex, MutexGuard},
};

use serde_json::Value;

use super::schema::Document;
use crate::client::{Answer, Request, Service};

pub(super) struct Seen {
    pub(super) document: Document,
    noted: Mutex<Noted>,
}

#[derive(Default)]
struct Noted {
    /// Operations with their statuses, as `acquire 200`.
    answers: BTreeSet<String>,
    /// Fields of answers, as `Held.fence`.
    fields: BTreeSet<String>,
    /// Fields of bodies, parameters and headers, as `acquire: ttl`.
    sent: BTreeSet<String>,
}

impl Seen {
    pub(super) fn new(document: Document) -> Self {
        Self { document, noted: Mutex::default() }
    }

    fn noted(&self) -> MutexGuard<'_, Noted> {
        self.noted.lock().unwrap()
    }

    pub(super) fn get(&self, service: &Service, path: &str) -> Answer {
        self.send(service, Request::new("GET", path))
    }

    pub(super) fn post(&self, service: &Service, path: &str, body: &Value) -> Answer {
        self.send(service, Request::new("POST", path).json(body))
    }

    pub(super) fn delete(&self, service: &Service, path: &str) -> Answer {
        self.send(service, Request::new("DELETE", path))
    }

    /// Sends a request and compares the answer with the document.
    pub(super) fn send(&self, service: &Service, request: Request) -> Answer {
        let answer = service.send(request.clone());
        self.note(&request, &answer);
        answer
    }

    pub(super) fn note(&self, request: &Request, answer: &Answer) {
        let Request { method, path, headers, body } = request;
        let operation = self.document.of(method, path);
        let (id, status) = (&operation.id, answer.status);
        let known = &operation.value["responses"][status.to_string()];
        assert!(
            known.is_object(),
            "{method} {path} answered {status}, which is not documented: {}",
            answer.text
        );
        let mut noted = self.noted();
        noted.answers.insert(format!("{id} {status}"));
        let kind = answer.header("content-type").unwrap_or_default().split(';').next().unwrap();
        match known["content"].as_object() {
            None => assert_eq!(answer.text, "", "{method} {path}"),
            Some(kinds) => {
                let kinds: Vec<_> = kinds.keys().collect();
                assert_eq!(kinds, [kind], "{method} {path} answered {status}");
                if kind.ends_with("json") && id != "openapi" {
                    let schema = &known["content"][kind]["schema"];
                    let place = format!("{id} {status}");
                    let checked = self.document.check(schema, &answer.json(), &place, &mut noted.fields);
                    checked.unwrap_or_else(|why| panic!("{method} {path} answered {status}: {why}"));
                }
            }
        }
        // What was not understood was not exercised.
        if status >= 300 && status != 501 {
            return;
        }
        for (name, _) in headers {
            noted.sent.insert(format!("{id}: header {}", name.to_lowercase()));
        }
        let query = path.split_once('?').map_or("", |(_, query)| query);
        for (name, _) in query.split('&').filter_map(|pair| pair.split_once('=')) {
            noted.sent.insert(format!("{id}: query {name}"));
        }
        if let (Some(schema), Ok(body)) = (operation.body(), serde_json::from_slice(body)) {
            let mut fields = BTreeSet::new();
            let checked = self.document.check(schema, &body, "", &mut fields);
            checked.unwrap_or_else(|why| panic!("{method} {path} accepted what is not documented: {why}"));
            noted.sent.extend(fields.into_iter().map(|field| format!("{id}: {field}")));
        }
    }

    /// What the document promises and nothing showed.
    pub(super) fn missing(&self) -> Vec<String> {
        let noted = self.noted();
        let (mut answers, mut fields, mut sent) = (BTreeSet::new(), BTreeSet::new(), BTreeSet::new());
        for operation in &self.document.operations {
            let id = &operation.id;
            for status in operation.statuses() {
                answers.insert(format!("{id} {status}"));
                let content = &operation.value["responses"][status.to_string()]["content"];
                for schema in content.as_object().into_iter().flatten().map(|(_, kind)| &kind["schema"]) {
                    self.document.fields(schema, &format!("{id} {status}"), &mut fields);
                }
            }
            for kind in ["query", "header"] {
                let names = operation.parameters(kind);
                sent.extend(names.map(|name| format!("{id}: {kind} {}", name.to_lowercase())));
            }
            if let Some(body) = operation.body() {
                let mut own = BTreeSet::new();
                self.document.fields(body, "", &mut own);
                sent.extend(own.into_iter().map(|field| format!("{id}: {field}")));
            }
        }
        let gone = [(&answers, &noted.answers), (&fields, &noted.fields), (&sent, &noted.sent)];
        gone.into_iter().flat_map(|(known, seen)| known.difference(seen).cloned()).collect()
    }
}
