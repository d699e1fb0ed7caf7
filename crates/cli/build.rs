//! Passes the commit, the Cargo profile and the target to the binary, and the link options to Cargo. The commit is
//! `unknown` outside a git checkout.

use std::path::Path;
use std::process::Command;

fn main() {
    let commit = git(&["rev-parse", "--short=12", "HEAD"]).unwrap_or_else(|| "unknown".to_owned());
    let version = std::env::var("CARGO_PKG_VERSION").unwrap_or_default();
    let profile = profile().unwrap_or_else(|| "unknown".to_owned());
    println!("cargo:rustc-env=WEIR_COMMIT={commit}");
    let target = variable("TARGET");
    let linkage = if is_static() { "static" } else { "dynamic" };
    println!(
        "cargo:rustc-env=WEIR_VERSION={version} (commit {commit}, profile {profile}, {target}, {linkage}, all features)"
    );
    if has_relative_relocations() {
        println!("cargo:rustc-link-arg-bins=-Wl,-z,pack-relative-relocs");
    }
    println!("cargo:rerun-if-changed=build.rs");
    // In a linked work tree these are not below `../../.git`.
    for name in ["HEAD", "refs/heads"] {
        if let Some(path) = git(&["rev-parse", "--git-path", name]) {
            println!("cargo:rerun-if-changed={path}");
        }
    }
}

/// Returns true if the loader of this machine's C library knows relative relocations (`DT_RELR`), which are a
/// twentieth of the size of others: glibc 2.36 or newer. A cross-compiled binary has none.
fn has_relative_relocations() -> bool {
    if variable("TARGET") != variable("HOST") || variable("CARGO_CFG_TARGET_ENV") != "gnu" {
        return false;
    }
    let version = output(Command::new("getconf").arg("GNU_LIBC_VERSION")).unwrap_or_default();
    let number = version.strip_prefix("glibc ").and_then(|text| text.split_once('.'));
    let Some((major, minor)) = number else { return false };
    let minor = minor.split('.').next().unwrap_or_default();
    match (major.parse::<u32>(), minor.parse::<u32>()) {
        (Ok(major), Ok(minor)) => (major, minor) >= (2, 36),
        _ => false,
    }
}

/// Returns true if the C library is linked into the binary.
fn is_static() -> bool {
    variable("CARGO_CFG_TARGET_FEATURE").split(',').any(|feature| feature == "crt-static")
}

/// Returns a variable that Cargo sets.
fn variable(name: &str) -> String {
    std::env::var(name).unwrap_or_default()
}

/// Returns the trimmed output of a git command, or `None` if it fails.
fn git(arguments: &[&str]) -> Option<String> {
    output(Command::new("git").args(arguments))
}

/// Returns the trimmed output of a command, or `None` if it fails.
fn output(command: &mut Command) -> Option<String> {
    let output = command.output().ok()?;
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
