//! One table of a file, read key by key, with errors that say where and what is allowed.

use std::{fs::File, io::Read, path::Path, time::Duration};

use toml::{Table, Value};

use super::{duration::parse_duration, nearest::nearest_of, placed, quoted};
use crate::{
    engine::Acks,
    error::{Error, Result},
};

/// Longest file that is read.
const FILE_MAX_BYTES: u64 = 1 << 20;

/// Reads a file as text.
pub(crate) fn read_text(path: &Path) -> Result<String> {
    let refuse = |why: String| Error::invalid("file", quoted(&path.display().to_string()), why);
    let file = File::open(path).map_err(|error| refuse(format!("a file that can be read ({error})")))?;
    let mut text = String::new();
    let read = file.take(FILE_MAX_BYTES + 1).read_to_string(&mut text);
    read.map_err(|error| refuse(format!("a file with UTF-8 text ({error})")))?;
    if text.len() as u64 > FILE_MAX_BYTES {
        return Err(refuse("a file of at most 1 MiB".into()));
    }
    Ok(text)
}

/// A table whose keys are all known.
pub(crate) struct Section {
    /// The file, and the table inside of it unless it is the top.
    place: String,
    table: Table,
}

impl Section {
    /// The top of a file. `origin` is what errors call it.
    pub(crate) fn parse(text: &str, origin: &str, known: &[&str]) -> Result<Self> {
        let table = text.parse::<Table>().map_err(|error| {
            // Not the parser's own report: it quotes the line, and that line may hold a password.
            let line = error.span().map_or(1, |span| 1 + text[..span.start].matches('\n').count());
            Error::invalid("TOML", format!("{origin} line {line}"), format!("TOML ({})", error.message()))
        })?;
        Self::new(origin.to_owned(), table, known)
    }

    pub(crate) fn new(place: String, table: Table, known: &[&str]) -> Result<Self> {
        for key in table.keys() {
            if !known.contains(&key.as_str()) {
                return Err(Error::invalid(
                    format!("key in {place}"),
                    quoted(key),
                    nearest_of(key, known.iter().copied()),
                ));
            }
        }
        Ok(Self { place, table })
    }

    /// What errors call this table.
    pub(crate) fn place(&self) -> &str {
        &self.place
    }

    /// What errors call one of its keys.
    pub(crate) fn place_of(&self, key: &str) -> String {
        format!("{key} in {}", self.place)
    }

    pub(crate) fn text(&self, key: &str) -> Result<Option<String>> {
        self.value(key, "text in quotes", |value| value.as_str().map(str::to_owned))
    }

    pub(crate) fn duration(&self, key: &str) -> Result<Option<Duration>> {
        let place = self.place_of(key);
        // A number is read as a text without a unit, to get the hint about it.
        let text = self.value(key, "a duration in quotes, such as \"30s\"", text_or_number)?;
        text.map(|text| parse_duration(&text).map_err(|error| placed(error, place))).transpose()
    }

    pub(crate) fn count(&self, key: &str) -> Result<Option<usize>> {
        self.value(key, "a whole number", |value| value.as_integer()?.try_into().ok())
    }

    pub(crate) fn flag(&self, key: &str) -> Result<Option<bool>> {
        self.value(key, "true or false", |value| value.as_bool())
    }

    pub(crate) fn acks(&self, key: &str) -> Result<Option<Acks>> {
        let place = self.place_of(key);
        let text = self.value(key, "0 to 255, or \"majority\"", text_or_number)?;
        text.map(|text| text.parse().map_err(|error| placed(error, place))).transpose()
    }

    /// The tables below `key`, each with its name.
    pub(crate) fn tables(&self, key: &str) -> Result<Vec<(String, Table)>> {
        let allowed = format!("tables such as [{key}.NAME]");
        let named = self.value(key, &allowed, |value| value.as_table().cloned())?;
        let mut tables = Vec::new();
        for (name, value) in named.unwrap_or_default() {
            let Value::Table(table) = value else {
                return Err(Error::invalid(self.place_of(key), quoted(&name), allowed));
            };
            tables.push((name, table));
        }
        Ok(tables)
    }

    fn value<T>(
        &self,
        key: &str,
        allowed: &str,
        read: impl FnOnce(&Value) -> Option<T>,
    ) -> Result<Option<T>> {
        let Some(value) = self.table.get(key) else { return Ok(None) };
        // Only its type is told: the value may be a URL with a password.
        let refuse = || Error::invalid(self.place_of(key), format!("<{}>", value.type_str()), allowed);
        read(value).map(Some).ok_or_else(refuse)
    }
}

fn text_or_number(value: &Value) -> Option<String> {
    match value {
        Value::String(text) => Some(text.clone()),
        Value::Integer(number) => Some(number.to_string()),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    type Read = fn(&Section) -> Option<Error>;

    fn section(text: &str) -> Section {
        Section::parse(text, "x.toml", &["ttl", "count", "flag", "text", "locks"]).unwrap()
    }

    #[test]
    fn values_are_read_by_type() {
        let top = section("ttl = \"30s\"\ncount = 3\nflag = true\ntext = \"a\"\n[locks.a]\n[locks.b]");
        assert_eq!(top.duration("ttl").unwrap(), Some(Duration::from_secs(30)));
        assert_eq!(top.count("count").unwrap(), Some(3));
        assert_eq!(top.flag("flag").unwrap(), Some(true));
        assert_eq!(top.text("text").unwrap().as_deref(), Some("a"));
        assert_eq!(top.tables("locks").unwrap().len(), 2);
    }

    #[test]
    fn a_wrong_type_says_where_it_is_and_what_is_allowed() {
        let cases: [(&str, Read, &str); 8] = [
            ("ttl = 30", |top| top.duration("ttl").err(), "a number with a unit, such as 30s or 30ms"),
            ("ttl = true", |top| top.duration("ttl").err(), "such as \"30s\""),
            ("ttl = \"soon\"", |top| top.duration("ttl").err(), "1m30s"),
            ("count = -1", |top| top.count("count").err(), "a whole number"),
            ("count = 1.5", |top| top.count("count").err(), "a whole number"),
            ("flag = \"yes\"", |top| top.flag("flag").err(), "true or false"),
            ("text = [\"secret\"]", |top| top.text("text").err(), "text in quotes"),
            ("locks.a = \"secret\"", |top| top.tables("locks").err(), "[locks.NAME]"),
        ];
        for (text, read, allowed) in cases {
            let error = read(&section(text)).expect(text).to_string();
            let key = text.split([' ', '.']).next().unwrap();
            assert!(error.contains(&format!("{key} in x.toml")) && error.contains(allowed), "{error}");
            assert!(!error.contains("secret"), "{error}");
        }
    }

    #[test]
    fn an_unknown_key_names_the_nearest() {
        let error = Section::parse("tll = 1", "x.toml", &["ttl", "count"]).err().unwrap().to_string();
        assert_eq!(error, "invalid key in x.toml \"tll\": expected \"ttl\", the nearest of count, ttl");
    }

    #[test]
    fn bad_toml_names_the_line_and_quotes_none_of_it() {
        let error = Section::parse("\n\nstore = 'redis://:secret@h", "x.toml", &["store"]).err().unwrap();
        let text = error.to_string();
        assert!(text.contains("x.toml line 3") && !text.contains("secret"), "{text}");
    }

    #[test]
    fn a_file_that_cannot_be_read_is_named() {
        let text = read_text(Path::new("no/such/file.toml")).unwrap_err().to_string();
        assert!(text.contains("no/such/file.toml"), "{text}");
        let text = read_text(Path::new("/dev/zero")).unwrap_err().to_string();
        assert!(text.contains("at most 1 MiB"), "{text}");
    }
}
