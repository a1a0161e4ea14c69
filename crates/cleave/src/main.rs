//! The `cleave` command.

use std::process::ExitCode;

/// Graphs are many small values, made and dropped on every stage.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() -> ExitCode {
    cleave::cli::main()
}
