//! Lua and SQL files start with a header: their purpose and their arguments.

use super::{Tree, Violation};

pub(super) fn lua_says_its_arguments(tree: &Tree) -> Vec<Violation> {
    let unclear = tree.with_extension(&["lua"]).filter(|(_, text)| {
        let header = header(text);
        let names_arguments = header.contains("KEYS") && header.contains("ARGV");
        !names_arguments && !header.contains("-- Fragment")
    });
    let why = "begin with a comment on KEYS and ARGV, or with `-- Fragment`";
    unclear.map(|(path, _)| Violation::new(path, 1, "header", why)).collect()
}

pub(super) fn sql_says_its_purpose(tree: &Tree) -> Vec<Violation> {
    let unclear = tree.with_extension(&["sql"]).filter(|(_, text)| header(text).is_empty());
    unclear
        .map(|(path, _)| Violation::new(path, 1, "header", "begin with a `--` comment on the purpose"))
        .collect()
}

/// The comment lines before anything else.
fn header(text: &str) -> String {
    text.lines().take_while(|line| line.starts_with("--")).collect::<Vec<_>>().join("\n")
}

#[cfg(test)]
mod tests {
    use super::super::tests::flagged;
    use super::*;

    #[test]
    fn lua_without_its_arguments_is_flagged() {
        for text in ["", "return 1", "-- Takes the lock.\nreturn KEYS[1] .. ARGV[1]", "\n-- KEYS, ARGV"] {
            assert_eq!(flagged(lua_says_its_arguments, [("a.lua", text)]), ["a.lua:1"], "{text}");
        }
    }

    #[test]
    fn lua_with_its_arguments_or_a_fragment_is_fine() {
        let script = "-- Takes the lock.\n-- KEYS[1] lock\n-- ARGV[1] owner\nreturn 1";
        let fragment = "-- Fragment: reads the clock.\nlocal now = 0";
        assert!(flagged(lua_says_its_arguments, [("a.lua", script), ("b.lua", fragment)]).is_empty());
    }

    #[test]
    fn sql_without_a_purpose_is_flagged() {
        assert_eq!(flagged(sql_says_its_purpose, [("a.sql", "SELECT 1;\n-- one")]), ["a.sql:1"]);
        assert!(flagged(sql_says_its_purpose, [("a.sql", "-- One.\nSELECT 1;")]).is_empty());
    }
}
