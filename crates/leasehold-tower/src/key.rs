//! The `Idempotency-Key` header, and where its record is kept.

use http::{HeaderMap, request::Parts};
use sha2::{Digest, Sha256};

const HEADER: &str = "idempotency-key";
const KEY_MAX_BYTES: usize = 255;
/// A key that is longer than this once it is escaped is hashed: names in the store have a limit.
const READABLE_BYTES: usize = 300;

/// The key of a request: `None` without one, `Err` for one that is not 1 to 255 visible ASCII characters, bare or as a
/// quoted string.
pub(crate) fn key_of(headers: &HeaderMap) -> Result<Option<String>, ()> {
    let mut all = headers.get_all(HEADER).iter();
    let Some(value) = all.next() else { return Ok(None) };
    let text = value.to_str().map_err(drop)?.trim_matches([' ', '\t']);
    let key = match text.strip_prefix('"') {
        Some(rest) => unquote(rest.strip_suffix('"').ok_or(())?)?,
        None => text.to_owned(),
    };
    let good = (1..=KEY_MAX_BYTES).contains(&key.len()) && key.bytes().all(|byte| byte.is_ascii_graphic());
    // Two keys are as bad as a broken one: neither can be preferred.
    if good && all.next().is_none() { Ok(Some(key)) } else { Err(()) }
}

/// The inside of a quoted string: a backslash stands before a quote or a backslash only.
fn unquote(inside: &str) -> Result<String, ()> {
    let mut key = String::with_capacity(inside.len());
    let mut chars = inside.chars();
    while let Some(c) = chars.next() {
        key.push(match c {
            '"' => return Err(()),
            '\\' => chars.next().filter(|c| matches!(c, '"' | '\\')).ok_or(())?,
            c => c,
        });
    }
    Ok(key)
}

/// The key in the store, of the same caller, method and path only. No two of them share one: what follows the 32
/// digits of the scope shows whether the key is readable or hashed.
pub(crate) fn scoped(parts: &Parts, principal: Option<&str>, key: &str) -> String {
    let mut scope = Sha256::new();
    scope.update(parts.method.as_str());
    scope.update([0]);
    scope.update(parts.uri.path());
    scope.update([0]);
    // None is not the same as an empty one.
    if let Some(principal) = principal {
        scope.update([1]);
        scope.update(principal);
    }
    let scope = &hex(&scope.finalize())[..32];
    let escapes = key.bytes().filter(|byte| matches!(byte, b'%' | b':' | b'{' | b'}')).count();
    if key.len() + 2 * escapes <= READABLE_BYTES {
        format!("{scope}.{key}")
    } else {
        format!("{scope}~{}", hex(&Sha256::digest(key)))
    }
}

/// What must be the same for two requests to be one.
pub(crate) fn fingerprint(parts: &Parts, body: &[u8]) -> Vec<u8> {
    let mut print = Sha256::new();
    let query = parts.uri.query();
    for text in [parts.method.as_str(), parts.uri.path(), if query.is_some() { "?" } else { "" }] {
        print.update(text);
        print.update([0]);
    }
    print.update(query.unwrap_or_default());
    print.update([0]);
    print.update(body);
    print.finalize().to_vec()
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

#[cfg(test)]
mod tests {
    use http::{HeaderValue, Request};

    use super::*;

    fn read(values: &[&[u8]]) -> Result<Option<String>, ()> {
        let mut headers = HeaderMap::new();
        for value in values {
            headers.append(HEADER, HeaderValue::from_bytes(value).unwrap());
        }
        key_of(&headers)
    }

    #[test]
    fn a_key_is_bare_or_quoted() {
        assert_eq!(read(&[]), Ok(None));
        for (value, key) in
            [("a", "a"), ("\"a\"", "a"), (" a-1_/:{}% ".trim(), "a-1_/:{}%"), (r#""a\"\\""#, r#"a"\"#)]
        {
            assert_eq!(read(&[value.as_bytes()]), Ok(Some(key.to_owned())), "{value}");
        }
        let long = "x".repeat(255);
        assert_eq!(read(&[long.as_bytes()]), Ok(Some(long.clone())));
    }

    #[test]
    fn anything_else_is_refused() {
        let long = "x".repeat(256);
        for value in ["", "\"\"", "\"", "\"a", "a b", "\"a b\"", "\"a\"b\"", r#""\x""#, "\u{e4}", &long] {
            assert_eq!(read(&[value.as_bytes()]), Err(()), "{value}");
        }
        assert_eq!(read(&[b"a", b"a"]), Err(()));
    }

    fn parts(method: &str, uri: &str) -> Parts {
        Request::builder().method(method).uri(uri).body(()).unwrap().into_parts().0
    }

    #[test]
    fn keys_are_apart_for_each_caller_method_and_path() {
        let payouts = parts("POST", "/payouts?a");
        let all = [
            scoped(&payouts, None, "k"),
            scoped(&payouts, Some(""), "k"),
            scoped(&payouts, Some("u"), "k"),
            scoped(&payouts, Some("u"), "K"),
            scoped(&parts("PATCH", "/payouts"), Some("u"), "k"),
            scoped(&parts("POST", "/refunds"), Some("u"), "k"),
            scoped(&payouts, Some("u"), &"%".repeat(255)),
        ];
        for (at, key) in all.iter().enumerate() {
            assert!(!all[..at].contains(key) && key.len() < 350, "{key}");
        }
        assert_eq!(scoped(&payouts, None, "k"), scoped(&parts("POST", "/payouts?b"), None, "k"));
    }

    #[test]
    fn a_fingerprint_tells_requests_apart() {
        let all = [
            fingerprint(&parts("POST", "/a"), b"b"),
            fingerprint(&parts("POST", "/a"), b""),
            fingerprint(&parts("POST", "/a?"), b"b"),
            fingerprint(&parts("POST", "/a?b"), b""),
            fingerprint(&parts("POST", "/a?c"), b""),
            fingerprint(&parts("PUT", "/a"), b"b"),
        ];
        for (at, print) in all.iter().enumerate() {
            assert!(!all[..at].contains(print));
        }
    }
}
