//! The flags of the NATS server, which all commands of a fleet have.

use std::path::PathBuf;

use fleet::embedded::token_path;
use fleet::transport::NatsOptions;
use record::problem::InputProblem;

use super::{CommandArgs, Flag, flag};
use runner::store::{check_trusted, state_directory};

const NATS: Flag = flag("nats", "URL")
    .default("nats://127.0.0.1:4222")
    .doc("NATS server: nats://host:4222, or tls://host:4222; may contain user:password@");

/// The server, and the credentials for it.
pub(super) const NATS_FLAGS: &[Flag] = &[
    NATS,
    flag("creds", "FILE").doc("Credentials for the NATS server: a file with a JWT and its nkey"),
    flag("nkey", "FILE").doc("File with the seed of an nkey for the NATS server"),
    flag("nats-token", "FILE")
        .default("that of weir fleet serve --embedded, if it runs there")
        .doc("File with the token of the NATS server"),
    flag("nats-ca", "FILE")
        .default("the certificate authorities that this host trusts")
        .doc("PEM file of the certificate authorities of the NATS server; requires TLS"),
    flag("nats-cert", "FILE")
        .doc("PEM file of this client's certificate for the NATS server (mutual TLS); needs --nats-key"),
    flag("nats-key", "FILE").doc("PEM file of the key of --nats-cert"),
];

/// Returns the server and the credentials.
pub(crate) fn nats_options(args: CommandArgs<'_>, name: &str) -> NatsOptions {
    let url = args.text("nats").unwrap_or_else(|| NATS.default.to_owned());
    let has_credentials = ["creds", "nkey", "nats-cert"].iter().any(|flag| args.is_given(flag));
    let embedded_token = || embedded_token(&url).filter(|_| !has_credentials);
    NatsOptions {
        token: args.text("nats-token").map(Into::into).or_else(embedded_token),
        url,
        credentials: args.text("creds").map(Into::into),
        nkey: args.text("nkey").map(Into::into),
        ca: args.text("nats-ca").map(Into::into),
        certificate: args
            .text("nats-cert")
            .zip(args.text("nats-key"))
            .map(|(cert, key)| (cert.into(), key.into())),
        name: name.to_owned(),
    }
}

/// Returns the file with the token of a server of `weir fleet serve --embedded` of this user, if there is one at a URL.
fn embedded_token(url: &str) -> Option<PathBuf> {
    let address = url.strip_prefix("nats://")?.trim_end_matches('/');
    let (host, port) = address.rsplit_once(':').unwrap_or((address, "4222"));
    let is_local = ["127.0.0.1", "localhost", "[::1]"].contains(&host);
    let directory = embedded_directory()?;
    let path = token_path(&directory, port.parse().ok().filter(|_| is_local)?);
    (path.is_file() && check_trusted(&directory).is_ok()).then_some(path)
}

/// Returns the directory of the server of `weir fleet serve --embedded` without `--state`.
fn embedded_directory() -> Option<PathBuf> {
    Some(state_directory()?.join("fleet/nats"))
}

pub(crate) fn nats_flags_given(args: CommandArgs<'_>) -> Vec<&'static str> {
    NATS_FLAGS.iter().map(|flag| flag.long).filter(|flag| args.is_given(flag)).collect()
}

pub(crate) fn nats_problems(args: CommandArgs<'_>) -> Vec<InputProblem> {
    let missing = match (args.is_given("nats-cert"), args.is_given("nats-key")) {
        (true, false) => ("--nats-key", "missing: the key of --nats-cert"),
        (false, true) => ("--nats-cert", "missing: the certificate of --nats-key"),
        _ => return Vec::new(),
    };
    vec![InputProblem::new(missing.0, missing.1)]
}
