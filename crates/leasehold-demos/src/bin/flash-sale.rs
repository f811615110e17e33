//! The demo `flash-sale` alone.

use std::process::ExitCode;

fn main() -> ExitCode {
    leasehold_demos::main_of("flash-sale")
}
