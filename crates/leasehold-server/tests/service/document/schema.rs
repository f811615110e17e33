//! Reads the document, and compares bodies with the schemas in it.

use std::collections::BTreeSet;

use serde_json::Value;

/// One operation of the document.
#[derive(Clone, Debug)]
pub(super) struct Operation {
    pub(super) id: String,
    pub(super) method: String,
    pub(super) path: String,
    pub(super) value: Value,
}

impl Operation {
    pub(super) fn statuses(&self) -> impl Iterator<Item = u16> {
        self.value["responses"].as_object().unwrap().keys().map(|status| status.parse().unwrap())
    }

    pub(super) fn has(&self, status: u16) -> bool {
        self.statuses().any(|known| known == status)
    }

    pub(super) fn body(&self) -> Option<&Value> {
        self.value.pointer("/requestBody/content/application~1json/schema")
    }

    /// The names of its parameters of this kind: `query` or `header`.
    pub(super) fn parameters(&self, kind: &str) -> impl Iterator<Item = &str> {
        let all = self.value["parameters"].as_array().unwrap().iter();
        all.filter(move |it| it["in"] == kind).map(|it| it["name"].as_str().unwrap())
    }

    fn matches(&self, method: &str, path: &str) -> bool {
        let (mut own, mut given) = (self.path.split('/'), path.split('/'));
        let fits = own.by_ref().zip(given.by_ref()).all(|(own, given)| own == given || own.starts_with('{'));
        self.method == method && fits && self.path.split('/').count() == path.split('/').count()
    }
}

pub(super) struct Document {
    pub(super) root: Value,
    pub(super) operations: Vec<Operation>,
}

impl Document {
    pub(super) fn new(root: Value) -> Self {
        let mut operations = Vec::new();
        for (path, methods) in root["paths"].as_object().unwrap() {
            for (method, value) in methods.as_object().unwrap() {
                let (id, method) = (value["operationId"].as_str().unwrap().into(), method.to_uppercase());
                operations.push(Operation { id, method, path: path.clone(), value: value.clone() });
            }
        }
        Self { root, operations }
    }

    /// The operation that a request asks for: the one with the fewest places, as the router takes it.
    pub(super) fn of(&self, method: &str, path: &str) -> &Operation {
        let path = path.split('?').next().unwrap();
        let found = self.operations.iter().filter(|it| it.matches(method, path));
        found.min_by_key(|it| it.path.matches('{').count()).unwrap_or_else(|| panic!("{method} {path}"))
    }

    fn resolve<'a>(&'a self, schema: &'a Value, owner: &str) -> (&'a Value, String) {
        match schema["$ref"].as_str() {
            None => (schema, owner.to_owned()),
            Some(reference) => {
                let name = reference.strip_prefix("#/components/schemas/").unwrap();
                let schema = self.root["components"]["schemas"].get(name);
                (schema.unwrap_or_else(|| panic!("no schema {name}")), name.to_owned())
            }
        }
    }

    /// Whether a value is as a schema says; fields with a value are noted as `TYPE.FIELD`.
    pub(super) fn check(
        &self,
        schema: &Value,
        value: &Value,
        owner: &str,
        seen: &mut BTreeSet<String>,
    ) -> Result<(), String> {
        let (schema, owner) = self.resolve(schema, owner);
        let wrong = |why: &str| Err(format!("{owner}: {value} {why}"));
        if schema.get("const").is_some_and(|it| it != value) {
            return wrong("is another constant");
        }
        if schema["enum"].as_array().is_some_and(|known| !known.contains(value)) {
            return wrong("is none of the words");
        }
        if !has_type(schema, value) {
            return wrong("has another type");
        }
        for part in list(&schema["allOf"]) {
            self.check(part, value, &owner, seen)?;
        }
        for choice in ["anyOf", "oneOf"] {
            let mut fits = schema[choice].is_null();
            for part in list(&schema[choice]) {
                let mut own = BTreeSet::new();
                if self.check(part, value, &owner, &mut own).is_ok() {
                    seen.append(&mut own);
                    fits = true;
                }
            }
            if !fits {
                return wrong("fits no choice");
            }
        }
        if let Some(fields) = value.as_object() {
            for required in list(&schema["required"]) {
                if !fields.contains_key(required.as_str().unwrap()) {
                    return wrong(&format!("lacks {required}"));
                }
            }
            let is_open = ["allOf", "anyOf", "oneOf"].iter().any(|word| !schema[*word].is_null());
            for (name, field) in fields {
                let place = format!("{owner}.{name}");
                match (schema["properties"].get(name), schema.get("additionalProperties")) {
                    (Some(known), _) => self.check(known, field, &place, seen)?,
                    (None, Some(others)) if others.is_object() => self.check(others, field, &place, seen)?,
                    (None, _) if is_open || schema["properties"].is_null() => continue,
                    (None, _) => return wrong(&format!("has {name}, which is not documented")),
                }
                if !field.is_null() {
                    seen.insert(place);
                }
            }
        }
        for (index, item) in list(value).iter().enumerate() {
            let known = schema["prefixItems"].get(index).or_else(|| schema.get("items"));
            if let Some(known) = known {
                self.check(known, item, &owner, seen)?;
            }
        }
        Ok(())
    }

    /// All fields that a schema documents, as `TYPE.FIELD`.
    pub(super) fn fields(&self, schema: &Value, owner: &str, into: &mut BTreeSet<String>) {
        let (schema, owner) = self.resolve(schema, owner);
        for word in ["allOf", "anyOf", "oneOf", "prefixItems"] {
            list(&schema[word]).iter().for_each(|part| self.fields(part, &owner, into));
        }
        if let Some(items) = schema.get("items") {
            self.fields(items, &owner, into);
        }
        for (name, field) in schema["properties"].as_object().into_iter().flatten() {
            let place = format!("{owner}.{name}");
            if into.insert(place.clone()) {
                self.fields(field, &place, into);
            }
        }
    }
}

fn list(value: &Value) -> &[Value] {
    value.as_array().map_or(&[], Vec::as_slice)
}

fn has_type(schema: &Value, value: &Value) -> bool {
    let is = |word: &Value| match word.as_str().unwrap() {
        "null" => value.is_null(),
        "boolean" => value.is_boolean(),
        "integer" => value.is_u64() || value.is_i64(),
        "number" => value.is_number(),
        "string" => value.is_string(),
        "array" => value.is_array(),
        _ => value.is_object(),
    };
    match &schema["type"] {
        Value::Null => true,
        Value::Array(words) => words.iter().any(is),
        word => is(word),
    }
}
