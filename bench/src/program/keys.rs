//! `key=value` arguments.

use std::str::FromStr;

use crate::Failure;

pub(crate) struct Keys(Vec<(String, String)>);

impl Keys {
    pub(crate) fn parse(arguments: &[String]) -> Result<Self, Failure> {
        let pair = |argument: &String| match argument.split_once('=') {
            Some((key, value)) => Ok((key.to_owned(), value.to_owned())),
            None => Err(format!("expected key=value instead of {argument:?}").into()),
        };
        Ok(Self(arguments.iter().map(pair).collect::<Result<_, Failure>>()?))
    }

    pub(crate) fn find(&self, key: &str) -> Option<&str> {
        self.0.iter().find(|(name, _)| name == key).map(|(_, value)| value.as_str())
    }

    pub(crate) fn text(&self, key: &str) -> Result<&str, Failure> {
        self.find(key).ok_or_else(|| format!("missing key {key}=").into())
    }

    pub(crate) fn number<N: FromStr>(&self, key: &str) -> Result<N, Failure> {
        let text = self.text(key)?;
        text.parse().map_err(|_| format!("invalid number {key}={text:?}").into())
    }

    /// The nodes of a quorum, or the one server.
    pub(crate) fn urls(&self) -> Result<Vec<&str>, Failure> {
        match self.find("urls") {
            Some(urls) => Ok(urls.split(',').collect()),
            None => Ok(vec![self.text("url")?]),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn arguments_are_found_by_key() {
        let keys = Keys::parse(&["url=redis://h:1".into(), "tasks=64".into()]).unwrap();
        assert_eq!(keys.urls().unwrap(), ["redis://h:1"]);
        assert_eq!(keys.number::<usize>("tasks").unwrap(), 64);
        assert_eq!(keys.number::<u64>("ms").unwrap_err().to_string(), "missing key ms=");
        let quorum = Keys::parse(&["urls=redis://h:1,redis://h:2".into()]).unwrap();
        assert_eq!(quorum.urls().unwrap(), ["redis://h:1", "redis://h:2"]);
        assert!(Keys::parse(&["url".into()]).is_err());
    }
}
