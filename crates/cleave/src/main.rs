//! The `cleave` command.

use std::process::ExitCode;

fn main() -> ExitCode {
    cleave::cli::main()
}
