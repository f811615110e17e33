//! Store URLs: `etcd[s]://[USER[:PASSWORD]@]HOST[:PORT],…[?PARAMETERS]`. Nothing is dialled.

use std::{collections::HashSet, fs::File, io::Read};

use leasehold_core::{
    error::{Error, Result},
    text::redact,
};
use percent_encoding::percent_decode_str;
use url::Url;

const PORT: u16 = 2379;
const HOSTS_MAX: usize = 32;
/// Largest password or certificate file.
const FILE_MAX_BYTES: u64 = 1 << 20;
const PARAMETERS: [&str; 4] = ["password-file", "ca", "cert", "key"];

/// What a URL says.
#[derive(Clone)]
pub(crate) struct StoreUrl {
    /// `HOST:PORT` of each member that it names.
    pub(crate) hosts: Vec<String>,
    pub(crate) tls: bool,
    user: String,
    password: Option<String>,
    parameters: Vec<(String, String)>,
    /// The URL without its password.
    shown: String,
}

/// Who logs in.
#[derive(Clone)]
pub(crate) struct Login {
    pub(crate) user: String,
    pub(crate) password: String,
}

impl StoreUrl {
    pub(crate) fn parse(url: &str) -> Result<Self> {
        let shown = redact(url);
        let refuse = |expected: &str| Err(Error::invalid("store URL", &shown, expected));
        let (scheme, rest) = url.split_once("://").unwrap_or_default();
        let tls = match scheme {
            "etcd" => false,
            "etcds" => true,
            _ => return refuse("etcd://HOST[:PORT],… or etcds://HOST[:PORT],…"),
        };
        let (rest, query) = rest.split_once('?').unwrap_or((rest, ""));
        let rest = rest.trim_end_matches('/');
        let (login, hosts) = rest.rsplit_once('@').unwrap_or(("", rest));
        if hosts.contains('/') {
            return refuse("no path: what precedes every name is the setting `prefix`");
        }
        let (mut known, mut all) = (HashSet::new(), Vec::new());
        for host in hosts.split(',') {
            let Some(host) = endpoint(host) else {
                return refuse(&format!("{scheme}://[USER[:PASSWORD]@]HOST[:PORT],HOST[:PORT],…"));
            };
            if known.insert(host.to_ascii_lowercase()) {
                all.push(host);
            }
        }
        if all.len() > HOSTS_MAX {
            return refuse("at most 32 hosts");
        }
        let (user, password) = login.split_once(':').map_or((login, None), |(u, p)| (u, Some(p)));
        let (user, password) = (decoded(user), password.map(decoded));
        let mut url = Self { hosts: all, tls, user, password, parameters: Vec::new(), shown };
        url.read_parameters(query)?;
        Ok(url)
    }

    fn read_parameters(&mut self, query: &str) -> Result<()> {
        // Not as a form, where a plus would be a space: it may be part of a path.
        let pairs = query.split('&').filter(|pair| !pair.is_empty());
        for (parameter, value) in pairs.map(|pair| pair.split_once('=').unwrap_or((pair, ""))) {
            if !PARAMETERS.contains(&parameter) {
                // With an `@` in it, it is the rest of a password that had a `?`.
                let got = if parameter.contains('@') { "…" } else { parameter };
                let what = format!("parameter of the store URL {}", self.shown);
                return Err(Error::invalid(what, got, PARAMETERS.join(", ")));
            }
            self.parameters.push((parameter.to_owned(), decoded(value)));
        }
        if !self.tls && ["ca", "cert", "key"].iter().any(|file| self.parameter(file).is_some()) {
            return Err(self.refuse("ca, cert and key only with TLS (etcds://)"));
        }
        if self.parameter("cert").is_some() != self.parameter("key").is_some() {
            return Err(self.refuse("cert and key together"));
        }
        Ok(())
    }

    fn refuse(&self, expected: &str) -> Error {
        Error::invalid("store URL", &self.shown, expected)
    }

    /// The last value of a parameter.
    fn parameter(&self, name: &str) -> Option<&str> {
        self.parameters.iter().rfind(|(known, _)| known == name).map(|(_, value)| value.as_str())
    }

    /// The file that a parameter names.
    pub(crate) fn file(&self, parameter: &str) -> Result<Option<Vec<u8>>> {
        self.parameter(parameter).map(|path| read(parameter, path)).transpose()
    }

    /// Who logs in, if anybody does. A client certificate may say it instead.
    pub(crate) fn login(&self) -> Result<Option<Login>> {
        if self.user.is_empty() {
            return match self.parameter("password-file").or(self.password.as_deref()) {
                None => Ok(None),
                Some(_) => Err(self.refuse("a user before the password: etcd has no password without one")),
            };
        }
        let from_file = self.file("password-file")?;
        let from_file = from_file.map(|text| String::from_utf8_lossy(&text).into_owned());
        let from_file = from_file.map(|text| text.trim_end_matches(['\r', '\n']).to_owned());
        let password = from_file.or_else(|| self.password.clone()).unwrap_or_default();
        Ok(Some(Login { user: self.user.clone(), password }))
    }
}

fn endpoint(host: &str) -> Option<String> {
    let url = Url::parse(&format!("etcd://{host}")).ok()?;
    let name = url.host_str().filter(|host| !host.is_empty())?;
    let is_bare = url.username().is_empty() && matches!(url.path(), "" | "/");
    is_bare.then(|| format!("{name}:{}", url.port().unwrap_or(PORT)))
}

fn read(parameter: &str, path: &str) -> Result<Vec<u8>> {
    let refuse = |why: String| Error::invalid(parameter, path, why);
    let mut bytes = Vec::new();
    let read = File::open(path).and_then(|file| file.take(FILE_MAX_BYTES + 1).read_to_end(&mut bytes));
    read.map_err(|error| refuse(format!("a readable file ({error})")))?;
    if bytes.len() as u64 > FILE_MAX_BYTES {
        return Err(refuse("a file of at most 1 MiB".into()));
    }
    Ok(bytes)
}

fn decoded(text: &str) -> String {
    percent_decode_str(text).decode_utf8_lossy().into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_url_names_members_and_who_logs_in() {
        let url = StoreUrl::parse("etcd://ann:p%40s,s@a,b:7000,[::1]:7001,A:2379/").unwrap();
        assert_eq!(url.hosts, ["a:2379", "b:7000", "[::1]:7001"]);
        let login = url.login().unwrap().unwrap();
        assert_eq!((login.user.as_str(), login.password.as_str(), url.tls), ("ann", "p@s,s", false));
        assert!(StoreUrl::parse("etcds://a").unwrap().tls);
        assert!(StoreUrl::parse("etcd://a").unwrap().login().unwrap().is_none());
    }

    #[test]
    fn what_is_wrong_is_named_without_the_password() {
        for (url, word) in [
            ("etcd://", "HOST"),
            ("etcd://a,,b", "HOST"),
            ("etcd://ann:secret@a/locks", "no path"),
            ("etcd://ann:secret@a?ca=x", "etcds"),
            ("etcds://ann:secret@a?cert=x", "together"),
            ("etcd://ann:secret@a?nonsense=1", "password-file"),
        ] {
            let text = StoreUrl::parse(url).err().map(|error| error.to_string()).unwrap();
            assert!(text.contains(word) && !text.contains("secret"), "{text}");
        }
        let text = StoreUrl::parse("etcd://:secret@a").unwrap().login().err().unwrap().to_string();
        assert!(text.contains("user") && !text.contains("secret"), "{text}");
    }
}
