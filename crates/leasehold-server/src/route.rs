//! One row of the table of routes: what the router, the checks and the OpenAPI document are made from.

use axum::{
    handler::Handler,
    routing::{MethodFilter, MethodRouter, on},
};
use http::Method;
use schemars::{JsonSchema, Schema, SchemaGenerator};

use crate::{auth::Right, state::App};

/// Writes the schema of a type into a document.
pub(crate) type SchemaOf = fn(&mut SchemaGenerator) -> Schema;

/// What a caller needs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Need {
    /// Nothing: no token either.
    Open,
    /// A token, if tokens are set.
    Token,
    /// A right for some names.
    Some(Right),
    /// A right for what the path names.
    For(Right, Named),
    /// A right for all names.
    All(Right),
}

impl Need {
    /// Whether a service that is read-only refuses it.
    pub(crate) fn changes(self) -> bool {
        matches!(self, Self::Some(right) | Self::For(right, _) | Self::All(right) if right != Right::Read)
    }
}

/// Which name the path is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Named {
    /// The place `{name}`: a lock.
    Lock,
    /// The key of `{operation}` and `{key}`.
    Record,
    /// The key of `{kind}` and `{id}`, or of all ids of that kind.
    Mark,
    /// `deadlines:` and the place `{pool}`.
    Pool,
}

/// An answer: its status, what it means, and what its body is.
pub(crate) struct Answer {
    pub(crate) status: u16,
    pub(crate) what: &'static str,
    pub(crate) body: Body,
}

pub(crate) enum Body {
    Empty,
    Json(SchemaOf),
    Problem,
    Text(&'static str),
}

/// A header that a request may have.
pub(crate) struct Header {
    pub(crate) name: &'static str,
    pub(crate) what: &'static str,
    pub(crate) required: bool,
}

pub(crate) struct Route {
    pub(crate) method: Method,
    pub(crate) path: &'static str,
    /// A word for it, in metrics and documents.
    pub(crate) id: &'static str,
    pub(crate) what: &'static str,
    pub(crate) need: Need,
    pub(crate) query: Option<SchemaOf>,
    pub(crate) headers: Vec<Header>,
    pub(crate) body: Option<SchemaOf>,
    pub(crate) answers: Vec<Answer>,
    pub(crate) handler: MethodRouter<App>,
}

fn schema<T: JsonSchema>(generator: &mut SchemaGenerator) -> Schema {
    generator.subschema_for::<T>()
}

impl Route {
    fn new<H: Handler<T, App>, T: 'static>(
        method: Method,
        path: &'static str,
        id: &'static str,
        what: &'static str,
        handler: H,
    ) -> Self {
        let filter = MethodFilter::try_from(method.clone()).expect("a method of HTTP");
        let (need, query, headers, body, answers) = (Need::Open, None, Vec::new(), None, Vec::new());
        let handler = on(filter, handler);
        Self { method, path, id, what, need, query, headers, body, answers, handler }
    }

    pub(crate) fn needs(mut self, need: Need) -> Self {
        self.need = need;
        if need == Need::Open {
            return self;
        }
        let limited = self
            .problem(401, "no token, or one that is not known")
            .problem(429, "too many requests of this token");
        if matches!(need, Need::Token) {
            return limited;
        }
        limited.problem(403, "the token lacks the right, or the service is read-only")
    }

    pub(crate) fn query<T: JsonSchema>(mut self) -> Self {
        self.query = Some(schema::<T>);
        self.problem(400, "a value, a name or a field is refused")
    }

    pub(crate) fn header(mut self, name: &'static str, what: &'static str) -> Self {
        self.headers.push(Header { name, what, required: false });
        self
    }

    pub(crate) fn required_header(mut self, name: &'static str, what: &'static str) -> Self {
        self.headers.push(Header { name, what, required: true });
        self
    }

    pub(crate) fn body<T: JsonSchema>(mut self) -> Self {
        self.body = Some(schema::<T>);
        self.problem(400, "a value, a name or a field is refused")
            .problem(408, "the body came too slowly")
            .problem(413, "the body is too large")
            .problem(415, "the body is not JSON")
    }

    pub(crate) fn answers<T: JsonSchema>(mut self, status: u16, what: &'static str) -> Self {
        self.answers.push(Answer { status, what, body: Body::Json(schema::<T>) });
        self
    }

    pub(crate) fn empty(mut self, status: u16, what: &'static str) -> Self {
        self.answers.push(Answer { status, what, body: Body::Empty });
        self
    }

    pub(crate) fn text(mut self, status: u16, media: &'static str, what: &'static str) -> Self {
        self.answers.push(Answer { status, what, body: Body::Text(media) });
        self
    }

    pub(crate) fn problem(mut self, status: u16, what: &'static str) -> Self {
        if !self.answers.iter().any(|answer| answer.status == status) {
            self.answers.push(Answer { status, what, body: Body::Problem });
        }
        self
    }

    /// The problems of a route that asks the store about a name.
    pub(crate) fn of_store(self) -> Self {
        self.problem(400, "a value, a name or a field is refused").asks_store()
    }

    /// The problems of a route that asks the store about names that it knows.
    pub(crate) fn asks_store(self) -> Self {
        self.problem(503, "the store does not answer, or refuses for now")
    }
}

macro_rules! methods {
    ($($function:ident $method:ident,)+) => {$(
        pub(crate) fn $function<H: Handler<T, App>, T: 'static>(
            path: &'static str,
            id: &'static str,
            what: &'static str,
            handler: H,
        ) -> Route {
            Route::new(Method::$method, path, id, what, handler)
        }
    )+};
}

methods! { get GET, post POST, put PUT, delete DELETE, }
