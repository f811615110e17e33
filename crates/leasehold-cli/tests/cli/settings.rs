//! The table of settings in the docs, against what the library does.

use std::{collections::BTreeSet, fs, path::Path, time::Duration};

use leasehold::{
    Config, Settings,
    config::{Sources, parse_duration},
};
use tempfile::TempDir;

struct Row {
    key: String,
    variable: String,
    default: Vec<String>,
    range: Vec<String>,
}

/// The words in backticks of a cell.
fn quoted(cell: &str) -> Vec<String> {
    cell.split('`').skip(1).step_by(2).map(str::to_owned).collect()
}

fn rows() -> Vec<Row> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/settings.md");
    let text = fs::read_to_string(path).unwrap();
    let rows = text.lines().filter(|line| line.starts_with("| `"));
    let cells = rows.map(|line| line.split('|').map(str::trim).collect::<Vec<_>>());
    let row = |cells: Vec<&str>| {
        let one = |cell: &str| quoted(cell).remove(0);
        Row {
            key: one(cells[1]),
            variable: one(cells[2]),
            default: quoted(cells[3]),
            range: quoted(cells[4]),
        }
    };
    cells.map(row).collect()
}

fn load(text: &str, variable: Option<(&str, &str)>) -> leasehold::Result<Config> {
    let folder = TempDir::new().unwrap();
    let path = folder.path().join("leasehold.toml");
    fs::write(&path, text).unwrap();
    let env = |name: &str| variable.filter(|(set, _)| *set == name).map(|(_, value)| value.to_owned());
    Settings::load(&Sources { file: Some(&path), ..Sources::new(&env) }).map(|settings| settings.config)
}

/// A line of a file. A ttl must fit under `max-ttl`, which is not what is tested there.
fn line(key: &str, value: &str) -> String {
    let quote = if value.parse::<u64>().is_ok() { "" } else { "'" };
    let fitting = if key == "max-ttl" { "\ndefault-ttl = '50ms'" } else { "" };
    format!("{key} = {quote}{value}{quote}{fitting}")
}

/// The value just below or above.
fn beside(value: &str, above: bool) -> Option<String> {
    if let Ok(number) = value.parse::<u64>() {
        return Some(if above { number + 1 } else { number.checked_sub(1)? }.to_string());
    }
    let (duration, step) = (parse_duration(value).unwrap(), Duration::from_millis(1));
    let beside = if above { duration + step } else { duration.checked_sub(step)? };
    Some(format!("{}ms", beside.as_millis()))
}

#[test]
fn the_table_has_every_setting() {
    let error = load("nothing = 1", None).unwrap_err().to_string();
    let known = error.split("one of ").nth(1).unwrap().split(';').next().unwrap();
    let known: BTreeSet<_> =
        known.split(", ").filter(|key| !["idempotency", "locks", "markers"].contains(key)).collect();
    let rows = rows();
    assert_eq!(rows.iter().map(|row| row.key.as_str()).collect::<BTreeSet<_>>(), known);
    for row in rows {
        assert_eq!(row.variable, format!("LEASEHOLD_{}", row.key.replace('-', "_").to_uppercase()));
    }
}

#[test]
fn the_defaults_in_the_table_are_those_of_the_code() {
    let default = format!("{:?}", Config::default());
    for row in rows() {
        match &row.default[..] {
            [value] => {
                let written = load(
                    &format!(
                        "{} = {}",
                        row.key,
                        if value.parse::<u64>().is_ok() { value.clone() } else { format!("'{value}'") }
                    ),
                    None,
                );
                assert_eq!(format!("{:?}", written.unwrap()), default, "{}", row.key);
            }
            [first, most] => assert!(
                default.contains(&format!("first: {first}")) && default.contains(&format!("most: {most}")),
                "{default}"
            ),
            _ => assert!(["store", "label"].contains(&row.key.as_str()), "{}", row.key),
        }
    }
}

#[test]
fn the_ranges_in_the_table_are_those_of_the_code() {
    let most_ttl = rows().into_iter().find(|row| row.key == "max-ttl").unwrap().default.remove(0);
    for Row { key, variable, range, .. } in rows() {
        let [least, most] = &range[..] else { continue };
        let most = if most == "max-ttl" { &most_ttl } else { most };
        for (end, above) in [(least, false), (most, true)] {
            load(&line(&key, end), None).unwrap_or_else(|error| panic!("{key} = {end}: {error}"));
            let rest = if key == "max-ttl" { "default-ttl = '50ms'" } else { "" };
            load(rest, Some((&variable, end))).unwrap_or_else(|error| panic!("{variable}={end}: {error}"));
            if let Some(outside) = beside(end, above) {
                assert!(load(&line(&key, &outside), None).is_err(), "{key} = {outside}");
                let error = load(rest, Some((&variable, &outside))).unwrap_err().to_string();
                assert!(error.starts_with(&format!("invalid {variable} ")), "{error}");
            }
        }
    }
}
