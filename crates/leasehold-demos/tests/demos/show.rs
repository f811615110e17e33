//! What a person sees of a demo.

use std::process::Command;

use crate::demo_run::DemoRun;

const FLASH_SALE: &str = env!("CARGO_BIN_EXE_flash-sale");
const CRAWLER: &str = env!("CARGO_BIN_EXE_crawler");

#[test]
fn every_kill_is_a_line_with_what_the_locks_do_about_it() {
    let ended = DemoRun::start(FLASH_SALE, &["--scale", "10", "--kills", "5", "--seed", "7"]).end();
    assert_eq!(ended.code, Some(0), "{}", ended.output);
    let kills: Vec<_> = ended.output.lines().filter(|line| line.contains("✂ kill -9 shop")).collect();
    assert_eq!(kills.len(), 5, "{}", ended.output);
    for kill in kills {
        let told = kill.contains("it held no lock") || kill.contains("free again in");
        assert!(told && kill.contains(", again as "), "{kill}");
    }
    let lines: Vec<_> = ended.output.lines().map(str::trim).collect();
    assert_eq!(lines[0], "flash-sale, with coordination, 10 % of the work", "{}", ended.output);
    assert!(lines[1].starts_with("policies/flash-sale.toml, times / 30"), "{}", ended.output);
    assert!(ended.output.contains("1,000 buyers, of whom 100 press the button twice"), "{}", ended.output);
    assert!(ended.output.contains("metrics: http://127.0.0.1:"), "{}", ended.output);
    let next = "leasehold demo flash-sale --scale 10 --kills 5 --unsafe --seed 7";
    assert!(ended.output.contains(next), "{}", ended.output);
    assert_eq!(ended.number("buyers who got an answer"), 1000);
    assert_eq!(ended.number("of these pressed twice, and got two"), 100);
}

#[test]
fn the_same_run_with_and_without_coordination_is_compared() {
    let ended = DemoRun::start(FLASH_SALE, &["--scale", "10", "--kills", "4", "--both"]).end();
    assert_eq!(ended.code, Some(0), "{}", ended.output);
    let table = ended.output.split_once("the same run").expect(&ended.output).1;
    let units = table.lines().find(|line| line.contains("units sold, of the stock")).expect(&ended.output);
    assert_eq!(units.split_whitespace().rev().nth(1), Some("100"), "{units}");
}

#[test]
fn colours_are_for_terminals_that_want_them() {
    let plain = |variable: &str| {
        let mut demo = Command::new(CRAWLER);
        demo.args(["--scale", "1", "--kills", "1"]).env_remove("NO_COLOR").env_remove("CLICOLOR_FORCE");
        if !variable.is_empty() {
            demo.env(variable, "1");
        }
        let output = demo.output().unwrap();
        let all = [output.stdout, output.stderr].concat();
        !all.contains(&b'\x1b')
    };
    assert!(plain(""), "this is a pipe");
    assert!(!plain("CLICOLOR_FORCE"));
    assert!(plain("NO_COLOR"));
}
