//! One order of a certificate: the account, the proofs for all names, the certificate.

use std::io;

use instant_acme::{
    Account, AuthorizationStatus, ChallengeType, Identifier, NewAccount, NewOrder, Order, OrderStatus,
};
use rt::clock::{MonotonicTime, SECOND_NS};
use rt::timers::Timers;
use rt::tls::{ClientTls, ClientTlsOptions, Verification};

use super::dns_challenge::{self, TxtRecord};
use super::http::{AcmeHttp, REQUEST_TIMEOUT_NS};
use super::lease::Lease;
use super::shared::{OfferedChallenge, PublishedChallenge, SharedChallenge};
use super::storage;
use crate::plan::{AcmeChallenge, AcmePlan};

/// Interval at which the state of an order is requested.
const POLL_NS: u64 = SECOND_NS;
/// Time for another replica to read the answers, besides its poll interval.
const FOLLOW_NS: u64 = SECOND_NS;

/// Order in progress, with all that it leaves behind until it is dropped.
pub(super) struct OrderContext<'a> {
    pub(super) plan: &'a AcmePlan,
    pub(super) timers: &'a Timers,
    /// Lock of a shared storage; `None`: the storage is not shared.
    pub(super) lease: Option<&'a Lease>,
    /// Records that were set, or may have been. The caller removes them.
    pub(super) records: &'a mut Vec<TxtRecord>,
}

impl OrderContext<'_> {
    /// Checks that no other replica has taken over.
    fn check_lease(&self) -> io::Result<()> {
        self.lease.map_or(Ok(()), Lease::check)
    }

    async fn sleep(&self, duration_ns: u64) {
        self.timers.sleep_until((MonotonicTime::now() + duration_ns).as_ns()).await;
    }
}

/// Answers that are offered until this is dropped.
#[derive(Default)]
struct Offered {
    _own: Vec<OfferedChallenge>,
    /// For the other replicas.
    _published: Vec<PublishedChallenge>,
}

/// Orders a certificate and stores it. The caller enforces a timeout.
///
/// # Errors
/// The storage cannot be written, the server cannot be reached, or it refused.
pub(super) async fn order_certificate(context: &mut OrderContext<'_>) -> io::Result<()> {
    let plan = context.plan;
    let account = account(plan).await?;
    let identifiers: Vec<_> = plan.domains.iter().map(|name| Identifier::Dns(name.to_string())).collect();
    context.check_lease()?;
    let mut order = account.new_order(&NewOrder::new(&identifiers)).await.map_err(io::Error::other)?;
    let offered = offer_challenges(context, &mut order).await?;
    request_validations(plan, &mut order).await?;
    loop {
        let state = order.refresh().await.map_err(io::Error::other)?;
        match state.status {
            OrderStatus::Ready | OrderStatus::Valid => break,
            OrderStatus::Invalid => return Err(refusal(plan, &mut order).await),
            OrderStatus::Pending | OrderStatus::Processing => context.sleep(POLL_NS).await,
        }
    }
    drop(offered);
    context.check_lease()?;
    let key = order.finalize().await.map_err(io::Error::other)?;
    loop {
        if let Some(chain) = order.certificate().await.map_err(io::Error::other)? {
            return storage::write_certificate(plan, &chain, &key, context.lease);
        }
        context.sleep(POLL_NS).await;
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

/// Offers the answers to the challenges of all names, and waits until validations can find them.
async fn offer_challenges(context: &mut OrderContext<'_>, order: &mut Order) -> io::Result<Offered> {
    let plan = context.plan;
    let mut offered = Offered::default();
    let mut authorizations = order.authorizations();
    let mut count = 0;
    while let Some(authorization) = authorizations.next().await {
        let mut authorization = authorization.map_err(io::Error::other)?;
        count += 1;
        if count > plan.domains.len() {
            return Err(io::Error::other("the server asks for more proofs than there are names"));
        }
        if !is_pending(&authorization.status)? {
            continue;
        }
        let challenge = authorization.challenge(challenge_type(plan)).ok_or_else(missing_challenge)?;
        let key_authorization = challenge.key_authorization();
        let name = challenge.identifier().to_string();
        let shared = match &plan.dns {
            Some(settings) => {
                let record = TxtRecord::from_domain(&name, key_authorization.dns_value());
                // Also one whose request failed may have been set.
                context.records.push(record.clone());
                dns_challenge::add(settings, context.timers, &record).await.map_err(io::Error::other)?;
                continue;
            }
            None if plan.challenge == AcmeChallenge::TlsAlpn01 => {
                SharedChallenge::tls_alpn(&name, key_authorization.digest().as_ref())
            }
            None => SharedChallenge::http(&challenge.token, key_authorization.as_str()),
        };
        offered._own.push(shared.offer()?);
        if let Some(lease) = context.lease {
            offered._published.push(PublishedChallenge::write(plan, &shared, lease.owner())?);
        }
    }
    if let Some(settings) = &plan.dns {
        let visible = dns_challenge::wait_until_visible(settings, context.timers, context.records).await;
        visible.map_err(io::Error::other)?;
    }
    if let (Some(sharing), false) = (plan.sharing, offered._published.is_empty()) {
        // A validation may reach any replica.
        context.sleep(sharing.poll_interval_ns + FOLLOW_NS).await;
    }
    Ok(offered)
}

/// Asks the server to validate all names whose answers are offered.
async fn request_validations(plan: &AcmePlan, order: &mut Order) -> io::Result<()> {
    let mut authorizations = order.authorizations();
    for _ in &plan.domains {
        let Some(authorization) = authorizations.next().await else { break };
        let mut authorization = authorization.map_err(io::Error::other)?;
        if is_pending(&authorization.status)? {
            let mut challenge =
                authorization.challenge(challenge_type(plan)).ok_or_else(missing_challenge)?;
            challenge.set_ready().await.map_err(io::Error::other)?;
        }
    }
    Ok(())
}

fn challenge_type(plan: &AcmePlan) -> ChallengeType {
    match plan.challenge {
        AcmeChallenge::Http01 => ChallengeType::Http01,
        AcmeChallenge::TlsAlpn01 => ChallengeType::TlsAlpn01,
        AcmeChallenge::Dns01 => ChallengeType::Dns01,
    }
}

fn missing_challenge() -> io::Error {
    io::Error::other("the server does not offer the configured challenge")
}

/// Returns whether a name has still to be proved.
fn is_pending(status: &AuthorizationStatus) -> io::Result<bool> {
    match status {
        AuthorizationStatus::Valid => Ok(false),
        AuthorizationStatus::Pending => Ok(true),
        other => Err(io::Error::other(format!("an authorization is {other:?}"))),
    }
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
