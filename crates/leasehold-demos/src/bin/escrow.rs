//! The demo `escrow` alone.

use std::process::ExitCode;

fn main() -> ExitCode {
    leasehold_demos::main_of("escrow")
}
