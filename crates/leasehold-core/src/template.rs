//! Keys with places for values, such as `payout:{deal_id}`. Pure.
//!
//! Two different tuples of values never make the same key. A value is escaped so that it holds none of `:`, `{` and
//! `}`, and the text between two places must hold one of them. So the first of these characters after the beginning of
//! a value tells where that value ends, then where the next one begins, and so on: the values can be read back from the
//! key. Templates where that does not hold are refused when they are loaded.

use std::collections::{BTreeMap, BTreeSet};

use crate::{
    error::{Error, Result},
    name::Name,
    text::{one_of, placed, quoted},
};

/// What no escaped value holds.
const SEPARATORS: [char; 3] = [':', '{', '}'];

/// A key schema.
#[derive(Clone, Debug)]
pub struct Template {
    text: String,
    /// Literals and parameters in turn. The first and the last are literals; a literal may be empty.
    parts: Vec<String>,
}

impl Template {
    /// Reads a template; `place` is what errors call it.
    pub fn parse(text: &str, place: &str) -> Result<Self> {
        let refuse = |expected: String| Error::invalid(place, quoted(text), expected);
        let parts = parse_parts(text).map_err(|expected| refuse(expected.into()))?;
        // Each parameter with the literal and the parameter that follow it.
        let mut neighbours = parts[1..].windows(3).step_by(2);
        if let Some(near) = neighbours.find(|near| !near[1].contains(SEPARATORS)) {
            let pair = format!("{{{}}} and {{{}}}", near[0], near[2]);
            let why = "or two different pairs of values could make the same key";
            return Err(refuse(format!("a template with a ':' between {pair}, {why}")));
        }
        let template = Self { text: text.to_owned(), parts };
        // Values change neither braces nor printability, so one key that is good speaks for all but their length.
        Name::new(template.fill(|_| "x".into())).map_err(|error| placed(error, place))?;
        Ok(template)
    }

    /// The schema as it was written.
    pub fn as_str(&self) -> &str {
        &self.text
    }

    /// The names of its parameters, in order, each once.
    pub fn parameters(&self) -> impl Iterator<Item = &str> {
        let mut seen = BTreeSet::new();
        self.parts.iter().skip(1).step_by(2).map(String::as_str).filter(move |name| seen.insert(*name))
    }

    /// Whether some values make a key here that other values make there. No value holds a separator, so both keys have the
    /// same separators, and at most one value between two of them.
    pub fn may_equal(&self, other: &Self) -> bool {
        let (one, other) = (self.fill(|_| VALUE.into()), other.fill(|_| VALUE.into()));
        let (pieces, others) = (one.split(SEPARATORS), other.split(SEPARATORS));
        one.matches(SEPARATORS).eq(other.matches(SEPARATORS))
            && pieces.zip(others).all(|(one, other)| pieces_may_equal(one, other))
    }

    /// The key for these values.
    ///
    /// # Errors
    /// `invalid` for a value that is missing, empty or too long, and for one that the schema does not have.
    pub fn render<K: AsRef<str>, V: ToString>(
        &self,
        values: impl IntoIterator<Item = (K, V)>,
    ) -> Result<Name> {
        let refuse =
            |what: &str, got: &str, expected: String| Err(Error::invalid(what, quoted(got), expected));
        let mut given = BTreeMap::new();
        for (name, value) in values {
            let (name, value) = (name.as_ref().to_owned(), value.to_string());
            if !self.parameters().any(|known| known == name) {
                return refuse("parameter", &name, one_of(&name, self.parameters()));
            }
            if value.is_empty() {
                return refuse(&format!("parameter {name}"), "", "a value that is not empty".into());
            }
            if given.insert(name.clone(), escape_value(&value)).is_some() {
                return refuse("parameter", &name, "each one once".into());
            }
        }
        if let Some(missing) = self.parameters().find(|known| !given.contains_key(*known)) {
            return refuse("parameters", &format!("none for {missing}"), format!("a value for {missing}"));
        }
        let key = self.fill(|parameter| given[parameter].clone());
        Name::new(key).map_err(|error| placed(error, "key"))
    }

    fn fill(&self, value_of: impl Fn(&str) -> String) -> String {
        let piece = |(at, part): (usize, &String)| if at % 2 == 0 { part.clone() } else { value_of(part) };
        self.parts.iter().enumerate().map(piece).collect()
    }
}

/// Stands for a value; no literal holds it.
const VALUE: char = '\0';

fn pieces_may_equal(one: &str, other: &str) -> bool {
    match (one.split_once(VALUE), other.split_once(VALUE)) {
        (None, None) => one == other,
        (Some(_), None) => pieces_may_equal(other, one),
        (None, Some((start, end))) => {
            one.len() > start.len() + end.len() && one.starts_with(start) && one.ends_with(end)
        }
        (Some((start, end)), Some((other_start, other_end))) => {
            (start.starts_with(other_start) || other_start.starts_with(start))
                && (end.ends_with(other_end) || other_end.ends_with(end))
        }
    }
}

const SYNTAX: &str = "text with {parameters}, and {{ or }} for a brace itself";

/// The literals and parameters of a template. The error is what is expected.
fn parse_parts(text: &str) -> Result<Vec<String>, &'static str> {
    let mut parts = Vec::new();
    let mut literal = String::new();
    let mut rest = text;
    while let Some(at) = rest.find(['{', '}']) {
        literal.push_str(&rest[..at]);
        let (brace, after) = rest[at..].split_at(1);
        if let Some(after) = after.strip_prefix(brace) {
            literal.push_str(brace);
            rest = after;
            continue;
        }
        let Some((name, after)) = after.split_once('}').filter(|_| brace == "{") else { return Err(SYNTAX) };
        if !is_parameter(name) {
            return Err(
                "parameters of letters, digits and '_' that do not begin with a digit, such as {deal_id}",
            );
        }
        parts.extend([std::mem::take(&mut literal), name.to_owned()]);
        rest = after;
    }
    parts.push(literal + rest);
    Ok(parts)
}

fn is_parameter(name: &str) -> bool {
    !name.starts_with(|c: char| c.is_ascii_digit())
        && !name.is_empty()
        && name.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_')
}

/// A value as it stands in a key: with nothing in it that could be mistaken for the rest of the key.
pub fn escape_value(value: &str) -> String {
    escape(value, |c| c == '%' || SEPARATORS.contains(&c) || c.is_control())
}

/// Percent-encodes the characters that `must` be, as the uppercase hex of their UTF-8 bytes.
pub fn escape(text: &str, must: impl Fn(char) -> bool) -> String {
    let mut escaped = String::with_capacity(text.len());
    for c in text.chars() {
        if must(c) {
            for byte in c.encode_utf8(&mut [0; 4]).bytes() {
                escaped.push_str(&format!("%{byte:02X}"));
            }
        } else {
            escaped.push(c);
        }
    }
    escaped
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn template(text: &str) -> Result<Template> {
        Template::parse(text, "key in x.toml")
    }

    fn rendered(text: &str, values: &[(&str, &str)]) -> Result<String> {
        template(text)?.render(values.iter().copied()).map(|name| name.to_string())
    }

    #[test]
    fn values_take_their_places() {
        for (text, values, key) in [
            ("payout:{deal_id}", &[("deal_id", "42")][..], "payout:42"),
            ("reconciliation", &[], "reconciliation"),
            ("{a}:{b}", &[("b", "2"), ("a", "1")], "1:2"),
            ("{a}:x:{a}", &[("a", "1")], "1:x:1"),
            ("{{{pool}}}:{bucket}", &[("pool", "p"), ("bucket", "3")], "{p}:3"),
            ("{{deal}}:{id}", &[("id", "7")], "{deal}:7"),
            ("größe:{ä}", &[], ""),
        ] {
            match rendered(text, values) {
                Ok(rendered) => assert_eq!(rendered, key),
                Err(error) => assert!(key.is_empty() && error.to_string().contains("letters"), "{error}"),
            }
        }
    }

    #[test]
    fn what_could_be_mistaken_for_the_template_is_escaped_and_nothing_else() {
        let value = "a:b%{c}\n\u{7f}\u{85}ß/ é-_";
        assert_eq!(rendered("k:{v}", &[("v", value)]).unwrap(), "k:a%3Ab%25%7Bc%7D%0A%7F%C2%85ß/ é-_");
    }

    #[test]
    fn wrong_parameters_are_named() {
        for (values, error) in [
            (&[][..], "invalid parameters \"none for deal\": expected a value for deal"),
            (
                &[("dael", "1")],
                "invalid parameter \"dael\": expected one of deal, user; did you mean \"deal\"?",
            ),
            (&[("deal", "")], "invalid parameter deal \"\": expected a value that is not empty"),
            (&[("deal", "1"), ("deal", "1")], "invalid parameter \"deal\": expected each one once"),
            (&[("deal", "1")], "invalid parameters \"none for user\": expected a value for user"),
        ] {
            assert_eq!(rendered("{deal}:{user}", values).unwrap_err().to_string(), error);
        }
        let long = "x".repeat(600);
        let error = rendered("k:{v}", &[("v", &long)]).unwrap_err().to_string();
        assert!(error.starts_with("invalid key ") && error.contains("512"), "{error}");
    }

    #[test]
    fn templates_that_cannot_work_are_refused() {
        for (bad, why) in [
            ("", "1 to 512 bytes"),
            ("a{b", SYNTAX),
            ("a}b", SYNTAX),
            ("{a}}", SYNTAX),
            ("{a}:{b", SYNTAX),
            ("{}", "such as {deal_id}"),
            ("{ a }", "such as {deal_id}"),
            ("{a:b}", "such as {deal_id}"),
            ("{1a}", "such as {deal_id}"),
            ("a}}b", "hash tag"),
            ("a\nb", "control characters"),
            ("{a}{b}", "a ':' between {a} and {b}"),
            ("{a}-{b}", "a ':' between {a} and {b}"),
            ("{a}:{b}/{c}", "a ':' between {b} and {c}"),
            ("{a}%3A{b}", "a ':' between {a} and {b}"),
        ] {
            let text = template(bad).expect_err(bad).to_string();
            assert!(text.starts_with("invalid key in x.toml") && text.contains(why), "{bad}: {text}");
        }
    }

    /// Templates that are accepted, with the parameters a, b, c of which some may be missing or repeated.
    fn templates() -> impl Strategy<Value = Template> {
        let literal = || proptest::sample::select(&["", "a", "%", ":", "a:", ":a", "::", "{{", "}}"][..]);
        let parameter = proptest::sample::select(&["{a}", "{b}", "{c}"][..]);
        let pairs = proptest::collection::vec((literal(), parameter), 1..4);
        (pairs, literal()).prop_filter_map("not a template", |(pairs, end)| {
            let pairs: String =
                pairs.into_iter().flat_map(|(literal, parameter)| [literal, parameter]).collect();
            template(&(pairs + end)).ok()
        })
    }

    /// What an escape or a separator looks like, so few that two tuples often differ by nothing else.
    const DANGEROUS: [&str; 13] =
        [":", "%3A", "%253A", "a", "aa", "a:", ":a", "a:a", "a%3Aa", "a%a", "%", "{a}", "%7Ba%7D"];

    fn values() -> impl Strategy<Value = [String; 3]> {
        let dangerous = || proptest::sample::select(&DANGEROUS[..]).prop_map(str::to_owned);
        let value = || prop_oneof![2 => dangerous(), 1 => ".{1,3}"];
        [value(), value(), value()]
    }

    fn key(template: &Template, values: &[String; 3]) -> Name {
        let all = ["a", "b", "c"].into_iter().zip(values);
        let used: Vec<_> =
            all.filter(|(name, _)| template.parameters().any(|known| known == *name)).collect();
        template.render(used).unwrap()
    }

    /// Reads the values back out of a key, as the proof above says it can be done.
    fn read_back(template: &Template, key: &str) -> Vec<(String, String)> {
        let mut rest = key;
        let mut found = Vec::new();
        for part in template.parts.chunks(2) {
            rest = rest.strip_prefix(&*part[0]).unwrap();
            let Some(name) = part.get(1) else { break };
            let at = found.len() * 2 + 2;
            let tail = &template.parts[at];
            let end = match tail.find(SEPARATORS) {
                Some(offset) => rest.find(SEPARATORS).unwrap() - offset,
                None => rest.len() - tail.len(),
            };
            found.push((name.clone(), rest[..end].to_owned()));
            rest = &rest[end..];
        }
        found
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(1000))]

        #[test]
        fn different_values_make_different_keys(template in templates(), x in values(), y in values()) {
            let used = |values: &[String; 3]| -> Vec<String> {
                let all = ["a", "b", "c"].into_iter().zip(values);
                all.filter(|(name, _)| template.parameters().any(|known| known == *name))
                    .map(|(_, value)| value.clone()).collect()
            };
            prop_assert_eq!(used(&x) == used(&y), key(&template, &x) == key(&template, &y));
        }

        #[test]
        fn the_values_can_be_read_back_from_a_key(template in templates(), values in values()) {
            let key = key(&template, &values);
            for (name, escaped) in read_back(&template, key.as_str()) {
                let at = ["a", "b", "c"].iter().position(|known| *known == name).unwrap();
                prop_assert_eq!(unescape(&escaped), values[at].clone());
            }
        }

        #[test]
        fn no_text_makes_the_parser_panic(text in "[a{}:%\n ]{0,12}|.{0,20}") {
            let _ = template(&text);
        }
    }

    fn unescape(text: &str) -> String {
        let mut bytes = Vec::new();
        let mut rest = text.as_bytes();
        while let [first, tail @ ..] = rest {
            if *first == b'%' {
                bytes.push(u8::from_str_radix(std::str::from_utf8(&tail[..2]).unwrap(), 16).unwrap());
                rest = &tail[2..];
            } else {
                bytes.push(*first);
                rest = tail;
            }
        }
        String::from_utf8(bytes).unwrap()
    }
}
