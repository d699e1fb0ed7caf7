//! One order of a certificate: the account, the proofs for all names, the certificate.

use std::io;

use instant_acme::{
    Account, AuthorizationStatus, ChallengeType, Identifier, NewAccount, NewOrder, Order, OrderStatus,
};
use rt::clock::{MonotonicTime, SECOND_NS};
use rt::timers::Timers;
use rt::tls::{ClientTls, ClientTlsOptions, TlsAlpnChallenge, Verification};

use super::http::{AcmeHttp, REQUEST_TIMEOUT_NS};
use super::storage;
use super::tokens::TokenChallenge;
use crate::plan::{AcmeChallenge, AcmePlan};

/// Interval at which the state of an order is requested.
const POLL_NS: u64 = SECOND_NS;

/// Answer to a challenge, which is offered until this is dropped.
enum Offered {
    Http { _token: TokenChallenge },
    TlsAlpn { _certificate: TlsAlpnChallenge },
}

/// Orders a certificate and stores it. The caller enforces a timeout.
///
/// # Errors
/// The storage cannot be written, the server cannot be reached, or it refused.
pub(super) async fn order_certificate(plan: &AcmePlan, timers: &Timers) -> io::Result<()> {
    let account = account(plan).await?;
    let identifiers: Vec<_> = plan.domains.iter().map(|name| Identifier::Dns(name.to_string())).collect();
    let mut order = account.new_order(&NewOrder::new(&identifiers)).await.map_err(io::Error::other)?;
    let offered = offer_challenges(plan, &mut order).await?;
    loop {
        let state = order.refresh().await.map_err(io::Error::other)?;
        match state.status {
            OrderStatus::Ready | OrderStatus::Valid => break,
            OrderStatus::Invalid => return Err(refusal(plan, &mut order).await),
            OrderStatus::Pending | OrderStatus::Processing => {
                timers.sleep_until((MonotonicTime::now() + POLL_NS).as_ns()).await
            }
        }
    }
    drop(offered);
    let key = order.finalize().await.map_err(io::Error::other)?;
    loop {
        if let Some(chain) = order.certificate().await.map_err(io::Error::other)? {
            return storage::write_certificate(plan, &chain, &key);
        }
        timers.sleep_until((MonotonicTime::now() + POLL_NS).as_ns()).await;
    }
}

async fn account(plan: &AcmePlan) -> io::Result<Account> {
    let verification = plan.ca.clone().map_or(Verification::HostRoots, Verification::CaFile);
    let options =
        ClientTlsOptions { verification, alpn: vec![b"http/1.1".to_vec()], ..ClientTlsOptions::default() };
    let tls = ClientTls::new(&options).map_err(io::Error::other)?;
    let builder = Account::builder_with_http(Box::new(AcmeHttp { tls, timeout_ns: REQUEST_TIMEOUT_NS }));
    if let Some(credentials) = storage::read_account(plan)? {
        return builder.from_credentials(credentials).await.map_err(io::Error::other);
    }
    let contact: Vec<&str> = plan.contact.iter().map(|url| &**url).collect();
    let new = NewAccount { contact: &contact, terms_of_service_agreed: true, only_return_existing: false };
    let created = builder.create(&new, plan.directory.to_string(), None).await;
    let (account, credentials) = created.map_err(io::Error::other)?;
    storage::write_account(plan, credentials)?;
    Ok(account)
}

/// Offers the answers to the challenges of all names, and asks the server to validate them.
async fn offer_challenges(plan: &AcmePlan, order: &mut Order) -> io::Result<Vec<Offered>> {
    let kind = match plan.challenge {
        AcmeChallenge::Http01 => ChallengeType::Http01,
        AcmeChallenge::TlsAlpn01 => ChallengeType::TlsAlpn01,
    };
    let mut offered = Vec::new();
    let mut authorizations = order.authorizations();
    let mut count = 0;
    while let Some(authorization) = authorizations.next().await {
        let mut authorization = authorization.map_err(io::Error::other)?;
        count += 1;
        if count > plan.domains.len() {
            return Err(io::Error::other("the server asks for more proofs than there are names"));
        }
        match authorization.status {
            AuthorizationStatus::Valid => continue,
            AuthorizationStatus::Pending => {}
            other => return Err(io::Error::other(format!("an authorization is {other:?}"))),
        }
        let missing = || io::Error::other("the server does not offer the configured challenge");
        let mut challenge = authorization.challenge(kind.clone()).ok_or_else(missing)?;
        let key_authorization = challenge.key_authorization();
        offered.push(match plan.challenge {
            AcmeChallenge::Http01 => {
                let token = TokenChallenge::offer(&challenge.token, key_authorization.as_str());
                Offered::Http { _token: token.ok_or_else(|| io::Error::other("the token is invalid"))? }
            }
            AcmeChallenge::TlsAlpn01 => {
                let name = challenge.identifier().to_string();
                let certificate = TlsAlpnChallenge::offer(&name, key_authorization.digest().as_ref());
                Offered::TlsAlpn { _certificate: certificate.map_err(io::Error::other)? }
            }
        });
        challenge.set_ready().await.map_err(io::Error::other)?;
    }
    Ok(offered)
}

/// Returns the reason why the server did not accept the proofs.
async fn refusal(plan: &AcmePlan, order: &mut Order) -> io::Error {
    let mut reasons = Vec::new();
    let mut authorizations = order.authorizations();
    for _ in &plan.domains {
        let Some(Ok(mut authorization)) = authorizations.next().await else { break };
        if let Ok(state) = authorization.refresh().await {
            let problems = state.challenges.iter().filter_map(|challenge| challenge.error.as_ref());
            reasons.extend(problems.map(ToString::to_string));
        }
    }
    match reasons.is_empty() {
        true => io::Error::other("the order is invalid"),
        false => io::Error::other(reasons.join("; ")),
    }
}
