//! CPU time of TLS.

use super::*;
use record::run::TlsSessions;

/// Returns a run whose subject spends 40 % of its full CPU in `function` of `module`.
fn busy_run(function: &str, module: &str) -> Run {
    let mut run = run(32, 4 * MS);
    run.observed[0].functions = vec![FunctionUse {
        role: "subject".to_owned(),
        function: function.to_owned(),
        module: module.to_owned(),
        self_fraction: 0.4,
        ..FunctionUse::default()
    }];
    set_subject_cpus(&mut run, 1.7, 0.1, 4);
    run
}

/// Sets the number of handshakes and the bytes of each response.
fn set_sessions(run: &mut Run, full: u64, resumed: u64, response_bytes: u64) {
    run.tls = Some(TlsSessions { full, resumed, ..TlsSessions::default() });
    run.totals.bytes_in = run.totals.responses * response_bytes;
}

#[test]
fn a_stripped_library_does_what_the_bytes_per_handshake_say() {
    for (function, module) in [
        ("libcrypto.so.3+0x129760", "libcrypto.so.3"),
        ("SHA512_Final", "libcrypto.so.3"),
        ("rustls::server::tls13::emit_finished", "proxy"),
    ] {
        let mut run = busy_run(function, module);
        let responses = run.totals.responses;
        set_sessions(&mut run, responses, 0, 3_000);
        assert_first(&run, "handshake_bound");
        set_sessions(&mut run, 32, responses - 32, 3_000);
        assert_first(&run, "handshake_bound");
        set_sessions(&mut run, 32, 0, 1_000_000);
        assert_first(&run, "bulk_crypto_bound");
        // Neither small responses on kept connections, nor a handshake for each large response.
        set_sessions(&mut run, 32, 0, 100);
        assert_first(&run, "user_cpu_bound");
        set_sessions(&mut run, responses, 0, 1_000_000);
        assert_first(&run, "user_cpu_bound");
    }
}

#[test]
fn names_of_functions_come_before_the_bytes_per_handshake() {
    let mut signatures = busy_run("aws_lc_0_47_0_rsaz_amm52x20_x2_ifma256", "weir");
    set_sessions(&mut signatures, 32, 0, 1_000_000);
    assert_first(&signatures, "handshake_bound");
    let mut encryption = busy_run("aws_lc_0_47_0_aes_gcm_encrypt_avx512", "weir");
    let responses = encryption.totals.responses;
    set_sessions(&mut encryption, responses, 0, 3_000);
    assert_first(&encryption, "bulk_crypto_bound");
    // Other code of the program, and a run without TLS.
    let mut other = busy_run("ngx_http_gzip_body_filter", "nginx");
    set_sessions(&mut other, responses, 0, 3_000);
    assert_first(&other, "user_cpu_bound");
    assert_first(&busy_run("libcrypto.so.3+0x129760", "libcrypto.so.3"), "user_cpu_bound");
}

/// Returns a run that is sure to be `user_cpu_bound` if its functions have names, `named` of its samples by fraction.
pub(super) fn full_run(named: f64, unnamed: f64) -> Run {
    let mut run = busy_run("ngx_http_gzip_body_filter", "nginx");
    run.baseline = Some(record::run::Baseline {
        good: 100,
        duration_s: 1.0,
        mean_ns: 2e5,
        p50_ns: 200_000,
        ..record::run::Baseline::default()
    });
    let mut stripped = run.observed[0].functions[0].clone();
    run.observed[0].functions[0].self_fraction = named;
    (stripped.function, stripped.module) = ("libfoo.so.1+0x129760".to_owned(), "libfoo.so.1".to_owned());
    stripped.self_fraction = unnamed;
    run.observed[0].functions.push(stripped);
    run
}

#[test]
fn a_general_verdict_is_sure_only_if_nothing_hides_a_narrower_one() {
    let sureness = |run: &Run| {
        let diagnosis = diagnose(run);
        assert_eq!(diagnosis.verdict, "user_cpu_bound", "{diagnosis:#?}");
        let hides = diagnosis.evidence.iter().any(|line| line.contains("excluded"));
        assert_eq!(hides, diagnosis.confidence != Confidence::Sure, "{:?}", diagnosis.evidence);
        diagnosis.confidence
    };
    let sessions = |full_per_s: f64, suite: &str| {
        let mut run = full_run(0.9, 0.1);
        let cipher_suite = Some(suite.to_owned());
        run.tls = Some(TlsSessions { full_per_s, cipher_suite, ..TlsSessions::default() });
        // Neither all handshakes nor all encryption, by its bytes.
        run.tls.iter_mut().for_each(|tls| tls.full = 10 * full_per_s as u64);
        run.totals.bytes_in = 10 * full_per_s as u64 * 1_000_000;
        run
    };
    assert_eq!(sureness(&full_run(0.9, 0.1)), Confidence::Sure);
    assert_eq!(sureness(&full_run(0.5, 0.4)), Confidence::Likely, "40 % without names");
    // Of 1.8 CPUs 10 handshakes per second explain nothing, 700 with RSA a good third, with ECDSA 8 %.
    assert_eq!(sureness(&sessions(10.0, "TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256")), Confidence::Sure);
    assert_eq!(sureness(&sessions(700.0, "TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256")), Confidence::Likely);
    assert_eq!(sureness(&sessions(700.0, "TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256")), Confidence::Sure);
    assert_eq!(
        sureness(&sessions(700.0, "TLS13_AES_128_GCM_SHA256")),
        Confidence::Likely,
        "the key is not known"
    );
    let mut unsampled = full_run(0.9, 0.1);
    unsampled.observed[0].functions.clear();
    assert_eq!(sureness(&unsampled), Confidence::Likely);
}
