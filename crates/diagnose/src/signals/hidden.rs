//! CPU time of the subject whose functions are not known, so that a narrower cause may hide in it.

use record::observed::FunctionUse;

use super::compute::cpus;
use super::functions::KERNEL;
use crate::run_view::RunView;
use crate::window::SUBJECT;

/// Fraction of the subject's CPU time that hides another cause.
const HIDING_MIN: f64 = 0.3;
/// CPU time of the server in a full handshake: a signature with RSA of 2,048 bits, or ECDSA with P-256, with the key
/// exchange. In TLS 1.3 the suite does not name the key: then the larger one.
const RSA_HANDSHAKE_S: f64 = 1e-3;
const ECDSA_HANDSHAKE_S: f64 = 0.2e-3;

/// Returns why a narrower cause is not excluded: much of the subject's CPU time has no names of functions, or its full
/// handshakes explain it. `needs_samples` is true for a verdict that nothing but functions tells from narrower ones.
pub(crate) fn hidden_cause(view: &RunView<'_>, needs_samples: bool) -> Option<String> {
    let unnamed = view.function_fraction(SUBJECT, is_unnamed);
    match unnamed {
        Some(fraction) if fraction >= HIDING_MIN => {
            return Some(format!(
                "{:.0} % of the subject's CPU time is in functions without names: a narrower cause is not excluded \
                 (top functions of its stacks)",
                fraction * 100.0
            ));
        }
        None if needs_samples => {
            return Some(
                "the subject's functions were not sampled: a narrower cause, such as handshakes or memory allocation, \
                 is not excluded"
                    .to_owned(),
            );
        }
        _ => {}
    }
    let (rate, explained) = handshakes(view)?;
    (explained >= HIDING_MIN).then(|| {
        format!(
            "{rate:.0} full handshakes per second explain up to {:.0} % of the subject's CPU time: they are not excluded \
             as the cause (TLS sessions of the generator)",
            explained.min(1.0) * 100.0
        )
    })
}

/// Returns the full handshakes per second, and the fraction of the subject's CPU time that they explain.
fn handshakes(view: &RunView<'_>) -> Option<(f64, f64)> {
    let tls = view.run.tls.as_ref()?;
    // Records from older versions have only the count.
    let rate = match tls.full_per_s > 0.0 {
        true => tls.full_per_s,
        false => tls.full as f64 / view.run.duration_s.max(1e-3),
    };
    let is_ecdsa = tls.cipher_suite.as_ref().is_some_and(|suite| suite.contains("ECDSA")) && !tls.mixed;
    let cost_s = if is_ecdsa { ECDSA_HANDSHAKE_S } else { RSA_HANDSHAKE_S };
    let used = cpus(view, SUBJECT).filter(|cpus| *cpus > 0.0)?;
    Some((rate, rate * cost_s / used))
}

/// Returns true for a function of user space without a symbol: `[unknown]`, or `libcrypto.so.3+0x129760`.
fn is_unnamed(function: &FunctionUse) -> bool {
    let is_offset = || {
        function
            .function
            .rsplit_once("+0x")
            .is_some_and(|(_, hex)| hex.bytes().all(|b| b.is_ascii_hexdigit()))
    };
    function.module != KERNEL && (function.function == "[unknown]" || is_offset())
}
