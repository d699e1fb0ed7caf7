//! Passes the commit and the Cargo profile to the binary. The commit is `unknown` outside a git
//! checkout.

use std::path::Path;
use std::process::Command;

fn main() {
    let commit = git(&["rev-parse", "--short=12", "HEAD"]).unwrap_or_else(|| "unknown".to_owned());
    let version = std::env::var("CARGO_PKG_VERSION").unwrap_or_default();
    let profile = profile().unwrap_or_else(|| "unknown".to_owned());
    println!("cargo:rustc-env=WEIR_COMMIT={commit}");
    println!("cargo:rustc-env=WEIR_VERSION={version} (commit {commit}, profile {profile})");
    println!("cargo:rerun-if-changed=build.rs");
    // In a linked work tree these are not below `../../.git`.
    for name in ["HEAD", "refs/heads"] {
        if let Some(path) = git(&["rev-parse", "--git-path", name]) {
            println!("cargo:rerun-if-changed={path}");
        }
    }
}

/// Returns the trimmed output of a git command, or `None` if it fails.
fn git(arguments: &[&str]) -> Option<String> {
    let output = Command::new("git").args(arguments).output().ok()?;
    let text = String::from_utf8(output.stdout).ok()?;
    output.status.success().then(|| text.trim().to_owned())
}

/// Returns the name of the profile from `target/PROFILE/build/PACKAGE/out`. The variable `PROFILE`
/// is `release` for every profile that inherits from it.
fn profile() -> Option<String> {
    let out = std::env::var("OUT_DIR").ok()?;
    let directory = Path::new(&out).ancestors().nth(3)?.file_name()?.to_str()?;
    Some(if directory == "debug" { "dev" } else { directory }.to_owned())
}
