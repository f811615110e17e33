//! The OpenAPI document, made from the table of routes and the types of bodies.

use std::sync::OnceLock;

use schemars::{SchemaGenerator, generate::SchemaSettings};
use serde_json::{Map, Value, json};

use crate::{
    problem::Details,
    route::{Answer, Body, Need, Route},
    routes,
};

/// The document as text.
pub(crate) fn document() -> &'static str {
    static DOCUMENT: OnceLock<String> = OnceLock::new();
    DOCUMENT.get_or_init(|| serde_json::to_string(&make()).unwrap_or_default())
}

fn make() -> Value {
    let settings = SchemaSettings::draft2020_12().with(|settings| {
        settings.definitions_path = "/components/schemas".into();
        settings.meta_schema = None;
    });
    let mut schemas = settings.into_generator();
    let problem = schemas.subschema_for::<Details>();
    let mut paths = Map::new();
    for route in routes::table() {
        let operation = operation(&route, &mut schemas, &problem);
        let path = paths.entry(route.path).or_insert_with(|| json!({}));
        path[route.method.as_str().to_lowercase()] = operation;
    }
    json!({
        "openapi": "3.1.0",
        "info": {
            "title": "leasehold",
            "version": env!("CARGO_PKG_VERSION"),
            "description": "Locks, idempotency keys, marks and deadlines over HTTP.",
            "license": { "name": "MIT OR Apache-2.0", "identifier": "MIT OR Apache-2.0" },
        },
        "paths": paths,
        "components": {
            "schemas": schemas.take_definitions(true),
            "securitySchemes": { "token": { "type": "http", "scheme": "bearer" } },
        },
    })
}

fn operation(route: &Route, schemas: &mut SchemaGenerator, problem: &schemars::Schema) -> Value {
    let mut parameters: Vec<Value> = route.path.split('/').filter_map(place).collect();
    parameters.extend(route.headers.iter().map(|header| {
        json!({
            "name": header.name, "in": "header", "description": header.what, "required": header.required,
            "schema": { "type": "string" },
        })
    }));
    if let Some(query) = route.query {
        let schema = query(&mut inlining()).to_value();
        let required =
            |name: &str| schema["required"].as_array().is_some_and(|names| names.iter().any(|it| it == name));
        let fields = schema["properties"].as_object().into_iter().flatten();
        parameters.extend(fields.map(|(name, schema)| {
            json!({ "name": name, "in": "query", "required": required(name), "schema": schema })
        }));
    }
    let answers: Map<String, Value> = route
        .answers
        .iter()
        .map(|answer| (answer.status.to_string(), response(answer, schemas, problem)))
        .collect();
    let mut operation = json!({
        "operationId": route.id,
        "summary": route.what,
        "description": needs(route.need),
        "parameters": parameters,
        "responses": answers,
        "security": if route.need == Need::Open { json!([]) } else { json!([{ "token": [] }, {}]) },
    });
    if let Some(body) = route.body {
        let content = json!({ "application/json": { "schema": body(schemas) } });
        operation["requestBody"] = json!({ "required": needs_fields(body), "content": content });
    }
    operation
}

/// Whether a body without any field is refused: else no body at all is as good as an empty object.
fn needs_fields(body: crate::route::SchemaOf) -> bool {
    let schema = body(&mut inlining()).to_value();
    schema["required"].as_array().is_some_and(|fields| !fields.is_empty())
}

fn inlining() -> SchemaGenerator {
    SchemaSettings::draft2020_12().with(|settings| settings.inline_subschemas = true).into_generator()
}

/// A place of a path.
fn place(segment: &str) -> Option<Value> {
    let name = segment.strip_prefix('{')?.strip_suffix('}')?;
    let schema = json!({ "type": "string", "minLength": 1 });
    Some(json!({ "name": name, "in": "path", "required": true, "schema": schema }))
}

fn response(answer: &Answer, schemas: &mut SchemaGenerator, problem: &schemars::Schema) -> Value {
    let content = match answer.body {
        Body::Empty => return json!({ "description": answer.what }),
        Body::Json(schema) => json!({ "application/json": { "schema": schema(schemas) } }),
        Body::Problem => json!({ "application/problem+json": { "schema": problem } }),
        Body::Text(media) => json!({ media: { "schema": { "type": "string" } } }),
    };
    json!({ "description": answer.what, "content": content })
}

fn needs(need: Need) -> String {
    match need {
        Need::Open => "Needs no token.".into(),
        Need::Token => "Needs a token, if the service has any.".into(),
        Need::Some(right) => format!("Needs the right to {} some names.", right.as_str()),
        Need::For(right, _) => format!("Needs the right to {} what the path names.", right.as_str()),
        Need::All(right) => format!("Needs the right to {} all names.", right.as_str()),
    }
}
