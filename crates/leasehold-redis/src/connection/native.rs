//! Releases by a command that deletes a key if it has a given value, where the server has one: a third of a script's cost.
//!
//! It compares the whole text of K. A claim that queues marks K (`claim.lua`), so the command finds another text and does
//! nothing. The release then comes again as a script, which hands over.

use std::sync::atomic::{AtomicBool, Ordering};

use redis::{Cmd, Value};

use super::Link;
use crate::{Result, reply, script::Op, topology::outcome};
use leasehold_core::{clock::Until, engine::Fault};

/// What a server has for this.
pub(super) struct Native {
    command: Option<Command>,
    refused: AtomicBool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Command {
    /// Valkey from 9.0 on.
    DelIfEq,
    /// Redis from 8.4 on.
    DelEx,
}

impl Native {
    /// By a server's reply to HELLO.
    pub(super) fn of(hello: Option<&Value>) -> Self {
        Self { command: hello.and_then(Command::of), refused: AtomicBool::new(false) }
    }
}

impl Command {
    fn of(hello: &Value) -> Option<Self> {
        let Value::Map(fields) = hello else { return None };
        let field = |name| {
            fields
                .iter()
                .find_map(|(key, value)| reply::text(value).filter(|_| reply::text(key) == Some(name)))
        };
        let mut version = field("version")?.split('.').map(|part| part.parse::<u32>().ok());
        let version = (version.next()??, version.next()??);
        match field("server")? {
            "valkey" if version >= (9, 0) => Some(Self::DelIfEq),
            "redis" if version >= (8, 4) => Some(Self::DelEx),
            _ => None,
        }
    }

    fn write(self, op: &Op) -> Cmd {
        let (mut cmd, text) = (Cmd::new(), op.held_text());
        match self {
            Self::DelIfEq => cmd.arg("DELIFEQ").arg(op.keys.lock()).arg(text),
            Self::DelEx => cmd.arg("DELEX").arg(op.keys.lock()).arg("IFEQ").arg(text),
        };
        cmd
    }
}

impl Link {
    /// Whether releases of the ordinary case need no script over this link.
    pub(crate) fn compares_and_deletes(&self) -> bool {
        self.native.command.is_some() && !self.native.refused.load(Ordering::Relaxed)
    }

    /// Releases in one write. One reply each: 1, or nil if that was not the ordinary case and nothing was done.
    pub(crate) async fn release_natively(&self, ops: &[&Op], until: Until) -> Vec<Result<Value>> {
        let Some(command) = self.native.command else { return vec![Ok(Value::Nil); ops.len()] };
        let replies = match ops {
            [op] => vec![self.send(&command.write(op), until).await],
            ops => self.send_all(ops.iter().map(|op| command.write(op)).collect(), until).await,
        };
        replies.into_iter().map(|reply| self.released(reply)).collect()
    }

    fn released(&self, reply: Result<Value>) -> Result<Value> {
        match reply {
            Ok(Value::Int(1)) => Ok(Value::Int(1)),
            Ok(_) => Ok(Value::Nil),
            // It has no right to the command, or K is another kind of key: the script finds out.
            Err(error) if matches!(error.fault, Fault::Refused(_)) && !outcome::is_redirection(&error) => {
                if !error.why.starts_with("WRONGTYPE") && !self.native.refused.swap(true, Ordering::Relaxed) {
                    tracing::debug!(%error, "the server refuses to compare and delete: releases are scripts");
                }
                Ok(Value::Nil)
            }
            Err(error) => Err(error),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn hello(server: &str, version: &str) -> Value {
        let text = |text: &str| Value::BulkString(text.as_bytes().to_vec());
        let fields = [("server", text(server)), ("version", text(version)), ("proto", Value::Int(3))];
        Value::Map(fields.map(|(field, value)| (text(field), value)).into())
    }

    #[test]
    fn a_server_that_compares_and_deletes_is_known_by_its_greeting() {
        let command = |server, version| Command::of(&hello(server, version));
        assert_eq!(command("valkey", "9.0.0"), Some(Command::DelIfEq));
        assert_eq!(command("redis", "8.4.0"), Some(Command::DelEx));
        assert_eq!(command("redis", "10.0.1"), Some(Command::DelEx));
        for (server, version) in
            [("valkey", "8.1.9"), ("redis", "8.2.3"), ("redis", "9"), ("keydb", "9.9.9"), ("", "")]
        {
            assert_eq!(command(server, version), None, "{server} {version}");
        }
        assert_eq!(Command::of(&Value::Nil), None);
    }
}
