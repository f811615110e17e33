//! Lua compares two strings by the locale of the server, so scripts order numbers only.

use super::{Tree, Violation, numbered};

const WHY: &str = "`<` and `>` compare strings by the server's locale: make one side visibly a number \
                   (a literal, `tonumber(…)`, `#…`, arithmetic, a CONSTANT), or list the name in a comment \
                   `-- numbers: NAME`";

/// A comparison with one side that is a number never compares strings: with a string on the other side it is an error.
pub(super) fn lua_orders_numbers_only(tree: &Tree) -> Vec<Violation> {
    let mut violations = Vec::new();
    for (path, text) in tree.with_extension(&["lua"]) {
        let numbers = named_numbers(text);
        for (number, line) in numbered(text) {
            let code = without_texts(line);
            let is_unclear = comparisons(&code)
                .any(|(left, right)| !is_number(left, &numbers) && !is_number(right, &numbers));
            if is_unclear || code.contains("table.sort") {
                violations.push(Violation::new(path, number, "order", WHY));
            }
        }
    }
    violations
}

/// Names in comments `-- numbers: a, b`, and those that the file itself sets to a number and to nothing else.
fn named_numbers(text: &str) -> Vec<String> {
    let listed = text.lines().filter_map(|line| line.trim().strip_prefix("-- numbers: "));
    let mut found: Vec<_> =
        listed.flat_map(|names| names.split(',')).map(|name| name.trim().to_owned()).collect();
    let code: Vec<_> = text.lines().map(without_texts).collect();
    let assigned: Vec<_> = code.iter().flat_map(|line| assignments(line)).collect();
    for (name, value) in &assigned {
        let is_always = assigned.iter().all(|(other, value)| other != name || is_number(value, &[]));
        if is_number(value, &[]) && is_always {
            found.push((*name).to_owned());
        }
    }
    found
}

/// The names and values of `local NAME, NAME = VALUE, VALUE`.
fn assignments(line: &str) -> Vec<(&str, &str)> {
    let Some((names, mut values)) = line.split_once(" = ") else { return Vec::new() };
    let names = names.trim().trim_start_matches("local ").split(',').map(str::trim);
    let mut next = || {
        let value = first_operand(values);
        values = values.trim_start()[value.len()..].trim_start_matches(',');
        value
    };
    names.map(|name| (name, next())).collect()
}

/// The line without comments, and with nothing inside its string literals.
fn without_texts(line: &str) -> String {
    let mut code = String::new();
    let mut quote = None;
    for c in line.chars() {
        match quote {
            Some(end) if c != end => continue,
            Some(_) => quote = None,
            None if c == '\'' || c == '"' => quote = Some(c),
            None => {}
        }
        code.push(c);
        if quote.is_none() && code.ends_with("--") {
            code.truncate(code.len() - 2);
            break;
        }
    }
    code
}

/// Both sides of each `<`, `>`, `<=` and `>=`.
fn comparisons(code: &str) -> impl Iterator<Item = (&str, &str)> {
    code.match_indices(['<', '>']).map(|(at, _)| {
        let right = code[at + 1..].trim_start_matches('=');
        (last_operand(&code[..at]), first_operand(right))
    })
}

const WORDS: [&str; 11] =
    [" and ", " or ", " not ", " then", " do", " return ", " if ", " while ", " until ", " = ", ","];

fn last_operand(code: &str) -> &str {
    let mut depth = 0;
    let open = code.char_indices().rev().find(|(_, c)| {
        depth += i32::from(matches!(c, ')' | ']' | '}')) - i32::from(matches!(c, '(' | '[' | '{'));
        depth < 0
    });
    let code = open.map_or(code, |(at, _)| &code[at + 1..]);
    // A word inside of brackets belongs to the operand.
    let outside = |at: usize| code[at..].chars().fold(0, nested) == 0;
    let ends = WORDS.iter().flat_map(|word| code.match_indices(word)).filter(|(at, _)| outside(*at));
    let start = ends.map(|(at, word)| at + word.len()).max().unwrap_or(0);
    let words = ["if ", "while ", "until ", "return "];
    words.iter().fold(code[start..].trim(), |code, word| code.strip_prefix(word).unwrap_or(code))
}

fn first_operand(code: &str) -> &str {
    let mut depth = 0;
    let close = code.char_indices().find(|(_, c)| {
        depth = nested(depth, *c);
        depth < 0
    });
    let code = close.map_or(code, |(at, _)| &code[..at]);
    let outside = |at: usize| code[..at].chars().fold(0, nested) == 0;
    let ends =
        WORDS.iter().filter_map(|word| code.match_indices(word).map(|(at, _)| at).find(|at| outside(*at)));
    code[..ends.min().unwrap_or(code.len())].trim()
}

fn nested(depth: i32, c: char) -> i32 {
    depth + i32::from(matches!(c, '(' | '[' | '{')) - i32::from(matches!(c, ')' | ']' | '}'))
}

fn is_number(operand: &str, numbers: &[String]) -> bool {
    let is_constant = |name: &str| {
        name.starts_with(|c: char| c.is_ascii_uppercase())
            && name.chars().all(|c| c.is_ascii_uppercase() || c.is_ascii_digit() || c == '_')
            && name.len() > 1
    };
    let is_text = operand.contains("..") || operand.contains(['\'', '"']) && !operand.contains("tonumber(");
    let has_arithmetic = [" + ", " - ", " * ", " / "].iter().any(|sign| operand.contains(sign));
    let begins = ["tonumber(", "#", "math."].iter().any(|begin| operand.starts_with(begin));
    let is_literal = operand.parse::<f64>().is_ok();
    !is_text && (has_arithmetic || begins || is_literal || is_constant(operand))
        || numbers.iter().any(|name| name == operand)
}

#[cfg(test)]
mod tests {
    use super::super::tests::flagged;
    use super::*;

    #[test]
    fn an_order_of_what_may_be_strings_is_flagged() {
        for line in [
            "if letter < 'a' then",
            "return ARGV[1] >= ARGV[2]",
            "if a > b then",
            "if ready and (last <= first) then",
            "local is_less = 'a' .. n + 1 < name",
            "if call('GET', K) < call('GET', F) then",
            "table.sort(names)",
        ] {
            let text = format!("-- Fragment\n{line}\n");
            assert_eq!(flagged(lua_orders_numbers_only, [("a.lua", &text)]), ["a.lua:2"], "{line}");
        }
        let twice = "local last = tonumber(x)\nlast = call('GET', F)\nif last > fence then\n";
        assert_eq!(flagged(lua_orders_numbers_only, [("a.lua", twice)]), ["a.lua:3"]);
    }

    #[test]
    fn an_order_with_a_number_on_one_side_is_fine() {
        for line in [
            "if #px > 9 then",
            "if call('ZCARD', W) >= WAITERS_MAX then return { 4 } end",
            "if last and tonumber(last) >= now_us then",
            "if arrival + wait * 1000 > now_us then",
            "if call('PUBSUB', 'NUMSUB', channel)[2] > 0 then",
            "if tonumber(call('GET', key) or 0) < floor then",
            "local more = call('ZCOUNT', due, '-inf', now) > tonumber(ARGV[1]) and 1 or 0",
            "-- <fence>  granted, and a > b",
            "call('ZADD', W, 'GT', '<')",
            "-- numbers: a, last_us\nif a > b and last_us < now_us then",
            "local last = tonumber(call('GET', F) or 0)\nif last > fence then",
            "local holder, last = try('GET', K), tonumber(call('GET', F) or 0)\nif last > fence then",
        ] {
            assert!(flagged(lua_orders_numbers_only, [("a.lua", line)]).is_empty(), "{line}");
        }
    }
}
