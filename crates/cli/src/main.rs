//! Start of the program `weir`.

#![forbid(unsafe_code)]

fn main() -> std::process::ExitCode {
    cli::run()
}
