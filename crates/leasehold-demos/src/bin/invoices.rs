//! The demo `invoices` alone.

use std::process::ExitCode;

fn main() -> ExitCode {
    leasehold_demos::main_of("invoices")
}
